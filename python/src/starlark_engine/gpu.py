"""A GPU that someone asks about."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GPUInfo:
    """A GPU that someone asks about. Its fields are looked at when it is asked about, not before."""

    id: int
    """Its number."""
    name: str
    """What its driver calls it."""
    uuid: str
    """Its name for ever."""
    memory_gb: float
    """Its memory in GB."""
    temperature_c: float
    """Its temperature in degrees."""
    power_w: float
    """What it draws in watts."""
    online: bool = True
    """Whether it answers."""
    registered: bool = False
    """Whether somebody registered it."""
    pool: str = ""
    """The pool it was put into; none where it is empty."""
    tags: list[str] = field(default_factory=list)
    """Free words."""
