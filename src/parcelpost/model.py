"""Domain types, frozen and free of I/O. The glossary in docs/data-path.md explains them.

`gc=False`: types with thousands of instances are never part of a cycle, so the garbage collector can skip them.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import datetime
from enum import IntEnum, StrEnum
from typing import Any, Literal

from msgspec import Struct

Json = Any
"""A value that JSON can hold: None, bool, int, float (finite), str, list, dict with str keys."""


class Source(StrEnum):
    """Where a task came from."""

    GATEWAY = "gateway"
    FIRESTORE = "firestore"
    LOCAL_FILE = "local_file"
    CLI = "cli"


class Priority(IntEnum):
    """Lower numbers go first."""

    URGENT = 1
    HIGH = 2
    NORMAL = 3
    BATCH = 4


class DeliveryState(StrEnum):
    """The delivery state of a result."""

    UNSYNCED = "unsynced"
    SYNCED = "synced"
    REJECTED = "rejected"


class TaskStatus(StrEnum):
    """Every task ends in one of the last four (I1)."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    """It has a record."""
    NOT_FOUND = "not_found"
    """The site has no such parcel."""
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def label(self) -> str:
        """Its name in messages."""
        return self.value.replace("_", " ")


class Target(Struct, frozen=True, kw_only=True, omit_defaults=True, gc=False):
    """What to scrape: a parcel, and whatever else the platform needs to find it."""

    parcel_id: str
    state: str
    county: str
    url: str = ""
    extra: Mapping[str, Json] = {}


class Site(Struct, frozen=True, array_like=True, gc=False):
    """One county's website on a platform, as tasks name it."""

    platform: str
    state: str
    county: str


class PausedSite(Struct, frozen=True):
    """A site that is paused because it, or another one on its host, blocked the worker."""

    platform: str
    state: str = ""
    county: str = ""
    """Without state and county: all sites of the platform."""

    def covers(self, site: Site) -> bool:
        return self.platform == site.platform and (
            not (self.state or self.county) or (self.state, self.county) == (site.state, site.county)
        )


REFRESH = "refresh"
"""The type of a task that scrapes a known parcel again, without the page cache."""


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """A request to scrape one target on one platform."""

    task_id: str
    platform: str
    target: Target
    source: Source = Source.GATEWAY
    type: str = "scrape"
    priority: Priority = Priority.NORMAL
    max_retries: int = 3
    lease_expires_at: datetime | None = None
    """When the upstream's lease ends; None without a lease."""
    lease_id: str = ""
    """The upstream's id of this lease; '' if it gives none."""
    skip_cache: bool = False
    """Fetch from the site instead of the page cache, because an operator retried it. Set only by the store."""

    @property
    def site(self) -> Site:
        return Site(self.platform, self.target.state, self.target.county)


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """A lease with an id. `expires_at` is by this machine's clock."""

    task_id: str
    lease_id: str
    expires_at: datetime


class Claim(Struct, frozen=True, kw_only=True, gc=False):
    """A slot's claim on a task. Only the current claim's token can end the task (I4)."""

    task: Task
    token: str
    seq: int
    retries: int
    created_at: datetime
    """When the task was stored here."""
    has_artifacts: bool = False
    """Whether an earlier attempt stored any."""


class Page(Struct, frozen=True, kw_only=True, gc=False):
    """A fetched page."""

    body: bytes
    content_type: str = "text/html"
    url: str = ""


class Encoded(Struct, frozen=True, array_like=True, gc=False):
    """A record as JSON, created by the store's `encode`."""

    json: bytes


