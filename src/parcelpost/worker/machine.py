"""Memory and CPU that this process may use (the machine's or its control group's), and how much is in use."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal

import psutil
from msgspec import Struct

from parcelpost.clock import Clock

ROOT = Path("/")


class Group(Struct, frozen=True):
    folder: Path
    version: Literal[1, 2]


class _Mount(Struct, frozen=True):
    root: str
    """The group mounted at `point`: not the root group if a container sees only its own."""
    point: str
    kind: str
    controllers: Sequence[str]


def groups(controller: str, root: Path = ROOT) -> Sequence[Group]:
    """Returns the process's own group, then its visible ancestors. Empty without control groups.

    `root` is the folder that contains `proc` and `sys`.
    """
    own = dict(_own(_text(root / "proc/self/cgroup")))
    version: Literal[1, 2] = 1 if controller in own else 2
    path = own.get(controller) or own.get("", "")
    for mount in _mounts(_text(root / "proc/self/mountinfo")):
        matches = (
            mount.kind == "cgroup2" if version == 2 else mount.kind == "cgroup" and controller in mount.controllers
        )
        if path and matches:
            top = root / mount.point.lstrip("/")
            return [Group(folder, version) for folder in _upwards(top, _below(mount.root, path))]
    return ()


def numbers(file: Path) -> Sequence[int | None]:
    """Returns the numbers in a file; None for a word such as `max` or -1. Empty if there is no such file."""
    return [int(word) if word.isascii() and word.isdigit() else None for word in _text(file).split()]


def number(file: Path) -> int | None:
    """Returns the first number in a file; None if it is a word or there is no such file."""
    return next(iter(numbers(file)), None)


def table(file: Path) -> dict[str, int]:
    """Reads lines with a name and a number, ignoring a colon and a unit. Empty if there is no such file."""
    lines = (line.split() for line in _text(file).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a group may be removed or hidden at any time
        return ""


def _own(text: str) -> Iterator[tuple[str, str]]:
    """Yields controller and group path; the controller is '' for version 2."""
    for line in text.splitlines():
        _, _, rest = line.partition(":")
        controllers, _, path = rest.partition(":")
        yield from ((name, path) for name in controllers.split(","))


def _mounts(text: str) -> Iterator[_Mount]:
    for line in text.splitlines():
        mount, _, system = line.partition(" - ")
        fields, of_system = mount.split(" "), system.split(" ")
        if len(fields) > 4 and len(of_system) > 2:
            yield _Mount(fields[3], fields[4], of_system[0], of_system[2].split(","))


def _below(top: str, path: str) -> Sequence[str]:
    """Returns the names from the group `top` down to `path`; none if only `top` is visible."""
    steps, above = map(_steps, (path, top))
    return steps[len(above) :] if steps[: len(above)] == above and ".." not in steps else ()


def _steps(path: str) -> Sequence[str]:
    return [step for step in path.split("/") if step]


def _upwards(top: Path, steps: Sequence[str]) -> Iterator[Path]:
    for count in range(len(steps), -1, -1):
        yield top.joinpath(*steps[:count])


_KIB = 1024


class Memory(Struct, frozen=True, kw_only=True):
    limit_bytes: int
    used_bytes: int
    """Without caches that the system frees on demand."""

    @property
    def percent(self) -> float:
        return min(100.0, 100 * self.used_bytes / self.limit_bytes)


def memories(root: Path = ROOT) -> Sequence[Memory]:
    """Returns every memory limit of this worker: the machine's, then those of control groups with a lower one.

    `root` is the folder that contains `proc` and `sys`.
    """
    machine = _of_machine(root)
    limited = filter(None, map(_of_group, groups("memory", root)))
    return [machine, *(group for group in limited if group.limit_bytes < machine.limit_bytes)]


def fullest(memories: Sequence[Memory]) -> Memory:
    return max(memories, key=lambda memory: memory.percent)


def _of_machine(root: Path) -> Memory:
    sizes = table(root / "proc/meminfo")
    total, available = (sizes.get(name, 0) * _KIB for name in ("MemTotal", "MemAvailable"))
    if not total:  # not Linux
        memory = psutil.virtual_memory()
        total, available = memory.total, memory.available
    return Memory(limit_bytes=total, used_bytes=max(0, total - available))


def _of_group(group: Group) -> Memory | None:
    """Returns None if the group has no limit."""
    limits = [limit for limit in _limits(group) if limit]
    used = number(group.folder / ("memory.current" if group.version == 2 else "memory.usage_in_bytes"))
    if not limits or used is None:
        return None
    return Memory(limit_bytes=min(limits), used_bytes=max(0, used - _reclaimable(group)))


def _limits(group: Group) -> Iterator[int | None]:
    """`memory.high` counts as a limit: above it a group is slowed down too much."""
    for name in ("memory.max", "memory.high") if group.version == 2 else ("memory.limit_in_bytes",):
        yield number(group.folder / name)


def _reclaimable(group: Group) -> int:
    """Returns the bytes of the file cache that the group is charged for and that the system frees on demand.

    `active_file` counts, too, or a worker that reads many files would always seem out of memory. Mapped files do not:
    they are mostly running programs.
    """
    sizes = table(group.folder / "memory.stat")
    prefix, mapped = ("", "file_mapped") if group.version == 2 else ("total_", "total_mapped_file")
    inactive, active = (sizes.get(f"{prefix}{name}_file", 0) for name in ("inactive", "active"))
    return max(inactive, inactive + active - sizes.get(mapped, 0))


class Cpu:
    """Measures CPU use between two calls of `percent`. Belongs to one event loop."""

    def __init__(self, clock: Clock, root: Path = ROOT) -> None:
        self._clock = clock
        self._root = root
        self._measured_at = 0.0
        self._used: dict[Path, float] = {}
        """CPU seconds by control group at the last call."""
        self.percent()

    def percent(self) -> float:
        """Returns the use since the last call: of all cores or of a control group's quota, whichever is higher."""
        now = self._clock.monotonic()
        passed, self._measured_at = now - self._measured_at, now
        return min(100.0, max(psutil.cpu_percent(None), *self._of_groups(passed), 0.0))

    def _of_groups(self, passed: float) -> Iterator[float]:
        before, self._used = self._used, {}
        for group in groups("cpu", self._root):
            cores = _cores(group)
            used = _used_seconds(group)
            if not cores or used is None:
                continue
            self._used[group.folder] = used
            if passed > 0 and group.folder in before:
                yield 100 * (used - before[group.folder]) / (passed * cores)


def _cores(group: Group) -> float | None:
    """Returns how many cores the group may use; None without a limit."""
    if group.version == 2:
        limit = numbers(group.folder / "cpu.max")
    else:
        limit = [number(group.folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    match limit:
        case [int(quota), int(period)] if quota and period:
            return quota / period
    return None


def _used_seconds(group: Group) -> float | None:
    if group.version == 2:
        microseconds = table(group.folder / "cpu.stat").get("usage_usec")
        return None if microseconds is None else microseconds / 10**6
    nanoseconds = number(group.folder / "cpuacct.usage")  # usually mounted together with cpu
    return None if nanoseconds is None else nanoseconds / 10**9
