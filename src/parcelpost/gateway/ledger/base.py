"""The Ledger protocol (tasks, leases, results, workers) and the rules that every implementation follows."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple, Protocol, TypeVar

from msgspec import Struct

from parcelpost.gateway.models import (
    ActivityRow,
    AddCounts,
    Artifact,
    ChangeFilter,
    ChangePage,
    ChangeRow,
    ExpiredLeases,
    FacetCounts,
    FailureGroup,
    Freshness,
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
    RefreshFilter,
    RunRow,
    Schedule,
    ScheduleRow,
    SearchFilter,
    SearchMap,
    SearchOrder,
    SearchPage,
    SearchRow,
    SiteParcels,
    SiteTasks,
    SourceKey,
    StoreOutcome,
    TaskFilter,
    TaskOutcome,
    TaskRow,
    TaskState,
    ToCompare,
    Webhook,
    WebhookRetry,
    WorkerHeartbeat,
    WorkerRow,
)
from parcelpost.model import Signal, Site, Target, Task
from parcelpost.protocol.payloads import ArtifactKind, MetricsSample, RankedSelector
from parcelpost.search_fields import Lien


class Ledger(Protocol):
    """Opened by `open_ledger`; safe to call from many coroutines at once, and, on one database, from many processes."""

    # Tasks

    async def add_tasks(self, tasks: Sequence[Task], now: datetime) -> AddCounts:
        """Queues tasks. Tasks whose id is known are left unchanged."""

    async def grant(
        self, worker_id: str, platforms: Sequence[str], capacity: int, now: datetime, until: datetime
    ) -> Sequence[Grant]:
        """Leases up to `capacity` queued tasks of these platforms to the worker, by priority; within one, sites take
        turns, each with its oldest tasks first.

        No task ever has two open leases. As fast with a million queued tasks as with a thousand.
        """

    async def expire_leases(self, now: datetime, most: int) -> ExpiredLeases:
        """Ends expired leases: their tasks are queued again, or dead after the last attempt."""

    async def end_task(
        self, task_id: str, worker_id: str, *, error: str | None, again: bool, now: datetime, not_found: bool = False
    ) -> TaskOutcome | None:
        """Ends a task for the worker that holds its lease. Without `error` it is done without a record; with one it is
        `not_found`, failed, or queued `again` (dead after the last attempt).

        Returns None and changes nothing if the task is unknown, has ended, or is leased to another worker.
        """

    async def task(self, task_id: str) -> TaskRow | None: ...

    async def tasks(
        self, wanted: TaskFilter, most: int, before: tuple[datetime | None, int] | None = None
    ) -> Sequence[TaskRow]:
        """Returns tasks of one state without their leases: those that ended, the most recent first; others, those that
        were added last. With `before`, those after that end and sequence number.
        """

    async def count_tasks(self, wanted: TaskFilter) -> int: ...

    async def failures(self, wanted: TaskFilter, most: int) -> Sequence[FailureGroup]:
        """Returns tasks that ended without a record, grouped by state, reason and county, the largest groups first."""

    async def requeue(self, wanted: TaskFilter) -> int:
        """Queues tasks that ended without a record again, with a fresh number of attempts. Returns how many."""

    async def site_parcels(self) -> Sequence[SiteParcels]:
        """Counts the parcels of each county on each platform. Reads all sources."""

    async def ended_by_site(self, since: datetime, hour: datetime) -> Sequence[SiteTasks]:
        """Counts the tasks that ended since then by site, and how many of them since `hour`."""

    async def queued_by_site(self) -> Mapping[str, int]: ...

    async def delete_tasks(self, wanted: TaskFilter) -> int:
        """Deletes tasks that no worker holds, with their leases, and returns how many. Results stay."""

    async def refresh(self, wanted: RefreshFilter, priority: int, now: datetime, most: int) -> int:
        """Queues a task of type `refresh` for each source that matches, the oldest scrape first. Returns how many.

        Sources that are being refreshed already, and those that only a list shows, are left out. Others may write in
        between.
        """

    async def refreshable(self, wanted: RefreshFilter) -> int:
        """Returns how many tasks `refresh` would queue."""

    async def name_artifacts(self, task_id: str, kinds: Sequence[ArtifactKind], worker_id: str, now: datetime) -> None:
        """Expects uploads of what a failed attempt saw. All earlier ones are superseded."""

    async def artifacts(self, task_id: str) -> Sequence[Artifact]: ...

    async def set_artifact_stored(
        self, task_id: str, kind: ArtifactKind, worker_id: str, media_type: str, now: datetime
    ) -> bool:
        """Returns False and changes nothing if it is not expected from that worker (any more)."""

    async def unused_artifacts(self, most: int) -> Sequence[tuple[str, ArtifactKind]]:
        """Returns superseded artifacts, those whose task is done or deleted, and those beyond the newest 10,000."""

    async def delete_artifact(self, task_id: str, kind: ArtifactKind) -> None: ...

    # Schedules

    async def add_schedule(self, schedule: Schedule, targets: Sequence[Target], next_run_at: datetime) -> bool:
        """Adds a schedule, with its targets if its scope is a file or a list. Returns whether the name was free."""

    async def schedules(self, name: str = "") -> Sequence[ScheduleRow]:
        """Returns all schedules, or the one with this name, by name."""

    async def schedule_runs(self, schedule_no: int, most: int) -> Sequence[RunRow]:
        """Returns the newest runs first."""

    async def has_parcels(self, site: Site) -> bool:
        """Whether the platform has delivered a parcel of the county."""

    async def set_paused(self, schedule_no: int, paused_at: datetime | None) -> None: ...

    async def set_error(self, schedule_no: int, error: str, now: datetime) -> None:
        """Sets why it fails; '' if it does not."""

    async def set_next_run(self, schedule_no: int, expected: datetime, next_run_at: datetime) -> bool:
        """Sets when it is due, unless that is not as expected any more. Returns whether it did."""

    async def delete_schedule(self, schedule_no: int) -> bool:
        """Deletes a schedule with its runs and their queued tasks. Returns whether it was known."""

    async def start_run(self, row: ScheduleRow, total: int, now: datetime, next_run_at: datetime) -> bool:
        """Starts the run that is due, or notes that it is skipped because one is in progress. The next one is due at
        `next_run_at`.

        Whoever calls it, each run is started once. Returns whether this call did it.
        """

    async def extend_run(self, row: ScheduleRow, most: int, now: datetime, last_added_at: datetime) -> int:
        """Queues the next tasks of the run in progress, at most so many, and returns how many. A task that was queued
        already, by another process or by one that was killed, is not queued again. Once all are, and all have ended,
        the run has.
        """

    async def run_total(self, row: ScheduleRow, now: datetime) -> int:
        """Returns how many tasks a run that starts now would queue."""

    async def freshness(self, row: ScheduleRow, since: datetime) -> Freshness:
        """Returns how many of its parcels were scraped since then."""

    # Results

    async def known_tasks(self, task_ids: Sequence[str], worker_id: str) -> Mapping[str, KnownTask]:
        """Returns the known ones of these tasks, by id, and whether they were granted to that worker.

        Workers with the same token count as one.
        """

    async def known_scrapes(self, results: Sequence[IngestedResult]) -> Mapping[str, datetime]:
        """Returns when the results that are already stored were scraped, by idempotency key."""

    async def store(self, results: Sequence[IngestedResult], worker_id: str, now: datetime) -> Sequence[StoreOutcome]:
        """Stores all results in one transaction (one round trip), whoever holds their tasks, and completes the tasks.

        Returns one outcome for each, in order. An older scrape of a source never replaces a newer one. A task has one
        result per source: the same one (by idempotency key) or an older one is a duplicate; a newer one replaces it, as
        does a different one of the same millisecond, which is the same page parsed again. If two tasks scraped a source
        in the same millisecond, the one with the greater id counts as newer, in whatever order they arrive.

        A parcel and its liens are merged from the newest scrape of each source: each field from the newest source that
        has a value for it. A lien stays as long as one source shows it. What a partial record lacks stays as its source
        last showed it, and a list says nothing about liens that are not on it.
        """

    # The fleet

    async def claim_worker_id(
        self, worker_id: str, token: str, names: Collection[str], most: int, now: datetime, idle_before: datetime
    ) -> str | None:
        """Records that a worker with this token uses the id, and returns the name of the token that owns the id.

        The first token that used an id owns it, as long as it is among `names`, the current tokens. A token owns at
        most `most` ids; a further one replaces the id that has been idle longest, since before `idle_before` and
        without a lease. Returns None if there is no such id.
        """

    async def release_worker_id(self, worker_id: str) -> str | None:
        """Releases the id for the next token that uses it. Returns the name of the token that owned it, or None. Its
        leases and its last heartbeat stay.
        """

    async def record_heartbeat(
        self, heartbeat: WorkerHeartbeat, now: datetime, until: datetime, oldest_grant: datetime
    ) -> Sequence[str]:
        """Stores a heartbeat, and extends the worker's leases granted after `oldest_grant`, unless it holds nothing.

        Returns the pending commands for this worker, oldest first, each once. Commands older than OFFLINE_AFTER are
        dropped, as are all when the worker stops: they were not meant for its next start.
        """

    async def release_leases(self, worker_id: str, granted_before: datetime, now: datetime) -> None:
        """Ends the leases of a worker that holds nothing, if granted before then; `expire_leases` requeues the tasks.

        This recovers tasks whose response never reached the worker, long before their leases would expire.
        """

    async def add_command(self, command: str, worker_id: str, now: datetime, alive_since: datetime) -> int:
        """Adds a command for that worker, or with '' for all, if they sent a heartbeat since then and have not stopped.
        Returns for how many.
        """

    async def workers(self, most: int = 100_000) -> Sequence[WorkerRow]:
        """Returns the workers that reported last, by id."""

    async def add_signals(self, signals: Sequence[Signal], now: datetime) -> None:
        """Counts signals by day. Selectors that are too long are ignored."""

    async def selectors(self, platform: str, since: datetime, most: int) -> Sequence[RankedSelector]:
        """Returns the selectors of a platform ('': all) by field, the best first."""

    async def add_metrics(self, worker_id: str, samples: Sequence[MetricsSample]) -> None:
        """Adds samples. Repeating a sample of the same worker and time changes nothing."""

    async def metrics(self, worker_id: str, since: datetime, most: int) -> Sequence[MetricsSample]:
        """Returns the newest samples, oldest first."""

    # Queries

    async def queue(self) -> Sequence[QueueRow]: ...

    async def add_activity(self, counts: Mapping[tuple[str, str], int], minute: datetime) -> None:
        """Adds to the counts of (platform, outcome) in that minute."""

    async def activity(self, since: datetime) -> Sequence[ActivityRow]: ...

    async def first_activity(self, since: datetime) -> datetime | None:
        """Returns the first minute with activity since then."""

    async def parcels(self, wanted: ParcelFilter, after: ParcelKey | None, most: int) -> Sequence[ParcelRow]:
        """Returns parcels ordered by key, after the given one."""

    async def records(self, wanted: ParcelFilter, after: SourceKey | None, most: int) -> Sequence[ParcelRecord]:
        """Returns one for each source that matches, ordered by key: at least one, then up to a few megabytes.

        Empty: none is left.
        """

    async def latest_parcels(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int] | None = None
    ) -> Sequence[ParcelRow]:
        """Returns the most recently received parcels, or those before that `received_at` and `parcel_no`."""

    async def parcel(self, key: ParcelKey) -> ParcelRow | None: ...

    async def record(self, key: SourceKey) -> ParcelRecord | None: ...

    async def versions(
        self, key: SourceKey, most: int, before: tuple[datetime, str] | None = None
    ) -> Sequence[RecordVersion]:
        """Returns a source's scrapes, newest first, or those before that time and task; limited like `records`."""

    async def has_page(self, key: ParcelKey, raw_sha256: str) -> bool:
        """Whether a scrape of this parcel refers to that page."""

    async def liens(self, wanted: ParcelFilter, after: tuple[ParcelKey, str] | None, most: int) -> Sequence[LienRow]:
        """Returns liens that match status and amount themselves, ordered by parcel and key."""

    async def latest_liens(
        self, wanted: ParcelFilter, most: int, before: tuple[datetime, int, str] | None = None
    ) -> Sequence[LienRow]:
        """Returns liens of the most recently received parcels, or those after that parcel and key."""

    # Changes

    async def find_changes(self, now: datetime, most: int) -> int:
        """Compares the results that arrived first, in the order of their scrapes, and stores what changed.

        All in one transaction, and one at a time on one database: every change is found once, whenever a gateway is
        killed. Of scrapes that show the same, one after the other, the first and the last stay. Returns how many
        results were compared; 0 when none is left.
        """

    async def left_to_compare(self) -> int:
        """Returns roughly how many results have not been compared."""

    async def first_to_compare(self) -> ToCompare | None:
        """Returns the result that `find_changes` compares next."""

    async def skip_comparison(self, queue_no: int) -> None:
        """Leaves a result out that cannot be compared."""

    async def changes(self, wanted: ChangeFilter, after: int, most: int) -> ChangePage:
        """Returns changes after that number, in order. Looks at some thousands at most, however few of them match."""

    async def latest_changes(self, wanted: ChangeFilter, before: int, most: int) -> ChangePage:
        """Returns changes before that number (0: all), the last first. Looks at some thousands at most. `next` of the
        page is the number that the next page is before; 0 on the last page.
        """

    async def count_changes(self, wanted: ChangeFilter, after: int) -> int:
        """Returns how many changes after that number match. Of those beyond the next 20,000, all count."""

    async def last_change(self) -> int:
        """Returns the number of the last change, 0 if there is none."""

    # Search

    async def update_search(self, now: datetime, most: int) -> int:
        """Brings the search index up to date with the parcels that changed first. Returns how many changes it took; 0
        when none is left.

        Whoever calls it, and whenever a gateway is killed, the index ends as the ledger is.
        """

    async def left_to_index(self) -> int:
        """Returns roughly how many changes the search index has not taken yet."""

    async def search(self, table: str, wanted: SearchFilter, order: SearchOrder, offset: int, most: int) -> SearchPage:
        """Returns rows of `parcels` or `liens`. Those without a value in the column that orders them come last."""

    async def search_numbers(self, table: str, wanted: SearchFilter, order: SearchOrder) -> Sequence[int]:
        """Returns the numbers of all rows that match, in that order."""

    async def search_rows(self, table: str, numbers: Sequence[int]) -> Sequence[SearchRow]:
        """Returns the rows with these numbers, as they are now, in this order. Those that are gone are left out."""

    async def search_facets(self, table: str, wanted: SearchFilter, facet: str = "", find: str = "") -> FacetCounts:
        """Returns the values of each facet with their counts, as if nothing of that facet were selected.

        With `facet`, only the values of that one. With `find`, only values that contain that text. Of each facet, the
        most frequent values.
        """

    async def search_map(self, wanted: SearchFilter, zoom: int) -> SearchMap:
        """Returns the parcels that match, clustered by cells, of which there are `2 ** (zoom + 3)` around the world; or
        by larger ones, if there were too many clusters.
        """

    # Webhooks

    async def webhooks(self) -> Sequence[Webhook]:
        """Returns all webhooks, by name."""

    async def webhook(self, name: str) -> Webhook | None: ...

    async def add_webhook(
        self, name: str, url: str, secret_variable: str, wanted: ChangeFilter, cursor: int, now: datetime
    ) -> bool:
        """Returns False if there is one of that name. Raises InvalidInput if there are too many."""

    async def pause_webhook(self, webhook_no: int, reason: str) -> None: ...

    async def resume_webhook(self, webhook_no: int, now: datetime) -> None:
        """What waits is tried at once, and for another day."""

    async def replay_webhook(self, webhook_no: int, after: int, now: datetime) -> bool:
        """Delivers all changes after that number again. Returns False if the ledger has no such number."""

    async def delete_webhook(self, webhook_no: int) -> None: ...

    async def lease_webhook(self, webhook_no: int, gateway_id: str, now: datetime, until: datetime) -> bool:
        """Returns whether this gateway may deliver to it: it is not paused, is due, and no other gateway leases it."""

    async def release_webhook(self, webhook_no: int, gateway_id: str) -> None: ...

    async def due_retries(self, webhook_no: int, now: datetime, most: int) -> Sequence[ChangeRow]:
        """Returns changes that are to be tried again now, in order."""

    async def webhook_retries(self, webhook_no: int, after: int, most: int) -> Sequence[WebhookRetry]:
        """Returns what waits to be tried again or was given up, after that change, in order."""

    async def webhook_retry(self, webhook_no: int, change_no: int) -> WebhookRetry | None: ...

    async def put_webhook_retry(self, webhook_no: int, retry: WebhookRetry) -> None: ...

    async def advance_webhook(
        self, webhook: Webhook, gateway_id: str, retried: Sequence[int], delivered: int, now: datetime
    ) -> bool:
        """Stores the webhook's cursor and state, and removes the retries that were delivered. Returns False, without
        changing its state, if this gateway no longer leases it.
        """

    # Maintenance

    async def ledger_id(self) -> str:
        """Returns the ledger's id, created with it and kept by every copy and backup."""

    async def counts(self) -> Mapping[str, int]:
        """Returns the approximate number of parcels, liens and results."""

    async def prune(self, ended_before: datetime, silent_before: datetime, most: int) -> int:
        """Deletes ended tasks with their leases, activity, metrics, signals and undelivered commands older than that,
        and workers silent since then that have no lease and no pending command. Results stay, and so do `not_found`
        tasks of a schedule's last run: its freshness counts them.

        One of many short transactions: returns how many rows it deleted, 0 when nothing is left.
        """

    async def check(self) -> None:
        """Raises LedgerUnavailable if the database cannot be reached or, with SQLite, its file cannot be written."""


