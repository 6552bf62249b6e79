"""SyncManager: what is in the outbox goes upstream, in the order stored, and leaves only on a receipt (I2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from datetime import datetime
from pathlib import Path
from typing import TypeVar

from parcelpost.client.upstream import Submitted, Upstream
from parcelpost.clock import Clock
from parcelpost.errors import NotAllowed, NotNow, Refused, StoreError, TooLarge
from parcelpost.events import Emit, EntryRefused, ResultsSynced
from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.settings.keys import SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.absence import Absence
from parcelpost.worker.backoff import SLOWNESS_STATE, Away, Slowness
from parcelpost.worker.delivery import Delivery, Parcel, Pass, SharedPages, parcel
from parcelpost.worker.loop_names import SYNC
from parcelpost.worker.marks import Delivered, Marks, delivered
from parcelpost.worker.refused import end_of

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


class _LockLost(NotNow):
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
        self._upstream = _WhileLeader(upstream, lambda: lpm.duties.has("sync"))
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self.absence = Absence(SYNC, lpm, settings, clock, emit)
        self._marks = Marks(lpm, clock, emit)
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
    def away(self) -> Away | None:
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
        if not self._lpm.duties.take("sync"):
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
        except (NotNow, NotAllowed) as error:
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

    async def _deliver_all(self, found: Sequence[OutboxEntry], marks: Marks) -> None:
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

    async def _deliver_batches(self, found: Sequence[OutboxEntry], marks: Marks) -> None:
        start = 0
        while start < len(found):
            batch = found[start : start + self._batch.now]
            start += len(batch)
            ready = [entry for entry in batch if parcel(entry) not in self._held] if self._held else batch
            if not ready:
                continue
            try:
                await self._deliver(ready, marks)
            except NotNow as error:
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

    async def _deliver(self, entries: Sequence[OutboxEntry], marks: Marks) -> None:
        delivery = Delivery(self._upstream, self._lpm, self._settings.raw_uploads, self._pass, self._shared)
        started = self._clock.monotonic()
        error: NotNow | NotAllowed | None = None
        try:
            await delivery.send(entries)
            await delivery.decide()
        except (NotNow, NotAllowed) as raised:
            error = raised
        seconds = self._clock.monotonic() - started
        done = delivered(delivery, seconds, error, self._settings.max_rejections)
        self._hold_back(delivery, done)
        await marks.add(done)
        if isinstance(error, NotNow) and error.timed_out:
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

    def __init__(self, error: NotNow) -> None:
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
