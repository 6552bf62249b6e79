"""What an overview says of workers, activity and platforms. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.gateway.read_api.answers import Queued
from parcelpost.gateway.words import ActivityRow, WorkerRow, WorkerState
from parcelpost.model import Broken

_MOST_PLATFORMS = 500
_MOST_LISTED = 100
"""Of a platform's blocked workers, failing selectors and outdated ones."""
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
    """Age of the oldest result that has not come here, as far as is known now."""
    leases: int
    pending_commands: Sequence[str]


class Workers(Struct, frozen=True):
    workers: Sequence[Worker]


class Activity(Struct, frozen=True, kw_only=True):
    """`series[outcome][n]` happened in the `bucket_seconds` from `since` + n * `bucket_seconds`."""

    since: datetime
    bucket_seconds: int
    series: Mapping[str, Sequence[int]]


class FailingSelector(Struct, frozen=True, kw_only=True):
    """One that used to work at a site and no longer does, as a worker that is alive reports it."""

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
    """Tasks that ended with a record, or with the site's answer that there is no such parcel."""
    failed: int
    success_rate: float | None
    """null: nothing has ended."""
    blocked_workers: Sequence[str]
    failing_selectors: Sequence[FailingSelector]
    """Their fields are no longer found."""
    outdated_selectors: Sequence[FailingSelector]
    """Another selector finds the field: nothing is lost."""


class Sync(Struct, frozen=True):
    unsynced: int
    lag_seconds: float


class Overview(Struct, frozen=True, kw_only=True):
    now: datetime
    version: str
    counts: Mapping[str, int]
    workers: Sequence[Worker]
    queue: Sequence[Queued]
    activity: Activity
    sync: Sync
    platforms: Sequence[PlatformHealth]


def worker_answer(row: WorkerRow, now: datetime) -> Worker:
    beat = row.beat
    silent = max(timedelta(0), now - row.last_seen_at)
    unsynced = (beat.queue or {}).get("unsynced", 0)
    return Worker(
        worker_id=beat.worker_id,
        state=row.state(now),
        alive=row.is_alive(now),
        silent_seconds=silent.total_seconds(),
        first_seen_at=row.first_seen_at,
        last_seen_at=row.last_seen_at,
        version=beat.version,
        paused=beat.paused,
        active_tasks=beat.active_tasks,
        completed_last_minute=beat.completed_last_minute,
        failed_last_minute=beat.failed_last_minute,
        platforms=beat.platforms,
        blocked=beat.blocked,
        broken=beat.broken,
        cpu_percent=beat.cpu_percent,
        memory_percent=beat.memory_percent,
        disk_free_bytes=beat.disk_free_bytes,
        queue=beat.queue,
        unsynced=unsynced,
        lag_seconds=beat.oldest_unsynced_seconds + silent.total_seconds() if unsynced else 0.0,
        leases=row.leases,
        pending_commands=row.awaited_commands(now),
    )


def sync_of(workers: Iterable[Worker]) -> Sync:
    behind = [worker for worker in workers if worker.unsynced]
    lag = max((worker.lag_seconds for worker in behind), default=0.0)
    return Sync(sum(worker.unsynced for worker in behind), lag)


def activity_of(rows: Iterable[ActivityRow], since: datetime, buckets: int, bucket_seconds: int) -> Activity:
    series: defaultdict[str, list[int]] = defaultdict(lambda: [0] * buckets)
    for row in rows:
        place = int((row.minute - since).total_seconds() // bucket_seconds)
        if 0 <= place < buckets:
            series[row.outcome][place] += row.count
    return Activity(since=since, bucket_seconds=bucket_seconds, series=dict(sorted(series.items())))


def outcomes_of(rows: Iterable[ActivityRow]) -> Mapping[str, Counter[str]]:
    """How often each outcome came, by platform."""
    totals: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in rows:
        totals[row.platform][row.outcome] += row.count
    return totals


def health_of(outcomes: Mapping[str, Counter[str]], workers: Sequence[Worker]) -> list[PlatformHealth]:
    """Of the platforms that were heard of, by name."""
    alive = [worker for worker in workers if worker.alive]
    blocked: defaultdict[str, list[str]] = defaultdict(list)
    known = {platform for platform in outcomes if platform}  # '' is what came with no name
    for worker in alive:
        known.update(worker.platforms)
        for platform in worker.blocked:
            blocked[platform].append(worker.worker_id)
    broken = [field for worker in alive for field in worker.broken]
    failing = _selectors_of(field for field in broken if not field.found_otherwise)
    outdated = _selectors_of(field for field in broken if field.found_otherwise)
    return [
        _health(
            name, outcomes.get(name, Counter()), blocked.get(name, []), failing.get(name, []), outdated.get(name, [])
        )
        for name in sorted(known | blocked.keys() | failing.keys() | outdated.keys())[:_MOST_PLATFORMS]
    ]


def _selectors_of(fields: Iterable[Broken]) -> dict[str, list[FailingSelector]]:
    """By platform. What several workers report of one site is listed once."""
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
        blocked_workers=sorted(blocked)[:_MOST_LISTED],
        failing_selectors=failing[:_MOST_LISTED],
        outdated_selectors=outdated[:_MOST_LISTED],
    )
