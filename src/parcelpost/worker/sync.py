"""SyncManager: delivers the outbox in the order stored. An entry leaves it only on the upstream's receipt (I2)."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import TypeVar

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import (
    NotOffered,
    Refused,
    StoreError,
    TooLarge,
    Unauthorized,
    Unavailable,
    UpstreamError,
)
from parcelpost.events import EntryRefused, ResultsSynced
from parcelpost.model import OutboxEntry, TaskStatus
from parcelpost.protocol.payloads import ArtifactKind, MetricsSample, Submitted
from parcelpost.storage.history import SyncRound
from parcelpost.storage.locks import LeaderLocks
from parcelpost.upstream.base import Upstream
from parcelpost.worker.artifact_uploads import ArtifactUploads
from parcelpost.worker.backoff import SYNC
from parcelpost.worker.batch_delivery import BatchSize, Delivery, Parcel, Pass, SharedPages, end_of, parcel
from parcelpost.worker.context import Context
from parcelpost.worker.status import read_statuses

T = TypeVar("T")

_IDLE_SECONDS = 5.0  # a peer process saves results too, and cannot wake this one
_NOT_LEADER_SECONDS = 5.0
_MOST_BLOCKED = 10_000
_BATCHES_A_READ = 8
_ROUND_SECONDS = 5.0
_MOST_FRUITLESS_BATCHES = 20
_SLOW_COUNTS_FOR = timedelta(hours=1)


class Receipts(Struct, frozen=True, kw_only=True):
    """The outcome of one delivery, without the records themselves."""

    pages: Sequence[str]
    """Ids of results whose pages were delivered."""
    stored: Sequence[str]
    """Ids of delivered results and reports."""
    reports: int
    """How many of `stored` are reports."""
    refusals: Sequence[tuple[OutboxEntry, str, bool]]
    """Entry, reason, and whether the entry is rejected; otherwise it loses an attempt."""
    undecided: Sequence[tuple[OutboxEntry, str]]
    """Entries that failed alone while nothing was stored, with the reason. They lose no attempt."""
    seconds: float
    error: UpstreamError | None
    """Why the delivery ended early or left entries for later."""

    @classmethod
    def of(
        cls,
        delivery: Delivery,
        refusals: Sequence[tuple[OutboxEntry, str, bool]],
        seconds: float,
        error: UpstreamError | None,
    ) -> Receipts:
        return cls(
            pages=[entry.result_id for entry in delivery.raw_stored],
            stored=[entry.result_id for entry in delivery.stored],
            reports=sum(entry.data is None for entry in delivery.stored),
            refusals=[(replace(entry, data=None), reason, is_final) for entry, reason, is_final in refusals],
            undecided=[(replace(entry, data=None), reason) for entry, reason in delivery.undecided],
            seconds=seconds,
            error=error or delivery.unavailable,
        )


_MOST_WAITING = 16


class _ReceiptWriter:
    """Records receipts while the next batch is being sent. Receipts that arrive during a write share the next one.

    Without it, every batch would wait for an fsync: draining an outbox would take twice as long. Receipts are written
    in the order of `add`. If a write fails, all waiting receipts are dropped and their results sent again: a newer
    record must not leave the outbox before an older one of its parcel.
    """

    def __init__(self, context: Context) -> None:
        self._lpm = context.lpm
        self._emit = context.emit
        self._waiting: list[Receipts] = []
        self._writing: asyncio.Task[None] | None = None

    async def add(self, receipts: Receipts) -> None:
        """Waits only if too many receipts wait. Raises the StoreError of an earlier write."""
        self._waiting.append(receipts)
        if self._writing is None or self._writing.done() or len(self._waiting) >= _MOST_WAITING:
            await self._join()
            self._writing = asyncio.create_task(self._write())

    async def settle(self) -> None:
        """Returns when all receipts are recorded. Raises a StoreError; results without a receipt are sent again.

        Cancelling it does not cancel the write: the next call waits for that.
        """
        await self._join()
        if self._waiting:
            self._writing = asyncio.create_task(self._write())
            await self._join()

    async def _join(self) -> None:
        if self._writing is None:
            return
        await asyncio.wait([self._writing])
        written, self._writing = self._writing, None
        try:
            written.result()
        except BaseException:
            self._waiting.clear()
            raise

    async def _write(self) -> None:
        group, self._waiting = self._waiting, []
        pages = [result_id for receipts in group for result_id in receipts.pages]
        stored = [result_id for receipts in group for result_id in receipts.stored]
        if pages:
            await self._lpm.mark_raw_synced(pages)  # before the results that name them (I6)
        logging = asyncio.create_task(self._log(group, len(pages)))  # in one transaction with the receipts
        try:
            if stored:
                await self._lpm.mark_synced(stored)
        finally:
            await logging
        for receipts in group:
            await self._write_refusals(receipts)
        if stored or pages:
            reports, seconds = (
                sum(receipts.reports for receipts in group),
                sum(receipts.seconds for receipts in group),
            )
            records = len(stored) - reports
            self._emit(ResultsSynced(results=records, reports=reports, raw_files=len(pages), seconds=seconds))

    async def _write_refusals(self, receipts: Receipts) -> None:
        for entry, reason in receipts.undecided:
            if reason != entry.last_error:
                await self._lpm.note_refusal([entry.result_id], reason)
        for entry, reason, is_final in receipts.refusals:
            record = self._lpm.mark_rejected if is_final else self._lpm.count_attempt
            await record([entry.result_id], reason)
            self._emit(EntryRefused(task_id=entry.task_id, reason=reason, rejected=is_final))

    async def _log(self, group: Sequence[Receipts], pages: int) -> None:
        """Writes a line for successful deliveries, one for pages, and one for each failed delivery."""
        worked = [receipts for receipts in group if receipts.error is None]
        lines = [_log_line("results", [receipts], str(receipts.error)) for receipts in group if receipts.error]
        if worked:
            lines.append(_log_line("results", worked))
        if pages:
            lines.append(replace(_log_line("raw_files", group), record_count=pages))
        with contextlib.suppress(StoreError):  # the receipts count, not the log
            for line in lines:
                await self._lpm.sync_log.record(line)


def _log_line(record_type: str, group: Sequence[Receipts], failure: str = "") -> SyncRound:
    refusal = next((reason for receipts in group for _, reason, _ in receipts.refusals), None)
    return SyncRound(
        direction="upload",
        record_type=record_type,
        record_count=sum(len(receipts.stored) - receipts.reports for receipts in group),
        success=not failure,
        error=failure or refusal,
        duration_ms=int(sum(receipts.seconds for receipts in group) * 1000),
    )


class _LockLost(Unavailable):
    """This process was suspended for a while, and a peer process has taken over the delivery."""


class _WhileLeader:
    """The upstream, as long as this process holds the leader lock.

    A process that was suspended must not send what it read before: a peer may have sent a newer record since.
    """

    def __init__(self, upstream: Upstream, leader_locks: LeaderLocks) -> None:
        self._upstream = upstream
        self._leader_locks = leader_locks

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        self._check()
        return await self._upstream.submit_results(entries)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        self._check()
        await self._upstream.upload_raw_file(entry, path)

    async def report_end(self, entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> Sequence[ArtifactKind]:
        self._check()
        return await self._upstream.report_end(entry, artifacts)

    async def upload_artifact(self, task_id: str, kind: ArtifactKind, path: Path) -> None:
        self._check()
        await self._upstream.upload_artifact(task_id, kind, path)

    def _check(self) -> None:
        if not self._leader_locks.has("sync"):
            raise _LockLost(retry_after=_NOT_LEADER_SECONDS)


class SyncManager:
    """Delivers the outbox; wake its loop when a result was saved.

    One process per store delivers (leader lock). A refused entry is skipped until the end of the outbox, and so are
    later entries of its parcel: a newer record is never sent before an older one.
    """

    def __init__(self, context: Context) -> None:
        self._lpm = context.lpm
        self._leader_locks = context.lpm.leader_locks
        self._upstream = _WhileLeader(context.upstream, self._leader_locks)
        self._state = context.upstream_state
        self._settings = context.settings.sync
        self._clock = context.clock
        self._emit = context.emit
        self._receipts = _ReceiptWriter(context)
        self._extras = _Extras(context)
        self._artifacts = ArtifactUploads(self._upstream, context)
        self.batch_size = BatchSize(self._settings.batch_size, context.clock)
        self._is_restored = False
        self._must_try_now = False
        self._after = 0
        self._blocked: set[Parcel] = set()
        """Blocked parcels: their earliest entry was skipped."""
        self._pass = Pass()
        self._fruitless_batches = 0
        """Consecutive batches in which nothing was stored, since the last backoff."""
        self._shared = SharedPages()
        self._fruitless_passes = 0
        self._again_at = 0.0
        """Monotonic time at which skipped entries are tried again."""

    def try_now(self) -> None:
        """Makes the next step ignore the backoff."""
        self._must_try_now = True

    async def step(self) -> float:
        if not self._leader_locks.take("sync"):
            self._lose_lead()
            return _NOT_LEADER_SECONDS
        if not self._is_restored:
            await self._restore()
        remaining = 0.0 if self._must_try_now else self._state.remaining(SYNC)
        if remaining > 0:
            return remaining
        self._lpm.check_raw_folder()
        if self._must_try_now:
            self._must_try_now = False
            self._start_over()
        try:
            delay = await self._round()
        except _LockLost:
            self._lose_lead()
            return _NOT_LEADER_SECONDS
        except _TooSlowTogether:
            return 0.0  # the gateway is online, and may answer a smaller batch in time
        except (Unavailable, Unauthorized) as error:
            return self._state.failed(SYNC, error)
        self._artifacts.start()
        await self._extras.send_if_due()
        return delay

    async def last_step(self) -> float:
        """Like `step`, at the end of a run: once nothing is left to deliver, waits for the last artifacts."""
        delay = await self.step()
        if delay > 0:
            await self._artifacts.finish()
        return delay

    async def goodbye(self) -> None:
        """Sends the last learning signals, after the last step."""
        if self._state.remaining(SYNC) <= 0 and self._leader_locks.has("sync"):
            await self._extras.send_all()

    async def close(self) -> None:
        await self._artifacts.close()

    async def _restore(self) -> None:
        """Takes over the backoff and the batch size of the last leader, this process or a peer."""
        statuses = await read_statuses(self._lpm.state)
        outages = (status.outages.get(SYNC) for status in statuses)
        outage = next((outage for outage in outages if outage and outage.until > self._clock.now()), None)
        self._state.restore(SYNC, outage)
        recent = self._clock.now() - _SLOW_COUNTS_FOR
        self.batch_size.restore(
            next((status.slow for status in statuses if status.slow and status.published_at > recent), None)
        )
        self._is_restored = True

    def _lose_lead(self) -> None:
        if self._is_restored:
            self._is_restored = False
            self._state.clear(SYNC)
            self.batch_size.restore(None)
            self._start_over()

    async def _round(self) -> float:
        if self._blocked and self._clock.monotonic() >= self._again_at > 0:
            self._start_over()
        await self._settle()  # or entries whose receipts are not recorded yet would be sent again
        entries = await self._read()
        if not entries:
            return await self._end_of_outbox()
        try:
            await self._deliver_all(entries)
        except _TooSlowAlone as slow:
            raise slow.error from None
        except BaseException:
            self._start_over()  # the pass is incomplete: it says nothing about the upstream
            raise
        finally:
            await self._settle()
        if self._fruitless_batches >= _MOST_FRUITLESS_BATCHES and (refusal := self._pass.refusal()):
            self._fruitless_batches = 0
            raise refusal  # the next round continues after these entries
        if len(self._blocked) > _MOST_BLOCKED:
            return await self._end_of_outbox()
        if not self._blocked:
            self._start_over()
        return 0.0

    async def _settle(self) -> None:
        try:
            await self._receipts.settle()
        except BaseException:
            self._start_over()  # reads results without recorded receipts again
            raise

    async def _read(self) -> Sequence[OutboxEntry]:
        """Reads a few batches in one query, together at most `sync.batch_bytes`."""
        settings = self._settings
        most = settings.batch_size * _BATCHES_A_READ
        return await self._lpm.get_unsynced_results(most, settings.batch_bytes, after=self._after)

    async def _deliver_all(self, entries: Sequence[OutboxEntry]) -> None:
        """Delivers these entries and, if there are many, the following ones, read while the previous ones are sent."""
        until = self._clock.monotonic() + _ROUND_SECONDS
        while entries:
            self._after = entries[-1].seq
            is_last = len(entries) <= self._settings.batch_size or self._clock.monotonic() > until
            if is_last or len(self._blocked) > _MOST_BLOCKED or self._fruitless_batches:
                await self._deliver_batches(entries)
                return
            entries = await _while_reading(self._deliver_batches(entries), self._read())
            if self._fruitless_batches >= _MOST_FRUITLESS_BATCHES:
                return

    async def _deliver_batches(self, entries: Sequence[OutboxEntry]) -> None:
        start = 0
        while start < len(entries):
            batch = entries[start : start + self.batch_size.now]
            start += len(batch)
            ready = [entry for entry in batch if parcel(entry) not in self._blocked] if self._blocked else batch
            if not ready:
                continue
            try:
                await self._deliver(ready)
            except Unavailable as error:
                if not error.timed_out or (len(ready) > 1 and error.retry_after):
                    raise
                if len(ready) > 1:
                    raise _TooSlowTogether from None
                self._blocked.add(parcel(ready[0]))  # this entry may be the only slow one: try the others next
                self._after = batch[-1].seq
                raise _TooSlowAlone(error) from None
            if self._fruitless_batches >= _MOST_FRUITLESS_BATCHES:
                self._after = batch[-1].seq
                return

    def _start_over(self) -> None:
        self._after = 0
        self._blocked.clear()
        self._again_at = 0.0
        self._pass = Pass(self._pass.number + 1 if self._pass.refusal() else 0)

    async def _end_of_outbox(self) -> float:
        await self._report_again()
        if self._pass.is_rejected:
            await self._count_rejections()
        if refusal := self._pass.refusal():
            self._start_over()
            raise refusal
        if not self._blocked:
            self._start_over()
            self._fruitless_passes = 0
            return _IDLE_SECONDS
        if not self._again_at:
            longest = self._settings.backoff_max_seconds
            pause = min(longest, self._settings.backoff_min_seconds * 2 ** min(self._fruitless_passes, 20))
            self._fruitless_passes += 1
            self._again_at = self._clock.monotonic() + pause
        return max(0.05, min(_IDLE_SECONDS, self._again_at - self._clock.monotonic()))

    async def _count_rejections(self) -> None:
        """Each failure of the pass loses an attempt, although nothing else was stored."""
        failures = list(self._pass.failures.values())
        self._pass.failures.clear()
        refusals = [(failure.entry, failure.reason, self._is_last_attempt(failure.entry)) for failure in failures]
        await self._receipts.add(
            Receipts(pages=(), stored=(), reports=0, refusals=refusals, undecided=(), seconds=0.0, error=None)
        )
        await self._settle()
        self._blocked -= {parcel(entry) for entry, _, is_final in refusals if is_final}
        self._fruitless_batches = 0
        self._state.worked(SYNC)

    async def _deliver(self, entries: Sequence[OutboxEntry]) -> None:
        self._pass.batches += 1
        delivery = Delivery(self._upstream, self._lpm, self._settings.raw_uploads, self._pass, self._shared)
        started = self._clock.monotonic()
        error: Unavailable | Unauthorized | None = None
        try:
            await delivery.send(entries)
            await delivery.decide()
        except (Unavailable, Unauthorized) as raised:
            error = raised
        self._artifacts.add(delivery.wanted)
        refusals = [
            (entry, reason, self._is_last_attempt(entry) or entry.html_path in delivery.lost_pages)
            for entry, reason in delivery.refused
        ]
        self._block(delivery, {entry.result_id for entry, _, is_final in refusals if is_final})
        await self._receipts.add(Receipts.of(delivery, refusals, self._clock.monotonic() - started, error))
        if isinstance(error, Unavailable) and error.timed_out:
            self.batch_size.timed_out(len(entries))
        if error is not None:
            raise error
        if delivery.is_fruitless:
            self._fruitless_batches += 1
            return
        self._fruitless_batches = 0
        self.batch_size.answered()
        self._state.worked(SYNC)

    def _is_last_attempt(self, entry: OutboxEntry) -> bool:
        """Whether this refusal rejects the entry. Otherwise the entry loses an attempt."""
        return entry.sync_attempts + 1 >= self._settings.max_rejections

    def _block(self, delivery: Delivery, rejected: set[str]) -> None:
        refused = [entry for entry, _ in delivery.refused if entry.result_id not in rejected]
        undecided = [entry for entry, _ in delivery.undecided]
        self._blocked.update(parcel(entry) for entry in (*delivery.waiting, *refused, *undecided))

    async def _report_again(self) -> None:
        """Reports the end of tasks that were leased again after their result was delivered or rejected.

        The result is not sent again: another worker may have delivered a newer one of its parcel.
        """
        while waiting := await self._lpm.tasks_to_report_again():
            started = self._clock.monotonic()
            for info, rejection in waiting:
                status, error = TaskStatus.COMPLETED, None
                if rejection is not None:
                    status, error = TaskStatus.FAILED, f"the result was rejected: {rejection or 'no reason was given'}"
                report = end_of(info.task, status, error, info.completed_at or self._clock.now())
                try:
                    await self._upstream.report_end(report)
                except Refused as error:
                    self._emit(EntryRefused(task_id=info.task.task_id, reason=str(error), rejected=False))
                await self._lpm.mark_reported_again([info.seq])
            seconds = self._clock.monotonic() - started
            self._emit(ResultsSynced(results=0, reports=len(waiting), raw_files=0, seconds=seconds))


class _TooSlowTogether(Exception):
    """A batch timed out, and the next one is smaller."""


class _TooSlowAlone(Exception):
    """A single entry timed out."""

    def __init__(self, error: Unavailable) -> None:
        super().__init__(str(error))
        self.error = error


async def _while_reading(work: Awaitable[None], read: Awaitable[T]) -> T:
    """Runs both concurrently. When both have ended, returns what was read, or raises the first error."""
    failure, result = await asyncio.gather(work, read, return_exceptions=True)
    if failure is not None:
        raise failure
    if isinstance(result, BaseException):
        raise result
    return result


_EXTRAS_SECONDS = 30.0
_EXTRAS_AFTER_FAILURE_SECONDS = 300.0
_SIGNALS_A_CALL = 500
_SAMPLES_A_CALL = 200
_AFTER_SETTING_BACK = timedelta(hours=1)
_METRICS_STATE = "metrics_sent"


class _MetricsSent(msgspec.Struct, frozen=True):
    until: datetime


class _Extras:
    """Sends learning signals and metrics, at most one call for each between two rounds of results.

    Stops for good after the upstream has refused them, or does not offer that part.
    """

    def __init__(self, context: Context) -> None:
        self._context = context
        self._lpm = context.lpm
        self._upstream = context.upstream
        self._clock = context.clock
        self._due_at = 0.0
        """Monotonic."""
        self._takes_signals = True
        self._takes_metrics = True
        self._has_more = False

    async def send_if_due(self) -> None:
        if self._clock.monotonic() >= self._due_at and (self._takes_signals or self._takes_metrics):
            await self.send()

    async def send_all(self) -> None:
        await self.send()
        while self._due_at <= self._clock.monotonic() and self._takes_signals:
            await self.send()

    async def send(self) -> None:
        """Makes one call for each. If more signals are waiting, the next call is due at once."""
        try:
            self._takes_signals = self._takes_signals and await self._offers(self._send_signals)
            self._takes_metrics = self._takes_metrics and await self._offers(self._send_metrics)
        except Unavailable as error:
            self._due_at = self._clock.monotonic() + max(_EXTRAS_AFTER_FAILURE_SECONDS, error.retry_after)
        except (Unauthorized, StoreError):
            self._due_at = self._clock.monotonic() + _EXTRAS_AFTER_FAILURE_SECONDS
        else:
            self._due_at = self._clock.monotonic() + (0.0 if self._has_more else _EXTRAS_SECONDS)

    async def _offers(self, send: Callable[[], Awaitable[None]]) -> bool:
        try:
            await send()
        except (NotOffered, Refused, TooLarge):
            return False
        return True

    async def _send_signals(self) -> None:
        self._has_more = False
        stored = await self._lpm.signals.unsynced(_SIGNALS_A_CALL)
        if not stored:
            return
        async with self._logged("learning_signals", len(stored)):
            await self._upstream.submit_signals([entry.signal for entry in stored], stored[0].signal_id)
        await self._lpm.signals.mark_synced([entry.signal_id for entry in stored])
        self._has_more = len(stored) == _SIGNALS_A_CALL

    async def _send_metrics(self) -> None:
        now = self._clock.now()
        since = await self._sent_until(now)
        recent = await self._lpm.metrics.since(since, _SAMPLES_A_CALL)
        new = [timed for timed in recent if since < timed.timestamp <= now]
        if not new:
            return
        samples = [MetricsSample(at=timed.timestamp, values=msgspec.to_builtins(timed.sample)) for timed in new]
        async with self._logged("agent_metrics", len(samples)):
            await self._upstream.submit_metrics(samples)
        await self._lpm.state.put(_METRICS_STATE, _MetricsSent(new[-1].timestamp))

    @contextlib.asynccontextmanager
    async def _logged(self, record_type: str, count: int) -> AsyncIterator[None]:
        """Adds a line to the sync log, unless the upstream does not offer this part."""
        started = self._clock.monotonic()
        try:
            yield
        except NotOffered:
            raise
        except UpstreamError as error:
            await self._context.log_round("upload", record_type, 0, started, error)
            raise
        await self._context.log_round("upload", record_type, count, started)

    async def _sent_until(self, now: datetime) -> datetime:
        sent = await self._lpm.state.get(_METRICS_STATE, _MetricsSent)
        if sent is None:
            return datetime.fromtimestamp(0, now.tzinfo)
        return sent.until if sent.until <= now else now - _AFTER_SETTING_BACK  # the clock was set back