class BatchEntry(Struct, frozen=True, gc=False):
    place: int
    """Index in the batch."""
    result: IngestedResult
    scraped_at: datetime
    """Rounded to milliseconds, as stored."""

    @property
    def age(self) -> tuple[datetime, str]:
        """Orders two scrapes of a source, in whatever order they arrive."""
        return self.scraped_at, self.result.task_id

    def replaces(self, other: BatchEntry) -> bool:
        """Whether this result replaces an earlier one of the same task and source. At the same time: the same page,
        parsed again.
        """
        if self.scraped_at == other.scraped_at:
            return self.result.idempotency_key != other.result.idempotency_key
        return self.scraped_at > other.scraped_at


class DedupedBatch(Struct, frozen=True):
    entries: list[BatchEntry]
    """The newest of each task and source, ordered by source and task; the others are duplicates."""
    newest: dict[SourceKey, BatchEntry]
    """The newest entry of each source, ordered by key."""
    leading: dict[ParcelKey, BatchEntry]
    """The newest of each parcel, ordered by key."""

    @property
    def task_ids(self) -> list[str]:
        return sorted({entry.result.task_id for entry in self.entries})

    def liens(self) -> Iterator[tuple[BatchEntry, int, Lien]]:
        """The liens to write, each with its entry and its position there: those of the newest entry of a source, and of
        every list, as each list has its own. A lien that two lists show is that of the newer one.
        """
        shown: dict[tuple[SourceKey, str], tuple[BatchEntry, int, Lien]] = {}
        for entry in self.entries:
            key, fields = entry.result.source, entry.result.search_fields
            if not fields.is_listed and self.newest[key] is not entry:
                continue
            for position, lien in enumerate(fields.liens):
                earlier = shown.get(name := (key, lien.key or f"={position}"))
                if earlier is None or entry.age > earlier[0].age:
                    shown[name] = entry, position, lien
        yield from shown.values()


