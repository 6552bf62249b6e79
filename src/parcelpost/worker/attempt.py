"""What becomes of an attempt: its outcome is stored as the task's end, its retry, or its release."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Sequence
from datetime import timedelta
from typing import NamedTuple, TypeVar, assert_never

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import InvalidInput, StoreError
from parcelpost.events import AttemptEnded, Emit, LoopFailed, PlatformPaused, TaskPutOff
from parcelpost.model import Blocked, Busy, Claim, Done, GiveUp, NotFound, Outcome, Result, Retry, Signal, TaskStatus
from parcelpost.settings.schema import ExecutorSettings
from parcelpost.storage.health import Level
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.outcomes import WORDS, Attempted, signals_of
from parcelpost.worker.status import BrowserWaits

_LONGEST_WISH_SECONDS = 86_400.0


class _Pause(NamedTuple):
    began: float
    ends: float
    seconds: float
    """What the next one doubles."""


class CoolDowns:
    """Doubles per platform from `first` to `longest` seconds while it stays blocked. Moments are `Clock.monotonic`."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._last: dict[str, _Pause] = {}

    def blocked(self, platform: str, *, started: float, now: float, wish: float | None = None) -> float:
        """The seconds to pause from now, `wish` (up to a day) if there is one.

        0: the attempt began before the pause that holds already, so that this is no news.
        """
        last = self._last.get(platform)
        if last is None:
            seconds = self._first
        elif started <= last.began:
            seconds = last.seconds
            if wish is None or now + wish <= last.ends:
                return 0.0
        else:
            seconds = min(2 * last.seconds, self._longest)
        pause = seconds if wish is None else min(wish, _LONGEST_WISH_SECONDS)
        self._last[platform] = _Pause(now, now + pause, seconds)
        return pause

    def worked(self, platform: str, *, started: float) -> None:
        """The platform let an attempt through; one that began before the pause says nothing about it."""
        last = self._last.get(platform)
        if last is not None and started > last.began:
            del self._last[platform]


T = TypeVar("T")

_TRY_AGAIN_SECONDS = 3.0
_STALE = "another attempt has ended this task: nothing was changed"


class Attempt(Struct, frozen=True, kw_only=True):
    slot: str
    claim: Claim
    started: float
    """`Clock.monotonic`."""
    stopping: asyncio.Event
    """Set when the store is not to be waited for any longer."""


