"""The monitoring routes /health and /metrics, and what the caller's token allows."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, Literal

from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from parcelpost.clock import Clock
from parcelpost.errors import LedgerError, LedgerUnavailable, RawStoreUnavailable
from parcelpost.gateway.auth import Access
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import QueueRow, WorkerRow
from parcelpost.gateway.routes import JSON, Role, Route, encode
from parcelpost.gateway.schedules import ScheduleState, ScheduleStatus, schedule_statuses
from parcelpost.gateway.webhooks import WebhookState, webhook_state
from parcelpost.health_checks import Finding

_LEDGER_SECONDS = 1.0
_RAW_STORE_SECONDS = 30.0  # it is written to, and S3 charges for that
# Anyone may request /health: it does not name paths or servers.
_NO_LEDGER = Finding.of("ledger.unavailable", "the ledger is not responding", LedgerUnavailable.hint)
_NO_RAW_STORE = Finding.of("raw_store.not_writable", "the raw file store is not writable", RawStoreUnavailable.hint)


class HealthCheck:
    """Checks the ledger at most once a second, and the raw store, by writing to it, at most twice a minute."""

    def __init__(self, context: Context) -> None:
        self._lock = asyncio.Lock()
        self._checks = (
            _CachedCheck(context.ledger.check, _NO_LEDGER, _LEDGER_SECONDS, context.clock),
            _CachedCheck(context.raw_store.check, _NO_RAW_STORE, _RAW_STORE_SECONDS, context.clock),
        )

    async def findings(self) -> list[Finding]:
        async with self._lock:
            findings = [await check.finding() for check in self._checks]
        return [finding for finding in findings if finding is not None]


class _CachedCheck:
    def __init__(self, check: Callable[[], Awaitable[None]], failure: Finding, seconds: float, clock: Clock) -> None:
        self._check = check
        self._failure = failure
        self._seconds = seconds
        self._clock = clock
        self._checked_at = float("-inf")
        self._result: Finding | None = None

    async def finding(self) -> Finding | None:
        now = self._clock.monotonic()
        if now - self._checked_at >= self._seconds:
            self._result = await self._run()
            self._checked_at = now
        return self._result

    async def _run(self) -> Finding | None:
        try:
            await self._check()
        except (LedgerError, RawStoreUnavailable):
            return self._failure
        return None


_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "parcelpost_gateway_tasks": ("Tasks by state.", ("platform", "state")),
    "parcelpost_gateway_oldest_queued_seconds": ("Age of the oldest queued task.", ("platform",)),
    "parcelpost_gateway_workers_alive": ("Workers that reported within five minutes and have not stopped.", ()),
    "parcelpost_gateway_leases": ("Tasks leased to workers.", ()),
    "parcelpost_gateway_unsynced": ("Results that live workers have not delivered yet.", ()),
    "parcelpost_gateway_oldest_unsynced_seconds": (
        "Age of the oldest result that live workers have not delivered yet.",
        (),
    ),
    "parcelpost_gateway_unsynced_left": (
        "Results that offline and stopped workers had not delivered when they last reported. They are in those "
        "workers' stores.",
        (),
    ),
    "parcelpost_gateway_events_total": (
        "Events counted by this process. Tasks: granted, done, not_found, failed, expired, dead; records: "
        "stored, duplicate, rejected.",
        ("platform", "outcome"),
    ),
    "parcelpost_gateway_responses_total": (
        "Responses of this process, by status class: 2xx, 3xx, 4xx, 5xx.",
        ("status",),
    ),
    "parcelpost_gateway_webhook_attempts_total": (
        "Attempts by this process to deliver a change, by outcome: delivered, failed, dead.",
        ("webhook", "outcome"),
    ),
    "parcelpost_gateway_webhook_failing_seconds": (
        "How long a webhook has been failing; 0 if it is not.",
        ("webhook",),
    ),
    "parcelpost_gateway_webhook_changes": (
        "Changes for a webhook: behind (not processed yet), waiting (for a retry), gave_up (no longer retried).",
        ("webhook", "state"),
    ),
    "parcelpost_gateway_schedule_parcels": (
        "Parcels that a schedule refreshes.",
        ("schedule", "platform", "state", "county"),
    ),
    "parcelpost_gateway_schedule_fresh_ratio": (
        "Share of a schedule's parcels that were scraped in time, from 0 to 1; once it has had the time to do so.",
        ("schedule", "platform", "state", "county"),
    ),
    "parcelpost_gateway_schedule_status": (
        "1 for the current status of a schedule: waiting, running, resting (blocked by its site), failing, paused.",
        ("schedule", "status"),
    ),
    "parcelpost_gateway_parcels_to_index": ("Changed parcels that the search does not show yet.", ()),
    "parcelpost_gateway_results_to_compare": ("Stored results that were not yet checked for changes.", ()),
    "parcelpost_gateway_rows": ("Approximate number of rows in the ledger: parcels, liens, results.", ("what",)),
}
"""Every metric, with its help text and labels."""


class Health(Struct, frozen=True):
    status: Literal["ok", "not ok"]
    """Whether the ledger and the raw file store work; if not, the HTTP status is 503."""
    findings: Sequence[Finding]
    version: str


class AllowedRole(Struct, frozen=True):
    role: Literal["reader", "admin"]


class HealthApi:
    def __init__(self, context: Context, access: Access) -> None:
        self._context = context
        self._access = access
        self._check = HealthCheck(context)

    def routes(self) -> list[Route]:
        health_types: dict[str, Any] = {"reply_type": Health, "unavailable_type": Health}
        return [
            Route("GET", "/health", self.health, Role.PUBLIC, **health_types),
            Route("GET", "/metrics", self.metrics, Role.READER, media_type="text/plain"),
            Route("GET", "/v1/access", self.access, Role.READER),
        ]

    async def health(self) -> Response:
        """Check that the ledger and the raw file store work. Needs no token."""
        findings = await self._check.findings()
        body = encode(Health("not ok" if findings else "ok", findings, self._context.version))
        return Response(body, 503 if findings else 200, media_type=JSON)

    async def metrics(self) -> Response:
        """Return metrics in Prometheus' text format."""
        return Response(await metrics_page(self._context), media_type=_CONTENT_TYPE)

    async def access(self, request: Request) -> AllowedRole:
        """Return whether the caller may only read, or also act."""
        try:
            self._access.admin(request)
        except ApiError:
            return AllowedRole("reader")
        return AllowedRole("admin")


