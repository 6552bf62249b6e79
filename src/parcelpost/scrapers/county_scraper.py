"""Scrapes a county's site with its platform: fetches the page and parses it with the best-ranked selectors first."""

from __future__ import annotations

import hashlib
from collections.abc import Awaitable, Callable, Mapping, Sequence
from datetime import datetime
from typing import Protocol

from msgspec import Struct, field, structs

from parcelpost.clock import Clock, SystemClock, iso
from parcelpost.model import Done, Encoded, Json, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.fetch.errors import FAILURES, CannotFetch, outcome_of
from parcelpost.scrapers.fetch.session import Session
from parcelpost.scrapers.learning.ranking import Ranking, learning_signals
from parcelpost.scrapers.learning.sections import PageSections, Sections
from parcelpost.scrapers.platform import CountyPlatform, Parsed
from parcelpost.scrapers.platforms import NAMES, county_platform
from parcelpost.scrapers.records.field_maps import FieldMaps
from parcelpost.scrapers.records.problems import taken_from
from parcelpost.scrapers.records.record import COMPLETE, MISSING

Platforms = Callable[[str], CountyPlatform | None]
"""Platform by name."""

RunParse = Callable[[Callable[[], Outcome]], Awaitable[Outcome]]
"""Makes the call that parses a page, where it can be made."""


async def parse_here(parse: Callable[[], Outcome]) -> Outcome:
    return parse()


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

    async def scrape(self, task: Task, run_parse: RunParse = parse_here) -> Outcome:
        """Fetches on the caller's event loop. Parsing takes time, and a page can make it hang: see `run_parse`."""
        platform = self._platforms(self.name)
        if platform is None:
            raise LookupError(self.name)
        county = self._counties.find(self.name, task.target.state, task.target.county)
        session = open_session(self._sessions, county, task)
        return await session.run(self._attempt(platform, county, task, session, run_parse))

    async def _attempt(
        self, platform: CountyPlatform, county: County | None, task: Task, session: Session, run_parse: RunParse
    ) -> Outcome:
        try:
            page = await platform.fetch(task.target, county, session)
        except FAILURES as failure:
            return outcome_of(failure)
        fetched_at = session.fetched_at or self._clock.now()

        def parse() -> Outcome:
            outcome = parse_ranked(platform, page, task, self._ranking, self._clock.now())
            if isinstance(outcome, Done):
                return _with_source(outcome, page, county, fetched_at)
            if isinstance(outcome, Retry) and outcome.partial is not None:
                return structs.replace(outcome, partial=_with_source(outcome.partial, page, county, fetched_at))
            return outcome

        outcome = await run_parse(parse)
        await (session.cache_pages() if isinstance(outcome, Done) else session.drop_cached())
        return outcome


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
        shipped = county_platform(name)
        return None if shipped is None else structs.replace(shipped, field_maps=self.field_maps)

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
    site, sections = (platform.name, task.target.state, task.target.county), ranking.sections
    parsed = platform.parse(page, task.target, ranking.order(site), sections.gone(site))
    record, lost = _record_of(parsed.outcome), list[str]()
    if record is not None:
        shown = _page_sections(platform, parsed)
        lost = sections.lost(site, shown)
        sections.note(site, shown, str(record.get("parcel_id") or task.task_id))
    if not parsed.selector_results or not isinstance(parsed.outcome, Done | Retry):
        return parsed.outcome  # another kind of page than the selectors are for
    ranking.note(site, parsed.selector_results, task.task_id, now)
    outcome: Done | Retry = parsed.outcome
    if record is not None:
        if isinstance(outcome, Done) and not outcome.is_list:
            ranking.note_values(site, record, task.task_id)
        outcome = _by_site(outcome, lost, ranking.broken_fields(site))
    if not ranking.should_report(site):
        return outcome
    return structs.replace(outcome, signals=learning_signals(site, parsed.selector_results, task.task_id))


def parse_again(platform: CountyPlatform, page: Page, target: Target, sections: Sections) -> Outcome:
    """Parses a stored page, which is as complete as the other pages of its site say. Nothing is learned from it."""
    site = (platform.name, target.state, target.county)
    parsed = platform.parse(page, target, unshown=sections.gone(site))
    if not isinstance(parsed.outcome, Done | Retry) or _record_of(parsed.outcome) is None or _is_list(parsed.outcome):
        return parsed.outcome
    return _by_site(parsed.outcome, sections.lost(site, _page_sections(platform, parsed)))


def _page_sections(platform: CountyPlatform, parsed: Parsed) -> PageSections:
    absent = parsed.absent_sections
    shown = [section.name for section in platform.sections if section.name not in absent]
    return PageSections(shown, absent, parsed.selector_results, is_cut=bool(parsed.also_missing))


def _done_of(outcome: Outcome) -> Done | None:
    """The records of a page, complete or not."""
    return outcome.partial if isinstance(outcome, Retry) else outcome if isinstance(outcome, Done) else None


def _record_of(outcome: Outcome) -> Mapping[str, Json] | None:
    done = _done_of(outcome)
    return done.data if done is not None and isinstance(done.data, Mapping) else None


def _is_list(outcome: Outcome) -> bool:
    done = _done_of(outcome)
    return done is not None and done.is_list


def _by_site(outcome: Done | Retry, lost: Sequence[str], broken: Sequence[str] = ()) -> Done | Retry:
    """What the site's other pages say about this one: a Retry if it lacks a list that they had until now.

    Fields that the site no longer shows where it used to are unreadable, not empty.
    """
    done = _done_of(outcome)
    if done is None or not isinstance(done.data, Mapping):
        return outcome
    if done.is_list:
        lost = ()  # its records are not the site's parcels, each with all its sections
    first, *additional = (_marked(data, lost, broken) for data in (done.data, *done.additional_records))
    done = structs.replace(done, data=first, additional_records=tuple(additional))
    if isinstance(outcome, Retry):
        return structs.replace(outcome, partial=done)
    if not lost:
        return done
    return Retry(f"the page is incomplete: {', '.join(lost)}, which other pages of the site show", partial=done)


def _marked(data: Mapping[str, Json], lost: Sequence[str], broken: Sequence[str]) -> Mapping[str, Json]:
    """The record with what it lacks by name."""
    if unread := {name for field in broken for name in (field, *taken_from(field)) if not _has_value(data, name)}:
        data = {**data, "unreadable": sorted({*data["unreadable"], *unread})}
    if lost:
        before = "" if data["completeness"] == COMPLETE else f"{data['completeness']}, "
        data = {**data, "completeness": f"{before or MISSING}{', '.join(lost)}"}
    return data


_NO_VALUES: Sequence[Json] = (None, "", [])


def _has_value(data: Mapping[str, Json], field: str) -> bool:
    """Whether the record has the field or, of a column, any item with a value in it."""
    name, _, column = field.partition(".")
    value = data.get(name)
    if not column:
        return value not in _NO_VALUES
    items = value if isinstance(value, list) else []
    return any(isinstance(item, Mapping) and item.get(column) not in _NO_VALUES for item in items)
