"""Scrapes a county's site with its platform: fetches the page and parses it with the best-ranked selectors first."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field, structs

from parcelpost.clock import Clock, SystemClock, iso
from parcelpost.model import Done, Encoded, Json, Outcome, Page, Retry, Task
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.fetch.errors import FAILURES, CannotFetch, outcome_of
from parcelpost.scrapers.fetch.session import Session
from parcelpost.scrapers.learning.ranking import Ranking, learning_signals
from parcelpost.scrapers.platform import CountyPlatform
from parcelpost.scrapers.platforms import NAMES, county_platform
from parcelpost.scrapers.records.field_maps import FieldMaps

Platforms = Callable[[str], CountyPlatform | None]
"""Platform by name."""


class OpenSession(Protocol):
    """Opens a session for one attempt, with the county's pace and browser profile."""

    def __call__(self, pace_seconds: float, task: Task, profile: str = "") -> Session: ...


class CountyScraper:
    """Scrapes with one built-in platform. Its module is imported by the first task."""

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
        return await session.run(self._attempt(platform, county, task, session))

    async def _attempt(self, platform: CountyPlatform, county: County | None, task: Task, session: Session) -> Outcome:
        try:
            page = await platform.fetch(task.target, county, session)
        except FAILURES as failure:
            return outcome_of(failure)
        outcome = parse_ranked(platform, page, task, self._ranking, self._clock.now())
        fetched_at = session.fetched_at or self._clock.now()
        if not isinstance(outcome, Done):
            await session.drop_cached()
            if isinstance(outcome, Retry) and outcome.partial is not None:
                return structs.replace(outcome, partial=_with_source(outcome.partial, page, county, fetched_at))
            return outcome
        await session.cache_pages()
        return _with_source(outcome, page, county, fetched_at)


def open_session(sessions: OpenSession, county: County | None, task: Task) -> Session:
    """With the pace and profile of the county's entry, if it has one."""
    return sessions(0.0, task) if county is None else sessions(county.pace_seconds, task, county.profile)


def county_scrapers(
    counties: Counties, sessions: OpenSession, ranking: Ranking, clock: Clock, platforms: Platforms = county_platform
) -> dict[str, CountyScraper]:
    """One scraper per built-in platform; all share one ranking."""
    return {name: CountyScraper(name, counties, sessions, ranking, clock, platforms) for name in NAMES}


def _with_source(outcome: Done, page: Page, county: County | None, fetched_at: datetime) -> Done:
    """Adds when and where the record came from."""
    origin: dict[str, Json] = {
        "scraped_at": iso(fetched_at),
        "raw_html_hash": hashlib.sha256(page.body).hexdigest(),
    }
    if county is not None and county.fips:
        origin["county_fips"] = county.fips

    def with_origin(record: Mapping[str, Json]) -> Mapping[str, Json]:
        return {**record, **origin}

    data = outcome.data if isinstance(outcome.data, Encoded) else with_origin(outcome.data)
    additional = tuple(with_origin(record) for record in outcome.additional_records)
    return structs.replace(outcome, data=data, page=page, scraped_at=fetched_at, additional_records=additional)


def no_session(pace_seconds: float, task: Task, profile: str = "") -> Session:
    raise CannotFetch("fetching is not available here")


class CountySites(Struct, frozen=True, kw_only=True):
    counties: Counties = Counties()
    field_maps: FieldMaps = FieldMaps()
    sessions: OpenSession = no_session
    ranking: Ranking = field(default_factory=Ranking)
    clock: Clock = SystemClock()

    def platform(self, name: str) -> CountyPlatform | None:
        """Returns a built-in platform; None if there is none of that name."""
        found = county_platform(name)
        return None if found is None else structs.replace(found, field_maps=self.field_maps)

    def scrapers(self) -> dict[str, CountyScraper]:
        """The scrapers of the built-in platforms."""
        return county_scrapers(self.counties, self.sessions, self.ranking, self.clock, self.platform)

    def scrape(self, platform: CountyPlatform) -> Callable[[Task], Awaitable[Outcome]]:
        """Scrapes with a platform that is not built in."""
        own = (self.counties, self.sessions, self.ranking, self.clock)
        return CountyScraper(platform.name, *own, lambda _: platform).scrape

    def session(self, task: Task) -> Session | None:
        """Opens a session for one attempt. Returns None where fetching is not available."""
        if self.sessions is no_session:
            return None
        county = self.counties.find(task.platform, task.target.state, task.target.county)
        return open_session(self.sessions, county, task)


def parse_ranked(platform: CountyPlatform, page: Page, task: Task, ranking: Ranking, now: datetime) -> Outcome:
    """Parses a page with the best selectors of the site first. The outcome carries learning signals."""
    site = (platform.name, task.target.state, task.target.county)
    parsed = platform.parse(page, task.target, ranking.order(site), ranking.unshown_sections(site))
    if isinstance(parsed.outcome, Done) or (isinstance(parsed.outcome, Retry) and parsed.outcome.partial is not None):
        shown = [section.name for section in platform.sections if section.name not in parsed.absent_sections]
        ranking.note_sections(site, shown, parsed.absent_sections, task.task_id)
    if not parsed.selector_results or not isinstance(parsed.outcome, Done | Retry):
        return parsed.outcome  # another kind of page than the selectors are for
    lost = ranking.lost_sections(site, parsed.selector_results)
    ranking.note(site, parsed.selector_results, task.task_id, now)
    outcome: Done | Retry = parsed.outcome
    if isinstance(outcome, Done) and isinstance(outcome.data, Mapping) and not outcome.is_list:
        ranking.note_values(site, outcome.data, task.task_id)
        outcome = _by_site(outcome, outcome.data, lost, ranking.broken_fields(site))
    if not ranking.should_report(site):
        return outcome
    return structs.replace(outcome, signals=learning_signals(site, parsed.selector_results, task.task_id))


def _by_site(outcome: Done, data: Mapping[str, Json], lost: Sequence[str], broken: Sequence[str]) -> Done | Retry:
    """What the site's other pages say about this one: a Retry if it lacks a section that they had until now.

    Fields that the site no longer shows where it used to are unreadable, not empty.
    """
    unread = [name for name in broken if not data.get(name.partition(".")[0]) or "." in name]
    if unread:
        known = data.get("unreadable")
        names = sorted({*(known if isinstance(known, list) else ()), *unread})
        data = {**data, "unreadable": names}
        outcome = structs.replace(outcome, data=data)
    if not lost:
        return outcome
    missing = f"missing: {', '.join(lost)}"
    partial = structs.replace(outcome, data={**data, "completeness": missing})
    return Retry(f"the page is incomplete: {', '.join(lost)}, which other pages of the site show", partial=partial)
