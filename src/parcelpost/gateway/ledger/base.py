"""The Ledger protocol (tasks, leases, results, workers) and the rules that every implementation follows."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol

from msgspec import Struct

from parcelpost.gateway.models import (
    ActivityRow,
    AddCounts,
    EndedTask,
    ExpiredLeases,
    Grant,
    IngestedResult,
    KnownTask,
    LeaseEnd,
    LienRow,
    ParcelFilter,
    ParcelKey,
    ParcelRecord,
    ParcelRow,
    QueueRow,
    RecordVersion,
    StoreOutcome,
    TaskOutcome,
    TaskRow,
    TaskState,
    WorkerHeartbeat,
    WorkerRow,
)
from parcelpost.model import Signal, Task
from parcelpost.protocol.payloads import MetricsSample, RankedSelector


class Ledger(Protocol):
    """Opened by `open_ledger`; safe to call from many coroutines at once, and, on one database, from many processes."""

    # Tasks

    async def add_tasks(self, tasks: Sequence[Task], now: datetime) -> AddCounts:
        """Queues them. A task id that is known changes nothing, not even its state."""

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        """Up to `capacity` queued tasks of these platforms, by priority, then age, each leased to the worker.

        No task has two open leases. As fast at a million queued tasks as at a thousand.
        """

    async def expire_leases(self, now: datetime, most: int) -> ExpiredLeases:
        """Ends leases that are over: the task is queued again, or dead if that was its last attempt."""

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> TaskOutcome | None:
        """The word of the worker that holds it. No `error`: done, with nothing to send. With one: `not_found`, failed,
        or queued `again` (dead after its last attempt).

        None, and nothing has changed, where the task is unknown, has ended, or another worker holds it.
        """

    async def task(self, task_id: str) -> TaskRow | None: ...

    async def ended_tasks(
        self, state: str, platform: str, most: int, before: tuple[datetime, int] | None = None
    ) -> Sequence[EndedTask]:
        """Those that are 'not_found', 'failed' or 'dead', of that platform or with '' of all, the last one first; or
        those that ended before that moment and number.
        """

    async def requeue(self, states: Sequence[str], platform: str, now: datetime) -> int:
        """By an operator's word: tasks in these states ('failed', 'dead') are queued again, attempts forgotten."""

    # Results

    async def known_tasks(self, task_ids: Sequence[str], worker_id: str) -> Mapping[str, KnownTask]:
        """What these tasks order, by task id, as far as they are known, and whether they were given to that worker.

        Workers with the same token count as one here.
        """

    async def known_scrapes(self, results: Sequence[IngestedResult]) -> Mapping[str, datetime]:
        """When those that the ledger has already were scraped, by idempotency key."""

    async def store(self, results: Sequence[IngestedResult], worker_id: str, now: datetime) -> Sequence[StoreOutcome]:
        """Keeps them all in one transaction (one round trip), whoever holds their tasks, and completes their tasks.

        One answer for each, in order. An older scrape never takes a newer one's place. A task keeps one result for a
        parcel: the same again (by its idempotency key) is a duplicate, an older one too, a newer one takes its place,
        and so does another of the same millisecond: the same page, read again. Of two tasks that scraped a parcel in
        the same millisecond, the one with the greater id counts as the newer, in whatever order they come.
        """

    # The fleet

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        """Notes that a worker with this token uses the id, and returns the name of the token that the id belongs to.

        It belongs to the token that used it first, for as long as that is among `names`, the tokens there are now. A
        token has at most `most` ids: beyond that a new one takes the place of the one that was not used for the
        longest time, since before `idle_before`, and that holds no lease. None where there is no such id.
        """

    async def release_worker_id(self, worker_id: str) -> str | None:
        """Frees the id for the next token that uses it. Returns the name of the token that it belonged to, None if it
        belonged to none. Its leases and its last heartbeat stay.
        """

    async def record_heartbeat(
        self, heartbeat: WorkerHeartbeat, now: datetime, until: datetime, oldest_grant: datetime
    ) -> Sequence[str]:
        """Notes it, and extends the worker's open leases granted after `oldest_grant`, unless it holds nothing.

        Answers the commands that wait for this worker, oldest first; each is answered once. Those ordered longer ago
        than AWAY_AFTER are dropped, as are all when it leaves: they were not meant for its next start.
        """

    async def release_leases(self, worker_id: str, granted_before: datetime, now: datetime) -> None:
        """The worker holds nothing: its leases granted before then are over, and `bring_back` does the rest.

        So come back tasks whose answer was lost on its way to the worker, long before their lease would have ended.
        """

    async def add_command(self, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
        """Queues a command for that worker, or with '' for all, that have beaten since and have not left. Answers for
        how many.
        """

    async def workers(self, most: int = 100_000) -> Sequence[WorkerRow]:
        """Those that were heard of last, by id."""

    async def add_signals(self, signals: Sequence[Signal], now: datetime) -> None:
        """Counts them by the day. One that is too long to be a selector is left out."""

    async def selectors(self, platform: str, since: datetime, most: int) -> Sequence[RankedSelector]:
        """Of that platform, or of all with ''; by field, the best first."""

    async def add_metrics(self, worker_id: str, samples: Sequence[MetricsSample]) -> None:
        """A sample of the same worker and moment again changes nothing."""

    async def metrics(self, worker_id: str, since: datetime, most: int) -> Sequence[MetricsSample]:
        """The newest of them, oldest first."""

    # What people look at

    async def queue(self) -> Sequence[QueueRow]: ...

    async def add_activity(self, counts: Mapping[tuple[str, str], int], minute: datetime) -> None:
        """Adds to that minute's counts of (platform, outcome)."""

    async def activity(self, since: datetime) -> Sequence[ActivityRow]: ...

    async def parcels(self, wanted: ParcelFilter, after: ParcelKey | None, most: int) -> Sequence[ParcelRow]:
        """In the order of their keys, those after that one."""

    async def records(self, wanted: ParcelFilter, after: ParcelKey | None, most: int) -> Sequence[ParcelRecord]:
        """The same with their records: one, and as many more as make some megabytes together. Empty: none is left."""

    async def latest_parcels(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int] | None = None
    ) -> Sequence[ParcelRow]:
        """The newest first by when they came, or those before that `received_at` and `parcel_no`."""

    async def parcel(self, key: ParcelKey) -> ParcelRow | None: ...

    async def record(self, key: ParcelKey) -> ParcelRecord | None: ...

    async def versions(
        self, key: ParcelKey, most: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[RecordVersion]:
        """Its scrapes, the newest first, or those before that moment and task; bounded as `records` are."""

    async def has_page(self, key: ParcelKey, raw_sha256: str) -> bool:
        """Whether a scrape of this parcel names that page."""

    async def liens(self, wanted: ParcelFilter, after: tuple[ParcelKey, int] | None, most: int) -> Sequence[LienRow]:
        """Liens that themselves have the status and amount wanted, in the order of their parcels and positions."""

    async def latest_liens(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int, int] | None = None
    ) -> Sequence[LienRow]:
        """Liens of the parcels that came last, the newest first, or those after that parcel (as above) and position."""

    # Care

    async def ledger_id(self) -> str:
        """Which ledger this is: made with it, and kept by every copy and backup of it."""

    async def counts(self) -> Mapping[str, int]:
        """parcels, liens, results: estimates will do."""

    async def prune(self, ended_before: datetime, silent_before: datetime, most: int) -> int:
        """Removes ended tasks with their leases, activity, metrics, signals and undelivered commands older than that,
        and workers that were silent since then, hold no lease and have no command waiting. Results stay.

        One step of many, each a transaction of its own: answers how many rows it removed, 0 when nothing is left.
        """

    async def check(self) -> None:
        """Returns if the database answers; an SQLite file must take a page, too. Raises LedgerUnavailable."""


