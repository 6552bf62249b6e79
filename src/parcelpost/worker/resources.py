"""What the machine has left for this worker."""

from __future__ import annotations

import psutil
from msgspec import Struct


class Load(Struct, frozen=True, kw_only=True):
    cpu_percent: float
    """Of all cores, since the last look."""
    memory_percent: float
    memory_used_gb: float


def load() -> Load:
    memory = psutil.virtual_memory()
    return Load(
        cpu_percent=psutil.cpu_percent(None), memory_percent=memory.percent, memory_used_gb=memory.used / 1024**3
    )
