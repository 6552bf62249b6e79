"""What a worker may do at the moment: commands, draining, storage level and memory pressure, shared by its loops."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from enum import IntEnum

from parcelpost.storage.health import Level, Usage


class Pressure(IntEnum):
    """How much the worker may do, depending on memory use."""

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


class Control:
    """Read by loops at the start of every step. Belongs to one event loop."""

    def __init__(self) -> None:
        self.paused = False
        """No tasks are started or requested; stored results are still delivered."""
        self.platforms: frozenset[str] | None = None
        """The platforms that the upstream restricts this worker to; None: as set in the settings."""
        self.usage: Usage | None = None
        """The store's sizes at the last measurement."""
        self.missing = ""
        """What is wrong if the store's files were moved or deleted; '' if they are in place."""
        self.pressure = Pressure.FINE
        self.wake: Callable[..., None] = lambda *_names: None
        """Starts the next step of the named loops at once. Set by the supervisor."""
        self.leaving = asyncio.Event()
        """Set when the worker drains: no new tasks are started."""
        self.reason = ""
        """Why it drains."""
        self.stopping = asyncio.Event()
        """Set when it stops without waiting for running tasks."""
        self._is_interrupted = False

    @property
    def level(self) -> Level:
        """Which loops may run, given the store's size and the disk's free space (I8)."""
        return Level.EXECUTOR_STOPS if self.missing else self.fill_level

    @property
    def fill_level(self) -> Level:
        """Like `level`, but assumes that the store's files are in place."""
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
        """Starts draining; with `at_once`, stops. The first reason counts."""
        if at_once:
            self.stopping.set()
        self.reason = self.reason or reason
        self.leaving.set()

    def interrupt(self, signal: str) -> None:
        """Drains at the first signal, stops at the second."""
        self.leave(signal, at_once=self._is_interrupted)
        self._is_interrupted = True
