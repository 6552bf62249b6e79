"""Memory and processors: what this process may use, what it uses, and how hard it may work."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import datetime
from pathlib import Path
from typing import Literal, Protocol

import psutil
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import PressureChanged, ResourcesSampled
from parcelpost.settings.schema import ResourcesSettings
from parcelpost.worker.context import Context
from parcelpost.worker.control import Pressure

_LEFT_AT = 0.95
"""Of the threshold at which a level was entered: so that one which is hovered about does not come and go."""


def next_pressure(before: Pressure, percent: float, settings: ResourcesSettings) -> Pressure:
    """By how much of the memory is used. It rises at once, and falls a little below where it rose."""
    thresholds = {
        Pressure.SLOW: settings.slow_percent,
        Pressure.NO_NEW_TASKS: settings.no_new_tasks_percent,
        Pressure.STOP_BROWSERS: settings.stop_browsers_percent,
    }
    return max(
        (
            level
            for level, threshold in thresholds.items()
            if percent >= (threshold * _LEFT_AT if level <= before else threshold)
        ),
        default=Pressure.FINE,
    )


ROOT = Path("/")


class Group(Struct, frozen=True):
    folder: Path
    version: Literal[1, 2]


class _Mount(Struct, frozen=True):
    root: str
    """Which group stands at `point`: not the topmost one where a container sees only its own."""
    point: str
    kind: str
    controllers: Sequence[str]


def groups(controller: str, root: Path = ROOT) -> Sequence[Group]:
    """The process's own first, then all above it that can be seen. Empty where there are none.

    `root` is the folder in which `proc` and `sys` are.
    """
    own = dict(_own(_text(root / "proc/self/cgroup")))
    version: Literal[1, 2] = 1 if controller in own else 2
    path = own.get(controller) or own.get("", "")
    for mount in _mounts(_text(root / "proc/self/mountinfo")):
        is_it = mount.kind == "cgroup2" if version == 2 else mount.kind == "cgroup" and controller in mount.controllers
        if path and is_it:
            top = root / mount.point.lstrip("/")
            return [Group(folder, version) for folder in _upwards(top, _below(mount.root, path))]
    return ()


def numbers(file: Path) -> Sequence[int | None]:
    """The words of a line; None for one that is no whole number, as `max` or -1. Empty if there is no such file."""
    return [int(word) if word.isascii() and word.isdigit() else None for word in _text(file).split()]


def number(file: Path) -> int | None:
    """The first word; None if it is no whole number or there is no such file."""
    return next(iter(numbers(file)), None)


def table(file: Path) -> dict[str, int]:
    """Lines of a name and a number; a colon and a unit are passed over. Empty if there is no such file."""
    lines = (line.split() for line in _text(file).splitlines())
    return {line[0].rstrip(":"): int(line[1]) for line in lines if len(line) > 1 and line[1].isdigit()}


def _text(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8", errors="replace")
    except OSError:  # a group may be removed, or hidden from us, at any time
        return ""


def _own(text: str) -> Iterator[tuple[str, str]]:
    """Controller -> the group's path; of version 2 the controller is ''."""
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
    """The names from the group `top` down to the one at `path`; none if it is not below: then `top` is all we see."""
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
    """Without what the system gives back as soon as somebody needs it."""

    @property
    def percent(self) -> float:
        return min(100.0, 100 * self.used_bytes / self.limit_bytes)


