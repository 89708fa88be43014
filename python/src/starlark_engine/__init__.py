"""Policies in Starlark: load them, ask whether a GPU may be given out, call their functions.

The work is done by the same engine that muster itself has.
"""

from starlark_engine._native import PolicyEngine, Program
from starlark_engine.error import PolicyError
from starlark_engine.gpu import GPUInfo

__all__ = ["GPUInfo", "PolicyEngine", "PolicyError", "Program"]
