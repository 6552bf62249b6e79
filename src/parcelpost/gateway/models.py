"""The gateway's domain types, frozen and free of I/O. Money is in cents, times have a zone."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from enum import StrEnum

from msgspec import Struct

from parcelpost.model import Target, Task
from parcelpost.protocol.payloads import Heartbeat


class TaskState(StrEnum):
    """A task at the gateway. It ends in one of the last four."""

    QUEUED = "queued"
    LEASED = "leased"
    DONE = "done"
    """Its record is here, or a worker completed it with nothing to send."""
    NOT_FOUND = "not_found"
    """A worker says that the site has no such parcel."""
    FAILED = "failed"
    """A worker said that it will not work."""
    DEAD = "dead"
    """Its leases ended without a word as often as they may."""


class LeaseEnd(StrEnum):
    """How a lease ended."""

    DONE = "done"
    FAILED = "failed"
    RETURNED = "returned"
    """A worker failed and said that another try may work."""
    EXPIRED = "expired"
    SUPERSEDED = "superseded"
    """Another worker delivered the task's result."""


class ParcelKey(Struct, frozen=True, order=True, gc=False, cache_hash=True):
    """What makes a parcel one: the upsert's key."""

    platform: str
    state: str
    county: str
    parcel_id: str


class AddCounts(Struct, frozen=True):
    new: int
    known: int
    """Were there already; nothing about them has changed."""


class Grant(Struct, frozen=True, kw_only=True, gc=False):
    """A task handed to a worker; `task.lease_expires_at` says until when."""

    task: Task
    attempt: int
    """1 for the first."""
    created_at: datetime


class Lien(Struct, frozen=True, kw_only=True, gc=False):
    """One of a record's liens, with what can be asked for."""

    certificate_number: str | None
    certificate_year: int | None
    tax_year: int | None
    status: str | None
    """As the page says, in lower case."""
    holder_name: str | None
    amount_cents: int | None
    """Its face amount, else its opening bid."""
    sale_date: str | None
    json: bytes
    """The whole of it."""


class SearchFields(Struct, frozen=True, kw_only=True, gc=False):
    """What can be asked for of a record."""

    owner: str = ""
    """All names, joined with `; `."""
    situs: str = ""
    delinquent: bool | None = None
    tax_due_cents: int | None = None
    liens: tuple[Lien, ...] = ()


class IngestedResult(Struct, frozen=True, kw_only=True, gc=False):
    """A result that a worker sent, read and found whole."""

    task_id: str
    parcel: ParcelKey
    data: bytes
    """JSON, an object, as sent."""
    search_fields: SearchFields
    scraped_at: datetime
    parse_duration_ms: int
    idempotency_key: str
    """The worker's, or made of the task and the content where it sent none."""
    raw_sha256: str | None = None
    raw_file: str | None = None
    late: bool = False
    listed: bool | None = None
    """Its page lists several parcels: the number is the record's own, not that of the order. None: not said."""


class KnownTask(Struct, frozen=True):
    """What a task asks for."""

    platform: str
    target: Target
    was_given: bool
    """To the worker that asks or another one with the same token, now or before."""


class StoreOutcome(StrEnum):
    """What became of an result. Whatever it is, the ledger has it."""

    INSERTED = "inserted"
    """The parcel's first."""
    UPDATED = "updated"
    """Now the parcel's newest."""
    KEPT = "kept"
    """Older than what is known of the parcel: in its history only."""
    DUPLICATE = "duplicate"
    """Known already, or an older result of the same task: nothing has changed."""


class ExpiredLeases(Struct, frozen=True):
    """Tasks whose lease ended without a word: the platform of each."""

    queued: Sequence[str]
    dead: Sequence[str]


class TaskOutcome(Struct, frozen=True):
    """What a worker's word has made of a task."""

    platform: str
    state: TaskState


OFFLINE_AFTER = timedelta(seconds=300)
"""A worker beats every 30 to 60 seconds, and never less often than every 240: one that is silent for longer is gone."""


class WorkerHeartbeat(Heartbeat, frozen=True, kw_only=True):
    """A worker's heartbeat."""

    worker_id: str

    @property
    def holds_nothing(self) -> bool:
        """It says that it has no task left, at work or on its way here: no lease of its own is worth extending."""
        held = ("pending", "processing", "unsynced", "rejected")
        return self.queue is not None and not self.active_tasks and not any(self.queue.get(name) for name in held)


