"""Response bodies of the read API. Money is in dollars, exact."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from decimal import Decimal
from typing import Any

from msgspec import UNSET, Raw, Struct, UnsetType

from parcelpost.gateway.api.params import parcel_path, raw_path
from parcelpost.gateway.history import Scrape
from parcelpost.gateway.models import (
    ActivityRow,
    LienRow,
    ParcelRecord,
    ParcelRow,
    QueueRow,
    TaskRow,
    WorkerRow,
    WorkerState,
)
from parcelpost.health import Finding
from parcelpost.model import Broken, Json


class Parcel(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    parcel_id: str
    owner: str
    situs: str
    delinquent: bool | None
    tax_due: Decimal | None
    lien_count: int
    scraped_at: datetime
    first_seen_at: datetime
    received_at: datetime
    task_id: str
    address: str
    raw: str | None
    """The path of its raw file, if there is one."""
    record: Raw | UnsetType = UNSET


class Parcels(Struct, frozen=True):
    parcels: Sequence[Parcel]
    next: str | None
    """The cursor of the next page; null after the last."""


class ParcelDetail(Struct, frozen=True):
    parcel: Parcel
    history: Sequence[Scrape]
    more_history: bool


class Lien(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    parcel_id: str
    position: int
    owner: str
    certificate_number: str | None
    certificate_year: int | None
    tax_year: int | None
    status: str | None
    holder_name: str | None
    amount: Decimal | None
    sale_date: str | None
    scraped_at: datetime
    address: str
    lien: Raw | UnsetType = UNSET


class Liens(Struct, frozen=True):
    liens: Sequence[Lien]
    next: str | None


class QueueEntry(Struct, frozen=True, kw_only=True):
    platform: str
    priority: int
    state: str
    tasks: int
    oldest_seconds: float | None


class Queue(Struct, frozen=True):
    queue: Sequence[QueueEntry]


class Lease(Struct, frozen=True, kw_only=True):
    worker_id: str
    granted_at: datetime
    expires_at: datetime
    ended_at: datetime | None
    end: str | None


class ListedTask(Struct, frozen=True, kw_only=True):
    task_id: str
    type: str
    platform: str
    target: Mapping[str, Json]
    priority: int
    state: str
    attempts: int
    max_attempts: int
    created_at: datetime
    ended_at: datetime | None
    error: str | None


class TaskDetail(ListedTask, frozen=True, kw_only=True):
    leases: Sequence[Lease]


class Tasks(Struct, frozen=True):
    tasks: Sequence[ListedTask]
    next: str | None


class CommandReply(Struct, frozen=True):
    workers: int
    """How many workers will receive the command."""


class BadTask(Struct, frozen=True, kw_only=True):
    position: int
    """1 for the first."""
    task_id: str
    problem: str


class AddedTasks(Struct, frozen=True, kw_only=True):
    new: int
    known: int
    bad: Sequence[BadTask]


class ReleaseReply(Struct, frozen=True):
    worker_id: str
    token: str
    """The name of the token it belonged to; '' for tokens without a name."""


class RequeueReply(Struct, frozen=True):
    requeued: int


def parcel_response(row: ParcelRow, record: Raw | UnsetType = UNSET) -> Parcel:
    key = row.parcel
    return Parcel(
        platform=key.platform,
        state=key.state,
        county=key.county,
        parcel_id=key.parcel_id,
        owner=row.owner,
        situs=row.situs,
        delinquent=row.delinquent,
        tax_due=_dollars(row.tax_due_cents),
        lien_count=row.lien_count,
        scraped_at=row.scraped_at,
        first_seen_at=row.first_seen_at,
        received_at=row.received_at,
        task_id=row.task_id,
        address=parcel_path(key),
        raw=raw_path(key) if row.raw_sha256 else None,
        record=record,
    )


def record_response(record: ParcelRecord) -> Parcel:
    return parcel_response(record.row, Raw(record.data))


def lien_response(row: LienRow, *, record: bool = False) -> Lien:
    key, lien = row.parcel, row.lien
    return Lien(
        platform=key.platform,
        state=key.state,
        county=key.county,
        parcel_id=key.parcel_id,
        position=row.position,
        owner=row.owner,
        certificate_number=lien.certificate_number,
        certificate_year=lien.certificate_year,
        tax_year=lien.tax_year,
        status=lien.status,
        holder_name=lien.holder_name,
        amount=_dollars(lien.amount_cents),
        sale_date=lien.sale_date,
        scraped_at=row.scraped_at,
        address=parcel_path(key),
        lien=Raw(lien.json) if record else UNSET,
    )


def queue_entry(row: QueueRow, now: datetime) -> QueueEntry:
    return QueueEntry(
        platform=row.platform,
        priority=row.priority,
        state=row.state,
        tasks=row.tasks,
        oldest_seconds=None if row.oldest_at is None else max(0.0, (now - row.oldest_at).total_seconds()),
    )


def listed_task(row: TaskRow) -> ListedTask:
    return ListedTask(**_task_fields(row))


def task_detail(row: TaskRow) -> TaskDetail:
    return TaskDetail(
        **_task_fields(row),
        leases=[
            Lease(
                worker_id=lease.worker_id,
                granted_at=lease.granted_at,
                expires_at=lease.expires_at,
                ended_at=lease.ended_at,
                end=lease.end,
            )
            for lease in row.leases
        ],
    )


def _dollars(cents: int | None) -> Decimal | None:
    return None if cents is None else Decimal(cents).scaleb(-2)


def _task_fields(row: TaskRow) -> dict[str, Any]:
    target = row.task.target
    named = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, "url": target.url}
    return {
        "task_id": row.task.task_id,
        "type": row.task.type,
        "platform": row.task.platform,
        "target": {**target.extra, **named},
        "priority": row.task.priority,
        "state": row.state,
        "attempts": row.attempts,
        "max_attempts": row.max_attempts,
        "created_at": row.created_at,
        "ended_at": row.ended_at,
        "error": row.error,
    }


_MAX_PLATFORMS = 500
_MAX_PER_PLATFORM = 100
"""Limit on a platform's blocked workers, failing selectors and outdated selectors."""
_GOOD = ("done", "not_found")
_BAD = ("failed", "dead", "expired")


