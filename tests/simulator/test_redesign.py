"""A site is redesigned while it is scraped: the ways to its fields are learned anew, and those that fail are named."""

from __future__ import annotations

import pytest

from parcelpost.model import Done, Target
from parcelpost.scrapers.learning import Ranking
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.looks import Looks
from parcelpost.simulator.world import World
from tests.simulator import facts
from tests.simulator.asking import parcel_page, wrong

WORLD = World(seed=5, county="stonebridge", size=1_000)
TARGET = Target(parcel_id="", state="FL", county="stonebridge")


@pytest.mark.parametrize(
    ("platform", "failing"),
    [
        ("collier_pa", "css #ParcelID"),
        ("grizzly_gis", "css table.parcelIDtable b"),
        ("leepa", "css #parcelLabel"),
        ("qpublic", "css [id$='lblParcelID']"),
        ("vgsi", "css #MainContent_lblPid"),
    ],
)
def test_a_redesign_costs_hardly_a_record_and_the_ways_that_fail_are_named(platform: str, failing: str) -> None:
    found = county_platform(platform)
    assert found is not None
    ranking, site = Ranking(), (platform, TARGET.state, TARGET.county)
    lost: dict[int, list[str]] = {}
    for parcel in WORLD.all():
        looks = Looks(redesigned=parcel.number > WORLD.size // 2)
        parsed = found.parse(parcel_page(platform, WORLD, parcel.number, looks), TARGET, ranking.order(site))
        ranking.note(site, parsed.tries, str(parcel.number))
        assert isinstance(parsed.outcome, Done), parsed.outcome
        assert isinstance(parsed.outcome.data, dict)
        if fields := wrong(parsed.outcome.data, facts.of_parcel(platform, parcel)):
            lost[parcel.number] = list(fields)
        if parcel.number == WORLD.size // 2:
            assert list(ranking.broken()) == []
    assert len(lost) < WORLD.size * 0.02, lost
    named = {(one.field, way): one for one in ranking.broken() for way in one.failing}
    assert named["parcel_id", failing].found_otherwise