def memories(root: Path = ROOT) -> Sequence[Memory]:
    """Everything that bounds this worker: the machine first, then each control group with a limit below the machine's.

    `root` is the folder in which `proc` and `sys` are.
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


class Cpu:
    """Belongs to one event loop; one look ends the time that the next one measures."""

    def __init__(self, clock: Clock, root: Path = ROOT) -> None:
        self._clock = clock
        self._root = root
        self._looked_at = 0.0
        self._used: dict[Path, float] = {}
        """Seconds of processor time by control group, at the last look."""
        self.percent()

    def percent(self) -> float:
        """Since the last look: of all cores, or of what a control group allows, whichever is busier."""
        now = self._clock.monotonic()
        passed, self._looked_at = now - self._looked_at, now
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
    """How many the group may keep busy; None: as many as there are."""
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
    nanoseconds = number(group.folder / "cpuacct.usage")  # there where the two are mounted together, as is usual
    return None if nanoseconds is None else nanoseconds / 10**9


UNMEASURED_BROWSER_BYTES = 350 * 1024**2
"""What a browser is taken to need until the first one was measured."""


class Figures(Protocol):
    @property
    def browsers(self) -> int: ...

    @property
    def busy(self) -> int: ...

    @property
    def pss_bytes(self) -> int:
        """Of all browsers together; what several processes share is counted once."""

    @property
    def pss_per_browser(self) -> float | None:
        """None: not measured yet."""


class Browsers(Protocol):
    """A pool of them."""

    @property
    def figures(self) -> Figures: ...

    def allow(self, most: int) -> None:
        """Idle ones above it are stopped, and none is started above it."""

    async def stop_largest(self) -> bool:
        """Whether there was one; its task is given back at no cost."""


def safe_browsers(
    memories: Sequence[Memory], settings: ResourcesSettings, most: int, now: Figures | None = None
) -> int:
    """As many as fit below `slow_percent` of all that bounds us, beside everything that is no browser.

    At least one below `no_new_tasks_percent`: one browser that makes us slow gets more done than none. `now`: those
    there are, None if there is no pool yet.
    """
    each = (now.pss_per_browser if now else None) or UNMEASURED_BROWSER_BYTES
    room = min(memory.limit_bytes * settings.slow_percent / 100 - memory.used_bytes for memory in memories)
    fitting = int((room + (now.pss_bytes if now else 0)) // max(each, 1))
    least = int(all(memory.percent < settings.no_new_tasks_percent for memory in memories))
    return min(most, max(least, fitting))


def allowed_browsers(safe: int, pressure: Pressure, browsers: int) -> int:
    """A pool grows only while all is fine."""
    match pressure:
        case Pressure.FINE:
            return safe
        case Pressure.SLOW:
            return min(safe, max(1, browsers))
        case Pressure.NO_NEW_TASKS:
            return min(safe, browsers)
        case Pressure.STOP_BROWSERS:
            return 0


class Load(Struct, frozen=True, kw_only=True):
    cpu_percent: float
    """Of all cores, or of what a control group allows, since the last look."""
    memory: Memory
    """Of what bounds this worker, the fullest."""


class Resources:
    """Measures memory and processors, and lets the browser pool grow or shrink. `browsers`: None without a pool."""

    def __init__(
        self,
        context: Context,
        *,
        browsers: Browsers | None,
        most_browsers: int,
        root: Path = ROOT,
    ) -> None:
        """`most_browsers`: the operator's limit, however much memory there is."""
        self._settings = context.settings.resources
        self._control = context.control
        self._emit = context.emit
        self._clock = context.clock
        self._browsers = browsers
        self._most_browsers = most_browsers
        self._root = root
        self._cpu = Cpu(context.clock, root)
        self.load = Load(cpu_percent=0.0, memory=fullest(memories(root)))
        self.short_since: datetime | None = None
        """Since when the pressure is at its level; None while it is fine."""
        self.summary_then = ""
        """The summary at that moment."""

    async def sample(self) -> None:
        now = memories(self._root)
        self.load = Load(cpu_percent=self._cpu.percent(), memory=fullest(now))
        before = self._control.pressure
        pressure = self._control.pressure = next_pressure(before, self.load.memory.percent, self._settings)
        if pressure is not before:
            self.short_since = None if pressure is Pressure.FINE else self._clock.now()
            self.summary_then = self.summary
            self._report_change(pressure)
        figures = None if self._browsers is None else self._browsers.figures
        safe = safe_browsers(now, self._settings, self._most_browsers, figures)
        self._report_sample(pressure, figures, safe)
        if self._browsers is not None and figures is not None:
            self._browsers.allow(allowed_browsers(safe, pressure, figures.browsers))
            if pressure is Pressure.STOP_BROWSERS:
                await self._browsers.stop_largest()

    @property
    def summary(self) -> str:
        """`87 % of the memory (4.0 GiB) is used: no task is started, those that run go on`; '' while all is fine."""
        pressure = self._control.pressure
        if pressure is Pressure.FINE:
            return ""
        memory = self.load.memory
        size = f"{memory.limit_bytes / 1024**3:.1f} GiB"
        return f"{memory.percent:.0f}% of the memory ({size}) is used: {pressure.meaning}"

    def _report_change(self, pressure: Pressure) -> None:
        memory = self.load.memory
        self._emit(
            PressureChanged(
                pressure=pressure.label,
                meaning=pressure.meaning,
                memory_percent=memory.percent,
                memory_limit_bytes=memory.limit_bytes,
            )
        )

    def _report_sample(self, pressure: Pressure, figures: Figures | None, safe: int) -> None:
        memory = self.load.memory
        self._emit(
            ResourcesSampled(
                cpu_percent=self.load.cpu_percent,
                memory_percent=memory.percent,
                memory_limit_bytes=memory.limit_bytes,
                pressure=pressure.label,
                browsers_busy=figures.busy if figures else 0,
                browsers_idle=figures.browsers - figures.busy if figures else 0,
                browsers_safe=safe,
                browser_pss_bytes=figures.pss_bytes if figures else 0,
            )
        )
