"""The domain's own words, frozen and free of I/O. See docs/glossary.md for each of them.

`gc=False`: what comes by the thousand cannot be part of a cycle, and the garbage collector need not look at it.
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
    """Lower goes first."""

    URGENT = 1
    HIGH = 2
    NORMAL = 3
    BATCH = 4


class TaskStatus(StrEnum):
    """A task ends in one of the last four (I1)."""

    PENDING = "pending"
    PROCESSING = "processing"
    COMPLETED = "completed"
    """With a record."""
    NOT_FOUND = "not_found"
    """The site has no such parcel."""
    FAILED = "failed"
    EXPIRED = "expired"

    @property
    def label(self) -> str:
        """As people read it."""
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


class Task(Struct, frozen=True, kw_only=True, gc=False):
    """An order to scrape one target on one platform."""

    task_id: str
    platform: str
    target: Target
    source: Source = Source.GATEWAY
    type: str = "scrape"
    priority: Priority = Priority.NORMAL
    max_retries: int = 3
    lease_expires_at: datetime | None = None
    """When the gateway's grant ends; None for a task without a lease."""
    lease_id: str = ""
    """The upstream's name for this grant, another for each; '': it gives none."""
    ask_site: bool = False
    """An operator let it start anew: the site is asked, whatever the page cache has. Set by the store only."""

    @property
    def site(self) -> Site:
        return Site(self.platform, self.target.state, self.target.county)


class Lease(Struct, frozen=True, kw_only=True, gc=False):
    """A grant of a task, by name, and until when it runs by this machine's clock."""

    task_id: str
    lease_id: str
    expires_at: datetime


class Claim(Struct, frozen=True, kw_only=True, gc=False):
    """A slot's local hold on a task. Only the current claim's token can end the task (I4)."""

    task: Task
    token: str
    seq: int
    retries: int
    created_at: datetime
    """When the task was stored here."""


class Page(Struct, frozen=True, kw_only=True, gc=False):
    """What a fetch brought."""

    body: bytes
    content_type: str = "text/html"
    url: str = ""


class Encoded(Struct, frozen=True, array_like=True, gc=False):
    """A record as the store keeps it, made by the store's `encode`."""

    json: bytes


class Listed(Struct, frozen=True, kw_only=True, gc=False):
    """One of several records of a page."""

    key: str
    """What tells it from the page's others, the same at every reading."""
    parcel_id: str
    """The parcel, or the case or certificate where the page names no parcel."""
    county: str
    """As the record says; '' where it does not."""
    data: Mapping[str, Json] | Encoded


class Result(Struct, frozen=True, kw_only=True, gc=False):
    """A record of one task, on its way into the store."""

    data: Mapping[str, Json] | Encoded
    scraped_at: datetime
    """With a zone."""
    page: Page | None = None
    execution_time_ms: int = 0
    screenshot_path: str | None = None
    log_path: str | None = None
    parcel_id: str = ""
    """Of the record; '': that of the task's target."""
    county: str = ""
    """Used where the target names none."""
    more: tuple[Listed, ...] = ()
    """Further records of the page: each becomes a result of its own."""


class Signal(Struct, frozen=True, kw_only=True):
    """One observation of how a selector did."""

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
    """A field that a site no longer shows where it did."""

    platform: str
    state: str
    county: str
    field: str
    success_rate: float
    """Lately."""
    used_to: float
    failing: tuple[str, ...]
    """Its ways that fail now."""
    example: str
    """The task of the last page it was not found on, or not in the way that fails."""
    since: datetime | None = None
    found_otherwise: bool = False
    """Another way leads to it: nothing is lost, and the platform's selectors are out of date."""


class Done(Struct, frozen=True, kw_only=True, gc=False):
    """The record was found."""

    data: Mapping[str, Json] | Encoded
    """Platforms answer a mapping."""
    page: Page | None = None
    scraped_at: datetime | None = None
    """When the page was fetched, with a zone; None: when the attempt ended."""
    more: tuple[Mapping[str, Json], ...] = ()
    """Further records of the same page, each of another parcel or lien."""
    lists: bool = False
    """The page is a list, and the target's parcel a name for the order: one record, too, goes by its own number."""
    listed: tuple[Listed, ...] = ()
    """All of them, made ready for the store by the worker; platforms leave it empty."""
    signals: tuple[Signal, ...] = ()
    """How the selectors did."""


