"""What a worker may do now, shared by its loops: commands, draining, the store's level, memory pressure."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum

from parcelpost.settings.schema import ResourcesSettings
from parcelpost.storage.health import Level, Usage


class Pressure(IntEnum):
    """How hard the worker may work, by how much memory is used."""

    FINE = 0
    SLOW = 1
    NO_NEW_TASKS = 2
    STOP_BROWSERS = 3

    @property
    def label(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    Pressure.FINE: "all slots run tasks",
    Pressure.SLOW: "half of the slots run tasks and no browser is added",
    Pressure.NO_NEW_TASKS: "no tasks are started; running ones continue",
    Pressure.STOP_BROWSERS: "no tasks are started and browsers are stopped; their tasks are retried later",
}


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


class Control:
    """Belongs to one event loop. Loops read it at the start of every step."""

    def __init__(self) -> None:
        self.paused = False
        """No task is started or requested; stored results are delivered."""
        self.platforms: frozenset[str] | None = None
        """Only these, by the upstream's command; None: what the settings say."""
        self.usage: Usage | None = None
        """Of the store, as last measured."""
        self.missing = ""
        """What is wrong if the store's files are not where they were; '' while they are."""
        self.pressure = Pressure.FINE
        self.wake: Callable[..., None] = lambda *_names: None
        """Lets the named loops take their next step at once. Set by the supervisor."""
        self.leaving = asyncio.Event()
        """Set when the worker drains: nothing new is started."""
        self.reason = ""
        """Why it leaves."""
        self.stopping = asyncio.Event()
        """Set when it stops without waiting for what runs."""
        self._is_interrupted = False

    @property
    def level(self) -> Level:
        """What the store allows (I8)."""
        return Level.EXECUTOR_STOPS if self.missing else self.fill_level

    @property
    def fill_level(self) -> Level:
        """As `level`, for a store whose files are there."""
        return self.usage.level if self.usage else Level.FINE

    @property
    def may_start(self) -> bool:
        return not self.paused and not self.leaving.is_set()

    @property
    def may_collect(self) -> bool:
        return self.may_start and self.level is Level.FINE

    def may_claim(self, *, even_if_slow: bool) -> bool:
        if not self.may_start or self.level is Level.EXECUTOR_STOPS:
            return False
        return self.pressure is Pressure.FINE or (self.pressure is Pressure.SLOW and even_if_slow)

    def leave(self, reason: str, *, at_once: bool = False) -> None:
        """Drains; with `at_once`, stops. Calling it again does not delay anything."""
        if at_once:
            self.stopping.set()
        self.reason = self.reason or reason
        self.leaving.set()

    def interrupt(self, signal: str) -> None:
        """The first signal drains, the second stops at once."""
        self.leave(signal, at_once=self._is_interrupted)
        self._is_interrupted = True