class Ending:
    """Shared by the slots of one executor."""

    def __init__(
        self,
        lpm: LocalPersistenceManager,
        settings: ExecutorSettings,
        clock: Clock,
        emit: Emit,
        saved: Callable[[], None],
        level: Callable[[], Level] = lambda: Level.FINE,
        learn: Callable[[Sequence[Signal]], None] = lambda _: None,
    ) -> None:
        self._lpm = lpm
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._saved = saved
        self._level = level
        self._learn = learn
        self.unstored = 0
        """Attempts whose end the store does not take for now."""
        self.browser_waits = BrowserWaits(lpm, clock)
        self._cool_downs = CoolDowns(settings.cool_down_seconds, settings.cool_down_max_seconds)

    async def end(self, attempt: Attempt, outcome: Outcome) -> None:
        """Raises a StoreError that waiting does not mend, or any if the attempt is stopping."""
        if isinstance(outcome, Busy):
            await self._put_off(attempt, outcome)
        else:
            await self._attempted(attempt, outcome)

    async def _put_off(self, attempt: Attempt, outcome: Busy) -> None:
        claim, seconds = attempt.claim, outcome.after_seconds
        task = claim.task
        why = "; ".join(filter(None, (outcome.reason, outcome.remedy))) if outcome.lacks_browser else ""
        await self._until_stored(attempt, lambda: self._lpm.release(claim, timedelta(seconds=seconds), why))
        if why:
            await self.browser_waits.note(task, outcome.reason, outcome.remedy)
        self._emit(TaskPutOff(task_id=task.task_id, platform=task.platform, seconds=seconds, reason=outcome.reason))

    async def _attempted(self, attempt: Attempt, outcome: Attempted) -> None:
        seconds = self._clock.monotonic() - attempt.started
        try:
            current = await self._store(attempt, outcome, seconds)
        except InvalidInput as error:
            outcome = GiveUp(str(error))
            current = await self._store(attempt, outcome, seconds)
        if isinstance(outcome, (Done, NotFound, GiveUp)):
            await self.browser_waits.ended(attempt.claim.task)
        if found := signals_of(outcome):
            self._learn(found)
        reason = "" if isinstance(outcome, Done) else outcome.reason
        self._emit(
            AttemptEnded(
                task_id=attempt.claim.task.task_id,
                platform=attempt.claim.task.platform,
                outcome=WORDS[type(outcome)],
                seconds=seconds,
                reason=reason if current else _STALE,
            )
        )

    async def _store(self, attempt: Attempt, outcome: Attempted, seconds: float) -> bool:
        """Whether the claim was still the current one (I4)."""
        match outcome:
            case Done():
                return await self._done(attempt, outcome, seconds)
            case NotFound():
                self._worked(attempt)
                return await self._last(attempt, lambda: self._lpm.finish(attempt.claim, outcome.reason))
            case GiveUp():
                return await self._last(attempt, lambda: self._lpm.give_up(attempt.claim, outcome.reason))
            case Retry():
                return await self._retry(attempt, outcome)
            case Blocked():
                return await self._blocked(attempt, outcome)
            case _:
                assert_never(outcome)

    async def _done(self, attempt: Attempt, outcome: Done, seconds: float) -> bool:
        self._worked(attempt)
        target, listed = attempt.claim.task.target, outcome.listed
        by_its_own = len(listed) > 1 or (listed and (outcome.lists or not target.parcel_id))
        result = Result(
            data=outcome.data,
            page=outcome.page,
            scraped_at=outcome.scraped_at or self._clock.now(),
            execution_time_ms=round(seconds * 1_000),
            parcel_id=listed[0].parcel_id if by_its_own else "",
            county=listed[0].county if listed else "",
            more=listed[1:],
        )

        async def save() -> bool:
            return await self._lpm.save_result(attempt.claim, result) is not None

        return await self._last(attempt, save)

    async def _retry(self, attempt: Attempt, outcome: Retry) -> bool:
        claim = attempt.claim
        seconds = self._backoff(claim.retries) if outcome.after_seconds is None else outcome.after_seconds
        delay = timedelta(seconds=seconds)
        status = await self._until_stored(attempt, lambda: self._lpm.retry_later(claim, outcome.reason, delay))
        if status is TaskStatus.FAILED:
            self._saved()
        return status is not None

    async def _blocked(self, attempt: Attempt, outcome: Blocked) -> bool:
        platform, now = attempt.claim.task.platform, self._clock.monotonic()
        wish = outcome.cool_down_seconds
        seconds = self._cool_downs.blocked(platform, started=attempt.started, now=now, wish=wish)
        if seconds:
            until = self._clock.now() + timedelta(seconds=seconds)
            await self._until_stored(attempt, lambda: self._lpm.pause_platform(platform, until, outcome.reason))
            self._emit(PlatformPaused(platform=platform, seconds=seconds, reason=outcome.reason))
        return await self._until_stored(attempt, lambda: self._lpm.release(attempt.claim))

    async def _last(self, attempt: Attempt, end: Callable[[], Awaitable[bool]]) -> bool:
        current = await self._until_stored(attempt, end)
        if current:
            self._saved()
        return current

    async def _until_stored(self, attempt: Attempt, call: Callable[[], Awaitable[T]]) -> T:
        """What was scraped is held here while the store cannot be written (a full disk, another program's lock)."""
        failures = 0
        try:
            while True:
                try:
                    return await call()
                except StoreError as error:
                    if not error.retry_helps or attempt.stopping.is_set():
                        raise
                    self.unstored += not failures
                    failures += 1
                    self._report(attempt, error, failures)
                await self._until_there_is_room(attempt)
        finally:
            self.unstored -= bool(failures)

    async def _until_there_is_room(self, attempt: Attempt) -> None:
        await self._clock.wait(attempt.stopping, _TRY_AGAIN_SECONDS)
        while self._level() is Level.EXECUTOR_STOPS and not attempt.stopping.is_set():
            # What little room there is belongs to the marks of what was delivered, which make more.
            await self._clock.wait(attempt.stopping, _TRY_AGAIN_SECONDS)

    def _report(self, attempt: Attempt, error: StoreError, failures: int) -> None:
        if failures & (failures - 1) == 0:  # the first, second, fourth, eighth ...: it may go on for days
            message = f"{type(error).__name__}: {error}"
            event = LoopFailed(loop=attempt.slot, error=message, in_a_row=failures, next_in_seconds=_TRY_AGAIN_SECONDS)
            self._emit(event)

    def _worked(self, attempt: Attempt) -> None:
        self._cool_downs.worked(attempt.claim.task.platform, started=attempt.started)

    def _backoff(self, retries: int) -> float:
        least, most = self._settings.retry_min_seconds, self._settings.retry_max_seconds
        return min(most, least * 2.0 ** min(retries, 30)) * random.uniform(0.5, 1.0)  # noqa: S311 - jitter
