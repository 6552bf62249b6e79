"""Findings about the queue and the fleet, for `parcelpost gateway status` and the dashboard."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import datetime

from parcelpost.gateway.models import QueueRow, TaskState, WorkerRow, WorkerState
from parcelpost.health import Finding, sort_findings
from parcelpost.units import age, count

_SHOWN = 5


def fleet_findings(queue: Sequence[QueueRow], workers: Sequence[WorkerRow], now: datetime) -> list[Finding]:
    """A worker that was stopped on purpose is not a problem."""
    totals = Counter[str]()
    for row in queue:
        totals[row.state] += row.tasks
    return sort_findings(
        (
            *_worker_findings(totals[TaskState.QUEUED], workers, now),
            *_task_findings(totals),
            *_lost_workers(workers, now),
            *_unclaimed_platforms(queue, workers, now),
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
        message = f"{count(queued, 'task')} queued, and every worker was stopped"
        yield Finding.of("fleet.stopped", message, start)
    elif not alive:
        yield Finding.of("fleet.no_worker", f"{count(queued, 'task')} queued, and no worker is online", start)


def _task_findings(totals: Counter[str]) -> Iterator[Finding]:
    for check, state, why in (
        ("queue.dead", TaskState.DEAD, "all leases expired for"),
        ("queue.failed", TaskState.FAILED, "workers gave up on"),
    ):
        if totals[state]:
            requeue = f"parcelpost gateway requeue --state {state.value}"
            fix = f"find the cause, then retry them with '{requeue}'"
            yield Finding.of(check, f"{why} {count(totals[state], 'task')}", fix)


def _lost_workers(workers: Sequence[WorkerRow], now: datetime) -> Iterator[Finding]:
    lost = [row for row in workers if row.state(now) is WorkerState.OFFLINE and row.leases]
    if lost:
        names = [
            f"{row.heartbeat.worker_id} ({age((now - row.last_seen_at).total_seconds())})" for row in lost[:_SHOWN]
        ]
        more = f" and {len(lost) - _SHOWN:,} more" if len(lost) > _SHOWN else ""
        fix = "nothing to do: their tasks return to the queue when the leases expire"
        yield Finding.of("fleet.worker_lost", f"offline with leased tasks: {', '.join(names)}{more}", fix)


def _unclaimed_platforms(queue: Sequence[QueueRow], workers: Sequence[WorkerRow], now: datetime) -> Iterator[Finding]:
    """A worker that names no platforms takes tasks of any."""
    alive = [row for row in workers if row.is_alive(now)]
    if not alive or not all(row.heartbeat.platforms for row in alive):
        return
    claimed = {name for row in alive for name in row.heartbeat.platforms}
    waiting = Counter[str]()
    for row in queue:
        if row.state == TaskState.QUEUED and row.platform not in claimed:
            waiting[row.platform] += row.tasks
    for platform, tasks in sorted(waiting.items()):
        message = f"{count(tasks, 'task')} queued for {platform}, and no online worker handles that platform"
        yield Finding.of("queue.unclaimed", message, "check the name, or start a worker with that platform")
