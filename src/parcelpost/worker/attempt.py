"""How an attempt ends: its outcome is stored as the task's end, its retry, or its release."""

from __future__ import annotations

from datetime import timedelta
from typing import NamedTuple, assert_never

from msgspec import Struct, structs

from parcelpost.errors import InvalidInput
from parcelpost.events import AttemptEnded, PlatformPaused, TaskPutOff
from parcelpost.model import Blocked, Busy, Claim, Done, GiveUp, NotFound, Outcome, Result, Retry, TaskStatus
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.outcomes import NAMES, Attempted, signals_of
from parcelpost.worker.status import BrowserWaits

_LONGEST_REQUEST_SECONDS = 86_400.0
_STALE = "another attempt has ended this task: nothing was changed"


class Attempt(Struct, frozen=True, kw_only=True):
    claim: Claim
    started: float
    """`Clock.monotonic`."""


class _Pause(NamedTuple):
    began: float
    ends: float
    seconds: float
    """The next pause doubles this."""


class CoolDowns:
    """Per platform: doubles from `first` to `longest` seconds while it stays blocked. Times are `Clock.monotonic`."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._last: dict[str, _Pause] = {}

    def blocked(self, platform: str, *, started: float, now: float, requested: float | None = None) -> float:
        """Returns the seconds to pause from now: `requested` by the site (up to a day), or doubled from the last pause.

        0 if the attempt started before the current pause, which already covers it.
        """
        last = self._last.get(platform)
        if last is None:
            seconds = self._first
        elif started <= last.began:
            seconds = last.seconds
            if requested is None or now + requested <= last.ends:
                return 0.0
        else:
            seconds = min(2 * last.seconds, self._longest)
        pause = seconds if requested is None else min(requested, _LONGEST_REQUEST_SECONDS)
        self._last[platform] = _Pause(now, now + pause, seconds)
        return pause

    def worked(self, platform: str, *, started: float) -> None:
        """An attempt got through. One that started before the pause proves nothing."""
        last = self._last.get(platform)
        if last is not None and started > last.began:
            del self._last[platform]


class AttemptRecorder:
    """Shared by the slots of one executor. Every write waits while the store is full or locked."""

    def __init__(self, context: Context, learning: Learning) -> None:
        executor = context.settings.executor
        self._context = context
        self._lpm = context.lpm
        self._clock = context.clock
        self._emit = context.emit
        self._learning = learning
        self.browser_waits = BrowserWaits(context.clock)
        self._cool_downs = CoolDowns(executor.cool_down_seconds, executor.cool_down_max_seconds)

    async def record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Raises a StoreError for which waiting does not help, or any once the worker no longer waits."""
        if isinstance(outcome, Busy):
            await self._put_off(attempt, outcome)
        else:
            await self._end(attempt, _or_partial(outcome, attempt.claim))

    async def _put_off(self, attempt: Attempt, outcome: Busy) -> None:
        task, seconds = attempt.claim.task, outcome.after_seconds
        why = "; ".join(filter(None, (outcome.reason, outcome.remedy))) if outcome.lacks_browser else ""
        await self._lpm.release(attempt.claim, timedelta(seconds=seconds), why)
        if why:
            self.browser_waits.put_off(task, outcome.reason, outcome.remedy)
        self._emit(TaskPutOff(task_id=task.task_id, platform=task.platform, seconds=seconds, reason=outcome.reason))

    async def _end(self, attempt: Attempt, outcome: Attempted) -> None:
        task, seconds = attempt.claim.task, self._clock.monotonic() - attempt.started
        try:
            is_current = await self._store(attempt, outcome, seconds)
        except InvalidInput as error:
            outcome = GiveUp(str(error))
            is_current = await self._store(attempt, outcome, seconds)
        if isinstance(outcome, (Done, NotFound, GiveUp)):
            self.browser_waits.ended(task)
        self._learning.take(signals_of(outcome))
        reason = "" if isinstance(outcome, Done) else outcome.reason
        self._emit(
            AttemptEnded(
                task_id=task.task_id,
                platform=task.platform,
                outcome=NAMES[type(outcome)],
                seconds=seconds,
                reason=reason if is_current else _STALE,
            )
        )

    async def _store(self, attempt: Attempt, outcome: Attempted, seconds: float) -> bool:
        """Returns False if the claim is stale: then nothing changed (I4)."""
        claim = attempt.claim
        match outcome:
            case Done():
                self._got_through(attempt)
                saved = await self._lpm.save_result(claim, self._result(claim, outcome, seconds))
                return self._ended(saved is not None)
            case NotFound():
                self._got_through(attempt)
                return self._ended(await self._lpm.finish(claim, outcome.reason))
            case GiveUp():
                return self._ended(await self._lpm.give_up(claim, outcome.reason))
            case Retry():
                return await self._retry(claim, outcome)
            case Blocked():
                return await self._blocked(attempt, outcome)
            case _:
                assert_never(outcome)

    def _result(self, claim: Claim, outcome: Done, seconds: float) -> Result:
        target, listed = claim.task.target, outcome.page_records
        names_its_parcel = len(listed) > 1 or (listed and (outcome.is_list or not target.parcel_id))
        return Result(
            data=outcome.data,
            page=outcome.page,
            scraped_at=outcome.scraped_at or self._clock.now(),
            execution_time_ms=round(seconds * 1_000),
            parcel_id=listed[0].parcel_id if names_its_parcel else "",
            county=listed[0].county if listed else "",
            additional_records=listed[1:],
        )

    async def _retry(self, claim: Claim, outcome: Retry) -> bool:
        delay = None if outcome.after_seconds is None else timedelta(seconds=outcome.after_seconds)
        status = await self._lpm.retry_later(claim, outcome.reason, delay)
        self._ended(status is TaskStatus.FAILED)
        return status is not None

    async def _blocked(self, attempt: Attempt, outcome: Blocked) -> bool:
        platform, now = attempt.claim.task.platform, self._clock.monotonic()
        requested = outcome.cool_down_seconds
        seconds = self._cool_downs.blocked(platform, started=attempt.started, now=now, requested=requested)
        if seconds:
            until = self._clock.now() + timedelta(seconds=seconds)
            await self._lpm.pause_platform(platform, until, outcome.reason)
            self._emit(PlatformPaused(platform=platform, seconds=seconds, reason=outcome.reason))
        return await self._lpm.release(attempt.claim)

    def _ended(self, has_ended: bool) -> bool:
        """There is something to deliver."""
        if has_ended:
            self._context.control.wake("sync")
        return has_ended

    def _got_through(self, attempt: Attempt) -> None:
        self._cool_downs.worked(attempt.claim.task.platform, started=attempt.started)


def _or_partial(outcome: Attempted, claim: Claim) -> Attempted:
    """After the last retry, what could be read of an incomplete page; the record says what it lacks."""
    if not isinstance(outcome, Retry) or outcome.partial is None or claim.retries < claim.task.max_retries:
        return outcome
    return structs.replace(outcome.partial, signals=outcome.signals)
