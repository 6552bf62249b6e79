"""The state of a gateway: workers, queue, platforms, activity and findings.

The dashboard and `parcelpost gateway status` show the same overview.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.gateway.counties import (
    Ended,
    HealthState,
    platform_of,
    site_findings,
    succeeded_and_failed,
)
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ActivityRow, QueueRow, TaskState, WorkerRow, WorkerState
from parcelpost.gateway.schedules import FreshnessCache, ScheduleStatus, schedule_findings, schedule_statuses
from parcelpost.gateway.webhooks import WebhookState, webhook_findings, webhook_state
from parcelpost.health_checks import Finding, is_ok, sort_findings
from parcelpost.model import Broken, PausedSite
from parcelpost.units import age, count

BUCKET_SECONDS = {1: 60, 3: 120, 6: 300, 24: 900}
"""Length of an activity bucket by the number of hours shown."""
AUTO = 0
"""Instead of hours: since the first activity of the last 24 hours."""
_FEWEST_BUCKETS = 15

_HIDDEN_AFTER = timedelta(days=7)
_MAX_LISTED_WORKERS = 500
_MAX_NAMED_WORKERS = 5
_MAX_PLATFORMS = 500
_MAX_PER_PLATFORM = 100
"""Limit on a platform's blocked workers, failing selectors and outdated selectors."""


class WorkerEntry(Struct, frozen=True, kw_only=True):
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
    blocked: Sequence[PausedSite]
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


class Fleet(Struct, frozen=True, kw_only=True):
    """Number of workers that reported in the last 7 days."""

    alive: int
    paused: int
    """Included in `alive`."""
    stopped: int
    offline: int


class QueueEntry(Struct, frozen=True, kw_only=True):
    platform: str
    priority: int
    state: str
    tasks: int
    oldest_seconds: float | None


class Activity(Struct, frozen=True, kw_only=True):
    """`series[outcome][n]` is the count for the `bucket_seconds` that start at `since` + n * `bucket_seconds`."""

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
    """The most recent task on whose page it failed."""
    since: datetime | None


class PlatformHealth(Struct, frozen=True, kw_only=True):
    """Over the last 24 hours."""

    platform: str
    succeeded: int
    """Tasks that ended with a record, or because the site has no such parcel."""
    failed: int
    success_rate: float | None
    """null if no task has ended."""
    state: HealthState
    blocked_workers: Sequence[str]
    """Workers that at least one of its sites blocks."""
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
    ok: bool
    """Whether no finding is an error."""
    findings: Sequence[Finding]
    counts: Mapping[str, int]
    """Number of parcels, liens and results."""
    fleet: Fleet
    workers: Sequence[WorkerEntry]
    """The 500 most recently active workers of the last 7 days, ordered by id."""
    totals: Mapping[str, int]
    """Number of tasks, by state."""
    ended_last_hour: int
    """Number of tasks."""
    queue: Sequence[QueueEntry]
    unclaimed_platforms: Sequence[str]
    """Platforms with queued tasks that no online worker handles."""
    activity: Activity
    sync: Sync
    platforms: Sequence[PlatformHealth]
    schedules: Sequence[ScheduleStatus]
    webhooks: Sequence[WebhookState]
    """By name."""


async def gather_overview(
    ledger: Ledger, now: datetime, hours: int, ended: Ended, version: str, freshness: FreshnessCache | None = None
) -> Overview:
    """Read-only. `hours` is AUTO or a key of BUCKET_SECONDS.

    Raises LedgerUnavailable.
    """
    rows = [row for row in await ledger.workers() if now - row.last_seen_at <= _HIDDEN_AFTER]
    queue = await ledger.queue()
    webhooks = await ledger.webhooks()
    schedules = await schedule_statuses(ledger, rows, now, freshness or FreshnessCache())
    scheduled = schedule_findings(schedules, now)
    findings = sort_findings([*fleet_findings(queue, rows, ended, now), *webhook_findings(webhooks, now), *scheduled])
    return Overview(
        now=now,
        version=version,
        ok=is_ok(findings),
        findings=findings,
        counts=await ledger.counts(),
        fleet=_fleet(rows, now),
        workers=[worker_response(row, now) for row in _most_recent(rows)],
        totals=_tasks_by_state(queue),
        ended_last_hour=sum(of_site["hour"] for of_site in ended.values()),
        queue=[queue_entry(row, now) for row in queue],
        unclaimed_platforms=list(_unclaimed_platforms(queue, rows, now)),
        activity=await _activity(ledger, now, hours),
        sync=Sync(sum(row.unsynced for row in rows), max((row.lag_seconds(now) for row in rows), default=0.0)),
        platforms=_platform_health(ended, [row for row in rows if row.is_alive(now)]),
        schedules=schedules,
        webhooks=[await webhook_state(ledger, webhook) for webhook in webhooks],
    )


