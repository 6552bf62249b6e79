"""The gateway's domain types, frozen and free of I/O. Money is in cents, times have a zone."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Annotated

from msgspec import Meta, Struct

from parcelpost.model import Site, Task
from parcelpost.protocol.payloads import ArtifactKind, Heartbeat
from parcelpost.schedule import Timing, longest_interval
from parcelpost.search_fields import Lien, SearchFields

Text = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
"""A value that a caller asks for."""


class TaskState(StrEnum):
    """The state of a task at the gateway. The last four are final."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    """Its record is stored, or a worker completed it without one."""
    NOT_FOUND = "not_found"
    """The site has no such parcel."""
    FAILED = "failed"
    """A worker reported a permanent failure."""
    DEAD = "dead"
    """All of its leases expired without a report."""


class LeaseEnd(StrEnum):
    """How a lease ended."""

    DONE = "done"
    FAILED = "failed"
    RETURNED = "returned"
    """A worker failed and another attempt may succeed."""
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    """Another worker delivered the task's result."""


class ParcelKey(Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """Identifies a parcel, whichever platforms show it."""

    state: str
    county: str
    norm: str
    """The letters and digits of its number. A parcel without a number has `=platform:case`, which is never merged."""


class SourceKey(Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """Identifies a parcel as one platform shows it, however it writes the number; the key of the upsert."""

    state: str
    county: str
    norm: str
    platform: str

    @property
    def parcel(self) -> ParcelKey:
        return ParcelKey(self.state, self.county, self.norm)


class AddCounts(Struct, frozen=True):
    new: int
    known: int
    """Already existed; left unchanged."""


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """A task leased to a worker until `task.lease_expires_at`."""

    task: Task
    attempt: int
    """Starts at 1."""
    created_at: datetime


class IngestedResult(Struct, frozen=True, kw_only=True, gc=False):
    """A valid result that a worker sent."""

    task_id: str
    source: SourceKey
    parcel_id: str
    """The parcel number in the platform's own spelling."""
    data: bytes
    """The record as sent, a JSON object."""
    search_fields: SearchFields
    scraped_at: datetime
    parse_duration_ms: int
    idempotency_key: str
    """Sent by the worker, or derived from the task and content if it sent none."""
    raw_sha256: str | None = None
    raw_file: str | None = None
    late: bool = False
    multi_record: bool | None = None
    """Whether it comes from a multi-record page, so that its parcel need not be the task's. None: unknown."""
    target: str = ""
    """Target for scraping it again, as JSON; '' if it appears only on a list."""


class KnownTask(Struct, frozen=True):
    """The target of a task that the ledger knows."""

    site: str
    """Platform, state and county, as `site_text` writes them."""
    platform: str
    target: str
    """JSON of a Target."""
    was_granted: bool
    """Whether it was ever leased to this worker or to another one with the same token."""


class ToCompare(Struct, frozen=True):
    """A result that is to be compared with what was known before."""

    queue_no: int
    platform: str
    task_id: str


class StoreOutcome(StrEnum):
    """What happened to an ingested result. In every case the ledger has it."""

    INSERTED = "inserted"
    """The first result of its source."""
    UPDATED = "updated"
    """The newest result of its source."""
    KEPT = "kept"
    """Older than the newest result of its source: added to the history only."""
    DUPLICATE = "duplicate"
    """Already stored, or an older result of the same task: nothing changed."""


class ExpiredLeases(Struct, frozen=True):
    """Tasks whose lease expired: the platform of each."""

    queued: Sequence[str]
    dead: Sequence[str]


class TaskOutcome(Struct, frozen=True):
    """The state of a task after a worker ended it."""

    platform: str
    state: TaskState


_MAX_REASON_CHARS = 200
_MAX_DIGITS = 3


def failure_reason(error: str | None) -> str:
    """Returns the error without what differs from task to task: URLs, parcel numbers and other long numbers, and what
    is quoted. Errors of one kind then have one reason.
    """
    return " ".join(map(_general, _QUOTED.sub("\N{HORIZONTAL ELLIPSIS}", (error or "")[:1_000]).split()))[
        :_MAX_REASON_CHARS
    ]


_QUOTED = re.compile(r"""(?<!\w)(['"])(?:(?!\1).){1,200}\1(?!\w)""")


def _general(word: str) -> str:
    core = word.rstrip(".,:;)")
    if "://" in core:
        host = core.partition("://")[2].partition("/")[0]
        return f"{host}/\N{HORIZONTAL ELLIPSIS}{word[len(core) :]}"
    if sum(char.isdigit() for char in core) > _MAX_DIGITS:
        return f"\N{HORIZONTAL ELLIPSIS}{word[len(core) :]}"
    return word


OFFLINE_AFTER = timedelta(seconds=300)
"""A worker without a heartbeat for this long is offline. Workers send one every 30 to 60 seconds, 240 at most."""


class WorkerHeartbeat(Heartbeat, frozen=True, kw_only=True):
    """A worker's heartbeat."""

    worker_id: str

    @property
    def holds_nothing(self) -> bool:
        """Whether it has no tasks and no undelivered results left, so that its leases need not be extended."""
        held = ("pending", "processing", "unsynced", "rejected")
        return self.queue is not None and not self.active_tasks and not any(self.queue.get(name) for name in held)


class WorkerState(StrEnum):
    ALIVE = "alive"
    STOPPED = "stopped"
    """Announced its stop in its last heartbeat."""
    OFFLINE = "offline"
    """No heartbeat for longer than OFFLINE_AFTER, and no announced stop."""


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker that has sent a heartbeat."""

    heartbeat: WorkerHeartbeat
    first_seen_at: datetime
    last_seen_at: datetime
    leases: int
    """Number of open leases."""
    pending_commands: tuple[str, ...]

    def state(self, now: datetime) -> WorkerState:
        if self.heartbeat.leaving:
            return WorkerState.STOPPED
        return WorkerState.ALIVE if now - self.last_seen_at <= OFFLINE_AFTER else WorkerState.OFFLINE

    def is_alive(self, now: datetime) -> bool:
        return self.state(now) is WorkerState.ALIVE

    def silent_seconds(self, now: datetime) -> float:
        return max(0.0, (now - self.last_seen_at).total_seconds())

    @property
    def unsynced(self) -> int:
        """Number of results that it had not delivered when it last reported."""
        return (self.heartbeat.queue or {}).get("unsynced", 0)

    def lag_seconds(self, now: datetime) -> float:
        """Returns the age of its oldest undelivered result: as reported, plus the time since. 0 if there is none."""
        return self.heartbeat.oldest_unsynced_seconds + self.silent_seconds(now) if self.unsynced else 0.0

    def deliverable_commands(self, now: datetime) -> tuple[str, ...]:
        """Commands that will be delivered. Those for an offline worker are dropped, even if it returns."""
        return self.pending_commands if self.is_alive(now) else ()


class QueueRow(Struct, frozen=True, kw_only=True):
    """How many tasks of one platform and priority are in one state."""

    platform: str
    priority: int
    state: TaskState
    tasks: int
    oldest_at: datetime | None
    """When the oldest queued task was added; None in other states."""


class ActivityRow(Struct, frozen=True, kw_only=True):
    """How often an outcome occurred in one minute on one platform."""

    minute: datetime
    platform: str
    outcome: str
    """For tasks: granted, done, not_found, failed, expired, dead. For records: stored, duplicate, rejected."""
    count: int


class ParcelFilter(Struct, frozen=True, kw_only=True):
    """All conditions must hold; None and '' mean any."""

    platform: str = ""
    """Only parcels with a source on this platform; `owner` and `search` must then match that source."""
    state: str = ""
    county: str = ""
    owner: str = ""
    """Part of an owner's name, case-insensitive."""
    search: str = ""
    """Part of the parcel number, owner or address, case-insensitive."""
    delinquent: bool | None = None
    lien_status: str = ""
    """Case-insensitive."""
    min_lien_cents: int | None = None
    max_lien_cents: int | None = None
    changed_since: datetime | None = None


class SearchFreshness(StrEnum):
    """How fresh a parcel is, by the schedules that scrape it."""

    FRESH = "fresh"
    """Scraped within the interval and the window."""
    DUE = "due"
    """Its next scrape is late, by less than that again."""
    OVERDUE = "overdue"
    UNSCHEDULED = "unscheduled"


class SearchRow(Struct, frozen=True, gc=False):
    """A row of the index: of a parcel, or of a lien with its parcel's facts. Money is in cents, times are in
    milliseconds since 1970, places on the map in millionths of a degree.
    """

    number: int
    """Of the parcel or the lien."""
    parcel_no: int
    state: str
    county: str
    parcel_norm: str
    parcel_id: str
    owner: str | None
    situs: str | None
    platforms: str
    """One per line, in order."""
    land_use: str | None
    tax_year: int | None
    status: str | None
    freshness: str
    delinquent: int | None
    market_value: int | None
    tax_due: int | None
    liens: int
    lien_amount: int | None
    acres: float | None
    sold_on: str | None
    longitude: int | None
    latitude: int | None
    scraped_at: int
    changed_at: int
    partial: int
    """1 if part of the page of a source was missing or unreadable."""
    certificate_number: str | None = None
    certificate_year: int | None = None
    holder_name: str | None = None


class SearchFilter(Struct, frozen=True, kw_only=True):
    """Conditions of a search. All must hold; of a tuple, any value. None, '' and empty mean any."""

    text: str = ""
    """Words in the owner, address, parcel number or certificate; the last one may be the beginning of a word."""
    states: tuple[str, ...] = ()
    counties: tuple[str, ...] = ()
    platforms: tuple[str, ...] = ()
    tax_years: tuple[int, ...] = ()
    uses: tuple[str, ...] = ()
    statuses: tuple[str, ...] = ()
    freshness: tuple[str, ...] = ()
    delinquent: bool | None = None
    has_liens: bool | None = None
    owner: str = ""
    """The whole name, as shown."""
    ranges: Mapping[str, tuple[int | float | str | None, int | float | str | None]] = {}
    """Least and most, by column of the index."""
    box: tuple[int, int, int, int] | None = None
    """West, south, east, north in millionths of a degree. West may be greater than east: it then spans the 180th
    meridian.
    """


class SearchOrder(Struct, frozen=True):
    column: str
    """Of the index."""
    is_descending: bool = False


class SearchPage(Struct, frozen=True):
    rows: Sequence[SearchRow]
    total: int
    is_exact: bool = True
    """Whether no more match than `total`."""


class FacetCounts(Struct, frozen=True):
    facets: Mapping[str, Sequence[tuple[str | int | bool, int]]]
    """Values with their counts, the most frequent first, by facet."""
    total: int
    is_exact: bool = True
    """Whether all that match were counted. If not, there are at least so many of each, of some at least 0."""


class Cluster(Struct, frozen=True, kw_only=True):
    """Parcels in one cell of the map. Places are in millionths of a degree."""

    longitude: int
    """Mean of its parcels."""
    latitude: int
    count: int
    delinquent: int
    lien_amount: int
    """In cents."""
    box: tuple[int, int, int, int]
    """West, south, east, north of the cell."""
    parcel: SearchRow | None = None
    """If it is a single one."""


class SearchMap(Struct, frozen=True):
    clusters: Sequence[Cluster]
    total: int
    without_coordinates: int


class RefreshFilter(Struct, frozen=True, kw_only=True):
    """Which sources to scrape again. All conditions must hold; None and '' mean any."""

    parcels: ParcelFilter = ParcelFilter()
    norm: str = ""
    """Normalized number of a single parcel."""
    norms: Sequence[str] = ()
    """Normalized numbers of several parcels."""
    scraped_before: datetime | None = None


class Scope(StrEnum):
    """What a schedule scrapes again."""

    KNOWN = "known"
    """The county's parcels that the ledger knows."""
    DELINQUENT = "delinquent"
    """The delinquent ones of these."""
    FILE = "file"
    """A file's parcels, also new ones."""
    LIST = "list"
    """A whole list, such as an auction's: one task, which brings new parcels."""


class Schedule(Struct, frozen=True, kw_only=True):
    """A county that is kept fresh."""

    name: str
    platform: str
    state: str
    county: str
    timing: Timing
    scope: Scope = Scope.KNOWN
    window_seconds: float
    """Over which a run's tasks are spread, if the pace allows."""
    pace_seconds: float
    """At least, between two tasks of a run."""
    created_at: datetime

    @property
    def site(self) -> Site:
        return Site(self.platform, self.state, self.county)

    def fresh_since(self, now: datetime) -> datetime:
        """A parcel scraped since then is as fresh as the schedule asks for: a run reaches it once in an interval, and
        at another time of the window.
        """
        return now - longest_interval(self.timing) - timedelta(seconds=self.window_seconds)


class RunOutcome(StrEnum):
    RUNNING = "running"
    ENDED = "ended"
    SKIPPED = "skipped"
    """The run before it had not ended."""


class RunRow(Struct, frozen=True, kw_only=True):
    """One run of a schedule."""

    run_no: int
    due_at: datetime
    started_at: datetime
    ended_at: datetime | None
    outcome: RunOutcome
    total: int
    """Tasks that it will queue."""
    added: int
    """Of these, how many have been queued."""
    after_norm: str
    """The parcel up to which they have."""
    all_added: bool
    last_added_at: datetime
    done: int
    """Once it has ended: tasks with a record, or without one because the site has no such parcel."""
    failed: int


class ScheduleRow(Struct, frozen=True, kw_only=True):
    schedule_no: int
    schedule: Schedule
    targets: int
    """Of a file, or a list."""
    paused_at: datetime | None
    next_run_at: datetime
    error: str
    """Why it cannot run; '' if it can."""
    failing_since: datetime | None
    run: RunRow | None
    """The one in progress."""
    open_tasks: int
    """Of that run: queued or leased."""
    last_run: RunRow | None
    """The last one that ended."""
    last_skipped: RunRow | None


class Freshness(Struct, frozen=True, kw_only=True):
    """How many of a schedule's parcels are as fresh as it asks for."""

    parcels: int
    fresh: int
    oldest_at: datetime | None
    """When the parcel with the oldest scrape was scraped; None: one never was, or there are none."""
    not_found: int = 0
    """Further parcels that the site no longer has."""

    @property
    def share(self) -> float | None:
        """None: there are no parcels yet."""
        return self.fresh / self.parcels if self.parcels else None


class ChangeFilter(Struct, frozen=True, kw_only=True):
    """All conditions must hold; '' means any."""

    kinds: tuple[str, ...] = ()
    """Kinds such as `lien.new`, or prefixes such as `lien`."""
    platform: str = ""
    state: str = ""
    county: str = ""
    field: str = ""
    """A field in `before` or `after`."""
    found_since: datetime | None = None


class ChangeRow(Struct, frozen=True, kw_only=True):
    """Something that changed in a parcel."""

    change_no: int
    """Consecutive: reading on from the last number seen never skips a change."""
    found_at: datetime
    kind: str
    parcel: ParcelKey
    parcel_id: str
    platform: str
    task_id: str
    scraped_at: datetime
    subject: str
    """The certificate or case number of a lien, or the date of a sale."""
    before: bytes
    """JSON."""
    after: bytes
    """JSON."""


class ChangePage(Struct, frozen=True):
    """Changes that follow each other; those that do not match are left out."""

    rows: Sequence[ChangeRow]
    next: int
    """Number of the last change that was looked at: what comes after it has not been."""
    last: int
    """Number of the last change there is. Before it: ask again."""


class Webhook(Struct, frozen=True, kw_only=True):
    """A receiver of changes, and how its deliveries go."""

    webhook_no: int
    name: str
    url: str
    secret_variable: str
    """The environment variable that holds its secret."""
    wanted: ChangeFilter
    created_at: datetime
    is_paused: bool = False
    cursor: int
    """Changes up to this number were delivered or are waiting for a retry."""
    delivered: int = 0
    delivered_at: datetime | None = None
    failures: int = 0
    """In a row."""
    failing_since: datetime | None = None
    error: str = ""
    """Of the last failure, or why it is paused; '' once a delivery succeeded."""
    next_at: datetime
    """No delivery before then."""
    leased_by: str | None = None
    leased_until: datetime
    """Another gateway delivers to it until then."""
    retries: int = 0
    """Changes that wait to be tried again."""
    next_retry_at: datetime | None = None
    dead: int = 0
    """Changes that were given up."""
    last: int = 0
    """Number of the ledger's last change."""


class WebhookRetry(Struct, frozen=True, kw_only=True):
    """A change that a receiver did not accept."""

    change_no: int
    attempts: int
    first_at: datetime
    next_at: datetime
    error: str
    dead_at: datetime | None = None
    """When it was given up."""


class SourceRow(Struct, frozen=True, kw_only=True):
    """The newest scrape of a source."""

    source: SourceKey
    parcel_id: str
    """The parcel number in the platform's own spelling."""
    is_partial: bool
    """Whether part of the page was missing or unreadable. The ledger keeps earlier values of that part."""
    task_id: str
    scraped_at: datetime
    first_seen_at: datetime
    received_at: datetime
    raw_sha256: str | None


class ParcelRow(Struct, frozen=True, kw_only=True):
    """The current state of a parcel: each field from the newest source that has a value for it."""

    parcel: ParcelKey
    parcel_id: str
    """The parcel number as its newest source writes it."""
    owner: str
    situs: str
    delinquent: bool | None
    tax_due_cents: int | None
    lien_count: int
    scraped_at: datetime
    """Time of the newest scrape."""
    first_seen_at: datetime
    received_at: datetime
    """When a source last received a newer scrape."""
    parcel_no: int
    """ID assigned by the ledger. Orders parcels received at the same time."""
    sources: Sequence[SourceRow]
    """Newest first, at most MAX_SOURCES."""


MAX_SOURCES = 50
"""Limit on the sources returned for one parcel. Few parcels are on as many lists of liens."""


class ParcelRecord(Struct, frozen=True):
    """A parcel with one of its sources, and the record of that source's newest scrape, which may be large."""

    row: ParcelRow
    data: bytes

    @property
    def source(self) -> SourceRow:
        return self.row.sources[0]


class RecordVersion(Struct, frozen=True, kw_only=True):
    """One scrape of a source."""

    task_id: str
    worker_id: str
    scraped_at: datetime
    received_at: datetime
    late: bool
    parse_duration_ms: int
    raw_sha256: str | None
    raw_file: str | None
    data: bytes


class LienSource(Struct, frozen=True, kw_only=True):
    """A lien as one source shows it."""

    platform: str
    parcel_id: str
    position: int
    """Index in the source's record, from 0."""
    partial: bool
    """Whether part of the page of the source's newest scrape was missing or unreadable."""
    scraped_at: datetime


class LienRow(Struct, frozen=True, kw_only=True):
    """A current lien of a parcel: each field from the newest source that has a value for it."""

    parcel: ParcelKey
    parcel_id: str
    owner: str
    received_at: datetime
    """When the parcel was last received."""
    parcel_no: int
    lien_no: int
    lien: Lien
    sources: Sequence[LienSource]
    """Newest first."""


class Lease(Struct, frozen=True, kw_only=True):
    """A lease of a task to a worker. `ended_at` is null while it is open."""

    worker_id: str
    granted_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    end: LeaseEnd | None
    error: str | None = None
    """The error of this attempt."""


class TaskFilter(Struct, frozen=True, kw_only=True):
    """Which tasks to list, count or change. All conditions must hold; None and empty mean any."""

    states: Sequence[TaskState] = ()
    task_ids: Sequence[str] | None = None
    platform: str = ""
    site: str = ""
    """State and county, such as FL/columbia."""
    reason: str | None = None
    """As in `FailureGroup`."""


class FailureGroup(Struct, frozen=True, kw_only=True):
    """Tasks that ended in the same way in the same county."""

    outcome: TaskState
    reason: str
    """Their error without what differs from task to task, such as numbers and URLs."""
    platform: str
    state: str
    county: str
    tasks: int
    last_ended_at: datetime
    example: str
    """ID of the one that was added last."""
    example_error: str


class SiteParcels(Struct, frozen=True, kw_only=True):
    """The parcels of one county on one platform."""

    platform: str
    state: str
    county: str
    parcels: int
    newest_at: datetime
    oldest_at: datetime
    changed_at: datetime | None = None


class SiteTasks(Struct, frozen=True, kw_only=True):
    """How many tasks of one county on one platform ended in a state."""

    site: str
    state: TaskState
    tasks: int
    since_hour: int
    """Of these, in the last hour."""


class Artifact(Struct, frozen=True, kw_only=True):
    """What a failed attempt at a task saw."""

    kind: ArtifactKind
    worker_id: str
    named_at: datetime
    """When the worker reported the attempt."""
    stored_at: datetime | None
    """None: the worker has not uploaded it yet."""
    media_type: str


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task with its state and leases."""

    task: Task
    state: TaskState
    attempts: int
    max_attempts: int
    created_at: datetime
    ended_at: datetime | None
    error: str | None
    seq: int
    leases: Sequence[Lease] = ()
    """Oldest first; empty in lists of tasks."""
