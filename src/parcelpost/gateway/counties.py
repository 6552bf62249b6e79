"""The state of each county on each platform: parcels, freshness, success, pace, blocks and failing selectors."""

from __future__ import annotations

import asyncio
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import SiteParcels, TaskState, WorkerRow
from parcelpost.gateway.overview import PlatformState, platform_state
from parcelpost.gateway.schedules import ScheduleStatus
from parcelpost.model import Broken, Site

_DAY = timedelta(days=1)
_HOUR = timedelta(hours=1)
_FRESH_SECONDS = 30.0
_MAX_FIELDS = 50
_MAX_WORKERS = 20


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
    health: PlatformState
    """By success rate."""
    ended_last_hour: int
    blocked_workers: Sequence[str]
    """Live workers that the site blocks."""
    failing_fields: Sequence[FailingField]
    schedules: Sequence[str]
    """Names of the schedules that refresh it."""
    fresh_share: float | None
    """Share of the parcels that are as fresh as the strictest schedule asks for; null without a schedule."""
    is_behind: bool
    """Whether that share is too low."""
    max_age_seconds: float | None
    """How old a fresh parcel may be; null without a schedule."""


class CountyCounts(Struct, frozen=True):
    """What the ledger counts for all counties. It reads many rows, so it is counted at most twice a minute."""

    parcels: Mapping[str, SiteParcels]
    ended: Mapping[str, Counter[str]]
    """Tasks of the last day by state, by site; those of the last hour as `hour`."""
    queued: Mapping[str, int]


class CountyCache:
    def __init__(self, ledger: Ledger, clock: Clock) -> None:
        self._ledger = ledger
        self._clock = clock
        self._lock = asyncio.Lock()
        self._counted: CountyCounts | None = None
        self._counted_at = float("-inf")

    async def counts(self) -> CountyCounts:
        async with self._lock:
            if self._counted is None or self._clock.monotonic() - self._counted_at >= _FRESH_SECONDS:
                self._counted = await self._count()
                self._counted_at = self._clock.monotonic()
            return self._counted

    async def _count(self) -> CountyCounts:
        now = self._clock.now()
        ended: defaultdict[str, Counter[str]] = defaultdict(Counter)
        for row in await self._ledger.ended_by_site(now - _DAY, now - _HOUR):
            ended[row.site][row.state] += row.tasks
            ended[row.site]["hour"] += row.since_hour
        return CountyCounts(
            parcels={site_of(row.platform, row.state, row.county): row for row in await self._ledger.site_parcels()},
            ended=ended,
            queued=await self._ledger.queued_by_site(),
        )


def site_of(platform: str, state: str, county: str) -> str:
    """The name of a county's site, as tasks have it."""
    return f"{platform}/{state}/{county}".lower()


def county_list(
    counts: CountyCounts, schedules: Sequence[ScheduleStatus], workers: Iterable[WorkerRow], now: datetime
) -> list[County]:
    """Returns every county that has parcels, tasks, a schedule or failing selectors, by platform and place."""
    alive = [row for row in workers if row.is_alive(now)]
    broken = _failing_fields(field for row in alive for field in row.heartbeat.broken)
    scheduled: defaultdict[str, list[ScheduleStatus]] = defaultdict(list)
    for schedule in schedules:
        scheduled[site_of(schedule.platform, schedule.state, schedule.county)].append(schedule)
    sites = sorted(
        counts.parcels.keys() | counts.ended.keys() | counts.queued.keys() | broken.keys() | scheduled.keys()
    )
    return [_county(site, counts, scheduled.get(site, ()), broken.get(site, ()), alive) for site in sites]


def _county(
    site: str,
    counts: CountyCounts,
    schedules: Sequence[ScheduleStatus],
    broken: Sequence[FailingField],
    alive: Sequence[WorkerRow],
) -> County:
    row, ended = counts.parcels.get(site), counts.ended.get(site, Counter())
    platform, state, county = (row.platform, row.state, row.county) if row else _parts(site, schedules)
    place = Site(platform, state, county)
    good = ended[TaskState.DONE] + ended[TaskState.NOT_FOUND]
    bad = ended[TaskState.FAILED] + ended[TaskState.DEAD]
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
        health=platform_state(good, bad),
        ended_last_hour=ended["hour"],
        blocked_workers=[row.heartbeat.worker_id for row in alive if _is_blocked(row, place)][:_MAX_WORKERS],
        failing_fields=broken[:_MAX_FIELDS],
        schedules=[schedule.name for schedule in schedules],
        fresh_share=strictest.fresh_share if strictest else None,
        is_behind=strictest.is_behind if strictest else False,
        max_age_seconds=strictest.max_age_seconds if strictest else None,
    )


def _is_blocked(row: WorkerRow, site: Site) -> bool:
    return any(paused.covers(site) for paused in row.heartbeat.blocked)


def _parts(site: str, schedules: Sequence[ScheduleStatus]) -> tuple[str, str, str]:
    if schedules:
        return schedules[0].platform, schedules[0].state, schedules[0].county
    head, _, county = site.rpartition("/")
    platform, _, state = head.rpartition("/")
    return platform, state.upper() if len(state) == 2 else state, county


def _failing_fields(broken: Iterable[Broken]) -> dict[str, list[FailingField]]:
    """By site. A field that several workers report is listed once."""
    fields: defaultdict[str, dict[str, FailingField]] = defaultdict(dict)
    for found in broken:
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