class Worker(Struct, frozen=True, kw_only=True):
    worker_id: str
    state: WorkerState
    alive: bool
    silent_seconds: float
    first_seen_at: datetime
    last_seen_at: datetime
    version: str
    paused: bool
    active_tasks: int
    completed_last_minute: int
    failed_last_minute: int
    platforms: Sequence[str]
    blocked: Sequence[str]
    broken: Sequence[Broken]
    cpu_percent: float
    memory_percent: float
    disk_free_bytes: int
    queue: Mapping[str, int] | None
    unsynced: int
    lag_seconds: float
    """Age of the oldest result that has not been delivered yet."""
    leases: int
    pending_commands: Sequence[str]


class Workers(Struct, frozen=True):
    workers: Sequence[Worker]


class Activity(Struct, frozen=True, kw_only=True):
    """`series[outcome][n]` counts the `bucket_seconds` that start at `since` + n * `bucket_seconds`."""

    since: datetime
    bucket_seconds: int
    series: Mapping[str, Sequence[int]]


class FailingSelector(Struct, frozen=True, kw_only=True):
    """A selector that used to work at a site and no longer does, as reported by a live worker."""

    field: str
    selector: str
    site: str
    """State and county."""
    example: str | None
    """The last task whose page it failed on."""
    since: datetime | None


class PlatformHealth(Struct, frozen=True, kw_only=True):
    """Over the last 24 hours."""

    platform: str
    succeeded: int
    """Tasks that ended with a record, or because the site has no such parcel."""
    failed: int
    success_rate: float | None
    """null: no task has ended."""
    blocked_workers: Sequence[str]
    failing_selectors: Sequence[FailingSelector]
    """Their fields are missing from new records."""
    outdated_selectors: Sequence[FailingSelector]
    """Another selector finds the field, so no data is lost."""


class Sync(Struct, frozen=True):
    unsynced: int
    lag_seconds: float


class Overview(Struct, frozen=True, kw_only=True):
    now: datetime
    version: str
    findings: Sequence[Finding]
    counts: Mapping[str, int]
    workers: Sequence[Worker]
    queue: Sequence[QueueEntry]
    activity: Activity
    sync: Sync
    platforms: Sequence[PlatformHealth]


