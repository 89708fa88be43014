"""A GPU to be allocated."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass
class GPUInfo:
    """A GPU to be allocated. Its fields are checked when the engine uses it, not when they are set."""

    id: int
    """The number of the GPU."""
    name: str
    """The model, as the driver reports it."""
    uuid: str
    """The UUID of the device."""
    memory_gb: float
    """Memory in GB."""
    temperature_c: float
    """Temperature in degrees Celsius."""
    power_w: float
    """Power draw in watts."""
    online: bool = True
    """Whether the GPU responds."""
    registered: bool = False
    """Whether the GPU is registered."""
    pool: str = ""
    """The pool it is assigned to; empty for none."""
    tags: list[str] = field(default_factory=list)
    """Free-form tags, which requirements can name."""
