"""Which platforms there are, and that one that cannot be imported harms no other."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Iterator
from importlib.metadata import EntryPoint, distributions
from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.model import Done, NotFound, Outcome, Page, Target, Task
from parcelpost.scrapers.counties import Counties, County
from parcelpost.scrapers.county_scraper import CountySites
from parcelpost.scrapers.factory import GROUP, ScraperFactory
from parcelpost.scrapers.platform import CountyPlatform, NotReadable, PageReader
from parcelpost.scrapers.records.record import Record
from tests.scrapers.fetching import fetching
from tests.storage.factories import a_task
from tests.website import Website

MODULE = """
from parcelpost.model import Done, NotFound

class Shiny:
    name = "shiny"
    def scrape(self, task):
        return Done(data={"by": "a class"})

class Picky:
    def __init__(self, needed):
        self.needed = needed

made = Shiny()

def plain(task):
    return NotFound("by a function")

nothing = 7
"""


@pytest.fixture
def package(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Somebody else's modules, importable."""
    monkeypatch.syspath_prepend(tmp_path)
    (tmp_path / "theirs_good.py").write_text(MODULE)
    (tmp_path / "theirs_exits.py").write_text("import sys\nsys.exit('no licence')\n")
    yield tmp_path
    for name in [name for name in sys.modules if name.startswith("theirs_")]:
        del sys.modules[name]


def a_factory(**installed: str) -> ScraperFactory:
    """One that finds these entry points."""
    entries = [EntryPoint(name, value, GROUP) for name, value in installed.items()]
    return ScraperFactory(ManualClock(), installed=lambda: entries)


def call(factory: ScraperFactory, name: str, parcel_id: str = "1-2") -> object:
    scrape = factory.scraper(name)
    assert scrape is not None
    return scrape(a_task(platform=name, parcel_id=parcel_id))


def test_echo_is_built_in() -> None:
    factory = a_factory()
    assert factory.names() == ["echo"]
    assert factory.scraper("echo") is not None


def test_a_name_that_nobody_has_is_none() -> None:
    assert a_factory().scraper("vgsi") is None


@pytest.mark.parametrize("place", ["theirs_good:Shiny", "theirs_good:made"])
def test_an_installed_platform_is_found_by_its_entry_point(package: Path, place: str) -> None:
    factory = a_factory(shiny=place)
    assert factory.names() == ["echo", "shiny"]
    assert call(factory, "shiny") == Done(data={"by": "a class"})


def test_an_entry_point_may_be_just_a_function(package: Path) -> None:
    assert call(a_factory(plain="theirs_good:plain"), "plain") == NotFound("by a function")


def test_an_installed_platform_is_imported_by_its_first_call(package: Path) -> None:
    factory = a_factory(plain="theirs_good:plain")
    assert factory.scraper("plain") is not None
    assert "theirs_good" not in sys.modules
    call(factory, "plain")
    assert "theirs_good" in sys.modules


BROKEN = {
    "theirs_missing:Platform": "ModuleNotFoundError: No module named 'theirs_missing'",
    "theirs_good:absent": "AttributeError: module 'theirs_good' has no attribute 'absent'",
    "theirs_exits:Platform": "SystemExit: no licence",
    "theirs_good:Picky": "TypeError: Picky.__init__() missing 1 required positional argument: 'needed'",
    "theirs_good:nothing": (
        "TypeError: an int is not a platform: it has no fetch or scrape method and is not a function"
    ),
}


@pytest.mark.parametrize(("place", "reason"), BROKEN.items())
def test_one_that_cannot_be_imported_is_unavailable_and_harms_no_other(package: Path, place: str, reason: str) -> None:
    factory = a_factory(broken=place, plain="theirs_good:plain")
    with pytest.raises(BaseException, match=r"^"):
        call(factory, "broken")
    assert factory.unavailable() == {"broken": reason}
    assert factory.names() == ["echo", "plain"]
    assert call(factory, "plain") == NotFound("by a function")


def test_one_that_can_be_imported_later_is_available_again(package: Path) -> None:
    factory = a_factory(late="theirs_late:plain")
    with pytest.raises(ModuleNotFoundError):
        call(factory, "late")
    (package / "theirs_late.py").write_text(MODULE)
    sys.path_importer_cache.clear()
    assert call(factory, "late") == NotFound("by a function")
    assert factory.unavailable() == {}
    assert factory.names() == ["echo", "late"]


def test_a_name_that_two_packages_offer_belongs_to_neither(package: Path) -> None:
    entries = [EntryPoint("plain", value, GROUP) for value in ("theirs_good:plain", "other:plain")]
    factory = ScraperFactory(installed=lambda: entries)
    with pytest.raises(ImportError, match="several packages define a platform of this name: other:plain, theirs_good"):
        call(factory, "plain")


def test_an_installed_platform_goes_before_ours_and_a_registered_one_before_both(package: Path) -> None:
    factory = a_factory(echo="theirs_good:plain")
    assert call(factory, "echo") == NotFound("by a function")
    factory.register("echo", lambda _: Done(data={"by": "hand"}))
    assert call(factory, "echo") == Done(data={"by": "hand"})
    assert factory.names() == ["echo"]