def worker_response(row: WorkerRow, now: datetime) -> WorkerEntry:
    heartbeat = row.heartbeat
    return WorkerEntry(
        worker_id=heartbeat.worker_id,
        state=row.state(now),
        alive=row.is_alive(now),
        silent_seconds=row.silent_seconds(now),
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
        unsynced=row.unsynced,
        lag_seconds=row.lag_seconds(now),
        leases=row.leases,
        pending_commands=row.deliverable_commands(now),
    )


def _most_recent(rows: Sequence[WorkerRow]) -> Sequence[WorkerRow]:
    newest = sorted(rows, key=lambda row: row.last_seen_at, reverse=True)[:_MAX_LISTED_WORKERS]
    return sorted(newest, key=lambda row: row.heartbeat.worker_id)


def _fleet(rows: Sequence[WorkerRow], now: datetime) -> Fleet:
    states = Counter(row.state(now) for row in rows)
    return Fleet(
        alive=states[WorkerState.ALIVE],
        paused=sum(row.heartbeat.paused for row in rows if row.is_alive(now)),
        stopped=states[WorkerState.STOPPED],
        offline=states[WorkerState.OFFLINE],
    )


def _tasks_by_state(queue: Iterable[QueueRow]) -> dict[str, int]:
    totals = Counter[str]()
    for row in queue:
        totals[row.state] += row.tasks
    return {state.value: totals[state] for state in TaskState}


def queue_entry(row: QueueRow, now: datetime) -> QueueEntry:
    return QueueEntry(
        platform=row.platform,
        priority=row.priority,
        state=row.state,
        tasks=row.tasks,
        oldest_seconds=None if row.oldest_at is None else max(0.0, (now - row.oldest_at).total_seconds()),
    )