def worker_response(row: WorkerRow, now: datetime) -> Worker:
    heartbeat = row.heartbeat
    silent = max(timedelta(0), now - row.last_seen_at)
    unsynced = (heartbeat.queue or {}).get("unsynced", 0)
    return Worker(
        worker_id=heartbeat.worker_id,
        state=row.state(now),
        alive=row.is_alive(now),
        silent_seconds=silent.total_seconds(),
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        version=heartbeat.version,
        paused=heartbeat.paused,
        active_tasks=heartbeat.active_tasks,
        completed_last_minute=heartbeat.completed_last_minute,
        failed_last_minute=heartbeat.failed_last_minute,
        platforms=heartbeat.platforms,
        blocked=heartbeat.blocked,
        broken=heartbeat.broken,
        cpu_percent=heartbeat.cpu_percent,
        memory_percent=heartbeat.memory_percent,
        disk_free_bytes=heartbeat.disk_free_bytes,
        queue=heartbeat.queue,
        unsynced=unsynced,
        lag_seconds=heartbeat.oldest_unsynced_seconds + silent.total_seconds() if unsynced else 0.0,
        leases=row.leases,
        pending_commands=row.deliverable_commands(now),
    )


def sync_summary(workers: Iterable[Worker]) -> Sync:
    behind = [worker for worker in workers if worker.unsynced]
    lag = max((worker.lag_seconds for worker in behind), default=0.0)
    return Sync(sum(worker.unsynced for worker in behind), lag)


def activity_series(rows: Iterable[ActivityRow], since: datetime, buckets: int, bucket_seconds: int) -> Activity:
    series: defaultdict[str, list[int]] = defaultdict(lambda: [0] * buckets)
    for row in rows:
        place = int((row.minute - since).total_seconds() // bucket_seconds)
        if 0 <= place < buckets:
            series[row.outcome][place] += row.count
    return Activity(since=since, bucket_seconds=bucket_seconds, series=dict(sorted(series.items())))


def count_outcomes(rows: Iterable[ActivityRow]) -> Mapping[str, Counter[str]]:
    """Returns the number of each outcome, by platform."""
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        totals[row.platform][row.outcome] += row.count
    return totals


def platform_health(outcomes: Mapping[str, Counter[str]], workers: Sequence[Worker]) -> list[PlatformHealth]:
    """Returns the health of every known platform, by name."""
    alive = [worker for worker in workers if worker.alive]
    blocked: defaultdict[str, list[str]] = defaultdict(list)
    known = {platform for platform in outcomes if platform}  # '' counts entries without a platform
    for worker in alive:
        known.update(worker.platforms)
        for platform in worker.blocked:
            blocked[platform].append(worker.worker_id)
    broken = [field for worker in alive for field in worker.broken]
    failing = _failing_selectors(field for field in broken if not field.found_otherwise)
    outdated = _failing_selectors(field for field in broken if field.found_otherwise)
    return [
        _health(
            name, outcomes.get(name, Counter()), blocked.get(name, []), failing.get(name, []), outdated.get(name, [])
        )
        for name in sorted(known | blocked.keys() | failing.keys() | outdated.keys())[:_MAX_PLATFORMS]
    ]


def _failing_selectors(fields: Iterable[Broken]) -> dict[str, list[FailingSelector]]:
    """By platform. A selector that several workers report for one site is listed once."""
    found: defaultdict[str, dict[tuple[str, ...], FailingSelector]] = defaultdict(dict)
    for field in fields:
        site = f"{field.state}/{field.county}"
        for selector in field.failing:
            found[field.platform][site, field.field, selector] = FailingSelector(
                field=field.field, selector=selector, site=site, example=field.example or None, since=field.since
            )
    return {platform: list(selectors.values()) for platform, selectors in found.items()}


def _health(
    platform: str,
    counts: Mapping[str, int],
    blocked: list[str],
    failing: list[FailingSelector],
    outdated: list[FailingSelector],
) -> PlatformHealth:
    good = sum(counts.get(name, 0) for name in _GOOD)
    bad = sum(counts.get(name, 0) for name in _BAD)
    return PlatformHealth(
        platform=platform,
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        blocked_workers=sorted(blocked)[:_MAX_PER_PLATFORM],
        failing_selectors=failing[:_MAX_PER_PLATFORM],
        outdated_selectors=outdated[:_MAX_PER_PLATFORM],
    )