class PageRecord(Struct, frozen=True, kw_only=True, gc=False):
    """One record of a multi-record page."""

    key: str
    """Identifies it among the page's records; the same whenever the page is parsed."""
    parcel_id: str
    """The parcel, or the case or certificate if the page names no parcel."""
    county: str
    """'' if the record has none."""
    data: Mapping[str, Json] | Encoded


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """A task's record, to be stored."""

    data: Mapping[str, Json] | Encoded
    scraped_at: datetime
    """With a time zone."""
    page: Page | None = None
    execution_time_ms: int = 0
    screenshot_path: str | None = None
    log_path: str | None = None
    parcel_id: str = ""
    """'': the parcel of the task's target."""
    county: str = ""
    """Used if the target has none."""
    additional_records: tuple[PageRecord, ...] = ()
    """Further records of the page; each becomes the result of a child task."""


class Signal(Struct, frozen=True, kw_only=True):
    """A learning signal: whether a selector worked on one page."""

    platform: str
    field: str
    selector: str
    selector_type: str
    """css, xpath, label or jsonpath."""
    success: bool
    task_id: str | None = None
    context: str | None = None
    error_message: str | None = None
    execution_time_ms: int | None = None


class Broken(Struct, frozen=True, kw_only=True):
    """A field that a site no longer shows where it used to."""

    platform: str
    state: str
    county: str
    field: str
    success_rate: float
    """The current rate."""
    used_to: float
    """The rate before."""
    failing: tuple[str, ...]
    """Selectors of the field that fail now."""
    example: str
    """The task of the last page on which one failed."""
    since: datetime | None = None
    found_otherwise: bool = False
    """Another selector still finds it, so nothing is lost, but the platform's selectors are out of date."""
    same_value: str = ""
    """The field's value if it is the same on many parcels, so that it may be a heading."""


class Done(Struct, frozen=True, kw_only=True, gc=False):
    """The record was found."""

    data: Mapping[str, Json] | Encoded
    """Platforms return a mapping."""
    page: Page | None = None
    scraped_at: datetime | None = None
    """When the page was fetched, with a time zone; None: at the end of the attempt."""
    additional_records: tuple[Mapping[str, Json], ...] = ()
    """Further records of the same page, each of another parcel or lien."""
    is_list: bool = False
    """Whether the page is a list: then even a single record has its own parcel number, not the target's."""
    page_records: tuple[PageRecord, ...] = ()
    """All records, prepared by the worker. Platforms leave it empty."""
    signals: tuple[Signal, ...] = ()
    """Which selectors worked."""


class Retry(Struct, frozen=True, gc=False):
    """The attempt failed, and a later one may succeed."""

    reason: str
    after_seconds: float | None = None
    """None: the store's default delay, which doubles with each retry."""
    signals: tuple[Signal, ...] = ()
    """Which selectors worked."""
    partial: Done | None = None
    """The record of an incomplete page, delivered as incomplete when the retries are used up."""


class GiveUp(Struct, frozen=True, gc=False):
    """The task cannot succeed, no matter how often it is tried."""

    reason: str


class Blocked(Struct, frozen=True, gc=False):
    """The site blocks the worker: its platform is paused, and the task loses no attempt."""

    reason: str
    cool_down_seconds: float | None = None
    """None: as set in the settings."""


class NotFound(Struct, frozen=True, gc=False):
    """The site has no such parcel: the task ends without a record."""

    reason: str


class Busy(Struct, frozen=True, gc=False):
    """The rate limit or a missing browser delays the task: it is released and loses no attempt."""

    reason: str
    after_seconds: float
    """When to try again."""
    lacks_browser: bool = False
    """It waits for a browser; an operator may have to act."""
    remedy: str = ""
    """What the operator can do; '' if unknown."""


Outcome = Done | Retry | GiveUp | Blocked | NotFound | Busy
"""How an attempt ended."""


_CHILD_ID = re.compile(r"~[0-9a-f]{20}\Z")


def is_child_id(task_id: str) -> bool:
    """Whether this is the id of a child task, which is derived from its parent's id."""
    return _CHILD_ID.search(task_id) is not None


def reason_text(reason: str | None, decided_by: str | None) -> str | None:
    """Returns a stored reason for display, with a note if an operator made the decision."""
    return reason if reason is None or decided_by is None else f"by the {decided_by}: {reason}"