async def _activity(ledger: Ledger, now: datetime, hours: int) -> Activity:
    first = now - timedelta(hours=hours)
    if hours == AUTO:
        first = await ledger.first_activity(now - timedelta(days=1)) or now
        covering = (hours for hours in BUCKET_SECONDS if now - first <= timedelta(hours=hours))
        hours = next(covering, max(BUCKET_SECONDS))
    bucket = BUCKET_SECONDS[hours]
    last = int(now.timestamp() // bucket)
    buckets = min(max(last - int(first.timestamp() // bucket) + 1, _FEWEST_BUCKETS), hours * 3_600 // bucket)
    since = now.fromtimestamp((last - buckets + 1) * bucket, now.tzinfo)
    return _activity_series(await ledger.activity(since), since, buckets, bucket)


def _activity_series(rows: Iterable[ActivityRow], since: datetime, buckets: int, bucket_seconds: int) -> Activity:
    series: defaultdict[str, list[int]] = defaultdict(lambda: [0] * buckets)
    for row in rows:
        place = int((row.minute - since).total_seconds() // bucket_seconds)
        if 0 <= place < buckets:
            series[row.outcome][place] += row.count
    return Activity(since=since, bucket_seconds=bucket_seconds, series=dict(sorted(series.items())))


def _platform_health(ended: Ended, alive: Sequence[WorkerRow]) -> list[PlatformHealth]:
    """Returns the health of every known platform, by name."""
    blocked: defaultdict[str, list[str]] = defaultdict(list)
    outcomes: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for site, of_site in ended.items():
        outcomes[platform_of(site)].update(of_site)
    known = set(outcomes)
    for heartbeat in (row.heartbeat for row in alive):
        known.update(heartbeat.platforms)
        for platform in {site.platform for site in heartbeat.blocked}:
            blocked[platform].append(heartbeat.worker_id)
    broken = [field for row in alive for field in row.heartbeat.broken]
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
    selectors_by_platform: defaultdict[str, dict[tuple[str, ...], FailingSelector]] = defaultdict(dict)
    for field in fields:
        site = f"{field.state}/{field.county}"
        for selector in field.failing:
            selectors_by_platform[field.platform][site, field.field, selector] = FailingSelector(
                field=field.field, selector=selector, site=site, example=field.example or None, since=field.since
            )
    return {platform: list(selectors.values()) for platform, selectors in selectors_by_platform.items()}


def _health(
    platform: str,
    ended: Counter[str],
    blocked: list[str],
    failing: list[FailingSelector],
    outdated: list[FailingSelector],
) -> PlatformHealth:
    good, bad = succeeded_and_failed(ended)
    return PlatformHealth(
        platform=platform,
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        state=HealthState.of(good, bad),
        blocked_workers=sorted(blocked)[:_MAX_PER_PLATFORM],
        failing_selectors=failing[:_MAX_PER_PLATFORM],
        outdated_selectors=outdated[:_MAX_PER_PLATFORM],
    )


def fleet_findings(
    queue: Sequence[QueueRow], workers: Sequence[WorkerRow], ended: Ended, now: datetime
) -> list[Finding]:
    """A worker that was stopped on purpose is not a problem."""
    totals = _tasks_by_state(queue)
    return sort_findings(
        (
            *_worker_findings(totals[TaskState.QUEUED], workers, now),
            *_task_findings(totals),
            *_lost_workers(workers, now),
            *site_findings(ended, workers, now),
            *_unclaimed_findings(_unclaimed_platforms(queue, workers, now)),
        )
    )


def _worker_findings(queued: int, workers: Sequence[WorkerRow], now: datetime) -> Iterator[Finding]:
    if not queued:
        return
    start = "start one with 'parcelpost run --gateway URL'"
    alive = [row for row in workers if row.is_alive(now)]
    if alive and all(row.heartbeat.paused for row in alive):
        resume = "parcelpost gateway command resume --all"
        yield Finding.of("fleet.paused", "every worker is paused", f"run '{resume}'", resume)
    elif not alive and workers and all(row.state(now) is WorkerState.STOPPED for row in workers):
        message = f"{count(queued, 'task')} queued, but every worker was stopped"
        yield Finding.of("fleet.stopped", message, start)
    elif not alive:
        yield Finding.of("fleet.no_worker", f"{count(queued, 'task')} queued, but no worker is online", start)


def _task_findings(totals: Mapping[str, int]) -> Iterator[Finding]:
    for check, state, why in (
        ("queue.dead", TaskState.DEAD, "all leases expired for"),
        ("queue.failed", TaskState.FAILED, "workers gave up on"),
    ):
        if totals[state]:
            requeue = f"parcelpost gateway requeue --state {state.value}"
            fix = f"find the cause, then retry them with '{requeue}'"
            yield Finding.of(check, f"{why} {count(totals[state], 'task')}", fix)


def _lost_workers(workers: Sequence[WorkerRow], now: datetime) -> Iterator[Finding]:
    offline = [row for row in workers if row.state(now) is WorkerState.OFFLINE]
    if full := [row for row in offline if row.unsynced]:
        results = count(sum(row.unsynced for row in full), "result")
        fix = "start them again with the same stores: the results are there, and are delivered first"
        yield Finding.of("fleet.undelivered", f"offline with {results} not delivered: {_named(full, now)}", fix)
    if lost := [row for row in offline if row.leases]:
        fix = "no action needed: their tasks return to the queue when the leases expire"
        yield Finding.of("fleet.worker_lost", f"offline with leased tasks: {_named(lost, now)}", fix)


def _named(workers: Sequence[WorkerRow], now: datetime) -> str:
    names = [f"{row.heartbeat.worker_id} ({age(row.silent_seconds(now))})" for row in workers[:_MAX_NAMED_WORKERS]]
    more = f" and {len(workers) - _MAX_NAMED_WORKERS:,} more" if len(workers) > _MAX_NAMED_WORKERS else ""
    return f"{', '.join(names)}{more}"


def _unclaimed_platforms(queue: Sequence[QueueRow], workers: Sequence[WorkerRow], now: datetime) -> Mapping[str, int]:
    """Returns the queued tasks that no online worker handles, by platform. A worker that names no platforms takes tasks
    of any; without online workers there are none, as `fleet.no_worker` covers that.
    """
    alive = [row for row in workers if row.is_alive(now)]
    if not alive or not all(row.heartbeat.platforms for row in alive):
        return {}
    claimed = {name for row in alive for name in row.heartbeat.platforms}
    unclaimed = Counter[str]()
    for row in queue:
        if row.state == TaskState.QUEUED and row.platform not in claimed:
            unclaimed[row.platform] += row.tasks
    return dict(sorted(unclaimed.items()))


def _unclaimed_findings(unclaimed: Mapping[str, int]) -> Iterator[Finding]:
    for platform, tasks in unclaimed.items():
        message = f"{count(tasks, 'task')} queued for {platform}, but no online worker handles that platform"
        yield Finding.of("queue.unclaimed", message, "check the name, or start a worker that handles it")
