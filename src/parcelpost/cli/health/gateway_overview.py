"""The state of a gateway: queue, workers, recent activity and findings."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.gateway.findings import fleet_findings
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ActivityRow, QueueRow, TaskState, WorkerRow, WorkerState
from parcelpost.health import Finding, is_ok

_LOOK_BACK = timedelta(minutes=60)
_RECENT_MINUTES = 5


class PlatformQueue(Struct, frozen=True, kw_only=True):
    platform: str
    priority: int
    queued: int
    leased: int
    done: int
    not_found: int
    failed: int
    dead: int
    oldest_queued_seconds: float


class WorkerSummary(Struct, frozen=True, kw_only=True):
    worker_id: str
    state: WorkerState
    alive: bool
    last_seen_seconds: float
    leases: int
    active_tasks: int
    completed_last_minute: int
    failed_last_minute: int
    unsynced: int
    oldest_unsynced_seconds: float
    version: str
    paused: bool
    platforms: tuple[str, ...]
    pending_commands: tuple[str, ...]


class GatewayOverview(Struct, frozen=True, kw_only=True):
    ok: bool
    findings: list[Finding]
    workers: list[WorkerSummary]
    queue: list[PlatformQueue]
    totals: dict[str, int]
    """Tasks by state."""
    last_minutes: dict[str, int]
    """What happened in the last whole five minutes and since, by outcome."""
    last_hour: dict[str, int]
    counts: dict[str, int]
    """parcels, liens, results."""


async def gather_gateway(ledger: Ledger, now: datetime) -> GatewayOverview:
    """Read-only. Raises LedgerUnavailable."""
    rows, workers = await ledger.queue(), await ledger.workers()
    activity = await ledger.activity(now - _LOOK_BACK)
    totals = Counter[str]()
    for row in rows:
        totals[row.state] += row.tasks
    findings = fleet_findings(rows, workers, now)
    return GatewayOverview(
        ok=is_ok(findings),
        findings=findings,
        workers=[_worker(row, now) for row in workers],
        queue=_queue(rows, now),
        totals={state: totals[state] for state in TaskState},
        last_minutes=_outcomes(activity, now - timedelta(minutes=_RECENT_MINUTES)),
        last_hour=_outcomes(activity, now - _LOOK_BACK),
        counts=dict(await ledger.counts()),
    )


def _worker(row: WorkerRow, now: datetime) -> WorkerSummary:
    beat = row.heartbeat
    queue = beat.queue or {}
    silent = now - row.last_seen_at
    return WorkerSummary(
        worker_id=beat.worker_id,
        state=row.state(now),
        alive=row.is_alive(now),
        last_seen_seconds=max(silent.total_seconds(), 0.0),
        leases=row.leases,
        active_tasks=beat.active_tasks,
        completed_last_minute=beat.completed_last_minute,
        failed_last_minute=beat.failed_last_minute,
        unsynced=queue.get("unsynced", 0),
        oldest_unsynced_seconds=beat.oldest_unsynced_seconds,
        version=beat.version,
        paused=beat.paused,
        platforms=beat.platforms,
        pending_commands=row.deliverable_commands(now),
    )


def _queue(rows: Sequence[QueueRow], now: datetime) -> list[PlatformQueue]:
    tasks: dict[tuple[str, int], Counter[str]] = {}
    oldest: dict[tuple[str, int], datetime] = {}
    for row in rows:
        key = row.platform, row.priority
        tasks.setdefault(key, Counter())[row.state] += row.tasks
        if row.oldest_at is not None:
            oldest[key] = row.oldest_at
    return [
        PlatformQueue(
            platform=platform,
            priority=priority,
            oldest_queued_seconds=max((now - oldest.get((platform, priority), now)).total_seconds(), 0.0),
            **{state.value: found[state] for state in TaskState},
        )
        for (platform, priority), found in sorted(tasks.items())
    ]


def _outcomes(activity: Sequence[ActivityRow], since: datetime) -> dict[str, int]:
    found = Counter[str]()
    for row in activity:
        if row.minute >= since:
            found[row.outcome] += row.count
    return dict(found)
