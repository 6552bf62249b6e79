"""Counties' sites: where they are, how they are asked, and what was learned of them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from msgspec import Struct, field, structs

from parcelpost.clock import Clock, SystemClock
from parcelpost.model import Outcome, Task
from parcelpost.scrapers.counties import Counties
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.county_scraper import CountyScraper, OpenSession, county_scrapers, open_session
from parcelpost.scrapers.fetch_errors import CannotFetch
from parcelpost.scrapers.known_maps import FieldMaps
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.platforms import county_platform
from parcelpost.scrapers.session import Session


def no_session(pace_seconds: float, task: Task, profile: str = "") -> Session:
    raise CannotFetch("nothing is fetched here")


class Sites(Struct, frozen=True, kw_only=True):
    counties: Counties = Counties()
    field_maps: FieldMaps = FieldMaps()
    sessions: OpenSession = no_session
    ranking: Ranking = field(default_factory=Ranking)
    clock: Clock = SystemClock()

    def platform(self, name: str) -> CountyPlatform | None:
        """One of the program's own. None: there is none of that name."""
        found = county_platform(name)
        return None if found is None else structs.replace(found, field_maps=self.field_maps)

    def scrapers(self) -> dict[str, CountyScraper]:
        """Of the program's own platforms."""
        return county_scrapers(self.counties, self.sessions, self.ranking, self.clock, self.platform)

    def scrape(self, platform: CountyPlatform) -> Callable[[Task], Awaitable[Outcome]]:
        """With somebody else's platform."""
        own = (self.counties, self.sessions, self.ranking, self.clock)
        return CountyScraper(platform.name, *own, lambda _: platform).scrape

    def session(self, task: Task) -> Session | None:
        """For one attempt, as the county's entry wants it. None: nothing is fetched here."""
        if self.sessions is no_session:
            return None
        county = self.counties.find(task.platform, task.target.state, task.target.county)
        return open_session(self.sessions, county, task)
