"""Platforms and counties with the success rate of their last tasks."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from msgspec import Struct
from msgspec.structs import asdict, astuple

from parcelpost.cli.components import known_sites, scraper_factory
from parcelpost.cli.context import CLOCK, open_for_reading
from parcelpost.cli.health.overview import broken_fields
from parcelpost.cli.settings_options import StoreContext
from parcelpost.clock import iso
from parcelpost.health_checks import is_failing
from parcelpost.model import Broken
from parcelpost.places import county_slug
from parcelpost.scrapers.counties import County
from parcelpost.scrapers.platforms import EXPERIMENTAL
from parcelpost.settings import Settings
from parcelpost.storage import claims, queries
from parcelpost.storage.claims import Pause
from parcelpost.storage.queries import SiteHealth
from parcelpost.storage.worker_state import WorkerState
from parcelpost.worker.status import read_statuses

_SiteKey = tuple[str, str, str]


class SiteSuccess(Struct, frozen=True, kw_only=True):
    """Outcomes of a site's last tasks."""

    completed: int = 0
    failed: int = 0
    trying_again: int = 0
    success_rate: float | None = None
    """None: no task has ended lately."""
    last_success: datetime | None = None
    last_error: str | None = None
    lost_fields: tuple[str, ...] = ()
    """No longer found on its pages."""
    outdated_fields: tuple[str, ...] = ()
    """Found, but not where they were."""

    @property
    def state(self) -> str:
        if self.lost_fields:
            return f"lost {', '.join(self.lost_fields)}"
        if is_failing(self.completed, self.failed):
            return "failing"
        if self.trying_again and not self.completed:
            return "not working yet"
        return "fine" if self.completed else "-" if not self.failed else "failing"


class ListedCounty(Struct, frozen=True, kw_only=True):
    state: str
    county: str
    fips: str = ""
    site: str = ""
    """URL of the site; '' if no entry has one."""
    example: str = ""
    field_map: str = ""
    paused: Pause | None = None
    health: SiteSuccess | None = None
    """None: the store knows nothing of it, or there is no store."""


class ListedPlatform(Struct, frozen=True, kw_only=True):
    platform: str
    origin: str
    """`parcelpost`, `settings`, the package that was installed, or '' where none of that name is here."""
    experimental: bool
    paused: Pause | None
    counties: list[ListedCounty]


class StorePlatforms(Struct, frozen=True, kw_only=True):
    """What a store knows of its platforms."""

    sites: list[SiteHealth] = []
    pauses: Mapping[_SiteKey, Pause] = {}
    """A whole platform is a site without state and county."""
    broken: list[Broken] = []


async def platforms_of_store(store: StoreContext) -> StorePlatforms:
    """Read-only. Raises a StoreError if the store cannot be read."""
    now = CLOCK.now()
    async with open_for_reading(store) as database:
        statuses = await read_statuses(WorkerState(database, CLOCK))
        pauses = await database.read(claims.pauses, iso(now))
        return StorePlatforms(
            sites=await database.read(queries.sites),
            pauses={_site_key(*astuple(site)): pause for site, pause in pauses.items()},
            broken=[broken.field for broken in await broken_fields(database, statuses, now)],
        )


def listed_platforms(settings: Settings, known: StorePlatforms) -> list[ListedPlatform]:
    """All platforms that are installed here or that the store has tasks for. Raises InvalidSettings."""
    given = known_sites(settings)
    origins = scraper_factory(settings, given).origins()
    entries = {_site_key(county.platform, county.state, county.county): county for county in given.counties}
    seen = _by_site(known.sites)
    places = {*entries, *seen}
    names = sorted({*origins, *(platform for platform, _, _ in (*known.pauses, *places))})
    return [
        ListedPlatform(
            platform=name,
            origin=origins.get(name, ""),
            experimental=name in EXPERIMENTAL,
            paused=known.pauses.get((name, "", "")),
            counties=[
                _listed_county(entries.get(place), seen.get(place), known.pauses.get(place), known.broken)
                for place in sorted(places)
                if place[0] == name
            ],
        )
        for name in names
    ]


def _site_key(platform: str, state: str, county: str) -> _SiteKey:
    return platform, state.strip().upper(), county_slug(county)


def _by_site(sites: Iterable[SiteHealth]) -> dict[_SiteKey, SiteHealth]:
    """Combines sites whose county is spelled differently."""
    by_place: dict[_SiteKey, SiteHealth] = {}
    for site in sites:
        place = _site_key(site.platform, site.state, site.county)
        by_place[place] = _combine(by_place[place], site) if place in by_place else site
    return by_place


def _combine(site: SiteHealth, other: SiteHealth) -> SiteHealth:
    newer = max(
        site, other, key=lambda other_site: other_site.last_error_at.timestamp() if other_site.last_error_at else 0.0
    )
    return SiteHealth(
        platform=site.platform,
        state=site.state,
        county=site.county,
        completed=site.completed + other.completed,
        failed=site.failed + other.failed,
        trying_again=site.trying_again + other.trying_again,
        last_success=max(filter(None, (site.last_success, other.last_success)), default=None),
        last_error=newer.last_error,
        last_error_at=newer.last_error_at,
    )


def _listed_county(
    entry: County | None, seen: SiteHealth | None, paused: Pause | None, broken: Iterable[Broken]
) -> ListedCounty:
    health = None if seen is None else _site_success(seen, broken)
    if entry is None:
        state, county = (seen.state, seen.county) if seen else ("", "")
        return ListedCounty(state=state, county=county, paused=paused, health=health)
    own = {name: value for name, value in asdict(entry).items() if name in ListedCounty.__struct_fields__}
    return ListedCounty(**{**own, "site": entry.site or entry.url}, paused=paused, health=health)


def _site_success(seen: SiteHealth, broken: Iterable[Broken]) -> SiteSuccess:
    ended = seen.completed + seen.failed
    place = _site_key(seen.platform, seen.state, seen.county)
    own = [field for field in broken if _site_key(field.platform, field.state, field.county) == place]
    return SiteSuccess(
        completed=seen.completed,
        failed=seen.failed,
        trying_again=seen.trying_again,
        success_rate=round(seen.completed / ended, 4) if ended else None,
        last_success=seen.last_success,
        last_error=seen.last_error,
        lost_fields=tuple(field.field for field in own if not field.found_otherwise),
        outdated_fields=tuple(field.field for field in own if field.found_otherwise),
    )
