"""Policies in Starlark: load them, decide whether a GPU may be allocated, call their functions.

The muster server uses the same engine.
"""

from starlark_engine._native import PolicyEngine, Program
from starlark_engine.error import PolicyError
from starlark_engine.gpu import GPUInfo

__all__ = ["GPUInfo", "PolicyEngine", "PolicyError", "Program"]
