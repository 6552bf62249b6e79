"""SyncManager: the outbox goes upstream in the order stored, and leaves only on a receipt (I2)."""

from __future__ import annotations

import asyncio
import contextlib
import os
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import Refused, StoreError, TooLarge, Unauthorized, Unavailable
from parcelpost.events import Emit, EntryRefused, MarksHeld, ResultsSynced
from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.settings.schema import SyncSettings
from parcelpost.storage.history import SyncRound
from parcelpost.storage.locks import live_folder
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import Submitted, Upstream
from parcelpost.worker.backoff import SLOWNESS_STATE, Offline, Slowness, UpstreamState
from parcelpost.worker.delivery import Delivery, Parcel, Pass, SharedPages, end_of, parcel
from parcelpost.worker.loop import SYNC

_ROOM_BYTES = 4_096
_MOST_CHARS = 500


class Held(Struct, frozen=True, kw_only=True):
    since: datetime
    results: int
    """How many were delivered and cannot be marked."""
    error: str
    remedy: str


class HeldNote:
    """Written by the process that delivers. What cannot be written, even so, is only in the log."""

    def __init__(self, store: Path) -> None:
        self._path = _path(store)

    def write(self, held: Held | None) -> None:
        """None: the store takes them."""
        with contextlib.suppress(OSError):
            handle = os.open(self._path, os.O_CREAT | os.O_WRONLY | os.O_NOFOLLOW, 0o600)
            try:
                os.pwrite(handle, _text(held).ljust(_ROOM_BYTES), 0)
            finally:
                os.close(handle)


def read_held(store: Path) -> Held | None:
    """What the process that delivers, or the last one that did, has written."""
    try:
        return msgspec.json.decode(_path(store).read_bytes(), type=Held | None)
    except (OSError, msgspec.DecodeError):
        return None


def _text(held: Held | None) -> bytes:
    if held is None:
        return b"null"
    return msgspec.json.encode(msgspec.structs.replace(held, error=held.error[:_MOST_CHARS]))


def _path(store: Path) -> Path:
    return live_folder(store) / "receipts.held"


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
    error: Unavailable | Unauthorized | None
    """What ended it early, or made some of it wait."""


def delivered(
    delivery: Delivery, seconds: float, error: Unavailable | Unauthorized | None, max_rejections: int
) -> Delivered:
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


class Receipts:
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


T = TypeVar("T")

_IDLE_SECONDS = 5.0  # a sister process saves results too, and cannot wake this one
_NOT_ON_DUTY_SECONDS = 5.0
_MOST_HELD = 10_000
_BATCHES_A_LOOK = 8
_ROUND_SECONDS = 5.0
_MOST_BATCHES_IN_VAIN = 20
_TOO_LARGE_FOR_BATCHES = 20