class Retry(Struct, frozen=True, gc=False):
    """It did not work, and may work later."""

    reason: str
    after_seconds: float | None = None
    """None: the store's own doubling delay."""
    signals: tuple[Signal, ...] = ()
    """How the selectors did."""


class GiveUp(Struct, frozen=True, gc=False):
    """It will not work, however often it is tried."""

    reason: str


class Blocked(Struct, frozen=True, gc=False):
    """The site wants no more of us for now: its whole platform gets a pause, the task costs nothing."""

    reason: str
    cool_down_seconds: float | None = None
    """None: what the settings say."""


class NotFound(Struct, frozen=True, gc=False):
    """The site answered that there is no such parcel: an end, with no record to send."""

    reason: str


class Busy(Struct, frozen=True, gc=False):
    """Others of ours are before it, or the browser is missing or died: the task is given back and costs nothing."""

    reason: str
    after_seconds: float
    """When its turn may come."""
    lacks_browser: bool = False
    """It waits for a browser, and somebody may have to see to it."""
    remedy: str = ""
    """What they can do; '': nobody knows."""


Outcome = Done | Retry | GiveUp | Blocked | NotFound | Busy
"""How an attempt ended."""


_CHILD_ID = re.compile(r"~[0-9a-f]{20}\Z")


def is_child_id(task_id: str) -> bool:
    """Whether it is the id of a further record of a page, which the worker derives from its task's, and no order's."""
    return _CHILD_ID.search(task_id) is not None


def reason_text(reason: str | None, decided_by: str | None) -> str | None:
    """A stored reason as people read it: with a word about the operator where it was an operator's decision."""
    return reason if reason is None or decided_by is None else f"by the {decided_by}: {reason}"


class OutboxEntry(Struct, frozen=True, kw_only=True, gc=False, array_like=True):
    """A stored result as the sync sees it.

    `status` is its task's. With `data` it is a record; else a report of how the task ended.
    """

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
    data: bytes | None
    """JSON, exactly as stored."""
    error: str | None
    execution_time_ms: int
    html_path: str | None
    json_path: str | None
    screenshot_path: str | None
    log_path: str | None
    raw_sha256: str | None
    idempotency_key: str
    scraped_at: datetime
    sync_attempts: int
    last_error: str | None
    raw_synced_at: datetime | None
    synced_at: datetime | None
    rejected_at: datetime | None
    created_at: datetime
    lease_expires_at: datetime | None
    retries: int = 0
    page_shared: bool = False
    """Other results name the same page."""
    lease_id: str | None = None
    """Of its task, as `retries`; None: the upstream gives leases no names."""
    listed: bool = False  # `parcel_id` is that of one record of several on a page, not that of the order
    ended_by: str | None = None
    """Of its task: "operator" where an operator failed it."""
    rejected_by: str | None = None
    """"operator" where an operator rejected it; None: the upstream did, or nobody."""

    @property
    def error_text(self) -> str | None:
        return reason_text(self.error, self.ended_by)

    @property
    def last_error_text(self) -> str | None:
        return reason_text(self.last_error, self.rejected_by)


class TaskInfo(Struct, frozen=True, kw_only=True):
    """A stored task with everything a person may ask about it."""

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
    """The task whose page brought this record; None: it is an order itself."""
    ended_by: str | None = None
    """"operator" where an operator failed it."""

    @property
    def error_text(self) -> str | None:
        return reason_text(self.error, self.ended_by)


class QueueDepth(Struct, frozen=True, kw_only=True):
    """How much work is here, in every state."""

    pending: int = 0
    processing: int = 0
    completed: int = 0
    not_found: int = 0
    failed: int = 0
    expired: int = 0
    unsynced: int = 0
    rejected: int = 0
    rejected_by_operator: int = 0
    """Of the rejected ones, those that an operator rejected."""
    delayed: int = 0
    """Of the pending ones, those not yet due."""
    oldest_pending_seconds: float = 0.0
    oldest_unsynced_seconds: float = 0.0


class BrowserState(Struct, frozen=True, kw_only=True):
    """A place in a browser pool, which outlives the browsers that are started in it one after the other."""

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
    """Whose pool it is in. What follows is how others find its processes if that one is killed."""
    boot: str = ""
    """Where and until when process ids mean what they mean here."""
    marker: str = ""
    """Stands in the browser's command line, and in nobody else's."""
    started: str = ""
    """When `pid` started, as the system counts."""
    executable: str = ""
    profile: str = ""
    """The folder that Playwright made for it."""
    driver_pid: int | None = None
    driver_started: str = ""
