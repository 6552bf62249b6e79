"""What the other pages of a site say about a page."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

from parcelpost.model import Done, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.county_scraper import parse_ranked
from parcelpost.scrapers.learning.ranking import Ranking
from parcelpost.scrapers.platforms import county_platform
from parcelpost.worker.findings import field_finding
from tests.scrapers import test_grizzly_gis as grizzly
from tests.scrapers import test_lists as lists
from tests.scrapers.reading import grid, qpublic, two_columns

NOW = datetime(2026, 1, 1, tzinfo=UTC)
SALES = grid(("Sale Date", "Sale Price"), ("1/2/2020", "$5"))
END = "<footer>Last Data Upload: 1/1/2026, 1:02:03 AM</footer>"
FOOTER = f'<div id="x_pnlNoDataForModules">No data: Valuation, Buildings.</div>{END}</body>'
NO_END = FOOTER.replace(END, "")


def scraped(ranking: Ranking, number: int, owner: str = "", end: str = FOOTER, **modules: str) -> Outcome:
    platform = county_platform("qpublic")
    assert platform is not None
    name = owner or f"BLOOM {chr(65 + number % 26)}{chr(65 + number // 26)}"
    page = qpublic(summary=two_columns(parcel_id=f"34-{number:04}"), owner=name, **modules)
    target = Target(parcel_id="", state="IA", county="invented")
    body = page.replace("</body>", end).encode()
    return parse_ranked(
        platform, Page(body=body), Task(task_id=f"t{number}", platform="qpublic", target=target), ranking, NOW
    )


def data(outcome: Outcome | None) -> dict[str, Any]:
    assert isinstance(outcome, Done), outcome
    assert isinstance(outcome.data, dict)
    return outcome.data


def test_a_page_without_a_section_that_the_site_always_had_is_incomplete() -> None:
    ranking = Ranking()
    assert isinstance(scraped(ranking, 0), Done), "the first page of a site"
    ranking = Ranking()
    for number in range(30):
        assert data(scraped(ranking, number, sales=SALES))["completeness"] == "complete"
    found = scraped(ranking, 31)
    assert isinstance(found, Retry)
    assert data(found.partial)["completeness"] == "missing: sales"


def test_a_section_that_the_site_does_not_have_makes_no_page_incomplete() -> None:
    ranking = Ranking()
    first = [scraped(ranking, number, end=NO_END, sales=SALES) for number in (0, 1, 1, *range(2, 20))]
    assert all(isinstance(outcome, Retry) and outcome.partial for outcome in first), "a few parcels may be chance"
    assert data(scraped(ranking, 0, end=NO_END, sales=SALES))["completeness"] == "complete", "tried again"
    scraped(ranking, 26, sales=SALES)
    assert isinstance(scraped(ranking, 27, end=NO_END, sales=SALES), Retry), "it has one after all"


def test_once_a_section_is_known_to_be_gone_records_say_that_it_is_unreadable() -> None:
    ranking = Ranking()
    for number in range(60):
        scraped(ranking, number, sales=SALES)
    outcomes = [scraped(ranking, number) for number in range(100, 130)]
    assert isinstance(outcomes[0], Retry)
    assert "sales" in data(outcomes[-1])["unreadable"]


def test_an_owner_that_twenty_parcels_share_is_suspect() -> None:
    ranking = Ranking()
    for number in range(19):
        scraped(ranking, number, owner="RESULT ONE OF ONE", sales=SALES)
    assert [one.field for one in ranking.broken()] == []
    for _ in range(5):
        scraped(ranking, 18, owner="RESULT ONE OF ONE", sales=SALES)
    assert [one.field for one in ranking.broken()] == [], "the same parcel again says nothing"
    for number in (17, 18, 17, 18):
        scraped(ranking, number, owner="RESULT ONE OF ONE", sales=SALES)
    assert [one.field for one in ranking.broken()] == [], "nor do two parcels in turns"
    scraped(ranking, 19, owner="RESULT ONE OF ONE", sales=SALES)
    (suspect,) = ranking.broken()
    assert (suspect.field, suspect.same_value) == ("owner_names", "RESULT ONE OF ONE")
    assert "is the same on many parcels" in field_finding(suspect).message
    scraped(ranking, 20, owner="CARVER LOUIS", sales=SALES)
    assert list(ranking.broken()) == []


def restarted(ranking: Ranking) -> Ranking:
    """A new worker, with what the store has of the old one."""
    again = Ranking()
    again.sections.restore(ranking.sections.take_changed())
    return again


def test_half_pages_do_not_teach_a_new_worker_that_a_site_has_less() -> None:
    ranking = Ranking()
    for number in range(30):
        scraped(ranking, number, sales=SALES)
    again = restarted(ranking)
    for number in range(100, 150):
        found = scraped(again, number, end=NO_END)
        assert isinstance(found, Retry), number
        assert data(found.partial)["completeness"] == "missing: the end of the page, sales"


def test_a_section_is_gone_once_twenty_otherwise_complete_parcels_lack_it() -> None:
    ranking = Ranking()
    for number in range(30):
        scraped(ranking, number, sales=SALES)
    for number in (*range(100, 119), 118, 118, 119):
        assert isinstance(scraped(ranking, number, end=NO_END, sales=SALES), Retry), number
        ranking = restarted(ranking)
    assert data(scraped(ranking, 130, end=NO_END, sales=SALES))["completeness"] == "complete"
    assert isinstance(scraped(ranking, 131, end=NO_END), Retry), "the sales are still expected"
    scraped(ranking, 132, sales=SALES)
    assert isinstance(scraped(ranking, 133, end=NO_END, sales=SALES), Retry), "it has one after all"


def test_a_list_that_a_site_shows_now_and_then_is_not_expected() -> None:
    ranking = Ranking()
    for number in range(0, 120, 2):
        scraped(ranking, number, sales=SALES)
        scraped(ranking, number + 1)
    assert isinstance(scraped(ranking, 130), Done)


def test_a_partial_record_names_the_fields_that_are_broken_on_the_site() -> None:
    ranking = Ranking()
    deeds = grid(("Sale Date", "Sale Price", "Deed Type"), ("1/2/2020", "$5", "WD"))
    for number in range(40):
        scraped(ranking, number, sales=deeds)
    for number in range(100, 140):
        scraped(ranking, number, sales=SALES)
    whole = scraped(ranking, 150, sales=SALES)
    found = scraped(ranking, 151, end=NO_END, sales=SALES)
    assert isinstance(found, Retry)
    broken = data(whole)["unreadable"]
    assert "sales.instrument" in broken
    assert data(found.partial)["unreadable"] == broken


def test_what_is_taken_from_a_column_that_broke_is_unreadable_too() -> None:
    ranking = Ranking()
    for number in range(40):
        scraped(ranking, number, sales=SALES)
    for number in range(100, 140):
        scraped(ranking, number, sales=grid(("Sale Date", "Deed Type"), ("1/2/2020", "WD")))
    last = data(scraped(ranking, 150, sales=grid(("Sale Date", "Deed Type"), ("1/2/2020", "WD"))))
    assert {"sales.price", "last_sale_price"} <= set(last["unreadable"])
    assert "last_sale_date" not in last["unreadable"]
    assert (last["last_sale_date"], last["last_sale_price"]) == ("2020-01-02", None)


def scraped_from(ranking: Ranking, platform_name: str, number: int, body: str) -> Done:
    platform = county_platform(platform_name)
    assert platform is not None
    target = Target(parcel_id="", state="FL", county="invented")
    task = Task(task_id=f"t{number}", platform=platform_name, target=target)
    outcome = parse_ranked(platform, Page(body=body.encode()), task, ranking, NOW)
    done = outcome.partial if isinstance(outcome, Retry) else outcome
    assert isinstance(done, Done), outcome
    return done


def test_a_field_that_each_of_several_selectors_misses_is_unreadable_as_soon_as_it_is_broken() -> None:
    def record(number: int, label: str) -> dict[str, Any]:
        body = grizzly.page().replace("Site", label).replace("(67)", f"({number})")
        return data(scraped_from(ranking, "grizzly_gis", number, body))

    ranking = Ranking()
    for number in range(40):
        assert record(number, "Site")["situs_address"] == "12 ELM ST"
    records = [record(number, "Whereabouts") for number in range(40, 80)]
    assert {record["situs_address"] for record in records} == {None}
    assert "situs_address" not in records[0]["unreadable"]
    assert "situs_address" in records[-1]["unreadable"]


def test_each_row_of_a_list_says_that_a_column_is_no_longer_shown() -> None:
    def rows(number: int, column: str) -> list[Any]:
        cells = {"CaseNumber": f"2023-{number}", column: "$1,131.91"}
        done = scraped_from(ranking, "pioneer_taxdeed", number, lists.pioneer(**cells))
        return [done.data, *done.additional_records]

    ranking = Ranking()
    for number in range(40):
        rows(number, "OpeningBid")
    found = [row for number in range(40, 80) for row in rows(number, "Amount")]
    assert found[0]["unreadable"] == []
    assert "liens.opening_bid" in found[-1]["unreadable"]
    assert "liens.opening_bid" not in rows(90, "OpeningBid")[0]["unreadable"]
