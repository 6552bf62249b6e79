"""What a page lists in tables is found as its fields are: every try counts, and so does every column."""

from __future__ import annotations

import pytest

from parcelpost.model import Broken, Page
from parcelpost.scrapers.html.document import Document
from parcelpost.scrapers.html.extract import Extractor, section
from parcelpost.scrapers.html.selectors import Id, Titled
from parcelpost.scrapers.html.tables import Columns, Headed
from parcelpost.scrapers.learning.ranking import Ranking
from tests.scrapers.reading import grid

COLUMNS = Columns({"date": ("Sale Date", "Date"), "price": ("Sale Price", "Price"), "deed": ("Deed",)}, "price")
BY_HEADINGS = "columns Sale Date, Sale Price, Deed"
SALES = section(
    "sales",
    COLUMNS,
    Id("sales"),
    Titled(("sales",), exclude=("area",)),
    Headed(COLUMNS),
    is_named_empty=lambda document: bool(document.labelled("No data: sales")),
)
HEADINGS, SALE = ("Date", "Sale Price", "Deed"), ("1/2/2020", "$5", "WD")
TABLE = grid(HEADINGS, SALE)
SITE = ("made_up", "FL", "columbia")


def named(table: str) -> str:
    return f"<div id=sales>{table}</div>"


def titled(title: str, table: str) -> str:
    return f"<section><header><div class=title>{title}</div></header>{table}</section>"


def look(page: str, ranking: Ranking | None = None) -> Extractor:
    document = Document.of(Page(body=f"<html><body>{page}</body></html>".encode()))
    assert document is not None
    return Extractor(document, ranking.order(SITE)) if ranking is not None else Extractor(document)


def tried(page: str) -> list[tuple[str, str, bool]]:
    shown = look(page)
    shown.rows(SALES)
    return [(one.field, one.selector.expression, one.success) for one in shown.selector_results]


def texts(page: str) -> list[dict[str, str]] | None:
    rows = look(page).rows(SALES)
    return [{name: piece.text for name, piece in row.items()} for row in rows] if rows is not None else None


COLUMNS_FOUND = [("sales.date", "Sale Date", True), ("sales.price", "Sale Price", True), ("sales.deed", "Deed", True)]
NOT_NAMED, NOT_TITLED = ("sales", "#sales", False), ("sales", "section sales", False)


@pytest.mark.parametrize(
    ("page", "ways"),
    [
        (named(TABLE), [("sales", "#sales", True)]),
        (titled("Recent Sales", TABLE), [NOT_NAMED, ("sales", "section sales", True)]),
        (titled("Area Sales", "") + TABLE, [NOT_NAMED, NOT_TITLED, ("sales", BY_HEADINGS, True)]),
    ],
)
def test_by_its_id_its_title_or_its_headings(page: str, ways: list[tuple[str, str, bool]]) -> None:
    assert texts(page) == [{"date": "1/2/2020", "price": "$5", "deed": "WD"}]
    assert tried(page) == ways + COLUMNS_FOUND


def test_a_table_of_other_things_is_none_of_these() -> None:
    permits = grid(("Date", "Deed"), ("1/2/2020", "WD"))
    assert texts(permits) is None
    assert tried(permits) == [NOT_NAMED, NOT_TITLED, ("sales", BY_HEADINGS, False)]


def test_a_column_that_is_not_there_has_failed() -> None:
    page = named(grid(("Date", "Sale Price", "Kind"), SALE))
    assert tried(page) == [("sales", "#sales", True), *COLUMNS_FOUND[:2], ("sales.deed", "Deed", False)]


@pytest.mark.parametrize(
    "page",
    [
        named(grid(HEADINGS)),
        grid(HEADINGS),
        named("<p>There are no sales.</p>"),
        named(grid(("N O N E",))),
        titled("Sales", "<p>none</p>"),
        "<p>No data: Sales</p>",
    ],
)
def test_what_lists_nothing_has_failed_nobody(page: str) -> None:
    assert texts(page) == []
    assert tried(page) == []


def test_a_frame_that_is_left_empty_does_not_hide_what_stands_elsewhere() -> None:
    assert texts(named("") + TABLE) == [{"date": "1/2/2020", "price": "$5", "deed": "WD"}]


def test_the_tables_of_a_part_are_read_one_after_the_other() -> None:
    page = named(TABLE + "<p>older</p>" + grid(("Date", "Price"), ("3/4/1999", "$1")))
    assert texts(page) == [{"date": "1/2/2020", "price": "$5", "deed": "WD"}, {"date": "3/4/1999", "price": "$1"}]


def scraped(ranking: Ranking, page: str, times: int) -> None:
    for number in range(times):
        shown = look(page, ranking)
        shown.rows(SALES)
        ranking.note(SITE, shown.selector_results, f"task-{number}")


def broken(after: str) -> dict[str, Broken]:
    """What is told of a site whose pages looked well before they looked so."""
    ranking = Ranking()
    scraped(ranking, named(TABLE), 60)
    assert list(ranking.broken()) == []
    scraped(ranking, after, 30)
    return {one.field: one for one in ranking.broken()}


def test_a_table_that_is_gone_is_told() -> None:
    (one,) = broken(named(grid(("When", "How much"), ("1/2/2020", "$5")))).values()
    assert (one.field, one.found_otherwise, one.example) == ("sales", False, "task-29")
    assert "css #sales" in one.failing


def test_a_column_that_is_gone_is_told() -> None:
    (one,) = broken(named(grid(("Date", "How much", "Deed"), SALE))).values()
    assert (one.field, one.found_otherwise, one.failing) == ("sales.price", False, ("label Sale Price",))


def test_a_table_that_is_found_by_its_headings_is_told_as_found_another_way() -> None:
    (one,) = broken(TABLE).values()
    assert (one.field, one.found_otherwise, one.failing) == ("sales", True, ("css #sales",))


def test_any_number_of_parcels_without_a_sale_breaks_nothing() -> None:
    assert broken(named(grid(HEADINGS))) == {}


def test_the_way_that_works_is_tried_first() -> None:
    ranking = Ranking()
    scraped(ranking, named(TABLE), 60)
    scraped(ranking, TABLE, 30)
    shown = look(TABLE, ranking)
    shown.rows(SALES)
    assert shown.selector_results[0].selector.expression == BY_HEADINGS
