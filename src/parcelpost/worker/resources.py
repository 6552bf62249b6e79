"""Measures memory and CPU, sets the memory pressure, and decides how many browsers may run."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from pathlib import Path
from typing import Protocol

from msgspec import Struct

from parcelpost.events import PressureChanged, ResourcesSampled
from parcelpost.settings.schema import ResourcesSettings
from parcelpost.worker.context import Context
from parcelpost.worker.control import Pressure
from parcelpost.worker.machine import ROOT, Cpu, Memory, fullest, memories

_LEFT_AT = 0.95
"""Hysteresis: a level is left at this share of the threshold at which it was entered."""


def next_pressure(before: Pressure, percent: float, settings: ResourcesSettings) -> Pressure:
    """Returns the pressure at this memory use. It rises at a threshold and falls a little below it."""
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


UNMEASURED_BROWSER_BYTES = 350 * 1024**2
"""Assumed memory of a browser until one was measured."""


class PoolFigures(Protocol):
    @property
    def browsers(self) -> int: ...

    @property
    def busy(self) -> int: ...

    @property
    def pss_bytes(self) -> int:
        """Memory of all browsers; shared memory counts once."""

    @property
    def pss_per_browser(self) -> float | None:
        """None until it was measured."""


class PoolControl(Protocol):
    """A browser pool."""

    @property
    def figures(self) -> PoolFigures: ...

    def allow(self, most: int) -> None:
        """Sets the limit: idle browsers beyond it are stopped, and no more are started."""

    async def stop_largest(self) -> bool:
        """Returns whether there was one. Its task is released and loses no attempt."""


def safe_browsers(
    memories: Sequence[Memory], settings: ResourcesSettings, most: int, now: PoolFigures | None = None
) -> int:
    """Returns how many browsers fit below `slow_percent` of every memory limit, next to everything else in memory.

    At least one below `no_new_tasks_percent`, because one slow browser is better than none. `now`: the pool's figures.
    """
    each = (now.pss_per_browser if now else None) or UNMEASURED_BROWSER_BYTES
    room = min(memory.limit_bytes * settings.slow_percent / 100 - memory.used_bytes for memory in memories)
    fitting = int((room + (now.pss_bytes if now else 0)) // max(each, 1))
    least = int(all(memory.percent < settings.no_new_tasks_percent for memory in memories))
    return min(most, max(least, fitting))


def allowed_browsers(safe: int, pressure: Pressure, browsers: int) -> int:
    """Returns the pool's limit: it grows only at pressure FINE."""
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
    """Use since the last sample: of all cores or of a control group's quota."""
    memory: Memory
    """The memory limit with the highest use."""


class Resources:
    """Samples memory and CPU, and resizes the browser pool. `browsers`: None without a pool."""

    def __init__(
        self,
        context: Context,
        *,
        browsers: PoolControl | None,
        most_browsers: int,
        root: Path = ROOT,
    ) -> None:
        """`most_browsers`: the operator's limit, regardless of memory."""
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
        """Since when the pressure has been at its current level; None at FINE."""
        self.summary_then = ""
        """`summary` at that time."""

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
        """`87% of the memory (4.0 GiB) is used: no tasks are started; running ones continue`; '' at FINE."""
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

    def _report_sample(self, pressure: Pressure, figures: PoolFigures | None, safe: int) -> None:
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
