"""How busy the processors are, as far as this worker may use them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import psutil

from parcelpost.clock import Clock
from parcelpost.worker.cgroups import ROOT, Group, groups, number, numbers, table


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
        found = numbers(group.folder / "cpu.max")
    else:
        found = [number(group.folder / f"cpu.cfs_{name}_us") for name in ("quota", "period")]
    match found:
        case [int(quota), int(period)] if quota and period:
            return quota / period
    return None


def _used_seconds(group: Group) -> float | None:
    if group.version == 2:
        microseconds = table(group.folder / "cpu.stat").get("usage_usec")
        return None if microseconds is None else microseconds / 10**6
    nanoseconds = number(group.folder / "cpuacct.usage")  # there where the two are mounted together, as is usual
    return None if nanoseconds is None else nanoseconds / 10**9