def test_a_registered_platform_makes_a_broken_one_of_its_name_good(package: Path) -> None:
    factory = a_factory(broken="theirs_missing:Platform")
    with pytest.raises(ModuleNotFoundError):
        call(factory, "broken")
    factory.register("broken", lambda _: Done(data={}))
    assert factory.unavailable() == {}
    assert factory.names() == ["broken", "echo"]


class _Registered:
    name = "mine"

    async def scrape(self, task: Task) -> Outcome:
        return Done(data={"id": task.task_id})


@pytest.mark.parametrize("offered", [_Registered, _Registered()])
async def test_a_platform_or_its_class_can_be_registered(offered: object) -> None:
    factory = a_factory()
    factory.register("mine", offered)
    scrape = factory.scraper("mine")
    assert scrape is not None
    found = scrape(a_task("t7"))
    assert not isinstance(found, Outcome)
    assert await found == Done(data={"id": "t7"})


def test_what_is_no_platform_cannot_be_registered() -> None:
    with pytest.raises(TypeError, match="a str is not a platform"):
        a_factory().register("mine", "vgsi")


def test_entry_points_of_installed_packages_are_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the metadata that an installer writes."""
    folder = tmp_path / "theirs-1.0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Metadata-Version: 2.1\nName: theirs\nVersion: 1.0\n")
    (folder / "entry_points.txt").write_text(f"[{GROUP}]\nshiny = theirs_good:Shiny\n")
    monkeypatch.syspath_prepend(tmp_path)
    assert any(found.name == "theirs" for found in distributions())
    assert "shiny" in ScraperFactory().names()


# Reading pages that were kept


RECORD = b'{"folio": "7", "owner": "Ann"}'


def read_json(reader: PageReader) -> Record:
    return Record(parcel_id=reader.json["folio"], owner_names=[reader.json["owner"]])


def test_a_county_platform_of_somebody_else_scrapes_and_reads_under_the_name_it_is_offered_by(package: Path) -> None:
    factory = a_factory(theirs="theirs_county:PLATFORM")
    (package / "theirs_county.py").write_text(
        "from parcelpost.scrapers.platform import CountyPlatform\n"
        "from tests.scrapers.test_factory import read_json\n"
        "PLATFORM = CountyPlatform(name='another', version=3, read=read_json)\n"
    )
    parse = factory.parser("theirs")
    assert callable(parse)
    outcome = parse(Page(body=RECORD), a_task().target)
    assert isinstance(outcome, Done)
    data: Any = outcome.data
    assert (data["platform"], data["parser_version"], data["owner_names"]) == ("theirs", "theirs/3", ["Ann"])


async def test_its_pages_are_fetched_by_the_countys_entry(site: Website) -> None:
    site.page("/7", RECORD)
    county = County(platform="theirs", state="CT", county="hartford", url=f"{site.url}/{{parcel}}", fips="09003")
    async with fetching() as one:
        sites = CountySites(counties=Counties([county]), sessions=one.fetcher.session)
        factory = ScraperFactory(sites=sites, installed=list)
        factory.register("theirs", CountyPlatform(name="theirs", version=1, read=read_json))
        found = call(factory, "theirs", parcel_id="7")
        assert isinstance(found, Awaitable)
        outcome = await found
    assert isinstance(outcome, Done), outcome
    assert outcome.data["county_fips"] == "09003"  # type: ignore[index]


def test_a_platform_with_a_parse_of_its_own_reads_and_one_without_says_so(package: Path) -> None:
    class Own:
        name = "own"

        def scrape(self, task: Task) -> Outcome:
            return NotFound("x")

        def parse(self, page: Page, target: Target) -> Outcome:
            return Done(data={"read": page.body.decode()})

    factory = a_factory(plain="theirs_good:plain", broken="theirs_missing:Platform")
    factory.register("own", Own)
    parse = factory.parser("own")
    assert callable(parse)
    assert parse(Page(body=b"7"), a_task().target) == Done(data={"read": "7"}, page=Page(body=b"7"))
    assert factory.parser("plain") == NotReadable("it has no parse function")
    assert factory.parser("echo") == NotReadable("it has no parse function")
    assert factory.parser("no_such") == NotReadable("there is no platform of that name")
    with pytest.raises(ModuleNotFoundError):
        factory.parser("broken")


def test_what_goes_before_ours_reads_before_ours() -> None:
    factory = ScraperFactory(sites=CountySites(), installed=list)
    assert callable(factory.parser("vgsi"))
    factory.register("vgsi", lambda _: NotFound("by hand"))
    assert factory.parser("vgsi") == NotReadable("it has no parse function")


def test_whose_platforms_they_are_is_known_without_importing_them(package: Path) -> None:
    factory = a_factory(shiny="theirs_good:Shiny")
    factory.configure("mine", scrape="theirs_good:plain")
    factory.register("hand", lambda _: NotFound("x"))
    assert factory.origins() == {
        "echo": "parcelpost",
        "shiny": "theirs_good",
        "mine": "settings",
        "hand": "registered",
    }
    assert "theirs_good" not in sys.modules
