"""Pages for machines that watch: /health and /metrics."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime

from fastapi import APIRouter
from msgspec import Struct
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.requests import Request
from starlette.responses import Response

from parcelpost import wire
from parcelpost.gateway.access import Access
from parcelpost.gateway.declared import answers, schema_of
from parcelpost.gateway.health import HealthDesk
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.words import QueueRow, WorkerRow

_CONTENT_TYPE = "text/plain; version=0.0.4; charset=utf-8"
_ALIVE_SECONDS = 300.0


class Health(Struct, frozen=True):
    status: str
    version: str


def router(parts: Parts) -> APIRouter:
    routes = APIRouter(tags=["watching"])
    access = Access(parts.settings, parts.tokens)
    desk = HealthDesk(parts)
    said = answers(schema_of(Health), 503)
    said[503]["content"]["application/json"]["schema"] = schema_of(Health)

    @routes.get("/health", response_model=None, responses=said)
    async def health() -> Response:
        """Whether the gateway's ledger answers and its raw store takes files. Open to all."""
        problem = await desk.problem()
        body = wire.answer(Health(problem or "ok", parts.version))
        return Response(body, 503 if problem else 200, media_type="application/json")

    figures = answers({}, 401, 403, 503)
    figures[200] = {"description": "Prometheus' text format", "content": {"text/plain": {"schema": {"type": "string"}}}}

    @routes.get("/metrics", response_model=None, responses=figures)
    async def metrics(request: Request) -> Response:
        """Figures for Prometheus; needs a read token where there are any."""
        access.reader(request)
        return Response(await metrics_page(parts), media_type=_CONTENT_TYPE)

    return routes


class _Found(Collector):
    def __init__(self, families: list[Metric]) -> None:
        self._families = families

    def collect(self) -> list[Metric]:
        return self._families


async def metrics_page(parts: Parts) -> bytes:
    """How the fleet and the queue stand, and what this process did since it started."""
    registry = CollectorRegistry()
    registry.register(_Found(await _families(parts)))
    return generate_latest(registry)


async def _families(parts: Parts) -> list[Metric]:
    queue, workers, counts = await parts.ledger.queue(), await parts.ledger.workers(), await parts.ledger.counts()
    events = CounterMetricFamily(
        "parcelpost_gateway_events", "What happened at this process", labels=("platform", "outcome")
    )
    for (platform, outcome), number in sorted(parts.tally.totals.items()):
        events.add_metric((platform, outcome), number)
    rows = GaugeMetricFamily("parcelpost_gateway_rows", "What the ledger holds, about", labels=("what",))
    for name, number in counts.items():
        rows.add_metric((name,), number)
    now = parts.clock.now()
    return [*_queue(queue, now), *_fleet(workers, now), events, rows]


def _queue(queue: Sequence[QueueRow], now: datetime) -> list[Metric]:
    tasks = GaugeMetricFamily("parcelpost_gateway_tasks", "Tasks by state", labels=("platform", "state"))
    oldest = GaugeMetricFamily(
        "parcelpost_gateway_oldest_queued_seconds", "Age of the oldest queued task", labels=("platform",)
    )
    totals: Counter[tuple[str, str]] = Counter()
    ages: dict[str, float] = {}
    for row in queue:
        totals[row.platform, str(row.state)] += row.tasks
        if row.oldest_at is not None:
            age = (now - row.oldest_at).total_seconds()
            ages[row.platform] = max(age, ages.get(row.platform, 0.0))
    for labels, number in sorted(totals.items()):
        tasks.add_metric(labels, number)
    for platform, age in sorted(ages.items()):
        oldest.add_metric((platform,), age)
    return [tasks, oldest]


def _fleet(workers: Sequence[WorkerRow], now: datetime) -> list[Metric]:
    alive = [row for row in workers if (now - row.last_seen_at).total_seconds() <= _ALIVE_SECONDS]
    unsynced = sum((row.beat.queue or {}).get("unsynced", 0) for row in alive)
    lag = max((row.beat.oldest_unsynced_seconds for row in alive), default=0.0)
    return [
        GaugeMetricFamily("parcelpost_gateway_workers_alive", "Workers heard of in five minutes", len(alive)),
        GaugeMetricFamily("parcelpost_gateway_leases", "Tasks that workers hold", sum(row.leases for row in workers)),
        GaugeMetricFamily("parcelpost_gateway_unsynced", "Results that living workers have still to send", unsynced),
        GaugeMetricFamily("parcelpost_gateway_oldest_unsynced_seconds", "The oldest of them", lag),
    ]
