"""LocalPersistenceManager: the public interface of the store, for every mode."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Coroutine, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from parcelpost.clock import Clock, SystemClock, iso
from parcelpost.errors import StoreCorrupt, StoreError, StoreGone
from parcelpost.events import Emit, PeerBack, PeerHung, StoreDamaged, ignore
from parcelpost.model import (
    Claim,
    Encoded,
    Json,
    OutboxEntry,
    QueueDepth,
    Result,
    Site,
    Source,
    Target,
    Task,
    TaskInfo,
    TaskStatus,
)
from parcelpost.storage import (
    claims,
    locks,
    outbox,
    queries,
    raw_files,
    recovery,
    refresh,
    rows,
    tasks,
    validation,
)
from parcelpost.storage.artifacts import Artifacts
from parcelpost.storage.backpressure import Backpressure
from parcelpost.storage.browsers import Browsers
from parcelpost.storage.cache import Cache
from parcelpost.storage.claims import Sites
from parcelpost.storage.history import Metrics, SyncLog
from parcelpost.storage.learning_signals import Signals
from parcelpost.storage.leases import Leases
from parcelpost.storage.locks import LeaderLocks
from parcelpost.storage.operator_actions import OperatorActions
from parcelpost.storage.options import LONGEST_DELAY, StoreOptions
from parcelpost.storage.raw_files import GONE_HINT
from parcelpost.storage.reparse import StoredPages
from parcelpost.storage.results import Saving
from parcelpost.storage.retention import Maintenance
from parcelpost.storage.snapshot import DAMAGE_STATE, DamageNote
from parcelpost.storage.tasks import Added, RefreshRun
from parcelpost.storage.worker_state import WorkerState, put

P = ParamSpec("P")
T = TypeVar("T")

_MAX_CLAIMS = 10_000


class LocalPersistenceManager:
    """The store: tasks in, results out. Open it with `async with LocalPersistenceManager.open(path)`.

    Every method may raise a StoreError. Once a method has returned, its change survives kill -9; tasks, results, ends
    of tasks and receipts also survive a power cut. Any number of coroutines of one event loop may call methods, and
    several processes may have the same store open.
    """

    def __init__(self, store: recovery.OpenStore, *, waits: bool) -> None:
        database, options, clock = store.database, store.options, store.clock
        self.path = database.path
        self.owner_id = store.owner.id
        self._store = store
        self._db = database
        self._raw = store.raw
        self._options = options
        self._clock = clock
        self._emit = store.emit
        self._saving = Saving(database, store.raw, options)
        self.backpressure = Backpressure(store, waits=waits)
        self._claim_numbers = itertools.count(1)
        self._undeliverable: set[str] = set()
        """Ids of results whose rows cannot be written because of a damaged page."""
        self._is_damage_noted = False
        self._releasing: set[asyncio.Task[None]] = set()
        self.leases = Leases(database, clock)
        self.cache = Cache(database, options, clock)
        self.signals = Signals(database, clock)
        self.browsers = Browsers(database, store.live)
        self.sync_log = SyncLog(database, clock)
        self.metrics = Metrics(database, clock)
        self.state = WorkerState(database, clock)
        self.reparse = StoredPages(database, store.raw, clock)
        monotonic = asyncio.get_running_loop().time
        self._watch = locks.PeerWatch(store.live, store.owner.id, options.hung_after_seconds, monotonic)
        self.leader_locks = LeaderLocks(store.live, store.owner.id, self._watch)
        self._hung: set[str] = set()
        self._beat_timer: asyncio.TimerHandle | None = None
        self.artifacts = Artifacts(database, store.raw.root, clock)
        self.operator = OperatorActions(database, store.raw, self.artifacts, clock)
        self.maintenance = Maintenance(store, self.artifacts)

    @classmethod
    @contextlib.asynccontextmanager
    async def open(
        cls,
        path: Path | str,
        *,
        options: StoreOptions = StoreOptions(),
        clock: Clock = SystemClock(),
        emit: Emit = ignore,
        worker: str = "",
        create: bool = True,
        migrate: bool = True,
        waits: bool = False,
    ) -> AsyncIterator[LocalPersistenceManager]:
        """Opens the store at `path`, created if missing, and recovers the tasks of crashed processes (I9).

        On exit, remaining claims are released. `waits`: writes that must not be lost wait while the store is full or
        locked, instead of raising (`backpressure`).
        """
        request = recovery.OpenRequest(Path(path), options, clock, emit, worker, create, migrate)
        async with recovery.open_store(request) as store:
            self = cls(store, waits=waits)
            self._beat()
            try:
                yield self
            finally:
                self._stop_beating()
                self.leader_locks.release()
                await self._release_all()

    @property
    def missing(self) -> str:
        """What is wrong if the store's files were moved or deleted, else ''. If they were, nothing is saved."""
        return self._db.missing() or self._raw.missing

    def watch_files(self) -> str:
        """Returns `missing`, and tells other processes if the store was moved. Call it regularly."""
        problem = self.missing
        self._store.owner.note_moved(self.path, is_missing=bool(problem))
        return problem

    # This process and its peers

    def peers(self) -> list[str]:
        """Returns the owner ids of other workers that have the store open."""
        alive, _ = locks.owners(self._store.live, self.owner_id)
        return [owner_id for owner_id in alive if owner_id.startswith("worker-")]

    def hung_peers(self) -> list[int]:
        """Returns the process ids of hung peers that have the store open."""
        infos = (locks.owner_info(self._store.live, owner_id) for owner_id in self._watch.hung_owners())
        return [info.pid for info in infos if info is not None]

    def _beat(self) -> None:
        """Touches this process's locks and checks those of peers. On the event loop, so that a hung loop shows."""
        self._beat_timer = asyncio.get_running_loop().call_later(self._watch.beat_seconds, self._beat)
        self._store.owner.beat()
        self.leader_locks.beat()
        with contextlib.suppress(OSError):  # out of file handles: the next beat tries again
            self._check_peers()

    def _check_peers(self) -> None:
        self._watch.sample()
        hung = set(self._watch.hung_owners())
        for owner_id in sorted(hung ^ self._hung):
            info = locks.owner_info(self._store.live, owner_id)
            if owner_id in hung:
                seconds = self._options.hung_after_seconds
                self._emit(PeerHung(owner=owner_id, pid=info.pid if info else 0, seconds=seconds))
            elif info is not None:
                self._emit(PeerBack(owner=owner_id, pid=info.pid))
        self._hung = hung

    def _stop_beating(self) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()

    # Tasks

    async def add_task(self, task: Task) -> bool:
        """Returns whether it is new. A known task_id changes nothing. Raises InvalidInput."""
        row = rows.task_row(task, self._now(), self._options.max_target_bytes)
        return await self.backpressure.write(lambda: self._db.start_together(tasks.add_each, row))

    async def add_tasks(self, new_tasks: Iterable[Task], *, leased: bool = False) -> Added:
        """Adds any number of tasks in bounded memory. Refuses those that are invalid, and adds the others.

        About a thousand go into one transaction: after a crash the first ones are stored, and adding all again is safe.
        `leased`: an upstream has just leased them (`tasks.add_leased`)."""
        insert = tasks.add_leased if leased else tasks.add

        def store(chunk: Sequence[tuple[object, ...]]) -> Awaitable[int]:
            return self._write(insert, chunk)

        return await tasks.add_in_chunks(store, new_tasks, self._clock, self._options.max_target_bytes)

    async def known_parcels(self, site: Site, *, delinquent_only: bool) -> list[int]:
        """Returns a completed task for each parcel of the site, by `seq`: what `add_refreshes` takes."""
        return await self._db.read(refresh.known_parcels, site, delinquent_only=delinquent_only)

    async def add_refreshes(self, run: RefreshRun, seqs: Sequence[int], first: int) -> int:
        """Adds tasks that scrape these parcels again (`tasks.add_refreshes`)."""
        return await self._write(tasks.add_refreshes, run, seqs, first)

    async def add_refresh_targets(self, run: RefreshRun, site: Site, targets: Sequence[Target], first: int) -> int:
        """Like `add_refreshes`, for parcels that the store need not know."""
        return await self._write(tasks.add_refresh_targets, run, site, targets, first)

    async def open_refreshes(self, prefix: str, run: str) -> int:
        """Returns how many tasks of other runs of a schedule have not ended."""
        return await self._db.read(refresh.open_tasks, prefix, run)

    async def claim(
        self, limit: int = 1, *, platforms: Collection[str] | None = None, exclude_sites: Sites = ()
    ) -> list[Claim]:
        """Claims the next tasks by priority, then age; returns none if none is due. No two callers get the same task.

        Skips delayed tasks and paused platforms. Claims only tasks of `platforms` (None: all), none of `exclude_sites`.
        """
        if validation.whole("limit", limit, maximum=_MAX_CLAIMS) == 0:
            return []
        task_filter = claims.TaskFilter(None if platforms is None else frozenset(platforms), frozenset(exclude_sites))
        return await self.backpressure.claim(lambda: self._claim(limit, task_filter))

    async def _claim(self, limit: int, task_filter: claims.TaskFilter) -> list[Claim]:
        token = f"{self.owner_id}:{next(self._claim_numbers)}"
        request = tasks.ClaimRequest(self.owner_id, token, self._now(), limit, task_filter)
        claiming = self._db.start_together(tasks.claim_each, request, durable=False)
        try:
            return await asyncio.shield(claiming)
        except asyncio.CancelledError:
            # Nobody is left to work on the tasks being claimed, so they are released before the caller ends.
            releasing = self._in_background(self._release_when_claimed(claiming))
            await asyncio.wait([releasing], timeout=self._options.busy_timeout_seconds)
            raise

    async def finish(self, claim: Claim, reason: str = "") -> bool:
        """Ends the task as not found, and reports it. Returns False for a stale claim (I4)."""
        message = validation.message(reason) or None
        return await self._write(
            tasks.end_with_report, claim.seq, claim.token, TaskStatus.NOT_FOUND, self._now(), message
        )

    async def give_up(self, claim: Claim, error: str) -> bool:
        """Fails the task, and reports it. Returns False for a stale claim (I4)."""
        message = validation.message(error)
        return await self._write(tasks.end_with_report, claim.seq, claim.token, TaskStatus.FAILED, self._now(), message)

    async def retry_later(self, claim: Claim, error: str, delay: timedelta | None = None) -> TaskStatus | None:
        """Retries after a delay (doubling by default, with jitter), or fails the task if its retries are used up.

        Returns the new status, None for a stale claim (I4).
        """
        wait = tasks.retry_delay(claim.retries, self._options) if delay is None else min(delay, LONGEST_DELAY)
        now = self._clock.now()
        due = iso(now + wait)
        return await self._write(tasks.retry, claim.seq, claim.token, iso(now), due, validation.message(error))

    async def release(self, claim: Claim, delay: timedelta | None = None, reason: str = "") -> bool:
        """Releases the task without counting a retry, and stores the `reason`. Returns False for a stale claim (I4)."""
        now = self._clock.now()
        due = None if delay is None else iso(now + min(delay, LONGEST_DELAY))
        release = ([(claim.seq, claim.token)], iso(now), due, validation.message(reason) or None)
        return await self.backpressure.write(lambda: self._db.write_lossy(tasks.release, *release)) == 1

    def release_later(self, claim: Claim) -> asyncio.Task[None]:
        """Like `release`, in the background, as soon as the store is writable."""
        return self._in_background(self._release_in_background([claim]))

    async def expire_tasks(self, max_age: timedelta | None = None) -> int:
        """Expires pending tasks whose lease has ended or that are older than `max_age`, and reports them (I1)."""
        return await tasks.expire(self._db, self._clock.now(), max_age)

    async def recover_abandoned(self) -> int:
        """Recovers the tasks of processes that have crashed or hang (I9). Returns the number of tasks."""
        recovered = await recovery.recover(self._store)
        if hung := self._watch.hung_owners():
            most = self._options.max_recoveries
            recovered += sum(await self._db.write(tasks.recover, hung, self._clock.now(), most))
        return recovered

    async def pause_platform(
        self, platform: str, until: datetime | None = None, reason: str = "", sites: Sites = ()
    ) -> None:
        """Pauses claims of the platform's tasks, or only those of `sites`, for all processes on the store. `until`
        None: until it is resumed.
        """
        validation.text("platform", platform)
        due = iso(until) if until else None
        await self._write(claims.pause, platform, due, validation.message(reason), self._now(), sites)

    async def resume_platform(self, platform: str) -> bool:
        return await self._db.write(claims.resume, platform)

    async def pauses(self) -> dict[Site, claims.Pause]:
        """Returns the pauses by site. Whole platforms come first, as sites without state and county."""
        return await self._db.read(claims.pauses, self._now())

    async def supply(self, limit: int) -> dict[str, queries.Supply]:
        """Counts the open tasks of each platform, ready ones up to `limit`. Fast even with a million tasks."""
        return await self._db.read(queries.supply, limit, self._now())

    async def is_any_open(self, platforms: Collection[str] | None = None) -> bool:
        """Whether a task is pending or processing, here or in a peer process."""
        return await self._db.read(queries.is_any_open, None if platforms is None else sorted(platforms))

    async def holds_upstream_work(self) -> bool:
        """Whether tasks from an upstream, or their results, are waiting here."""
        waiting = await self._db.read(queries.sources)
        return bool((waiting.pending | waiting.unsent) & {Source.GATEWAY, Source.FIRESTORE})

    async def claimed_by_peers(self) -> int:
        """Returns how many tasks other processes have claimed."""
        by_owner = await self._db.read(queries.claims_by_owner)
        return sum(count for owner_id, count in by_owner.items() if owner_id != self.owner_id)

    async def ended_since(self, moment: datetime) -> dict[str, int]:
        """Counts tasks that have ended since then, by status, without children."""
        return await self._db.read(queries.ended_since, iso(moment))

    async def failures_since(self, moment: datetime) -> queries.Failures:
        return await self._db.read(queries.failures_since, moment)

    async def queue_depth(self) -> QueueDepth:
        return await self._db.read(queries.depth, self._clock.now())

    async def get_task(self, task_id: str) -> TaskInfo | None:
        return await self._db.read(tasks.get, task_id)

    # Results

    def encode(self, data: Mapping[str, Json]) -> Encoded:
        """Encodes a record; call it on a thread, because large ones take time. Raises InvalidInput."""
        return Encoded(validation.json_bytes("data", data, max_bytes=self._options.max_result_bytes))

    async def save_result(self, claim: Claim, result: Result) -> str | None:
        """Stores the result and completes its task in one transaction (I3), after its page is on disk (I6).

        Further records of its page become results of child tasks in the same transaction. Returns the result's id, or
        None for a stale claim, which changes nothing (I4). Once this has returned, the results survive kill -9 and,
        with synchronous=FULL, power loss (I2).
        """
        result_id = await self.backpressure.write(lambda: self._saving.save(claim, result, self._clock.now()))
        if result_id is not None:
            await self.artifacts.discard_superseded(claim)
        return result_id

    async def add_result(self, task: Task, result: Result) -> str | None:
        """Stores a record together with its task, completed (I3).

        Like `save_result`, but returns None for a known task, which changes nothing.
        """
        return await self._saving.add(task, result, self._clock.now())

    async def get_unsynced_results(
        self, limit: int = 50, max_bytes: int | None = None, *, after: int = 0
    ) -> list[OutboxEntry]:
        """Returns undelivered results in the order stored: at most `limit`, and at most `max_bytes` after the first.

        `after`: only results with a higher `seq`.
        """
        while True:
            entries, is_damaged = await self._db.read(
                outbox.unsynced, validation.whole("limit", limit), max_bytes, after
            )
            if is_damaged:
                self._note_damage()
            deliverable = [entry for entry in entries if entry.result_id not in self._undeliverable]
            if deliverable or not entries:
                return deliverable
            after = entries[-1].seq

    async def tasks_to_report_again(self, limit: int = 50) -> list[tuple[TaskInfo, str | None]]:
        """Returns tasks that were leased again after their end was delivered or rejected, and why it was rejected.

        The upstream still counts them as leased: it needs a second report.
        """
        return await self._db.read(tasks.to_report_again, limit)

    async def mark_reported_again(self, seqs: Sequence[int]) -> int:
        return await self._mark(tasks.mark_reported_again, seqs)

    async def mark_synced(self, result_ids: Sequence[str]) -> int:
        """Records receipts. Skips results whose raw file has no receipt yet (I6)."""
        return await self._mark_results(outbox.mark_synced, result_ids, self._now())

    async def mark_raw_synced(self, result_ids: Sequence[str]) -> int:
        """Records receipts for raw files."""
        return await self._mark_results(outbox.mark_raw_synced, result_ids, self._now())

    async def mark_rejected(self, result_ids: Sequence[str], reason: str) -> int:
        """Rejects results that the upstream will not accept: kept, and sent again only by an operator."""
        return await self._mark_results(outbox.mark_rejected, result_ids, validation.message(reason), self._now())

    async def count_attempt(self, result_ids: Sequence[str], error: str) -> int:
        return await self._mark_results(outbox.count_attempt, result_ids, validation.message(error))

    async def note_refusal(self, result_ids: Sequence[str], error: str) -> int:
        """Stores why the upstream refused a result, without counting an attempt: it may be the upstream's fault."""
        return await self._mark_results(outbox.note_refusal, result_ids, validation.message(error))

    async def get_result(self, task_id: str) -> OutboxEntry | None:
        return await self._db.read(outbox.get, task_id)

    def check_raw_folder(self) -> None:
        """Raises StoreGone if the raw folder is missing, so that no result is blamed for it."""
        if problem := self._raw.missing:
            raise StoreGone(problem, hint=GONE_HINT)

    def check_files(self) -> None:
        """Raises StoreGone if the store's file or its raw folder is missing."""
        if problem := self._db.missing():
            raise StoreGone(problem)
        self.check_raw_folder()

    def raw_path(self, html_path: str) -> Path:
        """Returns the file for a path of an entry, such as `html_path`."""
        return self._raw.path(html_path)

    async def _mark_results(
        self,
        change: Callable[Concatenate[sqlite3.Connection, Sequence[str], P], int],
        result_ids: Sequence[str],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> int:
        """Records something about results. Next to a damaged page, rows may be readable but not writable: skips those.

        They are not returned by `get_unsynced_results` again, because their receipts could not be recorded.
        """
        try:
            return await self._mark(change, result_ids, *args, **kwargs)
        except StoreCorrupt:
            self._note_damage()
            if len(result_ids) < 2:
                self._undeliverable.update(result_ids)
                return 0
            middle = len(result_ids) // 2
            first = await self._mark_results(change, result_ids[:middle], *args, **kwargs)
            return first + await self._mark_results(change, result_ids[middle:], *args, **kwargs)

    def _note_damage(self) -> None:
        if not self._is_damage_noted:
            self._is_damage_noted = True
            self._emit(StoreDamaged(path=str(self.path)))
            self._db.write_soon(put, DAMAGE_STATE, DamageNote(at=self._clock.now()), self._now())

    async def page_problem(self, entry: OutboxEntry) -> str:
        """Returns why the page of an entry cannot be sent, '' if it can.

        Raises OSError if the disk cannot be read, and ValueError for an invalid path.
        """
        path = self._raw.path(entry.html_path or "")
        return await asyncio.to_thread(raw_files.page_problem, path, entry)

    async def restore_page(self, entry: OutboxEntry) -> bool:
        """Restores a missing or damaged page from the raw journal. Returns False if that no longer has it."""
        path = self._raw.path(entry.html_path or "")
        return await asyncio.to_thread(raw_files.restore_page, self._store.live, path, entry)

    async def _write(
        self, change: Callable[Concatenate[sqlite3.Connection, P], T], *args: P.args, **kwargs: P.kwargs
    ) -> T:
        return await self.backpressure.write(lambda: self._db.write(change, *args, **kwargs))

    async def _mark(
        self, change: Callable[Concatenate[sqlite3.Connection, P], int], *args: P.args, **kwargs: P.kwargs
    ) -> int:
        return await self.backpressure.write_receipts(lambda: self._db.write(change, *args, **kwargs))

    async def _release_when_claimed(self, claiming: asyncio.Future[list[Claim]]) -> None:
        """Releases the claims of a caller that was cancelled."""
        await asyncio.wait([claiming])
        if claiming.exception() is not None:
            return
        await self._release_in_background(claiming.result())

    def _in_background(self, work: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
        task = asyncio.create_task(work)
        self._releasing.add(task)
        task.add_done_callback(self._releasing.discard)
        return task

    async def _release_in_background(self, claims: Sequence[Claim]) -> None:
        tokens = [(claim.seq, claim.token) for claim in claims]
        with contextlib.suppress(StoreError):  # the store was closed, which releases them too
            await self.backpressure.write_while_open(
                lambda: self._db.write_lossy(tasks.release, tokens, self._now(), None)
            )

    async def _release_all(self) -> None:
        for releasing in self._releasing:
            releasing.cancel()
        with contextlib.suppress(StoreError):  # the next start recovers them (I9)
            await self._db.write_lossy(tasks.release_owned, self._store.owner.id, self._now())

    def _now(self) -> str:
        return iso(self._clock.now())