class OutboxEntry(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """A stored result, to be delivered: a record if it has `data`, else a report of how its task ended."""

    seq: int
    result_id: str
    task_id: str
    source: Source
    status: TaskStatus
    success: bool
    platform: str
    state: str
    county: str
    parcel_id: str
    data: bytes | None = None
    """JSON, exactly as stored."""
    error: str | None = None
    execution_time_ms: int = 0
    html_path: str | None = None
    json_path: str | None = None
    screenshot_path: str | None = None
    log_path: str | None = None
    raw_sha256: str | None = None
    idempotency_key: str = ""
    scraped_at: datetime
    sync_attempts: int = 0
    last_error: str | None = None
    raw_synced_at: datetime | None = None
    synced_at: datetime | None = None
    rejected_at: datetime | None = None
    created_at: datetime
    lease_expires_at: datetime | None = None
    retries: int = 0
    recoveries: int = 0
    page_shared: bool = False
    """Whether other results have the same page."""
    lease_id: str | None = None
    """From the task, like `status`, `retries` and `recoveries`; None if the upstream's leases have no ids."""
    multi_record: bool = False
    """Whether `parcel_id` belongs to one record of a multi-record page, not to the task's target."""
    ended_by: str | None = None
    """From the task: "operator" if an operator failed it."""
    rejected_by: str | None = None
    """"operator" if an operator rejected it; None if the upstream rejected it, or nobody."""

    @property
    def attempts(self) -> int:
        return _attempts(self)

    @property
    def error_text(self) -> str | None:
        return reason_text(self.error, self.ended_by)

    @property
    def last_error_text(self) -> str | None:
        return reason_text(self.last_error, self.rejected_by)


class TaskInfo(Struct, frozen=True, kw_only=True):
    """A stored task with all its columns."""

    seq: int
    task: Task
    status: TaskStatus
    retries: int
    recoveries: int
    available_at: datetime | None
    claimed_by: str | None
    assigned_browser: int | None
    created_at: datetime
    updated_at: datetime
    started_at: datetime | None
    completed_at: datetime | None
    error: str | None
    parent_id: str | None = None
    """For a child task: the task whose page has its record."""
    ended_by: str | None = None
    """"operator" if an operator failed it."""

    @property
    def attempts(self) -> int:
        return _attempts(self)

    @property
    def error_text(self) -> str | None:
        return reason_text(self.error, self.ended_by)


_ATTEMPTED = (TaskStatus.PROCESSING, TaskStatus.COMPLETED, TaskStatus.NOT_FOUND, TaskStatus.FAILED)


def _attempts(task: OutboxEntry | TaskInfo) -> int:
    """Returns how many attempts were begun: one before each retry and crash, and the last one unless an operator ended
    the task instead.
    """
    return task.retries + task.recoveries + (task.status in _ATTEMPTED and task.ended_by is None)


class QueueDepth(Struct, frozen=True, kw_only=True):
    """How many tasks and results the store holds, by state."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    not_found: int = 0
    failed: int = 0
    expired: int = 0
    unsynced: int = 0
    rejected: int = 0
    rejected_by_operator: int = 0
    """How many of the rejected ones an operator rejected."""
    delayed: int = 0
    """How many of the pending ones are not due yet."""
    oldest_pending_seconds: float = 0.0
    oldest_unsynced_seconds: float = 0.0


class BrowserState(Struct, frozen=True, kw_only=True):
    """A slot of a browser pool. It outlives the browsers that run in it one after the other."""

    browser_id: int
    status: Literal["idle", "busy", "crashed", "restarting"]
    last_health_check: datetime
    created_at: datetime
    pid: int | None = None
    current_task_id: str | None = None
    tasks_completed: int = 0
    launches: int = 1
    memory_mb: int | None = None
    restarted_at: datetime | None = None
    owner: str = ""
    """The process that has the pool. The following fields let others find the browser if that process is killed."""
    marker: str = ""
    """Unique text in the browser's command line."""
    profile: str = ""
    """The profile folder that Playwright created."""
