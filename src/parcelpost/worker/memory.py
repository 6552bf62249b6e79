"""How much memory this worker may use, and how much of it is used: the machine's, and that of its control groups."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

import psutil
from msgspec import Struct

from parcelpost.worker.cgroups import ROOT, Group, groups, number, table

_KIB = 1024


class Memory(Struct, frozen=True, kw_only=True):
    limit_bytes: int
    used_bytes: int
    """Without what the system gives back as soon as somebody needs it."""

    @property
    def percent(self) -> float:
        return min(100.0, 100 * self.used_bytes / self.limit_bytes)


def memories(root: Path = ROOT) -> Sequence[Memory]:
    """Everything that bounds this worker: the machine first, then each control group with a limit below the machine's.

    `root` is the folder in which `proc` and `sys` are.
    """
    machine = _of_machine(root)
    found = filter(None, map(_of_group, groups("memory", root)))
    return [machine, *(group for group in found if group.limit_bytes < machine.limit_bytes)]


def fullest(found: Sequence[Memory]) -> Memory:
    return max(found, key=lambda one: one.percent)


def _of_machine(root: Path) -> Memory:
    sizes = table(root / "proc/meminfo")
    total, available = (sizes.get(name, 0) * _KIB for name in ("MemTotal", "MemAvailable"))
    if not total:  # not Linux
        found = psutil.virtual_memory()
        total, available = found.total, found.available
    return Memory(limit_bytes=total, used_bytes=max(0, total - available))


def _of_group(group: Group) -> Memory | None:
    """None: it has no limit."""
    limits = [limit for limit in _limits(group) if limit]
    used = number(group.folder / ("memory.current" if group.version == 2 else "memory.usage_in_bytes"))
    if not limits or used is None:
        return None
    return Memory(limit_bytes=min(limits), used_bytes=max(0, used - _given_back(group)))


def _limits(group: Group) -> Iterator[int | None]:
    """At `memory.high` a group is slowed down so much that nothing above it is of use."""
    for name in ("memory.max", "memory.high") if group.version == 2 else ("memory.limit_in_bytes",):
        yield number(group.folder / name)


def _given_back(group: Group) -> int:
    """Cached pages of files, which a group is charged for.

    Those in recent use count too (`active_file`), or a worker that reads much would be out of memory for ever: the
    system keeps them until somebody needs the room. Not so what is mapped: mostly programs that run.
    """
    sizes = table(group.folder / "memory.stat")
    prefix, mapped = ("", "file_mapped") if group.version == 2 else ("total_", "total_mapped_file")
    inactive, active = (sizes.get(f"{prefix}{name}_file", 0) for name in ("inactive", "active"))
    return max(inactive, inactive + active - sizes.get(mapped, 0))
