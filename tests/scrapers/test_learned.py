"""Pages read by what was learned: the outcome carries the signals, and they bring the ranking back after a restart."""

from __future__ import annotations

from datetime import UTC, datetime

from parcelpost.model import Done, Outcome, Page, Retry, Signal
from parcelpost.scrapers.county_scraper import parse_ranked
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Piece
from parcelpost.scrapers.html.extract import Field
from parcelpost.scrapers.html.selectors import Css, Id, Label
from parcelpost.scrapers.learning.ranking import Ranking, replay_signals
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import Record
from tests.storage.factories import a_task

NOW = datetime(2026, 1, 1, tzinfo=UTC)
OLD = "<span id=o>ANN</span><span class=owner>ANN</span>"
NEW = "<span class=owner>BO</span>"
RENAMED = "<table><tr><td>Name of Owner</td><td>CY</td></tr></table>"


def _words(piece: Piece) -> str | None:
    return values.text_or_none(piece.text)


OWNER = Field("owner_names", (Id("o"), Css(".owner"), Label("Owner Name")), _words)


def _read(reader: PageReader) -> ReadResult:
    owner = reader.extractor.value(OWNER)
    return Record(parcel_id="1", owner_names=[owner] if owner else []) if owner else Retry("no owner")


PLATFORM = CountyPlatform(name="made_up", version=1, read=_read)


def read(ranking: Ranking, html: str, task_id: str = "t") -> Outcome:
    page = Page(body=f"<html><body>{html}</body></html>".encode())
    return parse_ranked(PLATFORM, page, a_task(task_id, platform="made_up"), ranking, NOW)


def signals(outcome: Outcome) -> tuple[Signal, ...]:
    assert isinstance(outcome, Done | Retry)
    return outcome.signals


def test_every_try_is_a_signal_with_its_task_and_site() -> None:
    found = signals(read(Ranking(), NEW, "t7"))
    assert [(one.selector_type, one.selector, one.success) for one in found] == [
        ("css", "#o", False),
        ("css", ".owner", True),
    ]
    assert {(one.platform, one.field, one.task_id, one.context) for one in found} == {
        ("made_up", "owner_names", "t7", "CT/hartford")
    }


def test_a_guess_is_marked_as_one() -> None:
    ranking = Ranking()
    for _ in range(3):  # and stays one, however often it led to the field
        guess = signals(read(ranking, RENAMED))[-1]
        assert (guess.selector_type, guess.success, guess.context) == ("label", True, "CT/hartford guess")


def test_a_page_without_the_field_tells_its_failures_too() -> None:
    found = read(Ranking(), "<p>nothing</p>")
    assert isinstance(found, Retry)
    assert [one.success for one in found.signals] == [False, False, False]


def test_of_a_site_that_is_well_known_some_pages_are_told() -> None:
    ranking = Ranking()
    told = [bool(signals(read(ranking, OLD))) for _ in range(200)]
    assert all(told[:100])
    assert sum(told[100:]) == 5


def test_what_signals_tell_brings_back_the_order_and_what_is_broken() -> None:
    first, again = Ranking(), Ranking()
    stored = [(one, NOW) for n in range(60) for one in signals(read(first, OLD, f"old-{n}"))]
    stored += [(one, NOW) for n in range(30) for one in signals(read(first, RENAMED, f"new-{n}"))]
    replay_signals(again, stored)
    (broken,) = again.broken()
    assert [broken] == list(first.broken())
    assert (broken.field, broken.found_otherwise, broken.since) == ("owner_names", True, NOW)
    assert broken.failing == ("css #o",)
    assert [one.selector for one in signals(read(again, RENAMED))][-1] == "name of owner"


def test_the_fleets_experience_counts_where_a_site_is_not_known() -> None:
    ranking = Ranking()
    ranking.set_fleet_stats("made_up", [("owner_names", "css", "#o", 0.0), ("owner_names", "css", ".owner", 0.9)])
    assert [one.selector for one in signals(read(ranking, OLD))] == [".owner"]


def test_labels_that_the_fleet_learned_are_tried_and_no_other_selector_from_outside_is() -> None:
    ranking = Ranking()
    ranking.set_fleet_stats("made_up", [("owner_names", "label", "who", 0.95), ("owner_names", "xpath", "][", 1.0)])
    found = read(ranking, "<table><tr><td>Who</td><td>DI</td></tr></table>")
    assert isinstance(found, Done)
    assert signals(found)[-1].selector == "who" or signals(found)[0].selector == "who"
