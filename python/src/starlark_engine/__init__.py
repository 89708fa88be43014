"""Policies in Starlark: load them, decide whether a GPU may be allocated, call their functions.

The engine is the one of muster itself.
"""

from starlark_engine._native import PolicyEngine, Program
from starlark_engine.error import PolicyError
from starlark_engine.gpu import GPUInfo

__all__ = ["GPUInfo", "PolicyEngine", "PolicyError", "Program"]
