"""What a worker publishes about itself in the store, for status, top, doctor and its peers."""

from __future__ import annotations

import contextlib
from datetime import datetime, timedelta
from enum import IntEnum
from typing import TYPE_CHECKING

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import StoreError
from parcelpost.model import Broken, Task

if TYPE_CHECKING:
    from parcelpost.storage.lpm import LocalPersistenceManager
    from parcelpost.worker.resources import Resources


class Pressure(IntEnum):
    FINE = 0
    SLOW = 1
    NO_NEW_TASKS = 2
    STOP_BROWSERS = 3

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    Pressure.FINE: "all slots work",
    Pressure.SLOW: "half of the slots work and no browser is added",
    Pressure.NO_NEW_TASKS: "no task is started, those that run go on",
    Pressure.STOP_BROWSERS: "no task is started and browsers are stopped, their tasks wait for better times",
}


PRESENCE_STATE = "presence "
"""With the worker's id: the name under which the store keeps it."""


class Presence(Struct, frozen=True, kw_only=True):
    """One worker, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: what is said here ends with it."""
    since: datetime
    mode: str
    upstream: str
    """Its host, or its name; '': none."""
    slots: int
    version: str
    gateway_url: str = ""
    """The address that it was given, for whoever looks on; '': none."""


COMMANDS_STATE = "orders "
"""With the worker's id: the name under which the store keeps them."""


class Commands(Struct, frozen=True, kw_only=True):
    """What one worker obeys, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: the orders end with it."""
    since: datetime
    paused: bool = False
    platforms: tuple[str, ...] = ()
    """Only these; empty: what the settings say."""


BROKEN_STATE = "broken fields "
"""With the worker's id: the name under which the store keeps them."""


class BrokenFields(Struct, frozen=True, kw_only=True):
    """As one worker sees them."""

    at: datetime
    fields: tuple[Broken, ...]


SHORTAGE_STATE = "shortage "
"""With the worker's id: the name under which the store keeps it."""

_LOOK_SECONDS = 1.0


class Shortage(Struct, frozen=True, kw_only=True):
    """What one worker lacks, for as long as its process lives."""

    worker_id: str
    owner: str
    """Which of the store's openers it is: what is said here ends with it."""
    since: datetime
    pressure: str
    starts_tasks: bool
    summary: str
    """As it was then; '' while all is fine."""


class ShortageNotes:
    """Notes in the store whenever the pressure has changed; a loop of its own, as a store may keep one waiting."""

    def __init__(self, resources: Resources, lpm: LocalPersistenceManager, worker_id: str, clock: Clock) -> None:
        self._resources = resources
        self._lpm = lpm
        self._worker_id = worker_id
        self._clock = clock
        self._noted = Pressure.FINE

    async def step(self) -> float:
        if self._resources.pressure is not self._noted:
            with contextlib.suppress(StoreError):  # noted at the next look
                await self._note()
        return _LOOK_SECONDS

    async def _note(self) -> None:
        pressure = self._resources.pressure
        shortage = Shortage(
            worker_id=self._worker_id,
            owner=self._lpm.owner_id,
            since=self._clock.now(),
            pressure=pressure.words,
            starts_tasks=pressure < Pressure.NO_NEW_TASKS,
            summary=self._resources.summary,
        )
        await self._lpm.state.put(f"{SHORTAGE_STATE}{self._worker_id}", shortage)
        self._noted = pressure


STATE = "waits for a browser "
"""With the platform's name: the name under which the store keeps why."""

COUNTS_FOR = timedelta(minutes=5)
"""A task that waits is tried again sooner; if none was put off for that long, there is a browser."""
_TELL_EVERY = timedelta(seconds=30)
_MOST_KNOWN = 10_000


class BrowserWait(Struct, frozen=True, kw_only=True):
    platform: str
    reason: str
    """'': it is over."""
    since: datetime
    at: datetime
    """When a task was last put off for it."""
    remedy: str = ""
    """What a person can do, where it is known."""
    owner: str = ""
    """Which of the store's openers says it."""

    @property
    def text(self) -> str:
        return f"tasks of {self.platform} wait for a browser: {self.reason}"


class BrowserWaits:
    def __init__(self, lpm: LocalPersistenceManager, clock: Clock) -> None:
        self._lpm = lpm
        self._clock = clock
        self._waits: dict[str, BrowserWait] = {}
        self._told: dict[str, BrowserWait] = {}
        self._put_off: dict[str, set[str]] = {}
        """By platform. One that needs no browser says nothing about those that do."""

    @property
    def current(self) -> list[BrowserWait]:
        return still(list(self._waits.values()), self._clock.now())

    async def note(self, task: Task, reason: str, remedy: str = "") -> None:
        """It was put off."""
        now, platform = self._clock.now(), task.platform
        before = self._waits.get(platform)
        since = before.since if before and still([before], now) else now
        wait = BrowserWait(
            platform=platform, reason=reason, since=since, at=now, remedy=remedy, owner=self._lpm.owner_id
        )
        self._waits[platform] = wait
        known = self._put_off.setdefault(platform, set())
        if len(known) < _MOST_KNOWN:
            known.add(task.task_id)
        told = self._told.get(platform)
        if told is None or replace(told, at=now) != wait or now - told.at >= _TELL_EVERY:
            await self._tell(wait)

    async def ended(self, task: Task) -> None:
        """If it had been put off, there is a browser now; whoever finds none says so again."""
        if task.task_id not in self._put_off.get(task.platform, ()):
            return
        del self._put_off[task.platform]
        await self._tell(replace(self._waits.pop(task.platform), reason=""))

    async def _tell(self, wait: BrowserWait) -> None:
        with contextlib.suppress(StoreError):  # the next one is told
            await self._lpm.state.put(f"{STATE}{wait.platform}", wait)
            self._told[wait.platform] = wait


def still(waits: list[BrowserWait], now: datetime) -> list[BrowserWait]:
    """Those that are not over."""
    return [one for one in waits if one.reason and abs(now - one.at) < COUNTS_FOR]