class WorkerState(StrEnum):
    ALIVE = "alive"
    STOPPED = "stopped"
    """It ended on purpose, and said so in its last heartbeat."""
    AWAY = "away"
    """Silent for longer than AWAY_AFTER, without a last heartbeat."""


class WorkerRow(Struct, frozen=True, kw_only=True):
    """A worker that has ever beaten."""

    heartbeat: WorkerHeartbeat
    first_seen_at: datetime
    last_seen_at: datetime
    leases: int
    """Open ones."""
    pending_commands: tuple[str, ...]

    def state(self, now: datetime) -> WorkerState:
        if self.heartbeat.leaving:
            return WorkerState.STOPPED
        return WorkerState.ALIVE if now - self.last_seen_at <= OFFLINE_AFTER else WorkerState.AWAY

    def is_alive(self, now: datetime) -> bool:
        return self.state(now) is WorkerState.ALIVE

    def deliverable_commands(self, now: datetime) -> tuple[str, ...]:
        """Those that it will hear: one that is gone hears none, also when it comes back."""
        return self.pending_commands if self.is_alive(now) else ()


class QueueRow(Struct, frozen=True, kw_only=True):
    """How many tasks of one platform and priority are in one state."""

    platform: str
    priority: int
    state: TaskState
    tasks: int
    oldest_at: datetime | None
    """When the oldest of the queued ones was added; None in other states."""


class ActivityRow(Struct, frozen=True, kw_only=True):
    """What happened in one minute on one platform."""

    minute: datetime
    platform: str
    outcome: str
    """Of tasks: granted, done, not_found, failed, expired, dead. Of records: stored, duplicate, rejected."""
    count: int


class ParcelFilter(Struct, frozen=True, kw_only=True):
    """Every condition that is set must hold; None and '' are not set."""

    platform: str = ""
    state: str = ""
    county: str = ""
    owner: str = ""
    """Somewhere in the owner's names, whatever the case."""
    search: str = ""
    """Somewhere in the parcel's number, owner or address, whatever the case."""
    delinquent: bool | None = None
    lien_status: str = ""
    """Whatever the case."""
    min_lien_cents: int | None = None
    max_lien_cents: int | None = None
    changed_since: datetime | None = None


class ParcelRow(Struct, frozen=True, kw_only=True):
    """A parcel as it is known now."""

    parcel: ParcelKey
    owner: str
    situs: str
    delinquent: bool | None
    tax_due_cents: int | None
    lien_count: int
    scraped_at: datetime
    """Of its newest scrape."""
    first_seen_at: datetime
    received_at: datetime
    """When the newest scrape came here."""
    task_id: str
    raw_sha256: str | None
    parcel_no: int
    """The ledger's own number, which decides between those that came at the same moment."""


class ParcelRecord(Struct, frozen=True):
    """A parcel with the record of its newest scrape, which may be large."""

    row: ParcelRow
    data: bytes


class RecordVersion(Struct, frozen=True, kw_only=True):
    """One scrape of a parcel."""

    task_id: str
    worker_id: str
    scraped_at: datetime
    received_at: datetime
    late: bool
    parse_duration_ms: int
    raw_sha256: str | None
    raw_file: str | None
    data: bytes


class LienRow(Struct, frozen=True, kw_only=True):
    """A lien of a parcel as it is known now."""

    parcel: ParcelKey
    position: int
    owner: str
    scraped_at: datetime
    received_at: datetime
    parcel_no: int
    lien: Lien


class LeaseRow(Struct, frozen=True, kw_only=True):
    """One worker's hold on one task. `ended_at` is None while it runs."""

    lease_id: int
    task_id: str
    worker_id: str
    granted_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    end: LeaseEnd | None


class TaskRow(Struct, frozen=True, kw_only=True):
    """A task with everything a person may ask about it."""

    task: Task
    state: TaskState
    attempts: int
    max_attempts: int
    created_at: datetime
    ended_at: datetime | None
    error: str | None
    leases: Sequence[LeaseRow]
    """Oldest first."""


class EndedTask(Struct, frozen=True):
    """One of a list."""

    row: TaskRow
    """Without its leases."""
    seq: int
