"""The upstream's words go into the store while the next entries are under way."""

from __future__ import annotations

import asyncio
import contextlib
from collections import deque
from collections.abc import Sequence

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import NotAllowed, NotNow, StoreError
from parcelpost.events import Emit, EntryRefused, MarksHeld, ResultsSynced
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.sync_log import SyncRound
from parcelpost.worker.delivery import Delivery
from parcelpost.worker.held import Held, HeldNote

_MOST_WAITING = 16
_A_WRITE = 8
_QUICK_SECONDS = 0.02


class Refusal(Struct, frozen=True, kw_only=True):
    result_id: str
    task_id: str
    reason: str
    final: bool
    """It is set aside; otherwise it costs an attempt."""


class Delivered(Struct, frozen=True, kw_only=True):
    """What one delivery brought, without the records themselves."""

    pages: Sequence[str]
    """Ids of the results whose page is upstream."""
    stored: Sequence[str]
    """Ids of the results that are."""
    reports: int
    """Of the stored ones, those without a record."""
    refusals: Sequence[Refusal]
    undecided: Sequence[tuple[str, str]]
    """Ids of results that failed alone while nothing was stored, and why: it costs them nothing."""
    seconds: float
    error: NotNow | NotAllowed | None
    """What ended it early, or made some of it wait."""


def delivered(delivery: Delivery, seconds: float, error: NotNow | NotAllowed | None, max_rejections: int) -> Delivered:
    refusals = [
        Refusal(
            result_id=entry.result_id,
            task_id=entry.task_id,
            reason=reason,
            final=entry.sync_attempts + 1 >= max_rejections or entry.html_path in delivery.lost_pages,
        )
        for entry, reason in delivery.refused
    ]
    return Delivered(
        pages=[entry.result_id for entry in delivery.raw_stored],
        stored=[entry.result_id for entry in delivery.stored],
        reports=sum(entry.data is None for entry in delivery.stored),
        refusals=refusals,
        undecided=[(entry.result_id, why) for entry, why in delivery.undecided if why != entry.last_error],
        seconds=seconds,
        error=error or delivery.not_now,
    )


class Marks:
    """Writes in the order of `add`, one write at a time; quick deliveries go together, a few to a write.

    What could not be written is kept, and goes first: should a newer record leave the outbox before an older one of its
    parcel, the older one would be sent again, over the newer. It is little, as `add` waits for the store before long.
    """

    def __init__(self, lpm: LocalPersistenceManager, clock: Clock, emit: Emit) -> None:
        self._lpm = lpm
        self._clock = clock
        self._emit = emit
        self._note = HeldNote(lpm.path)
        self._waiting: list[Delivered] = []
        self._refusals: deque[Refusal] = deque()
        self._writing: asyncio.Task[None] | None = None
        self._held: Held | None = None

    @property
    def problem(self) -> str:
        """Why the store does not take them; '' while it does."""
        return self._held.error if self._held else ""

    def begin(self) -> None:
        """Nothing is held. What another process has left of its own is forgotten."""
        self._hold(None)

    async def add(self, done: Delivered) -> None:
        """Waits only where the store is far behind. Raises the StoreError of an earlier write."""
        self._waiting.append(done)
        if len(self._waiting) < _A_WRITE and done.seconds < _QUICK_SECONDS:
            return
        if self._writing is not None and self._writing.done():
            await self._written(self._writing)
        if self._writing is None:
            self._writing = asyncio.create_task(self._write_what_waits())
        if len(self._waiting) >= _MOST_WAITING:
            await self._written(self._writing)

    async def settle(self) -> None:
        """Everything is in the store when this returns. Raises a StoreError: then call it again before sending more."""
        while self._writing is not None or self._waiting or self._refusals:
            if self._writing is None:
                self._writing = asyncio.create_task(self._write_what_waits())
            await self._written(self._writing)

    async def _written(self, writing: asyncio.Task[None]) -> None:
        self._writing = None
        try:
            await asyncio.wait([writing])
        except asyncio.CancelledError:
            writing.cancel()  # a mark is made or not; one that is not is made before the next delivery
            raise
        writing.result()

    async def _write_what_waits(self) -> None:
        try:
            await self._write(self._waiting[:])
            while len(self._waiting) >= _A_WRITE:  # fewer wait for others to go with them
                await self._write(self._waiting[:])
        except StoreError as error:
            self._failed(error)
            raise
        if self._held:
            self._hold(None)

    def _failed(self, error: StoreError) -> None:
        before = self._held
        held = Held(
            since=before.since if before else self._clock.now(),
            results=sum(len(done.stored) for done in self._waiting),
            error=f"{type(error).__name__}: {error}",
            remedy=error.hint or "see the worker's log",
        )
        self._hold(held)
        if before is None:
            self._emit(MarksHeld(results=held.results, error=held.error))

    def _hold(self, held: Held | None) -> None:
        self._held = held
        self._note.write(held)

    async def _write(self, group: Sequence[Delivered]) -> None:
        logging = asyncio.create_task(self._log(group))  # with the marks, in one transaction
        try:
            await self._mark(group)
        finally:
            await logging

    async def _mark(self, group: Sequence[Delivered]) -> None:
        pages = [result_id for done in group for result_id in done.pages]
        stored = [result_id for done in group for result_id in done.stored]
        if pages:
            await self._lpm.mark_raw_synced(pages)  # before the results that name them (I6)
        if stored:
            await self._lpm.mark_synced(stored)
        del self._waiting[: len(group)]
        self._refusals.extend(refusal for done in group for refusal in done.refusals)
        for result_id, reason in (one for done in group for one in done.undecided):
            await self._lpm.note_refusal([result_id], reason)
        while self._refusals:
            await self._refused(self._refusals[0])
            self._refusals.popleft()
        if stored or pages:
            reports, seconds = sum(done.reports for done in group), sum(done.seconds for done in group)
            records = len(stored) - reports
            self._emit(ResultsSynced(results=records, reports=reports, raw_files=len(pages), seconds=seconds))

    async def _refused(self, refusal: Refusal) -> None:
        mark = self._lpm.mark_rejected if refusal.final else self._lpm.count_attempt
        await mark([refusal.result_id], refusal.reason)
        self._emit(EntryRefused(task_id=refusal.task_id, reason=refusal.reason, rejected=refusal.final))

    async def _log(self, group: Sequence[Delivered]) -> None:
        with contextlib.suppress(StoreError):  # a full disk does not stop what makes room on it
            for line in _lines(group):
                await self._lpm.sync_log.record(line)


def _lines(group: Sequence[Delivered]) -> list[SyncRound]:
    """One for all deliveries that worked, one for the pages, one for each delivery that did not work."""
    worked = [done for done in group if done.error is None]
    pages = sum(len(done.pages) for done in group)
    lines = []
    if worked:
        reason = next((refusal.reason for done in worked for refusal in done.refusals), None)
        lines.append(_line("results", _records(worked), worked, error=reason))
    if pages:
        lines.append(_line("raw_files", pages, group))
    lines += [
        _line("results", _records([done]), [done], str(done.error), success=False) for done in group if done.error
    ]
    return lines


def _records(group: Sequence[Delivered]) -> int:
    return sum(len(done.stored) - done.reports for done in group)


def _line(
    record_type: str, count: int, group: Sequence[Delivered], error: str | None = None, *, success: bool = True
) -> SyncRound:
    return SyncRound(
        direction="upload",
        record_type=record_type,
        record_count=count,
        success=success,
        error=error,
        duration_ms=int(sum(done.seconds for done in group) * 1000),
    )
