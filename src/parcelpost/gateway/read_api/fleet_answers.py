"""What an overview says of workers, activity and platforms. Pure."""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.gateway.read_api.answers import Queued
from parcelpost.gateway.words import ActivityRow, SelectorRow, WorkerRow
from parcelpost.model import Broken

_FAILING_RATE = 0.5
_ENOUGH_SAMPLES = 20
_GOOD = ("stored",)
_BAD = ("failed", "dead", "expired")


class Worker(Struct, frozen=True, kw_only=True):
    worker_id: str
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
    """By what the whole fleet has seen; or, with a `site`, by the word of a worker that has just seen it fail there."""

    field: str
    selector: str
    success_rate: float
    samples: int
    """0: nobody has counted."""
    site: str | None = None
    """State and county."""
    example: str | None = None
    """The last task whose page did not show the field."""
    since: datetime | None = None


class PlatformHealth(Struct, frozen=True, kw_only=True):
    """Over the last 24 hours."""

    platform: str
    succeeded: int
    failed: int
    success_rate: float | None
    """null: nothing has ended."""
    blocked_workers: Sequence[str]
    failing_selectors: Sequence[FailingSelector]


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


def health_of(
    outcomes: Mapping[str, Counter[str]], workers: Sequence[Worker], selectors: Iterable[SelectorRow]
) -> list[PlatformHealth]:
    """Of every platform that was heard of, by name."""
    blocked: defaultdict[str, list[str]] = defaultdict(list)
    known = {platform for platform in outcomes if platform}  # '' is what came with no name
    for worker in workers:
        if worker.alive:
            known.update(worker.platforms)
            for platform in worker.blocked:
                blocked[platform].append(worker.worker_id)
    failing = _failing_at_sites(worker for worker in workers if worker.alive)
    for row in selectors:
        if row.success_rate < _FAILING_RATE and row.samples >= _ENOUGH_SAMPLES:
            failing[row.platform].append(
                FailingSelector(
                    field=row.field, selector=row.selector, success_rate=row.success_rate, samples=row.samples
                )
            )
    return [
        _health(name, outcomes.get(name, Counter()), blocked.get(name, []), failing.get(name, []))
        for name in sorted(known | set(blocked) | set(failing))
    ]


def _failing_at_sites(workers: Iterable[Worker]) -> defaultdict[str, list[FailingSelector]]:
    """By platform. What several workers say of one site is told once."""
    found: defaultdict[str, dict[tuple[str, ...], FailingSelector]] = defaultdict(dict)
    for one in (one for worker in workers for one in worker.broken):
        site = f"{one.state}/{one.county}"
        for way in one.failing:
            found[one.platform][site, one.field, way] = FailingSelector(
                field=one.field,
                selector=way,
                success_rate=0.0,
                samples=0,
                site=site,
                example=one.example or None,
                since=one.since,
            )
    return defaultdict(list, {platform: list(ways.values()) for platform, ways in found.items()})


def _health(
    platform: str, counts: Mapping[str, int], blocked: list[str], failing: list[FailingSelector]
) -> PlatformHealth:
    good = sum(counts.get(name, 0) for name in _GOOD)
    bad = sum(counts.get(name, 0) for name in _BAD)
    return PlatformHealth(
        platform=platform,
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        blocked_workers=sorted(blocked),
        failing_selectors=failing,
    )
