"""The program's own platforms at simulated sites that need a browser."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from parcelpost.clock import SystemClock
from parcelpost.model import Blocked, Busy, Done, NotFound, Outcome, Target, Task
from parcelpost.scrapers.counties import Counties, parse_counties
from parcelpost.scrapers.county_scraper import county_scrapers
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.simulator.faults import Faults
from parcelpost.simulator.parcels import World
from parcelpost.simulator.server import CountyServer, serving
from parcelpost.simulator.sites import SITES, counties_toml
from parcelpost.storage import LocalPersistenceManager
from tests.browser.leasing import PAGES, RenderingPool, Renders, rendering

pytestmark = [pytest.mark.asyncio(loop_scope="session"), pytest.mark.xdist_group("rendering")]

WORLD = World(seed=3, county="fernhill", size=50)


class County(NamedTuple):
    platform: str
    renders: Renders
    faults: Faults
    server: CountyServer
    address: str
    profile: str = ""

    async def scrape(self, number: int) -> Outcome:
        entries = parse_counties("test", counties_toml(self.address, {self.platform: WORLD}) + self.profile)
        scrapers = county_scrapers(Counties(entries), self.renders.fetcher.session, Ranking(), SystemClock())
        site = SITES[self.platform]
        assert site.parcel_id is not None
        target = Target(parcel_id=site.parcel_id(number), state=site.state, county=WORLD.county)
        return await scrapers[self.platform].scrape(Task(task_id=f"t{number}", platform=self.platform, target=target))

    @property
    def requests(self) -> int:
        return sum(self.server.answers[self.platform].values())


@asynccontextmanager
async def a_county(
    pool: RenderingPool, platform: str, tmp_path: Path, profile: str = "", **how: Any
) -> AsyncIterator[County]:
    server = CountyServer(worlds={platform: WORLD}, faults=Faults(3))
    async with (
        LocalPersistenceManager.open(tmp_path / f"{platform}.db") as lpm,
        serving(server) as address,
        rendering(pool, cache=lpm.cache, profiles=tmp_path, **how) as one,
    ):
        yield County(platform, one, server.faults, server, address, f'profile = "{profile}"\n' if profile else "")


def facts(outcome: Outcome) -> dict[str, Any]:
    assert isinstance(outcome, Done), outcome
    assert not isinstance(outcome.data, bytes)
    others = ("scraped_at", "raw_html_hash")
    return {name: value for name, value in dict(outcome.data).items() if name not in others}  # type: ignore[arg-type]


@pytest.mark.parametrize("platform", ["grizzly_gis", "qpublic"])
async def test_a_site_whose_pages_are_written_by_scripts_gives_the_same_records(
    guarded: RenderingPool, tmp_path: Path, platform: str
) -> None:
    async with a_county(guarded, platform, tmp_path) as county:
        plain = facts(await county.scrape(7))
        assert county.renders.leases == 0, "plain first"
        county.faults.set("script", 1.0)
        assert facts(await county.scrape(8))["parcel_id"] == WORLD.at(8).parcel_id
        assert county.renders.leases == 1
        before = county.requests
        assert facts(await county.scrape(8))["parcel_id"] == WORLD.at(8).parcel_id
        assert county.requests == before, "a page that is fresh is not asked for again"
    async with a_county(guarded, platform, tmp_path / "other") as county:
        county.faults.set("script", 1.0)
        built = facts(await county.scrape(7))
    assert {**built, "source_url": ""} == {**plain, "source_url": ""}


async def test_what_is_not_there_and_what_is_forbidden_stay_what_they_are(
    guarded: RenderingPool, tmp_path: Path
) -> None:
    async with a_county(guarded, "grizzly_gis", tmp_path, quiet_seconds=2.0) as county:
        county.faults.set("script", 1.0)
        assert isinstance(await county.scrape(999), NotFound)
        county.faults.set("challenge", 1.0)
        assert isinstance(await county.scrape(9), Blocked)


async def test_where_all_browsers_are_busy_the_task_waits_and_its_site_is_passed_over(
    guarded: RenderingPool, tmp_path: Path
) -> None:
    async with a_county(guarded, "grizzly_gis", tmp_path, lease_seconds=0.0) as county, AsyncExitStack() as stack:
        availability = county.renders.fetcher.availability
        assert isinstance(await county.scrape(1), Done)
        county.faults.set("script", 1.0)
        for number in range(PAGES):
            await stack.enter_async_context(guarded.lease(f"other{number}", timeout=120.0))
        assert await county.scrape(2) == Busy("2 of 2 browsers are busy", 0.5)
        assert {site.county for site in availability.closed().sites} == {WORLD.county}
        assert availability.closed().opens_in == [0.5]
        county.faults.set("script", 0.0)
        assert isinstance(await county.scrape(3), Done)
        assert availability.closed().sites == frozenset(), "it needs none any more"


@pytest.mark.parametrize("platform", ["grizzly_gis", "qpublic"])
async def test_a_person_s_profile_gets_past_the_terms(guarded: RenderingPool, tmp_path: Path, platform: str) -> None:
    async with a_county(guarded, platform, tmp_path) as county:
        county.faults.set("terms", 1.0)
        blocked = await county.scrape(7)
        assert isinstance(blocked, Blocked)
        assert "terms" in blocked.reason
        await _accept(county, tmp_path / "person.json")
    async with a_county(guarded, platform, tmp_path, profile="person") as county:
        county.faults.set("terms", 1.0)
        assert facts(await county.scrape(8))["parcel_id"] == WORLD.at(8).parcel_id
        assert county.server.answers[platform]["302"] == 0


async def _accept(county: County, file: Path) -> None:
    """As a person does it in a window."""
    page_of = SITES[county.platform].address.replace("{parcel}", "1")
    past = {"server": "http://127.0.0.1:9", "bypass": "127.0.0.1"}
    async with county.renders.pool.lease("", timeout=120.0, proxy=past) as leased:
        await leased.page.goto(f"{county.address}/{county.platform}{page_of}")
        await leased.page.click("#accept")
        await leased.page.wait_for_url(f"**{page_of.partition('?')[0]}*")
        await leased.context.storage_state(path=file)
