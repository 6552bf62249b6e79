"""The state of each county on each platform: parcels, freshness, success, pace, blocks and failing selectors."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import Generic, Self, TypeVar

from msgspec import Struct, structs

from parcelpost.clock import Clock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import SiteParcels, TaskState, WorkerRow
from parcelpost.gateway.schedules import ScheduleStatus, schedule_findings
from parcelpost.health_checks import MANY_FAILURES, Finding, is_failing, sort_findings
from parcelpost.model import Site
from parcelpost.units import count

T = TypeVar("T")

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_MIN_FRESH_SECONDS, _MAX_FRESH_SECONDS = 1.0, 30.0
_TIMES_THE_COST = 20
_MAX_NAMED_SITES = 5  # per check
_MAX_FIELDS = 50
_MAX_WORKERS = 20


class HealthState(StrEnum):
    """By success rate. As in `parcelpost platforms`, `failing` means that most tasks fail."""

    IDLE = "idle"
    """No task has ended."""
    HEALTHY = "healthy"
    DEGRADED = "degraded"
    FAILING = "failing"

    @classmethod
    def of(cls, succeeded: int, failed: int) -> Self:
        if not succeeded + failed:
            return cls.IDLE
        if is_failing(succeeded, failed):
            return cls.FAILING
        return cls.HEALTHY if failed <= MANY_FAILURES * (succeeded + failed) else cls.DEGRADED


class FailingField(Struct, frozen=True, kw_only=True):
    """A field that a worker no longer finds where it used to be."""

    field: str
    selectors: Sequence[str]
    success_rate: float
    """The current rate, from 0 to 1."""
    used_to: float
    """The rate before."""
    since: datetime | None
    example: str
    """ID of the most recent task on whose page a selector failed; may be ''."""
    found_otherwise: bool
    """Whether another selector finds the field, so that no data is lost."""
    same_value: str
    """The field's value if it is the same on many parcels, so that it may be a heading."""


class County(Struct, frozen=True, kw_only=True):
    """One county on one platform."""

    platform: str
    state: str
    county: str
    parcels: int
    newest_at: datetime | None
    """Time of the newest scrape; null if there is none."""
    oldest_at: datetime | None
    """Oldest of the parcels' newest scrapes."""
    changed_at: datetime | None
    """When a change was last found; null if there was none among the last 20,000 changes of all counties."""
    queued: int
    succeeded: int
    """Tasks of the last 24 hours that ended with a record, or because the site has no such parcel."""
    failed: int
    """Tasks of the last 24 hours that failed or are dead."""
    success_rate: float | None
    """null if no task has ended."""
    health: HealthState
    """By success rate."""
    ended_last_hour: int
    blocked_workers: Sequence[str]
    """Live workers that the site blocks."""
    failing_fields: Sequence[FailingField]
    schedules: Sequence[str]
    """Names of the schedules that refresh it."""
    fresh_share: float | None
    """Share of the parcels that are as fresh as the strictest schedule asks for; null without a schedule."""
    max_age_seconds: float | None
    """How old a fresh parcel may be; null without a schedule."""
    findings: Sequence[Finding]
    """What is wrong with it, worst first."""


Ended = Mapping[str, Counter[str]]
"""Tasks that ended in the last day by state, by site; those of the last hour as `hour`."""


class CountyCounts(Struct, frozen=True):
    """What the ledger counts for all counties."""

    parcels: Mapping[str, SiteParcels]
    ended: Ended
    queued: Mapping[str, int]


class _Recounted(Generic[T]):
    """A count of many rows. It is taken again after a while that depends on what it costs, at most twice a minute for
    a large ledger.
    """

    def __init__(self, clock: Clock, count: Callable[[], Awaitable[T]]) -> None:
        self._clock = clock
        self._count = count
        self._lock = asyncio.Lock()
        self._counted: T | None = None
        self._next_at = float("-inf")

    async def get(self) -> T:
        async with self._lock:
            began = self._clock.monotonic()
            if self._counted is None or began >= self._next_at:
                self._counted = await self._count()
                took = self._clock.monotonic() - began
                self._next_at = began + min(max(took * _TIMES_THE_COST, _MIN_FRESH_SECONDS), _MAX_FRESH_SECONDS)
            return self._counted


class CountyCache:
    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._ended = _Recounted(clock, self._count_ended)
        self._known = _Recounted(clock, self._count_known)

    async def ended(self) -> Ended:
        return await self._ended.get()

    async def counts(self) -> CountyCounts:
        parcels, queued = await self._known.get()
        return CountyCounts(parcels=parcels, ended=await self.ended(), queued=queued)

    async def _count_ended(self) -> Ended:
        return await last_day_outcomes(self._ledger, self._clock.now())

    async def _count_known(self) -> tuple[Mapping[str, SiteParcels], Mapping[str, int]]:
        rows = await self._ledger.site_parcels()
        parcels = {site_of(row.platform, row.state, row.county): row for row in rows}
        return parcels, await self._ledger.queued_by_site()


async def last_day_outcomes(ledger: Ledger, now: datetime) -> Ended:
    ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
    for row in await ledger.ended_by_site(now - _DAY, now - _HOUR):
        ended[row.site][row.state] += row.tasks
        ended[row.site]["hour"] += row.since_hour
    return ended


def succeeded_and_failed(ended: Counter[str]) -> tuple[int, int]:
    return ended[TaskState.DONE] + ended[TaskState.NOT_FOUND], ended[TaskState.FAILED] + ended[TaskState.DEAD]


def site_of(platform: str, state: str, county: str) -> str:
    """The name of a county's site, as tasks have it."""
    return f"{platform}/{state}/{county}".lower()