class BatchEntry(Struct, frozen=True, gc=False):
    place: int
    """In the batch."""
    result: IngestedResult
    scraped_at: datetime
    """In whole milliseconds: as the ledger keeps it."""

    @property
    def age(self) -> tuple[datetime, str]:
        """What decides between two scrapes of a parcel, in whatever order they come."""
        return self.scraped_at, self.result.task_id

    def takes_the_place_of(self, other: BatchEntry) -> bool:
        """Of two of one task and parcel, this one being the later to come. At the same moment: the same page, read
        again.
        """
        if self.scraped_at == other.scraped_at:
            return self.result.idempotency_key != other.result.idempotency_key
        return self.scraped_at > other.scraped_at


class DedupedBatch(Struct, frozen=True):
    entries: list[BatchEntry]
    """One for a task and parcel: the newest. By parcel and task; the others are duplicates."""
    newest: dict[ParcelKey, BatchEntry]
    """Of each parcel, in the order of the keys."""

    @property
    def task_ids(self) -> list[str]:
        return sorted({entry.result.task_id for entry in self.entries})


def dedupe(batch: Sequence[IngestedResult]) -> DedupedBatch:
    kept: dict[tuple[ParcelKey, str], BatchEntry] = {}
    for place, result in enumerate(batch):
        entry = BatchEntry(place, result, truncate_to_ms(result.scraped_at))
        earlier = kept.get(key := (result.parcel, result.task_id))
        if earlier is None or entry.takes_the_place_of(earlier):
            kept[key] = entry
    entries = [kept[key] for key in sorted(kept)]
    newest: dict[ParcelKey, BatchEntry] = {}
    for entry in entries:
        rival = newest.get(entry.result.parcel)
        if rival is None or entry.age > rival.age:
            newest[entry.result.parcel] = entry
    return DedupedBatch(entries, newest)


def truncate_to_ms(moment: datetime) -> datetime:
    beyond = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond) if beyond else moment


EXPIRED_ERROR = "its leases ended without a report"


class LeaseEnding(NamedTuple):
    lease: LeaseEnd
    task: TaskState
    last_task: TaskState
    """What becomes of a task that may not be tried again."""


def lease_ending(error: str | None, again: bool, not_found: bool) -> LeaseEnding:
    if not_found:
        return LeaseEnding(LeaseEnd.DONE, TaskState.NOT_FOUND, TaskState.NOT_FOUND)
    if error is None:
        return LeaseEnding(LeaseEnd.DONE, TaskState.DONE, TaskState.DONE)
    if again:
        return LeaseEnding(LeaseEnd.RETURNED, TaskState.QUEUED, TaskState.DEAD)
    return LeaseEnding(LeaseEnd.FAILED, TaskState.FAILED, TaskState.FAILED)
