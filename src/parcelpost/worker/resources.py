"""What the machine has left for this worker, looked at in one place and told to all who must know."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.events import Emit, PressureChanged, ResourcesSampled
from parcelpost.settings.keys import ResourcesSettings
from parcelpost.worker.cgroups import ROOT
from parcelpost.worker.cpu import Cpu
from parcelpost.worker.memory import Memory, fullest, memories
from parcelpost.worker.pressure import Pressure, next_pressure
from parcelpost.worker.safe_browsers import Browsers, Figures, allowed_browsers, safe_browsers


class Load(Struct, frozen=True, kw_only=True):
    cpu_percent: float
    """Of all cores, or of what a control group allows, since the last look."""
    memory: Memory
    """Of what bounds this worker, the fullest."""


class Resources:
    """`step()` is for a loop. `browsers` is None where there is no pool."""

    def __init__(
        self,
        settings: ResourcesSettings,
        *,
        browsers: Browsers | None,
        most_browsers: int,
        clock: Clock,
        emit: Emit,
        root: Path = ROOT,
    ) -> None:
        self._settings = settings
        self._browsers = browsers
        self._most_browsers = most_browsers
        self._emit = emit
        self._root = root
        self._cpu = Cpu(clock, root)
        self.pressure = Pressure.FINE
        self.load = Load(cpu_percent=0.0, memory=fullest(memories(root)))

    async def step(self) -> float:
        found = memories(self._root)
        self.load = Load(cpu_percent=self._cpu.percent(), memory=fullest(found))
        before, self.pressure = self.pressure, next_pressure(self.pressure, self.load.memory.percent, self._settings)
        if self.pressure is not before:
            self._tell_change()
        figures = None if self._browsers is None else self._browsers.figures
        safe = safe_browsers(found, self._settings, self._most_browsers, figures)
        self._tell_sample(figures, safe)
        if self._browsers is not None and figures is not None:
            self._browsers.allow(allowed_browsers(safe, self.pressure, figures.browsers))
            if self.pressure is Pressure.STOP_BROWSERS:
                await self._browsers.stop_largest()
        return self._settings.sample_seconds

    @property
    def summary(self) -> str:
        """`87 % of the memory (4.0 GiB) is used: no task is started, those that run go on`; '' while all is fine."""
        if self.pressure is Pressure.FINE:
            return ""
        memory = self.load.memory
        size = f"{memory.limit_bytes / 1024**3:.1f} GiB"
        return f"{memory.percent:.0f} % of the memory ({size}) is used: {self.pressure.meaning}"

    def _tell_change(self) -> None:
        memory = self.load.memory
        self._emit(
            PressureChanged(
                pressure=self.pressure.words,
                meaning=self.pressure.meaning,
                memory_percent=memory.percent,
                memory_limit_bytes=memory.limit_bytes,
            )
        )

    def _tell_sample(self, figures: Figures | None, safe: int) -> None:
        memory = self.load.memory
        self._emit(
            ResourcesSampled(
                cpu_percent=self.load.cpu_percent,
                memory_percent=memory.percent,
                memory_limit_bytes=memory.limit_bytes,
                pressure=self.pressure.words,
                browsers_busy=figures.busy if figures else 0,
                browsers_idle=figures.browsers - figures.busy if figures else 0,
                browsers_safe=safe,
                browser_pss_bytes=figures.pss_bytes if figures else 0,
            )
        )
