"""A county platform at work: fetches a task's page, reads it on the slot's own thread, and says how it ended."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Mapping
from datetime import datetime
from typing import Protocol

from msgspec import structs

from parcelpost.clock import Clock, iso
from parcelpost.model import Done, Encoded, Json, Outcome, Page, Task
from parcelpost.scrapers import learned
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.fetch_errors import FAILURES, outcome_of
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.platforms import NAMES, county_platform
from parcelpost.scrapers.session import Session

Platforms = Callable[[str], CountyPlatform | None]
"""By name."""


class OpenSession(Protocol):
    """For an attempt at a task, by the pace that its site wants and the browser profile that it needs."""

    def __call__(self, pace_seconds: float, task: Task, profile: str = "") -> Session: ...


class CountyScraper:
    """The platform's module is imported by the first task, and reading never raises for a page."""

    def __init__(
        self,
        name: str,
        counties: Counties,
        sessions: OpenSession,
        ranking: Ranking,
        clock: Clock,
        platforms: Platforms = county_platform,
    ) -> None:
        self.name = name
        self._platforms = platforms
        self._counties = counties
        self._sessions = sessions
        self._ranking = ranking
        self._clock = clock

    async def scrape(self, task: Task) -> Outcome:
        platform = self._platforms(self.name)
        if platform is None:
            raise LookupError(self.name)
        county = self._counties.find(self.name, task.target.state, task.target.county)
        session = open_session(self._sessions, county, task)
        return await session.ended_with(self._attempt(platform, county, task, session))

    async def _attempt(self, platform: CountyPlatform, county: County | None, task: Task, session: Session) -> Outcome:
        try:
            page = await platform.fetch(task.target, county, session)
        except FAILURES as failure:
            return outcome_of(failure)
        outcome = learned.parse(platform, page, task, self._ranking, self._clock.now())
        if not isinstance(outcome, Done):
            await session.forget()
            return outcome
        await session.keep()
        return _told(outcome, page, county, session.fetched_at or self._clock.now())


def open_session(sessions: OpenSession, county: County | None, task: Task) -> Session:
    """As the county's entry, if it has one, wants it."""
    return sessions(0.0, task) if county is None else sessions(county.pace_seconds, task, county.profile)


def county_scrapers(
    counties: Counties, sessions: OpenSession, ranking: Ranking, clock: Clock, platforms: Platforms = county_platform
) -> dict[str, CountyScraper]:
    """All of them learn by one ranking."""
    return {name: CountyScraper(name, counties, sessions, ranking, clock, platforms) for name in NAMES}


def _told(outcome: Done, page: Page, county: County | None, fetched_at: datetime) -> Done:
    """With where and when it is from."""
    origin: dict[str, Json] = {
        "scraped_at": iso(fetched_at),
        "raw_html_hash": hashlib.sha256(page.body).hexdigest(),
    }
    if county is not None and county.fips:
        origin["county_fips"] = county.fips

    def told(record: Mapping[str, Json]) -> Mapping[str, Json]:
        return {**record, **origin}

    data = outcome.data if isinstance(outcome.data, Encoded) else told(outcome.data)
    more = tuple(told(one) for one in outcome.more)
    return structs.replace(outcome, data=data, page=page, scraped_at=fetched_at, more=more)
