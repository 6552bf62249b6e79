"""SyncManager: what is in the outbox goes upstream, in the order stored, and leaves only on a receipt (I2)."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Sequence
from typing import TypeVar

from parcelpost.client.upstream import Upstream
from parcelpost.clock import Clock
from parcelpost.errors import NotAllowed, NotNow
from parcelpost.events import Emit
from parcelpost.model import OutboxEntry
from parcelpost.settings.keys import SyncSettings
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.worker.absence import Absence
from parcelpost.worker.backoff import Away
from parcelpost.worker.delivery import Delivery, Parcel, SharedPages, parcel
from parcelpost.worker.loop_names import SYNC
from parcelpost.worker.marks import Delivered, Marks, delivered

T = TypeVar("T")

_IDLE_SECONDS = 5.0  # a sister process saves results too, and cannot wake this one
_NOT_ON_DUTY_SECONDS = 5.0
_MOST_HELD = 10_000
_BATCHES_A_LOOK = 8
_ROUND_SECONDS = 5.0
_WITNESS_SECONDS = 1_800.0


class SyncManager:
    """Wake its loop when something was saved: that is the immediate attempt.

    Of several processes on one store only one delivers. Entries that were refused are passed over until the outbox has
    been gone through, and so are later ones of the same parcel: a newer record never goes before an older one.
    """

    def __init__(
        self, lpm: LocalPersistenceManager, upstream: Upstream, settings: SyncSettings, clock: Clock, emit: Emit
    ) -> None:
        self._lpm = lpm
        self._upstream = upstream
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self.absence = Absence(SYNC, lpm, settings, clock, emit)
        self._marks = Marks(lpm, clock, emit)
        self._is_loaded = False
        self._urged = False
        self._after = 0
        self._held: set[Parcel] = set()
        """Parcels whose earliest entry was passed over."""
        self._witness: tuple[OutboxEntry | None, float] = (None, 0.0)
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
        except (NotNow, NotAllowed) as error:
            self._start_over()
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
        except BaseException:
            self._after = 0  # a round that did not end has seen nothing
            raise
        finally:
            await self._marks.settle()
        if len(self._held) > _MOST_HELD:
            return await self._end_of_outbox()
        if not self._held:
            self._after = 0
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
            if is_last or len(self._held) > _MOST_HELD:
                await self._deliver_batches(found, marks)
                return
            found = await _while_reading(self._deliver_batches(found, marks), self._read())

    async def _deliver_batches(self, found: Sequence[OutboxEntry], marks: Marks) -> None:
        size = self._settings.batch_size
        for start in range(0, len(found), size):
            ready = found[start : start + size]
            if self._held:
                ready = [entry for entry in ready if parcel(entry) not in self._held]
            if ready:
                await self._deliver(ready, marks)

    def _start_over(self) -> None:
        self._after = 0
        self._held.clear()
        self._again_at = 0.0

    async def _end_of_outbox(self) -> float:
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
        delivery = Delivery(
            self._upstream,
            self._lpm.raw_path,
            self._is_kept,
            self._settings.raw_uploads,
            lambda: self._usable_witness(entries),
            self._shared,
        )
        started = self._clock.monotonic()
        error: NotNow | NotAllowed | None = None
        try:
            await delivery.send(entries)
        except (NotNow, NotAllowed) as raised:
            error = raised
        seconds = self._clock.monotonic() - started
        done = delivered(delivery, seconds, error, self._settings.max_rejections)
        self._learn(delivery, done)
        await marks.add(done)
        if error is not None:
            raise error
        await self.absence.worked()

    async def _is_kept(self, entry: OutboxEntry) -> bool:
        now = await self._lpm.get_result(entry.task_id)
        return now is not None and now.result_id == entry.result_id

    def _learn(self, delivery: Delivery, done: Delivered) -> None:
        records = [entry for entry in delivery.stored if entry.data is not None]
        self._witness = (records[-1], self._clock.monotonic()) if records else self._witness
        final = {refusal.result_id for refusal in done.refusals if refusal.final}
        refused = [entry for entry, _ in delivery.refused if entry.result_id not in final]
        self._held.update(parcel(entry) for entry in (*delivery.waiting, *refused))

    def _usable_witness(self, entries: Sequence[OutboxEntry]) -> OutboxEntry | None:
        """Not when it is of long ago, or of a parcel that has something newer: it must not overwrite that."""
        entry, since = self._witness
        if entry is None or self._clock.monotonic() - since > _WITNESS_SECONDS:
            return None
        return None if parcel(entry) in {parcel(other) for other in entries} else entry


async def _while_reading(work: Awaitable[None], read: Awaitable[T]) -> T:
    """What was read. Returns, and raises, when both have ended."""
    failure, found = await asyncio.gather(work, read, return_exceptions=True)
    if failure is not None:
        raise failure
    if isinstance(found, BaseException):
        raise found
    return found
