"""Stores the outcome of an attempt: the task ends, is retried or released. Failing tasks are handled here."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import timedelta
from typing import NamedTuple, assert_never

import msgspec
from msgspec import Struct, structs

from parcelpost.errors import InvalidInput
from parcelpost.events import AttemptEnded, PlatformPaused, TaskDeferred
from parcelpost.model import (
    Blocked,
    Busy,
    Claim,
    Done,
    Encoded,
    GiveUp,
    NotFound,
    Outcome,
    Result,
    Retry,
    Signal,
    Site,
    TaskStatus,
)
from parcelpost.scrapers.fetch.throttle import SiteAvailability
from parcelpost.worker.context import Context
from parcelpost.worker.learning import Learning
from parcelpost.worker.status import BrowserWaits

Attempted = Done | NotFound | Retry | GiveUp | Blocked
"""Outcomes of an attempt. Busy means that none was made."""

OUTCOME_NAMES: dict[type[Attempted], str] = {
    Done: "done",
    NotFound: "not_found",
    Retry: "retry",
    GiveUp: "give_up",
    Blocked: "blocked",
}
"""Names of outcomes in events."""

_LONGEST_REQUEST_SECONDS = 86_400.0
_STALE = "another attempt has ended this task: nothing was changed"


class Attempt(Struct, frozen=True, kw_only=True):
    claim: Claim
    started: float
    """Monotonic."""


class _Pause(NamedTuple):
    began: float
    ends: float
    seconds: float
    """Doubled for the next pause."""


class CoolDowns:
    """Pauses of hosts that block us, or of platforms whose host is not known, doubling from `first` to `longest`
    seconds. Times are monotonic.
    """

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._last: dict[str, _Pause] = {}

    def blocked(self, name: str, *, started: float, now: float, requested: float | None = None) -> float:
        """Returns the seconds to pause: as `requested` by the site (up to a day), or twice the last pause.

        Returns 0 if the attempt started before the current pause, which already covers it, and what is left of the
        pause if it started during it.
        """
        last = self._last.get(name)
        if last is None:
            seconds = self._first
        elif last.began < started and now < last.ends:  # it was resumed early, or is another site of the host
            return max(last.ends - now, min(requested or 0.0, _LONGEST_REQUEST_SECONDS))
        elif started <= last.began:
            seconds = last.seconds
            if requested is None or now + requested <= last.ends:
                return 0.0
        else:
            seconds = min(2 * last.seconds, self._longest)
        pause = seconds if requested is None else min(requested, _LONGEST_REQUEST_SECONDS)
        self._last[name] = _Pause(now, now + pause, seconds)
        return pause

    def worked(self, name: str, *, started: float) -> None:
        """Ends the doubling after an attempt that was not blocked, unless it started before the pause."""
        last = self._last.get(name)
        if last is not None and started > last.began:
            del self._last[name]


class Partials:
    """The most complete partial record of each task that is being retried. In memory: a crash loses them."""

    def __init__(self, max_bytes: int = 64 * 1024**2) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._kept: dict[str, Done] = {}

    def instead_of(self, outcome: Attempted, claim: Claim) -> Attempted:
        """Returns the best partial record if this was the last retry, else the outcome itself."""
        earlier = self._kept.pop(claim.task.task_id, None)
        self._bytes -= _size(earlier)
        if not isinstance(outcome, Retry):
            return outcome
        partials = [partial for partial in (outcome.partial, earlier) if partial is not None]
        if not partials:
            return outcome
        best = max(partials, key=_completeness) if len(partials) > 1 else partials[0]
        if claim.retries >= claim.task.max_retries:
            return structs.replace(best, signals=outcome.signals)
        self._kept[claim.task.task_id] = best
        self._bytes += _size(best)
        while self._bytes > self._max_bytes:
            self._bytes -= _size(self._kept.pop(next(iter(self._kept))))
        return outcome


def _size(partial: Done | None) -> int:
    """Returns about how many bytes it takes: those of its page, which is larger than its record."""
    return len(partial.page.body) + 1_024 if partial is not None and partial.page is not None else 0


def _completeness(partial: Done) -> tuple[int, int, int, int]:
    """Sort key: fewer missing sections, then more records, fewer unreadable fields, more fields with a value."""
    data = msgspec.json.decode(partial.data.json) if isinstance(partial.data, Encoded) else partial.data
    missing = str(data.get("completeness") or "").count(",")
    unreadable = data.get("unreadable")
    filled = sum(1 for value in data.values() if value not in (None, "", [], {}))
    return -missing, len(partial.page_records), -len(unreadable if isinstance(unreadable, list) else ()), filled


class AttemptRecorder:
    """Shared by the slots of an executor. Every write waits while the store is full or locked."""

    def __init__(self, context: Context, learning: Learning, availability: SiteAvailability) -> None:
        executor = context.settings.executor
        self._availability = availability
        self._context = context
        self._lpm = context.lpm
        self._clock = context.clock
        self._emit = context.emit
        self._learning = learning
        self._partials = Partials()
        self.browser_waits = BrowserWaits(context.clock)
        self._cool_downs = CoolDowns(executor.cool_down_seconds, executor.cool_down_max_seconds)

    async def record(self, attempt: Attempt, outcome: Outcome) -> None:
        """Raises a StoreError that waiting cannot fix, or any StoreError once the worker drains."""
        if isinstance(outcome, Busy):
            await self._defer(attempt, outcome)
        else:
            await self._end(attempt, self._partials.instead_of(outcome, attempt.claim))

    async def _defer(self, attempt: Attempt, outcome: Busy) -> None:
        task, seconds = attempt.claim.task, outcome.after_seconds
        reason = "; ".join(filter(None, (outcome.reason, outcome.remedy))) if outcome.lacks_browser else ""
        await self._lpm.release(attempt.claim, timedelta(seconds=seconds), reason)
        if reason:
            self.browser_waits.deferred(task, outcome.reason, outcome.remedy)
        self._emit(TaskDeferred(task_id=task.task_id, platform=task.platform, seconds=seconds, reason=outcome.reason))

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
                outcome=OUTCOME_NAMES[type(outcome)],
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
                return self._ended(
                    await self._lpm.save_result(claim, self._result(claim, outcome, seconds)) is not None
                )
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
        """Pauses the platform's sites on the host; all of its sites if their host is not known."""
        site, now = attempt.claim.task.site, self._clock.monotonic()
        requested = outcome.cool_down_seconds
        name = self._blocker(site)
        seconds = self._cool_downs.blocked(name, started=attempt.started, now=now, requested=requested)
        if seconds:
            until = self._clock.now() + timedelta(seconds=seconds)
            sites = self._availability.host_blocks(site, now + seconds)
            await self._lpm.pause_platform(site.platform, until, outcome.reason, sites)
            self._emit(PlatformPaused(platform=site.platform, sites=len(sites), seconds=seconds, reason=outcome.reason))
        return await self._lpm.release(attempt.claim)

    def _ended(self, has_ended: bool) -> bool:
        """Wakes the sync if there is something to deliver."""
        if has_ended:
            self._context.control.wake("sync")
        return has_ended

    def _got_through(self, attempt: Attempt) -> None:
        self._cool_downs.worked(self._blocker(attempt.claim.task.site), started=attempt.started)

    def _blocker(self, site: Site) -> str:
        return f"{site.platform} {self._availability.host_of(site)}"


def signals_of(outcome: Outcome | None) -> Sequence[Signal]:
    """Returns the outcome's selector signals, if it has valid ones."""
    signals = getattr(outcome, "signals", ())
    return signals if isinstance(signals, tuple) and all(isinstance(signal, Signal) for signal in signals) else ()
