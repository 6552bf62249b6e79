"""LocalPersistenceManager: the one door to everything durable, for every mode."""

from __future__ import annotations

import asyncio
import contextlib
import itertools
import sqlite3
from collections.abc import AsyncIterator, Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Concatenate, ParamSpec

from parcelpost.clock import Clock, SystemClock, iso
from parcelpost.errors import StoreCorrupt, StoreError, StoreGone
from parcelpost.events import Emit, PeerBack, PeerHung, StoreDamaged, ignore
from parcelpost.model import Claim, Encoded, Json, OutboxEntry, QueueDepth, Result, Source, Task, TaskInfo, TaskStatus
from parcelpost.storage import claims, filters, locks, outbox, queries, raw_files, recovery, rows, tasks, validation
from parcelpost.storage.admin import Admin, Consent
from parcelpost.storage.artifacts import Artifacts
from parcelpost.storage.browsers import Browsers
from parcelpost.storage.cache import Cache
from parcelpost.storage.claims import Sites
from parcelpost.storage.filters import Selection
from parcelpost.storage.history import Metrics, SyncLog
from parcelpost.storage.leases import Leases
from parcelpost.storage.locks import LeaderLocks
from parcelpost.storage.options import LONGEST_DELAY, StoreOptions
from parcelpost.storage.queries import FailureLog
from parcelpost.storage.raw_files import GONE_HINT
from parcelpost.storage.reparse import Reparse
from parcelpost.storage.results import Saving
from parcelpost.storage.retention import Maintenance
from parcelpost.storage.signals import Signals
from parcelpost.storage.snapshot import DAMAGE_STATE, DamageNote
from parcelpost.storage.state import WorkerState, put
from parcelpost.storage.tasks import Added

P = ParamSpec("P")

_MAX_CLAIMS = 10_000
_GIVE_BACK_AGAIN_SECONDS = 0.2