class BatchSize:
    """Halved by every time-out, down to one, and one more after every batch that was answered in time.

    A size that has timed out is tried again only after some batches of fewer were answered.
    """

    def __init__(self, lpm: LocalPersistenceManager, most: int, clock: Clock) -> None:
        self._lpm = lpm
        self._most = most
        self._clock = clock
        self._slow: Slowness | None = None
        self._too_large = most + 1
        """The size that timed out last."""
        self._answered = 0
        """Batches since then."""
        self.now = most

    async def load(self) -> None:
        self._slow = await self._lpm.state.get(SLOWNESS_STATE, Slowness)
        if self._slow and self._slow.batch_size:
            self.now = min(self._slow.batch_size, self._most)

    async def timed_out(self, sent: int) -> None:
        if sent > 1:  # one alone says nothing of sizes
            self._too_large, self._answered = sent, 0
        self.now = max(1, min(self.now, sent) // 2)
        is_new = self._slow is None or not self._slow.batch_size
        await self._keep(self._clock.now() if is_new or self._slow is None else self._slow.since, self.now)

    async def answered(self) -> None:
        if self.now == self._most:
            return
        self._answered += 1
        if self.now + 1 >= self._too_large and self._answered < _TOO_LARGE_FOR_BATCHES:
            return
        self.now += 1
        if self.now == self._most and self._slow:
            await self._keep(self._slow.since, 0)

    async def _keep(self, since: datetime, batch_size: int) -> None:
        self._slow = Slowness(since=since, batch_size=batch_size)
        with contextlib.suppress(StoreError):
            await self._lpm.state.put(SLOWNESS_STATE, self._slow)


class _LockLost(Unavailable):
    """This process gave no sign of life for a while, and a peer delivers in its place."""


class _WhileLeader:
    """The upstream, for as long as this process has the leader lock.

    One that was stopped and goes on must not send what it had in hand: a peer has sent it, and perhaps what is newer.
    """

    def __init__(self, upstream: Upstream, is_leader: Callable[[], bool]) -> None:
        self._upstream = upstream
        self._is_leader = is_leader

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        self._check()
        return await self._upstream.submit_results(entries)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        self._check()
        await self._upstream.upload_raw_file(entry, path)

    async def report_end(self, entry: OutboxEntry) -> None:
        self._check()
        await self._upstream.report_end(entry)

    def _check(self) -> None:
        if not self._is_leader():
            raise _LockLost(retry_after=_NOT_ON_DUTY_SECONDS)


class SyncManager:
    """Wake its loop when something was saved: that is the immediate attempt.

    Of several processes on one store only one delivers. Entries that were refused are passed over until the outbox has
    been gone through, and so are later ones of the same parcel: a newer record never goes before an older one.
    """

    def __init__(
        self, lpm: LocalPersistenceManager, upstream: Upstream, settings: SyncSettings, clock: Clock, emit: Emit
    ) -> None:
        self._lpm = lpm
        self._upstream = _WhileLeader(upstream, lambda: lpm.leader_locks.has("sync"))
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self.absence = UpstreamState(SYNC, lpm, settings, clock, emit)
        self._marks = Receipts(lpm, clock, emit)
        self._batch = BatchSize(lpm, settings.batch_size, clock)
        self._is_loaded = False
        self._urged = False
        self._after = 0
        self._held: set[Parcel] = set()
        """Parcels whose earliest entry was passed over."""
        self._pass = Pass()
        self._batches_in_vain = 0
        """One after the other, since the last backoff."""
        self._shared = SharedPages()
        self._passes_in_vain = 0
        self._again_at = 0.0
        """When, by the monotonic clock, what was passed over is tried again."""

    @property
    def away(self) -> Offline | None:
        """Why nothing is delivered at the moment."""
        return self.absence.away

    @property
    def problem(self) -> str:
        """Why what was delivered cannot be marked, '' while it can."""
        return self._marks.problem

    def urge(self) -> None:
        """The next turn tries at once, whatever the backoff says."""
        self._urged = True

    async def step(self) -> float:
        if not self._lpm.leader_locks.take("sync"):
            return _NOT_ON_DUTY_SECONDS
        if not self._is_loaded:
            await self.absence.load()
            await self._batch.load()
            self._marks.begin()
            self._is_loaded = True
        remaining = 0.0 if self._urged else self.absence.remaining
        if remaining > 0:
            return remaining
        self._lpm.check_raw_folder()
        if self._urged:
            self._urged = False
            self._start_over()
        try:
            return await self._round()
        except _LockLost:
            self._start_over()
            self._is_loaded = False
            return _NOT_ON_DUTY_SECONDS
        except _TooSlowTogether:
            return 0.0  # a smaller batch may be answered in time: the gateway is not away
        except (Unavailable, Unauthorized) as error:
            return await self.absence.failed(error)

    async def _round(self) -> float:
        if self._held and self._clock.monotonic() >= self._again_at > 0:
            self._start_over()
        await self._marks.settle()  # or what was delivered, and is not marked yet, would be sent again
        found = await self._read()
        if not found:
            return await self._end_of_outbox()
        try:
            await self._deliver_all(found, self._marks)
        except _TooSlowAlone as slow:
            raise slow.error from None
        except BaseException:
            self._start_over()  # a round that did not end has seen nothing
            raise
        finally:
            await self._marks.settle()
        if self._batches_in_vain >= _MOST_BATCHES_IN_VAIN and (refusal := self._pass.refusal()):
            self._batches_in_vain = 0
            raise refusal  # the next round goes on behind these: further on there may be better ones
        if len(self._held) > _MOST_HELD:
            return await self._end_of_outbox()
        if not self._held:
            self._start_over()
        return 0.0

    async def _read(self) -> Sequence[OutboxEntry]:
        """A few batches in one look; together they have no more bytes than one may have."""
        settings = self._settings
        most = settings.batch_size * _BATCHES_A_LOOK
        return await self._lpm.get_unsynced_results(most, settings.batch_bytes, after=self._after)

    async def _deliver_all(self, found: Sequence[OutboxEntry], marks: Receipts) -> None:
        """What was found; and where that is much, what follows, read while this is on its way."""
        until = self._clock.monotonic() + _ROUND_SECONDS
        while found:
            self._after = found[-1].seq
            is_last = len(found) <= self._settings.batch_size or self._clock.monotonic() > until
            if is_last or len(self._held) > _MOST_HELD or self._batches_in_vain:
                await self._deliver_batches(found, marks)
                return
            found = await _while_reading(self._deliver_batches(found, marks), self._read())
            if self._batches_in_vain >= _MOST_BATCHES_IN_VAIN:
                return

    async def _deliver_batches(self, found: Sequence[OutboxEntry], marks: Receipts) -> None:
        start = 0
        while start < len(found):
            batch = found[start : start + self._batch.now]
            start += len(batch)
            ready = [entry for entry in batch if parcel(entry) not in self._held] if self._held else batch
            if not ready:
                continue
            try:
                await self._deliver(ready, marks)
            except Unavailable as error:
                if not error.timed_out or (len(ready) > 1 and error.retry_after):
                    raise
                if len(ready) > 1:
                    raise _TooSlowTogether from None
                self._held.add(parcel(ready[0]))  # perhaps it is this one: the next round tries those behind it
                self._after = batch[-1].seq
                raise _TooSlowAlone(error) from None
            if self._batches_in_vain >= _MOST_BATCHES_IN_VAIN:
                self._after = batch[-1].seq
                return

    def _start_over(self) -> None:
        self._after = 0
        self._held.clear()
        self._again_at = 0.0
        self._pass = Pass(self._pass.number + 1 if self._pass.refusal() else 0)

    async def _end_of_outbox(self) -> float:
        await self._answer_again()
        if refusal := self._pass.refusal():
            self._start_over()
            raise refusal
        if not self._held:
            self._start_over()
            self._passes_in_vain = 0
            return _IDLE_SECONDS
        if not self._again_at:
            longest = self._settings.backoff_max_seconds
            pause = min(longest, self._settings.backoff_min_seconds * 2 ** min(self._passes_in_vain, 20))
            self._passes_in_vain += 1
            self._again_at = self._clock.monotonic() + pause
        return max(0.05, min(_IDLE_SECONDS, self._again_at - self._clock.monotonic()))

    async def _deliver(self, entries: Sequence[OutboxEntry], marks: Receipts) -> None:
        delivery = Delivery(self._upstream, self._lpm, self._settings.raw_uploads, self._pass, self._shared)
        started = self._clock.monotonic()
        error: Unavailable | Unauthorized | None = None
        try:
            await delivery.send(entries)
            await delivery.decide()
        except (Unavailable, Unauthorized) as raised:
            error = raised
        seconds = self._clock.monotonic() - started
        done = delivered(delivery, seconds, error, self._settings.max_rejections)
        self._hold_back(delivery, done)
        await marks.add(done)
        if isinstance(error, Unavailable) and error.timed_out:
            await self._batch.timed_out(len(entries))
        if error is not None:
            raise error
        if delivery.in_vain:
            self._batches_in_vain += 1
            return
        self._batches_in_vain = 0
        await self._batch.answered()
        await self.absence.worked()

    async def _answer_again(self) -> None:
        """Tasks that were handed out again after their result was delivered or rejected: the upstream is told so.

        The result itself is not sent again: another worker may have delivered a newer one of that parcel meanwhile.
        """
        while waiting := await self._lpm.tasks_to_answer():
            started = self._clock.monotonic()
            for info, rejection in waiting:
                status, error = TaskStatus.COMPLETED, None
                if rejection is not None:
                    status, error = TaskStatus.FAILED, f"the result was rejected: {rejection or 'no reason was given'}"
                report = end_of(info.task, status, error, info.completed_at or self._clock.now())
                try:
                    await self._upstream.report_end(report)
                except (Refused, TooLarge) as error:
                    self._emit(EntryRefused(task_id=info.task.task_id, reason=str(error), rejected=False))
                await self._lpm.mark_answered([info.seq])
            seconds = self._clock.monotonic() - started
            self._emit(ResultsSynced(results=0, reports=len(waiting), raw_files=0, seconds=seconds))

    def _hold_back(self, delivery: Delivery, done: Delivered) -> None:
        final = {refusal.result_id for refusal in done.refusals if refusal.final}
        refused = [entry for entry, _ in delivery.refused if entry.result_id not in final]
        undecided = [entry for entry, _ in delivery.undecided]
        self._held.update(parcel(entry) for entry in (*delivery.waiting, *refused, *undecided))


class _TooSlowTogether(Exception):
    """A batch was not answered in time, and the next one is smaller."""


class _TooSlowAlone(Exception):
    """One entry, sent alone, was not answered in time."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


async def _while_reading(work: Awaitable[None], read: Awaitable[T]) -> T:
    """What was read. Returns, and raises, when both have ended."""
    failure, found = await asyncio.gather(work, read, return_exceptions=True)
    if failure is not None:
        raise failure
    if isinstance(found, BaseException):
        raise found
    return found