class _FixedCollector(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def metrics_page(context: Context) -> bytes:
    """Returns the state of fleet and queue, and the counters of this process."""
    registry = CollectorRegistry()
    registry.register(_FixedCollector(await _metric_families(context)))
    return generate_latest(registry)


async def _metric_families(context: Context) -> list[Metric]:
    queue, workers, counts = await context.ledger.queue(), await context.ledger.workers(), await context.ledger.counts()
    now, counters, webhooks = context.clock.now(), context.counters, await context.ledger.webhooks()
    return [
        *_queue_metrics(queue, now),
        *_fleet_metrics(workers, now),
        _family(CounterMetricFamily, "events_total", dict(sorted(counters.totals.items()))),
        _family(
            CounterMetricFamily,
            "responses_total",
            {(status,): number for status, number in sorted(counters.responses.items())},
        ),
        *_webhook_metrics([await webhook_state(context.ledger, webhook) for webhook in webhooks], now),
        _family(CounterMetricFamily, "webhook_attempts_total", dict(sorted(counters.webhooks.items()))),
        *_schedule_metrics(await schedule_statuses(context.ledger, workers, now, context.freshness)),
        _gauge("results_to_compare", {(): await context.ledger.left_to_compare()}),
        _gauge("parcels_to_index", {(): await context.ledger.left_to_index()}),
        _gauge("rows", {(name,): number for name, number in counts.items()}),
    ]


def _schedule_metrics(schedules: Sequence[ScheduleStatus]) -> list[Metric]:
    labels: dict[str, tuple[str, ...]] = {
        schedule.name: (schedule.name, schedule.platform, schedule.state, schedule.county) for schedule in schedules
    }
    shares = {
        labels[schedule.name]: schedule.fresh_share
        for schedule in schedules
        if schedule.fresh_share is not None and schedule.is_due
    }
    return [
        _gauge("schedule_parcels", {labels[schedule.name]: schedule.parcels for schedule in schedules}),
        _gauge("schedule_fresh_ratio", shares),
        _gauge(
            "schedule_status",
            {
                (schedule.name, state): float(schedule.status is state)
                for schedule in schedules
                for state in ScheduleState
            },
        ),
    ]


def _gauge(name: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    return _family(GaugeMetricFamily, name, values)


def _family(
    kind: type[GaugeMetricFamily | CounterMetricFamily], name: str, values: Mapping[tuple[str, ...], float]
) -> Metric:
    text, labels = METRICS[f"parcelpost_gateway_{name}"]
    family = kind(f"parcelpost_gateway_{name}", text, labels=labels)
    for key, number in values.items():
        family.add_metric(key, number)
    return family


def _queue_metrics(queue: Sequence[QueueRow], now: datetime) -> list[Metric]:
    totals: Counter[tuple[str, ...]] = Counter()
    ages: dict[tuple[str, ...], float] = {}
    for row in queue:
        totals[row.platform, str(row.state)] += row.tasks
        if row.oldest_at is not None:
            age = (now - row.oldest_at).total_seconds()
            ages[row.platform,] = max(age, ages.get((row.platform,), 0.0))
    return [_gauge("tasks", dict(sorted(totals.items()))), _gauge("oldest_queued_seconds", dict(sorted(ages.items())))]


def _webhook_metrics(webhooks: Sequence[WebhookState], now: datetime) -> list[Metric]:
    failing: dict[tuple[str, ...], float] = {
        (webhook.name,): (now - webhook.failing_since).total_seconds()
        if webhook.status == "failing" and webhook.failing_since
        else 0.0
        for webhook in webhooks
    }
    changes: dict[tuple[str, ...], float] = {
        (webhook.name, state): number
        for webhook in webhooks
        for state, number in (
            ("behind", webhook.behind),
            ("waiting", webhook.waiting),
            ("gave_up", webhook.gave_up),
        )
    }
    return [_gauge("webhook_failing_seconds", failing), _gauge("webhook_changes", changes)]


def _fleet_metrics(workers: Sequence[WorkerRow], now: datetime) -> list[Metric]:
    alive = [row for row in workers if row.is_alive(now)]
    unsynced, unsynced_by_all = (sum(row.unsynced for row in rows) for rows in (alive, workers))
    return [
        _gauge("workers_alive", {(): len(alive)}),
        _gauge("leases", {(): sum(row.leases for row in workers)}),
        _gauge("unsynced", {(): unsynced}),
        _gauge("oldest_unsynced_seconds", {(): max((row.lag_seconds(now) for row in alive), default=0.0)}),
        _gauge("unsynced_left", {(): unsynced_by_all - unsynced}),
    ]
