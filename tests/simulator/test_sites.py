"""Each simulated site's pages are read to exactly what was invented, before and after a redesign."""

from __future__ import annotations

import pytest

from parcelpost.model import Done, NotFound, Page, Retry
from parcelpost.scrapers.platforms import county_platform
from parcelpost.simulator.parcels import World, auction_cases
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import Layout
from tests.lengths import short_and_long
from tests.simulator import facts
from tests.simulator.asking import ask, list_page, parcel_page, parsed, records, wrong

PARCELS = sorted(name for name, site in SITES.items() if site.parcel_id)
LISTS = [name for name in ("deedauction", "govease", "pioneer_taxdeed", "realauction") if county_platform(name)]
WORLD = World(seed=7, county="marigold", size=200)
LOOKS = [Layout(), Layout(redesigned=True)]


@short_and_long("size", (40,), (200,))
def test_every_field_that_a_parcel_s_page_shows_is_read_as_it_was_invented(
    subtests: pytest.Subtests, size: int
) -> None:
    world = World(seed=7, county="marigold", size=size)
    for looks in LOOKS:
        for platform in PARCELS:
            with subtests.test(looks=looks, platform=platform):
                misses = {}
                for parcel in world.all():
                    (record,) = records(platform, parcel_page(platform, world, parcel.number, looks))
                    if found := wrong(record, facts.of_parcel(platform, parcel)):
                        misses[parcel.number] = found
                assert not misses


@pytest.mark.parametrize("looks", LOOKS, ids=["before", "after"])
@pytest.mark.parametrize("platform", LISTS)
def test_every_row_of_a_list_is_read_as_it_was_invented(platform: str, looks: Layout) -> None:
    misses = {}
    for page in range(1, 9):
        wanted = [facts.of_case(platform, case) for case in auction_cases(WORLD, page)]
        found = records(platform, list_page(platform, WORLD, page, looks))
        assert len(found) == len(wanted)
        misses.update({at: bad for at, one in enumerate(wanted) if (bad := wrong(found[at], one))})
    assert not misses


@pytest.mark.parametrize("platform", [*LISTS, "lien_register"])
def test_a_list_says_that_it_is_one_so_that_a_single_row_goes_by_its_own_number(platform: str) -> None:
    outcome = parsed(platform, list_page(platform, WORLD, 1))
    assert isinstance(outcome, Done)
    assert outcome.is_list


@pytest.mark.parametrize("looks", LOOKS, ids=["before", "after"])
@pytest.mark.parametrize("platform", LISTS)
def test_a_list_that_was_cut_in_the_middle_is_none(platform: str, looks: Layout) -> None:
    page = list_page(platform, WORLD, 1, looks)
    for share in (0.3, 0.5, 0.7, 0.9):
        cut = Page(body=page.body[: int(len(page.body) * share)], content_type=page.content_type)
        assert isinstance(parsed(platform, cut), Retry)


def test_every_line_of_a_register_is_read_as_it_was_invented() -> None:
    certificates = [(parcel, one) for parcel in WORLD.register.all() for one in parcel.certificates]
    found = records("lien_register", list_page("lien_register", WORLD, 1))
    assert certificates != [(parcel, one) for parcel in WORLD.all() for one in parcel.certificates]
    assert [record["parcel_id"] for record in found] == [parcel.parcel_id for parcel, _ in certificates]
    assert [record["certificate_number"] for record in found] == [one.number for _, one in certificates]
    assert [record["face_amount"] for record in found] == [one.face_cents / 100 for _, one in certificates]
    assert [record["sale_date"] for record in found] == [one.sold_on.isoformat() for _, one in certificates]
    assert [record["tax_year"] for record in found] == [one.tax_year for _, one in certificates]


def test_a_register_that_was_cut_in_a_line_is_none_and_one_without_a_last_line_end_is() -> None:
    page = list_page("lien_register", WORLD, 1)
    cut = page.body[: page.body.rindex(b",", 0, len(page.body) // 2)]
    assert isinstance(parsed("lien_register", Page(body=cut, content_type=page.content_type)), Retry)
    whole = Page(body=page.body.rstrip(), content_type=page.content_type)
    assert records("lien_register", whole) == records("lien_register", page)


def test_a_parcel_that_does_not_exist_is_not_found(subtests: pytest.Subtests) -> None:
    for platform in PARCELS:
        with subtests.test(platform=platform):
            number_as = SITES[platform].parcel_id
            assert number_as is not None
            assert isinstance(parsed(platform, ask(platform, WORLD, number_as(WORLD.size + 1))), NotFound)


def test_realauction_answers_nothing_to_who_has_not_seen_the_preview() -> None:
    assert ask("realauction", WORLD, "").body == b""
    assert b"AITEM_" in list_page("realauction", WORLD, 1).body
