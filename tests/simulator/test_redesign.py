"""A site is redesigned while it is scraped: the ways to its fields are learned anew, and those that fail are named."""

from __future__ import annotations

import pytest

from parcelpost.model import Done, Page, Target
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World
from parcelpost.simulator.web import Layout
from tests.lengths import short_and_long
from tests.simulator import facts
from tests.simulator.asking import list_page, parcel_page, wrong

WORLD = World(seed=5, county="stonebridge", size=300)
TARGET = Target(parcel_id="", state="FL", county="stonebridge")


NAMED = {
    "collier_pa": [("parcel_id", "css #ParcelID"), ("sales", "css #SaleDate1"), ("buildings", "css #BLDGCLASS1")],
    "grizzly_gis": [
        ("parcel_id", "css table.parcelIDtable b"),
        ("sales", "css #parcelDetails_SalesTable"),
        ("buildings", "css #parcelDetails_BldgTable"),
    ],
    "leepa": [("parcel_id", "css #parcelLabel"), ("valuations", "css #valueGrid"), ("sales", "css #SalesDetails")],
    "qpublic": [("parcel_id", "css [id$='lblParcelID']")],  # its tables go by their titles, which stay
    "vgsi": [
        ("parcel_id", "css #MainContent_lblPid"),
        ("sales", "css #MainContent_grdSales"),
        ("buildings", "css [id$='tblBldg']"),
    ],
}


@pytest.mark.parametrize("platform", NAMED)
@short_and_long("size", (150,), (300,))
def test_a_redesign_costs_hardly_a_record_and_the_ways_that_fail_are_named(platform: str, size: int) -> None:
    world = World(seed=5, county="stonebridge", size=size)
    found = county_platform(platform)
    assert found is not None
    ranking, site = Ranking(), (platform, TARGET.state, TARGET.county)
    lost: dict[int, list[str]] = {}
    for parcel in world.all():
        looks = Layout(redesigned=parcel.number > world.size // 2)
        parsed = found.parse(parcel_page(platform, world, parcel.number, looks), TARGET, ranking.order(site))
        ranking.note(site, parsed.selector_results, str(parcel.number))
        assert isinstance(parsed.outcome, Done), parsed.outcome
        assert isinstance(parsed.outcome.data, dict)
        if fields := wrong(parsed.outcome.data, facts.of_parcel(platform, parcel)):
            lost[parcel.number] = list(fields)
        if parcel.number == world.size // 2:
            assert list(ranking.broken()) == []
    assert len(lost) < world.size * 0.02, lost
    named = {(one.field, way): one for one in ranking.broken() for way in one.failing}
    assert all(named[field, way].found_otherwise for field, way in NAMED[platform])


RENAMED: dict[str, tuple[tuple[bytes, ...], set[str]]] = {
    "collier_pa": ((b"SaleDate", b"Book-Page", b"Amount<"), {"sales.date"}),
    "grizzly_gis": ((b"Sale Price", b"Book/Page"), {"sales.price", "sales.book_page"}),
    "leepa": ((b"Sale Price", b"Type<", b"Notes", b"Clerk", b"Vacant/"), {"sales", "permits.type"}),
    "qpublic": ((b"Sales<",), {"sales"}),
    "vgsi": (
        (b"Valuation Year", b"Total<"),
        {"appraisal.year", "appraisal.total", "assessment.year", "assessment.total"},
    ),
}


@pytest.mark.parametrize("platform", RENAMED)
@short_and_long("before, after", (60, 40), (120, 80))
def test_tables_and_columns_that_nobody_knows_any_more_are_named_and_no_others_are(
    platform: str, before: int, after: int
) -> None:
    found = county_platform(platform)
    assert found is not None
    ranking, site = Ranking(), (platform, TARGET.state, TARGET.county)
    words, fields = RENAMED[platform]
    for number in range(1, before + after + 1):
        page = parcel_page(platform, WORLD, number)
        for word in words if number > before else ():
            page = Page(body=page.body.replace(word, b"Renamed" + word[-1:]))
        ranking.note(site, found.parse(page, TARGET, ranking.order(site)).selector_results, str(number))
        if number == before:
            assert list(ranking.broken()) == []
    assert {one.field for one in ranking.broken()} == fields


LISTS = {
    "deedauction": ("liens.opening_bid", b"Opening Bid"),
    "govease": ("liens", b"parcel/"),
    "pioneer_taxdeed": ("liens", b"aria-describedby"),
    "lien_register": ("liens.certificate", b"CERT"),
    "realauction": ("liens", b"AITEM"),
}


@pytest.mark.parametrize("platform", LISTS)
def test_a_list_that_nobody_knows_any_more_is_named(platform: str) -> None:
    found = county_platform(platform)
    assert found is not None
    ranking, site = Ranking(), (platform, TARGET.state, TARGET.county)
    field, word = LISTS[platform]
    page = list_page(platform, World(seed=5, county="stonebridge", size=50), 1)
    assert word in page.body
    for number in range(60):
        body = page.body.replace(word, b"x") if number >= 30 else page.body
        ranking.note(site, found.parse(Page(body=body), TARGET, ranking.order(site)).selector_results, str(number))
        if number < 30:
            assert list(ranking.broken()) == []
    assert field in {one.field for one in ranking.broken() if not one.found_otherwise}
