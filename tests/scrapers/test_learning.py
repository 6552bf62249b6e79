from __future__ import annotations

import random

import pytest

from parcelpost.model import Page
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Piece
from parcelpost.scrapers.html.extract import Extractor, Field, SelectorResult
from parcelpost.scrapers.html.selectors import Css, Id, Label
from parcelpost.scrapers.learning.ranking import Ranking

SITE = ("vgsi", "NH", "grafton")


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


OWNER = Field("owner_names", (Id("lblOwner"), Css(".owner"), Label("Owner Name")), _words)


def page(owner: str) -> Document:
    found = Document.of(Page(body=f"<html><body>{owner}</body></html>".encode()))
    assert found is not None
    return found


OLD = "<span id=lblOwner>ANN</span><span class=owner>ANN</span>"
NEW = "<span class=owner>BO</span>"
RENAMED = "<table><tr><td>Name of Owner</td><td>CY</td></tr></table>"


def read(ranking: Ranking, html: str, task_id: str = "t") -> tuple[str | None, int]:
    """The owner, and how many ways were tried."""
    look = Extractor(page(html), ranking.order(SITE))
    found = look.value(OWNER)
    ranking.note(SITE, look.selector_results, task_id)
    return found, len(look.selector_results)


def test_the_first_way_that_leads_to_a_value_of_the_right_shape_is_taken() -> None:
    assert read(Ranking(), OLD) == ("ANN", 1)
    assert read(Ranking(), NEW) == ("BO", 2)


def test_after_a_redesign_the_way_that_works_is_tried_first() -> None:
    ranking = Ranking()
    for _ in range(30):
        read(ranking, OLD)
    tries = [read(ranking, NEW)[1] for _ in range(20)]
    assert tries[0] == 2
    assert sum(tries[-10:]) <= 11  # one of them may look whether the old way works again


def test_one_odd_page_overturns_nothing() -> None:
    ranking = Ranking()
    for _ in range(30):
        read(ranking, OLD)
    read(ranking, NEW)
    assert read(ranking, OLD) == ("ANN", 1)


def test_sites_learn_apart() -> None:
    ranking = Ranking()
    for _ in range(30):
        read(ranking, NEW)
    assert list(ranking.order(("vgsi", "CT", "hartford")).ranked("owner_names", OWNER.selectors)) == list(
        OWNER.selectors
    )


def test_when_every_way_fails_a_label_that_resembles_is_guessed_and_remembered() -> None:
    ranking = Ranking()
    found, _ = read(ranking, RENAMED)
    assert found == "CY"
    assert [selector.expression for selector in ranking.order(SITE).ranked("owner_names", OWNER.selectors)][
        -1
    ] == "name of owner"
    assert read(ranking, RENAMED) == ("CY", 4)


def test_what_was_learned_gives_way_to_what_is_written_at_once() -> None:
    ranking = Ranking()
    for _ in range(30):
        read(ranking, RENAMED)
    both = f"{RENAMED}<table><tr><td>Owner Name</td><td>DI</td></tr></table>"
    assert [read(ranking, both)[0] for _ in range(3)] == ["DI"] * 3


@pytest.mark.parametrize("pages", [0, 200])
def test_a_label_that_the_fleet_learned_is_behind_all_that_are_written(pages: int) -> None:
    ranking, html = Ranking(), "<table><tr><td>Owner Name</td><td>DI</td></tr><tr><td>Who</td><td>NO</td></tr></table>"
    for _ in range(pages):
        read(ranking, html)
    ranking.set_fleet_stats(SITE[0], [("owner_names", "label", "Who", 1.0)])
    assert read(ranking, html)[0] == "DI"
    assert read(ranking, "<table><tr><td>Who</td><td>EL</td></tr></table>")[0] == "EL"


def test_what_works_on_the_site_is_not_left_for_what_works_elsewhere() -> None:
    ranking = Ranking()
    ways = (Id("gone"), Css(".elsewhere"), Label("Owner"))
    for _ in range(30):
        ranking.note(
            SITE,
            [SelectorResult("owner_names", Id("gone"), False), SelectorResult("owner_names", Label("Owner"), True)],
        )
    ranking.set_fleet_stats(SITE[0], [("owner_names", "css", ".elsewhere", 1.0)])
    order = ranking.order(SITE).ranked("owner_names", ways)
    assert [selector.expression for selector in order] == ["Owner", ".elsewhere", "#gone"]


@pytest.mark.parametrize(("field", "name"), [("parcel_id", "Number"), ("owner_names", "Previous Owner")])
def test_what_the_fleet_learned_is_no_more_than_a_guess(field: str, name: str) -> None:
    ranking = Ranking()
    ranking.set_fleet_stats(SITE[0], [(field, "label", name, 1.0)])
    look = Extractor(page(f"<table><tr><td>{name}</td><td>00-99</td></tr></table>"), ranking.order(SITE))
    assert look.value(Field(field, OWNER.selectors, _words)) is None