def county_list(
    counts: CountyCounts, schedules: Sequence[ScheduleStatus], workers: Iterable[WorkerRow], now: datetime
) -> list[County]:
    """Returns every county that has parcels, tasks, a schedule or failing selectors, by platform and place."""
    alive = [row for row in workers if row.is_alive(now)]
    broken = _failing_fields(alive)
    scheduled: defaultdict[str, list[ScheduleStatus]] = defaultdict(list)
    for schedule in schedules:
        scheduled[site_of(schedule.platform, schedule.state, schedule.county)].append(schedule)
    sites = sorted(
        counts.parcels.keys() | counts.ended.keys() | counts.queued.keys() | broken.keys() | scheduled.keys()
    )
    return [_county(site, counts, scheduled.get(site, ()), broken.get(site, ()), alive, now) for site in sites]


def site_findings(ended: Ended, workers: Iterable[WorkerRow], now: datetime) -> Iterator[Finding]:
    """What is wrong with counties: of each check, the first few."""
    broken = _failing_fields([row for row in workers if row.is_alive(now)])
    by_check: defaultdict[str, list[Finding]] = defaultdict(list)
    for site in sorted(ended.keys() | broken.keys()):
        platform, state, county = _parts(site)
        for found in _task_findings(ended.get(site, Counter()), broken.get(site, ())):
            message = f"on {platform} {state}/{county}, {found.message}"
            by_check[found.id].append(structs.replace(found, message=message))
    for check, findings in by_check.items():
        yield from findings[:_MAX_NAMED_SITES]
        if rest := findings[_MAX_NAMED_SITES:]:
            more = f"{count(len(rest), 'more site')} with the same problem"
            yield Finding.of(check, more, "see the counties on the dashboard")


def _task_findings(ended: Counter[str], broken: Sequence[FailingField]) -> Iterator[Finding]:
    good, bad = succeeded_and_failed(ended)
    if is_failing(good, bad):
        message = f"most tasks fail: {bad:,} of {good + bad:,} in the last 24 h"
        fix = "see why on the dashboard; once the cause is fixed, run 'parcelpost gateway requeue --state failed'"
        yield Finding.of("tasks.failing", message, fix)
    lost = sorted(field.field for field in broken if not field.found_otherwise and not field.same_value)
    if lost:
        message = f"{count(len(lost), 'field')} no longer found: {', '.join(lost)}"
        fix = "see what the newest stored page shows; once the parser is fixed, run 'parcelpost reparse'"
        yield Finding.of("site.field_lost", message, fix)


def _county(
    site: str,
    counts: CountyCounts,
    schedules: Sequence[ScheduleStatus],
    broken: Sequence[FailingField],
    alive: Sequence[WorkerRow],
    now: datetime,
) -> County:
    row, ended = counts.parcels.get(site), counts.ended.get(site, Counter())
    platform, state, county = (row.platform, row.state, row.county) if row else _place(site, schedules)
    place = Site(platform, state, county)
    good, bad = succeeded_and_failed(ended)
    blocked = [row.heartbeat.worker_id for row in alive if _is_blocked(row, place)]
    strictest = min(schedules, key=lambda schedule: schedule.max_age_seconds, default=None)
    return County(
        platform=platform,
        state=state,
        county=county,
        parcels=row.parcels if row else 0,
        newest_at=row.newest_at if row else None,
        oldest_at=row.oldest_at if row else None,
        changed_at=row.changed_at if row else None,
        queued=counts.queued.get(site, 0),
        succeeded=good,
        failed=bad,
        success_rate=good / (good + bad) if good + bad else None,
        health=HealthState.of(good, bad),
        ended_last_hour=ended["hour"],
        blocked_workers=blocked[:_MAX_WORKERS],
        failing_fields=broken[:_MAX_FIELDS],
        schedules=[schedule.name for schedule in schedules],
        fresh_share=strictest.fresh_share if strictest else None,
        max_age_seconds=strictest.max_age_seconds if strictest else None,
        findings=sort_findings(
            (*_task_findings(ended, broken), *_block_findings(blocked), *schedule_findings(schedules, now))
        ),
    )


def _block_findings(workers: Sequence[str]) -> Iterator[Finding]:
    if workers:
        fix = "no action needed: they try again after a pause; if it keeps blocking, use a slower pace"
        yield Finding.of("site.blocked", f"blocks {count(len(workers), 'worker')}", fix)


def _is_blocked(row: WorkerRow, site: Site) -> bool:
    return any(paused.covers(site) for paused in row.heartbeat.blocked)


def _place(site: str, schedules: Sequence[ScheduleStatus]) -> tuple[str, str, str]:
    if schedules:
        return schedules[0].platform, schedules[0].state, schedules[0].county
    return _parts(site)


def _parts(site: str) -> tuple[str, str, str]:
    head, _, county = site.rpartition("/")
    platform, _, state = head.rpartition("/")
    return platform, state.upper() if len(state) == 2 else state, county


def platform_of(site: str) -> str:
    return _parts(site)[0]


def _failing_fields(workers: Iterable[WorkerRow]) -> dict[str, list[FailingField]]:
    """By site. A field that several workers report is listed once."""
    fields: defaultdict[str, dict[str, FailingField]] = defaultdict(dict)
    for found in (field for row in workers for field in row.heartbeat.broken):
        fields[site_of(found.platform, found.state, found.county)][found.field] = FailingField(
            field=found.field,
            selectors=found.failing,
            success_rate=found.success_rate,
            used_to=found.used_to,
            since=found.since,
            example=found.example,
            found_otherwise=found.found_otherwise,
            same_value=found.same_value,
        )
    return {site: list(of_site.values()) for site, of_site in fields.items()}