def dedupe(batch: Sequence[IngestedResult]) -> DedupedBatch:
    kept: dict[tuple[SourceKey, str], BatchEntry] = {}
    for place, result in enumerate(batch):
        entry = BatchEntry(place, result, truncate_to_ms(result.scraped_at))
        earlier = kept.get(key := (result.source, result.task_id))
        if earlier is None or entry.replaces(earlier):
            kept[key] = entry
    entries = [kept[key] for key in sorted(kept)]
    newest: dict[SourceKey, BatchEntry] = {}
    leading: dict[ParcelKey, BatchEntry] = {}
    for entry in entries:
        _keep_newest(newest, entry.result.source, entry)
        _keep_newest(leading, entry.result.source.parcel, entry)
    return DedupedBatch(entries, newest, leading)


K = TypeVar("K")


def _keep_newest(newest: dict[K, BatchEntry], key: K, entry: BatchEntry) -> None:
    rival = newest.get(key)
    if rival is None or entry.age > rival.age:
        newest[key] = entry


def truncate_to_ms(moment: datetime) -> datetime:
    beyond = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond) if beyond else moment


EXPIRED_ERROR = "all leases expired without a report"


class LeaseEnding(NamedTuple):
    lease: LeaseEnd
    task: TaskState
    last_task: TaskState
    """The state of a task that has no attempts left."""


def lease_ending(error: str | None, again: bool, not_found: bool) -> LeaseEnding:
    if not_found:
        return LeaseEnding(LeaseEnd.DONE, TaskState.NOT_FOUND, TaskState.NOT_FOUND)
    if error is None:
        return LeaseEnding(LeaseEnd.DONE, TaskState.DONE, TaskState.DONE)
    if again:
        return LeaseEnding(LeaseEnd.RETURNED, TaskState.QUEUED, TaskState.DEAD)
    return LeaseEnding(LeaseEnd.FAILED, TaskState.FAILED, TaskState.FAILED)