def test_a_guess_is_marked() -> None:
    look = Extractor(page(RENAMED))
    look.value(OWNER)
    assert [(one.success, one.guess) for one in look.selector_results] == [(False, False)] * 3 + [(True, True)]


def test_a_field_that_is_no_longer_found_is_named_with_a_page_to_look_at() -> None:
    ranking = Ranking()
    for _ in range(40):
        read(ranking, OLD)
    assert list(ranking.broken()) == []
    for number in range(15):
        read(ranking, "<p>nothing</p>", f"task-{number}")
    (broken,) = ranking.broken()
    assert (broken.platform, broken.county, broken.field) == ("vgsi", "grafton", "owner_names")
    assert broken.example == "task-14"
    assert "css #lblOwner" in broken.failing


def test_a_field_that_is_found_another_way_is_named_with_a_page_to_look_at() -> None:
    ranking = Ranking()
    for _ in range(40):
        ranking.note(SITE, [SelectorResult("owner_names", Id("o"), True)], "old")
    for number in range(5):
        ranking.note(
            SITE,
            [SelectorResult("owner_names", Id("o"), False), SelectorResult("owner_names", Css(".o"), True)],
            f"new-{number}",
        )
    (broken,) = ranking.broken()
    assert (broken.found_otherwise, broken.failing, broken.example) == (True, ("css #o",), "new-4")


def test_a_field_that_was_never_there_is_not_called_broken() -> None:
    ranking = Ranking()
    for _ in range(100):
        read(ranking, "<p>nothing</p>")
    assert list(ranking.broken()) == []


def test_a_field_that_four_pages_in_ten_show_is_not_called_broken_by_chance() -> None:
    ranking, chance = Ranking(), random.Random(7)
    for number in range(3_000):
        ranking.note(SITE, [SelectorResult("co_owner", Id("c"), chance.random() < 0.4)], f"task-{number}")
        assert list(ranking.broken()) == []
    for number in range(40):
        ranking.note(SITE, [SelectorResult("co_owner", Id("c"), False)], f"new-{number}")
    (broken,) = ranking.broken()
    assert (broken.field, broken.example) == ("co_owner", "new-39")


def test_what_the_fleet_knows_is_where_a_new_worker_starts() -> None:
    ranking = Ranking()
    ranking.set_fleet_stats(SITE[0], [("owner_names", "css", ".owner", 0.99)])
    for _ in range(3):  # and where it goes on: the first pages of its own do not outweigh the fleet's
        assert (
            next(selector.expression for selector in ranking.order(SITE).ranked("owner_names", OWNER.selectors))
            == ".owner"
        )
        ranking.note(SITE, [SelectorResult("owner_names", Css(".owner"), True)])


def test_a_way_that_leads_somewhere_on_a_page_has_not_missed_it_elsewhere_there() -> None:
    ranking = Ranking()
    for _ in range(30):
        ranking.note(
            SITE,
            [
                SelectorResult("sale", Id("s"), True),
                *[SelectorResult("sale", Id("s"), False), SelectorResult("sale", Css(".s"), True)] * 5,
            ],
        )
    assert list(ranking.broken()) == []


def test_a_field_that_some_pages_do_not_show_has_no_fallen_way() -> None:
    ranking = Ranking()
    for number in range(300):
        is_shown = number % 7 < 5
        tries = [SelectorResult("year_built", Id("y"), is_shown)]
        ranking.note(SITE, tries if is_shown else [*tries, SelectorResult("year_built", Css(".y"), False)])
    assert list(ranking.broken()) == []


def test_every_hundredth_page_of_a_site_looks_how_the_next_way_does() -> None:
    ranking = Ranking()
    assert [number for number in range(1, 251) if read(ranking, OLD)[1] == 2] == [100, 200]


@pytest.mark.parametrize("pages", [20, 99, 100, 101, 300])
def test_pages_that_say_the_same_weigh_as_if_each_were_noted_alone(pages: int) -> None:
    found = [True] * pages + [False] * (pages // 2 + 20)
    ranking = Ranking()
    lately = used_to = float(found[0])
    for number, success in enumerate(found, 1):
        ranking.note(SITE, [SelectorResult("owner", Id("o"), success)])
        if number > 1:
            lately += 0.12 * (success - lately)
        used_to += max(0.01, 1 / number) * (success - used_to)
    (broken,) = ranking.broken()
    assert broken.success_rate == pytest.approx(lately)
    assert broken.used_to == pytest.approx(used_to)
