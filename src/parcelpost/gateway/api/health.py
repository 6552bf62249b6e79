"""The monitoring routes /health and /metrics."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime

import msgspec
from fastapi import APIRouter
from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from parcelpost.clock import Clock
from parcelpost.errors import LedgerError, RawStoreUnavailable
from parcelpost.gateway.auth import Access
from parcelpost.gateway.context import Context
from parcelpost.gateway.models import QueueRow, WorkerRow
from parcelpost.gateway.openapi import ADMIN_TOKEN, READ_TOKEN, json_responses, schema_of

_LEDGER_SECONDS = 1.0
_RAW_STORE_SECONDS = 30.0  # it is written to, and S3 charges for that


class HealthCheck:
    """Asks the ledger at most once a second, and writes to the raw store at most twice a minute."""

    def __init__(self, parts: Context) -> None:
        self._lock = asyncio.Lock()
        self._looks = (
            _CachedCheck(parts.ledger.check, "the ledger is away", _LEDGER_SECONDS, parts.clock),
            _CachedCheck(parts.raw_store.check, "the raw store cannot be written", _RAW_STORE_SECONDS, parts.clock),
        )

    async def problem(self) -> str:
        """'' if all is well."""
        async with self._lock:
            found = [await look.problem() for look in self._looks]
        return "; ".join(filter(None, found))


class _CachedCheck:
    def __init__(self, check: Callable[[], Awaitable[None]], problem: str, seconds: float, clock: Clock) -> None:
        self._check = check
        self._problem = problem
        self._seconds = seconds
        self._clock = clock
        self._looked_at = float("-inf")
        self._found = ""

    async def problem(self) -> str:
        now = self._clock.monotonic()
        if now - self._looked_at >= self._seconds:
            self._found = await self._look()
            self._looked_at = now
        return self._found

    async def _look(self) -> str:
        try:
            await self._check()
        except (LedgerError, RawStoreUnavailable):
            return self._problem
        return ""


_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"


METRICS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "parcelpost_gateway_tasks": ("Tasks by state.", ("platform", "state")),
    "parcelpost_gateway_oldest_queued_seconds": ("Age of the oldest queued task.", ("platform",)),
    "parcelpost_gateway_workers_alive": ("Workers heard of in five minutes that have not said goodbye.", ()),
    "parcelpost_gateway_leases": ("Tasks that workers hold.", ()),
    "parcelpost_gateway_unsynced": ("Results that living workers have still to send.", ()),
    "parcelpost_gateway_oldest_unsynced_seconds": ("The oldest of them.", ()),
    "parcelpost_gateway_unsynced_left": (
        (
            "Results that silent workers had still to send when they were last heard of. They are in "
            "those workers' stores."
        ),
        (),
    ),
    "parcelpost_gateway_events_total": (
        (
            "What happened at this process. Of tasks: granted, done, not_found, failed, expired, dead; "
            "of records: stored, duplicate, rejected."
        ),
        ("platform", "outcome"),
    ),
    "parcelpost_gateway_answers_total": ("Answers of this process, by class: 2xx, 3xx, 4xx, 5xx.", ("status",)),
    "parcelpost_gateway_rows": ("What the ledger holds, about: parcels, liens, results.", ("what",)),
}
"""Every name on the page, with what it means and its labels."""


class Health(Struct, frozen=True):
    status: str
    version: str


def router(parts: Context) -> APIRouter:
    routes = APIRouter(tags=["watching"])
    access = Access(parts.settings, parts.tokens)
    desk = HealthCheck(parts)
    said = json_responses(schema_of(Health), 503)
    said[503]["content"]["application/json"]["schema"] = schema_of(Health)

    @routes.get("/health", response_model=None, responses=said)
    async def health() -> Response:
        """Whether the gateway's ledger answers and its raw store takes files. Open to all."""
        problem = await desk.problem()
        body = msgspec.json.encode(Health(problem or "ok", parts.version))
        return Response(body, 503 if problem else 200, media_type="application/json")

    figures = json_responses({}, 401, 403, 503)
    figures[200] = {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}

    @routes.get("/metrics", response_model=None, responses=figures, dependencies=[READ_TOKEN, ADMIN_TOKEN])
    async def metrics(request: Request) -> Response:
        """Figures for Prometheus; needs a read token where there are any."""
        access.reader(request)
        return Response(await metrics_page(parts), media_type=_CONTENT_TYPE)

    return routes


class _FixedCollector(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def metrics_page(parts: Context) -> bytes:
    """How the fleet and the queue stand, and what this process did since it started."""
    registry = CollectorRegistry()
    registry.register(_FixedCollector(await _metric_families(parts)))
    return generate_latest(registry)


async def _metric_families(parts: Context) -> list[Metric]:
    queue, workers, counts = await parts.ledger.queue(), await parts.ledger.workers(), await parts.ledger.counts()
    now, tally = parts.clock.now(), parts.tally
    return [
        *_queue_metrics(queue, now),
        *_fleet_metrics(workers, now),
        _counter("events_total", dict(sorted(tally.totals.items()))),
        _counter("answers_total", {(status,): number for status, number in sorted(tally.answers.items())}),
        _gauge("rows", {(name,): number for name, number in counts.items()}),
    ]


def _gauge(name: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    text, labels = METRICS[f"parcelpost_gateway_{name}"]
    family = GaugeMetricFamily(f"parcelpost_gateway_{name}", text, labels=labels)
    for key, number in values.items():
        family.add_metric(key, number)
    return family


def _counter(name: str, values: Mapping[tuple[str, ...], float]) -> Metric:
    text, labels = METRICS[f"parcelpost_gateway_{name}"]
    family = CounterMetricFamily(f"parcelpost_gateway_{name}", text, labels=labels)
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


def _fleet_metrics(workers: Sequence[WorkerRow], now: datetime) -> list[Metric]:
    alive = [row for row in workers if row.is_alive(now)]
    unsynced, of_all = (sum((row.beat.queue or {}).get("unsynced", 0) for row in rows) for rows in (alive, workers))
    return [
        _gauge("workers_alive", {(): len(alive)}),
        _gauge("leases", {(): sum(row.leases for row in workers)}),
        _gauge("unsynced", {(): unsynced}),
        _gauge("oldest_unsynced_seconds", {(): max((row.beat.oldest_unsynced_seconds for row in alive), default=0.0)}),
        _gauge("unsynced_left", {(): of_all - unsynced}),
    ]