class LocalPersistenceManager:
    """Tasks in, results out, nothing lost in between. Open it with `async with LocalPersistenceManager.open(path)`.

    Every method may raise a StoreError. What a method has returned for survives a kill; tasks, results, ends and marks
    survive a power cut too. All methods may be called by any number of coroutines of one event loop; several processes
    may have the same store open.
    """

    def __init__(self, store: recovery.OpenStore, options: StoreOptions, clock: Clock, emit: Emit) -> None:
        database = store.database
        self.path = database.path
        self.owner_id = store.owner.id
        self._store = store
        self._db = database
        self._raw = store.raw
        self._options = options
        self._clock = clock
        self._emit = emit
        self._saving = Saving(database, store.raw, options)
        self._claim_numbers = itertools.count(1)
        self._unmarkable: set[str] = set()
        self._is_damage_noted = False
        self._giving_back: set[asyncio.Task[None]] = set()
        self.leases = Leases(database, clock)
        self.cache = Cache(database, options, clock)
        self.signals = Signals(database, clock)
        self.browsers = Browsers(database, store.live)
        self.sync_log = SyncLog(database, clock)
        self.metrics = Metrics(database, clock)
        self.failures = FailureLog(database)
        self.state = WorkerState(database, clock)
        self.reparsing = Reparse(database, store.raw, clock)
        monotonic = asyncio.get_running_loop().time
        self._watch = locks.PeerWatch(store.live, store.owner.id, options.hung_after_seconds, monotonic)
        self.duties = LeaderLocks(store.live, store.owner.id, self._watch)
        self._hung: set[str] = set()
        self._beat_timer: asyncio.TimerHandle | None = None
        self.evidence = Artifacts(database, store.raw.root, clock)
        self.mending = Admin(database, store.raw, self.evidence, clock)
        self.janitor = Maintenance(store, self.evidence, options, clock, emit)

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
    ) -> AsyncIterator[LocalPersistenceManager]:
        """Opens the store at `path`, made if it is not there, and brings back what dead processes held (I9).

        On leaving, claims still held go back to pending.
        """
        async with recovery.open_store(
            Path(path), options, clock, emit, worker=worker, create=create, migrate=migrate
        ) as store:
            self = cls(store, options, clock, emit)
            self._beat()
            try:
                yield self
            finally:
                self._stop_beating()
                self.duties.leave()
                await self._release_all()

    @property
    def missing(self) -> str:
        """What is wrong when the store's files are no longer where they were, else ''. Nothing is saved then."""
        return self._db.missing or self._raw.missing

    # This process and its peers

    def peers(self) -> list[str]:
        """The other workers that have the store open, by their owner ids."""
        alive, _ = locks.openers(self._store.live, self.owner_id)
        return [one for one in alive if one.startswith("worker-")]

    def hung_peers(self) -> list[str]:
        """Processes that have the store open and give no sign of life, by their owner ids."""
        return self._watch.hung_owners()

    def _beat(self) -> None:
        """A sign of life, and a look at those of others. On the event loop: where that hangs, the process does."""
        self._beat_timer = asyncio.get_running_loop().call_later(self._watch.beat_seconds, self._beat)
        self._store.owner.beat()
        self.duties.beat()
        with contextlib.suppress(OSError):  # no file can be opened just now: the next look tells
            self._look_at_peers()

    def _look_at_peers(self) -> None:
        self._watch.look()
        hung = set(self._watch.hung_owners())
        for one in sorted(hung ^ self._hung):
            facts = locks.facts(self._store.live, one)
            if one in hung:
                self._emit(PeerHung(owner=one, pid=facts.pid if facts else 0, seconds=self._options.hung_after_seconds))
            elif facts is not None:
                self._emit(PeerBack(owner=one, pid=facts.pid))
        self._hung = hung

    def _stop_beating(self) -> None:
        if self._beat_timer is not None:
            self._beat_timer.cancel()

    # Tasks

    async def add_task(self, task: Task) -> bool:
        """True if it is new. The same task_id again changes nothing. Raises InvalidInput."""
        row = rows.task_row(task, self._now(), self._options.max_target_bytes)
        return await self._db.start_together(tasks.add_each, row)

    async def add_tasks(self, many: Iterable[Task], *, granted: bool = False) -> Added:
        """Adds any number in bounded memory. One that cannot be stored is refused and harms none beside it.

        A thousand or so go in one transaction: a crash leaves the first ones stored, and adding all again is safe.
        `granted`: an upstream has just handed them out (`granting.add`)."""
        return await tasks.add_in_chunks(self._db, many, self._clock, self._options.max_target_bytes, granted=granted)

    async def claim(
        self, limit: int = 1, *, platforms: Collection[str] | None = None, exclude_sites: Sites = ()
    ) -> list[Claim]:
        """The next tasks, by priority and then age; empty when none is due. No two callers get the same one.

        Passes over delayed tasks and paused platforms; takes only of `platforms`, and none of `exclude_sites`.
        """
        if validation.whole("limit", limit, most=_MAX_CLAIMS) == 0:
            return []
        wanted = claims.TaskFilter(None if platforms is None else frozenset(platforms), frozenset(exclude_sites))
        token = f"{self.owner_id}:{next(self._claim_numbers)}"
        request = tasks.ClaimRequest(self.owner_id, token, self._now(), limit, wanted)
        claiming = self._db.start_together(tasks.claim_each, request, durable=False)
        try:
            await asyncio.wait([claiming])
        except asyncio.CancelledError:
            # Nobody is left to work on what the store is handing out: it goes back before the caller ends.
            giving_back = asyncio.create_task(self._give_back(claiming))
            self._giving_back.add(giving_back)
            giving_back.add_done_callback(self._giving_back.discard)
            await asyncio.wait([giving_back], timeout=self._options.busy_timeout_seconds)
            raise
        return claiming.result()

    async def heartbeat(self, claims: Sequence[Claim], lease_expires_at: datetime | None = None) -> list[Claim]:
        """Says that the claims are still worked on, and extends their leases. Answers the claims that are lost."""
        lease = iso(lease_expires_at) if lease_expires_at else None
        keys = [(claim.seq, claim.token) for claim in claims]
        lost = await self._db.write_lossy(tasks.heartbeat, keys, self._now(), lease)
        return [claims[index] for index in lost]

    async def assign_browser(self, claim: Claim, browser_id: int | None) -> bool:
        return await self._db.write_lossy(tasks.assign_browser, claim.seq, claim.token, browser_id)

    async def finish(self, claim: Claim, reason: str = "") -> bool:
        """Ends the task as not found, with no record to send; its end is reported. False: the claim is stale (I4)."""
        end = (claim.seq, claim.token, TaskStatus.NOT_FOUND, self._now(), validation.message(reason) or None)
        return await self._db.write(tasks.end_with_report, *end)

    async def give_up(self, claim: Claim, error: str) -> bool:
        """Ends the task as failed; its failure is reported. False: the claim is stale (I4)."""
        end = (claim.seq, claim.token, TaskStatus.FAILED, self._now(), validation.message(error))
        return await self._db.write(tasks.end_with_report, *end)

    async def retry_later(self, claim: Claim, error: str, delay: timedelta | None = None) -> TaskStatus | None:
        """PENDING again after a delay (by default doubling, with jitter), FAILED when its retries are used up.

        None: the claim is stale (I4).
        """
        wait = self._options.backoff(claim.retries) if delay is None else min(delay, LONGEST_DELAY)
        now = self._clock.now()
        due = iso(now + wait)
        return await self._db.write(tasks.retry, claim.seq, claim.token, iso(now), due, validation.message(error))

    async def release(self, claim: Claim, delay: timedelta | None = None, reason: str = "") -> bool:
        """Gives the task back at no cost to its retries; a `reason` stays with it. False: the claim is stale (I4)."""
        now = self._clock.now()
        due = None if delay is None else iso(now + min(delay, LONGEST_DELAY))
        held, why = [(claim.seq, claim.token)], validation.message(reason) or None
        return await self._db.write_lossy(tasks.release, held, iso(now), due, why) == 1

    async def expire_tasks(self, max_age: timedelta | None = None) -> int:
        """Ends pending tasks whose lease is over, or that were stored longer ago than `max_age`; each is reported."""
        return await tasks.expire(self._db, self._clock.now(), max_age)

    async def recover_abandoned(self, silence: timedelta | None = None) -> int:
        """Brings back what processes held that have died since, or hang (I9). Returns the number of tasks.

        With `silence`, also what a live process holds but has neither claimed nor sent a heartbeat for that long.
        """
        recovered = await recovery.recover(self._store, self._options, self._clock, self._emit)
        if hung := self.hung_peers():
            most = self._options.max_recoveries
            recovered += sum(await self._db.write(tasks.recover, hung, self._clock.now(), most))
        if silence is not None:
            now = self._clock.now()
            recovered += await self._db.write(tasks.recover_silent, iso(now - silence), now)
        return recovered

    async def requeue(
        self,
        task_ids: Sequence[str] | None = None,
        *,
        status: TaskStatus | None = None,
        platform: str | None = None,
        completed: bool = False,
    ) -> int:
        """Failed and expired tasks start anew; with `completed` also completed ones whose result was delivered."""
        ids, statuses = None if task_ids is None else tuple(task_ids), () if status is None else (status,)
        which = Selection(task_ids=ids, statuses=statuses, platform=platform)
        return (await self.mending.retry_tasks(which, Consent(completed=completed))).total()

    async def pause_platform(self, platform: str, until: datetime | None = None, reason: str = "") -> None:
        """Nobody claims from it until then, or until it is resumed; holds for all processes on the store."""
        validation.text("platform", platform)
        due = iso(until) if until else None
        await self._db.write(claims.pause, platform, due, validation.message(reason), self._now())

    async def resume_platform(self, platform: str) -> bool:
        return await self._db.write(claims.resume, platform)

    async def paused_platforms(self) -> dict[str, tuple[str | None, str]]:
        """Platform -> until when (None: until resumed) and why."""
        return await self._db.read(claims.paused, self._now())

    async def supply(self, most: int) -> dict[str, queries.Supply]:
        """What each platform has to do, its ready tasks counted no further than `most`: cheap at a million tasks."""
        return await self._db.read(queries.supply, most, self._now())

    async def is_any_open(self, platforms: Collection[str] | None = None) -> bool:
        """Whether a task waits or is worked on, here or in a sister process."""
        return await self._db.read(queries.is_any_open, None if platforms is None else sorted(platforms))

    async def holds_upstream_work(self) -> bool:
        """Whether tasks of an upstream wait here, or their results."""
        waiting = await self._db.read(queries.sources)
        return bool((waiting.pending | waiting.unsent) & {Source.GATEWAY, Source.FIRESTORE})

    async def claimed_by_peers(self) -> int:
        """How many tasks other processes on the store work on."""
        return await self._db.read(queries.claimed_by_others, self.owner_id)

    async def ended_since(self, moment: datetime) -> dict[str, int]:
        """Status -> how many tasks have ended so since then. Children do not count."""
        return await self._db.read(queries.ended_since, iso(moment))

    async def queue_depth(self) -> QueueDepth:
        return await self._db.read(queries.depth, self._clock.now())

    async def task_counts(self) -> dict[str, dict[str, int]]:
        """Per platform and status; pending ones that are not yet due stand under `delayed`."""
        return await self._db.read(queries.counts, self._now())

    async def get_task(self, task_id: str) -> TaskInfo | None:
        return await self._db.read(tasks.get, task_id)

    async def list_tasks(self, which: Selection = Selection(), *, limit: int = 100, after: int = 0) -> list[TaskInfo]:
        """In the order stored. The next page: `after` = the last one's `seq`."""
        return await self._db.read(filters.tasks_page, which, validation.whole("limit", limit), after)

    # Results

    def encode(self, data: Mapping[str, Json]) -> Encoded:
        """For a thread of one's own: what is large holds up nobody there. Raises InvalidInput."""
        return Encoded(validation.json_bytes("data", data, max_bytes=self._options.max_result_bytes))

    async def save_result(self, claim: Claim, result: Result) -> str | None:
        """Stores the result and closes its task in one transaction (I3); its page is on disk before (I6).

        Further records of its page become results of child tasks in the same transaction. Answers the result's id.
        None: the claim is stale and nothing changed (I4). When this has returned, the results survive kill -9 and, at
        synchronous=FULL, power loss (I2).
        """
        if (result_id := await self._saving.save(claim, result, self._clock.now())) is not None:
            await self.evidence.outlived_by(claim)
        return result_id

    async def add_result(self, task: Task, result: Result) -> str | None:
        """A record that is there before anybody asked for it: its task is stored with it, completed (I3).

        As `save_result`, but None: a task of that id is known, and nothing changed.
        """
        return await self._saving.add(task, result, self._clock.now())

    async def get_unsynced_results(
        self, limit: int = 50, max_bytes: int | None = None, *, after: int = 0
    ) -> list[OutboxEntry]:
        """What waits to be sent, in the order stored: at most `limit`, and (but for the first) `max_bytes` of data.

        `after` = the `seq` of one that was already seen: only what was stored later.
        """
        while True:
            found, unreadable, on_damaged_pages = await self._db.read(
                outbox.unsynced, validation.whole("limit", limit), max_bytes, after
            )
            if on_damaged_pages:
                self._note_damage()
            if unreadable:
                await self._mark(outbox.reject_damaged, unreadable, self._now())
            fit = [entry for entry in found if entry.result_id not in self._unmarkable]
            if fit or not found:
                return fit
            after = found[-1].seq

    async def tasks_to_answer(self, limit: int = 50) -> list[tuple[TaskInfo, str | None]]:
        """Handed out again after their end was delivered or rejected, and the reason of a rejection.

        The upstream waits to hear that they are done, or that they have failed.
        """
        return await self._db.read(tasks.to_answer, limit)

    async def mark_answered(self, seqs: Sequence[int]) -> int:
        return await self._mark(tasks.mark_answered, seqs)

    async def mark_synced(self, result_ids: Sequence[str]) -> int:
        """The gateway has them. One whose raw file is not upstream yet is not marked (I6)."""
        return await self._mark_results(outbox.mark_synced, result_ids, self._now())

    async def mark_raw_synced(self, result_ids: Sequence[str]) -> int:
        """The gateway has their raw files."""
        return await self._mark_results(outbox.mark_raw_synced, result_ids, self._now())

    async def mark_rejected(self, result_ids: Sequence[str], reason: str) -> int:
        """The gateway will not take them: kept, visible, sent again only after `reset_rejected`."""
        return await self._mark_results(outbox.mark_rejected, result_ids, validation.message(reason), self._now())

    async def count_attempt(self, result_ids: Sequence[str], error: str) -> int:
        return await self._mark_results(outbox.count_attempt, result_ids, validation.message(error))

    async def note_refusal(self, result_ids: Sequence[str], error: str) -> int:
        """Why the gateway did not take it, though that may be the gateway's own fault: it costs no attempt."""
        return await self._mark_results(outbox.note_refusal, result_ids, validation.message(error))

    async def reset_rejected(self, result_ids: Sequence[str] | None = None) -> int:
        """Rejected ones, or all of them, wait to be sent again."""
        return await self._db.write(outbox.reset_rejected, result_ids)

    async def get_result(self, task_id: str) -> OutboxEntry | None:
        return await self._db.read(outbox.get, task_id)

    async def list_results(
        self, which: Selection = Selection(), *, limit: int = 100, after: int = 0
    ) -> list[OutboxEntry]:
        """In the order stored. The next page: `after` = the last one's `seq`."""
        return await self._db.read(filters.results_page, which, validation.whole("limit", limit), after)

    def check_raw_folder(self) -> None:
        """Raises StoreGone where the folder of raw pages is not there: no result is at fault for that."""
        if problem := self._raw.missing:
            raise StoreGone(problem, hint=GONE_HINT)

    def check_files(self) -> None:
        """Raises StoreGone where the store's file or its raw folder is not there any more."""
        if problem := self._db.missing:
            raise StoreGone(problem)
        self.check_raw_folder()

    def raw_path(self, html_path: str) -> Path:
        """The file on disk of an entry's `html_path` or another of its paths."""
        return self._raw.path(html_path)

    async def _mark_results(
        self,
        change: Callable[Concatenate[sqlite3.Connection, Sequence[str], P], int],
        result_ids: Sequence[str],
        *args: P.args,
        **kwargs: P.kwargs,
    ) -> int:
        """Beside a damaged page a row may be readable and not writable: it stops no other, and is not sent again."""
        try:
            return await self._mark(change, result_ids, *args, **kwargs)
        except StoreCorrupt:
            self._note_damage()
            if len(result_ids) < 2:
                self._unmarkable.update(result_ids)
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
        """Why the page that the entry names cannot be sent, '' if its file has the bytes that were fetched.

        Raises OSError for a disk that cannot be read, and ValueError for a name that is none.
        """
        path = self._raw.path(entry.html_path or "")
        return await asyncio.to_thread(raw_files.page_problem, path, entry)

    async def restore_page(self, entry: OutboxEntry) -> bool:
        """Writes a page that is gone or damaged anew. False: the raw journal does not hold it any more."""
        path = self._raw.path(entry.html_path or "")
        return await asyncio.to_thread(raw_files.restore_page, self._store.live, path, entry)

    async def _mark(
        self, change: Callable[Concatenate[sqlite3.Connection, P], int], *args: P.args, **kwargs: P.kwargs
    ) -> int:
        return await self._store.even_if_full(lambda: self._db.write(change, *args, **kwargs), self._emit)

    async def _give_back(self, claiming: asyncio.Future[list[Claim]]) -> None:
        """Releases what was claimed for a caller that is gone, however long the store cannot be written."""
        await asyncio.wait([claiming])
        if claiming.exception() is not None:
            return
        held = [(claim.seq, claim.token) for claim in claiming.result()]
        while held and not self._db.is_closed:
            try:
                await self._db.write_lossy(tasks.release, held, self._now(), None)
                return
            except StoreError:
                await self._clock.sleep(_GIVE_BACK_AGAIN_SECONDS)

    async def _release_all(self) -> None:
        for giving_back in self._giving_back:
            giving_back.cancel()
        with contextlib.suppress(StoreError):  # then they come back as a dead owner's (I9)
            await self._db.write_lossy(tasks.release_owned, self._store.owner.id, self._now())

    def _now(self) -> str:
        return iso(self._clock.now())
