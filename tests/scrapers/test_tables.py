"""Columns are where their headings are, whatever spans what."""

from __future__ import annotations

import pytest

from parcelpost.model import Page
from parcelpost.scrapers.html import tables
from parcelpost.scrapers.html.document import Document
from parcelpost.scrapers.html.tables import Columns

COLUMNS = Columns({"date": ("Sale Date", "Date"), "price": ("Sale Price",)})


def rows(*lines: str) -> list[dict[str, str]]:
    body = f"<html><body><table>{''.join(f'<tr>{line}</tr>' for line in lines)}</table></body></html>"
    document = Document.of(Page(body=body.encode()))
    assert document is not None
    table = COLUMNS.table(next(document.root.iter("table")))
    return [{name: piece.text for name, piece in row.items()} for row in table.rows] if table is not None else []


@pytest.mark.parametrize(
    "heading",
    [
        "<td>Grantor</td><td>Sale Date</td><td>Sale Price</td>",
        "<th>Grantor</th><th>SALE DATE:</th><th>Sale&nbsp;Price *</th>",
        "<td colspan=3>Sales</td></tr><tr><td>Grantor</td><td>Date</td><td>Sale Price</td>",
    ],
)
def test_headings_are_found_in_any_case_and_below_a_title(heading: str) -> None:
    assert rows(heading, "<td>MOSS</td><td>1/2/2020</td><td>$5</td>") == [{"date": "1/2/2020", "price": "$5"}]


def test_a_cell_that_spans_columns_shifts_the_next_ones() -> None:
    heading = "<td colspan=2>Parties</td><td>Sale Date</td><td>Sale Price</td>"
    assert rows(heading, "<td>A</td><td>B</td><td>1/2/2020</td><td>$5</td>") == [{"date": "1/2/2020", "price": "$5"}]


def test_a_cell_that_spans_rows_keeps_its_column_in_those_below() -> None:
    heading = "<td>Year</td><td>Sale Date</td><td>Note</td><td>Sale Price</td>"
    first = "<td rowspan=2>2020</td><td>1/2/2020</td><td rowspan=3>none</td><td>$5</td>"
    found = rows(heading, first, "<td>3/4/2020</td><td>$6</td>", "<td>2021</td><td>5/6/2021</td><td>$7</td>")
    assert found == [
        {"date": "1/2/2020", "price": "$5"},
        {"date": "3/4/2020", "price": "$6"},
        {"date": "5/6/2021", "price": "$7"},
    ]


def test_a_row_that_is_one_wide_note_is_no_row_of_values() -> None:
    heading = "<td>Sale Date</td><td>Sale Price</td>"
    assert rows(heading, "<td colspan=2>N O N E</td>") == []


def test_repeated_headings_and_empty_rows_are_left_out() -> None:
    heading = "<td>Sale Date</td><td>Sale Price</td>"
    assert rows(heading, "<td></td><td>&nbsp;</td>", heading, "<td>1/2/2020</td><td>$5</td>") == [
        {"date": "1/2/2020", "price": "$5"}
    ]


def test_a_table_with_one_of_the_headings_is_another_table() -> None:
    assert rows("<td>Date</td><td>Permit</td>", "<td>1/2/2020</td><td>ROOF</td>") == []


@pytest.mark.parametrize("span", ["0", "-1", "x", "99999", "\u0665"])
def test_spans_that_are_none_count_as_one(span: str) -> None:
    heading = f'<td rowspan="{span}" colspan="{span}">Sale Date</td><td>Sale Price</td>'
    assert rows(heading, "<td>1/2/2020</td><td>$5</td>") == [{"date": "1/2/2020", "price": "$5"}]


def of(body: str) -> Document:
    document = Document.of(Page(body=f"<html><body>{body}</body></html>".encode()))
    assert document is not None
    return document


def test_a_heading_that_fills_a_table_has_the_table_looked_at_once() -> None:
    """Looked at for each cell, it would take minutes."""
    document = of(f"<table>{'<tr>' + '<td>Date</td>' * 20_000 + '</tr>'}</table>")
    assert list(COLUMNS.headed(document)) == []


def test_a_heading_that_fills_a_row_has_the_row_below_looked_at_once() -> None:
    cells = 1_000
    document = of(f"<table><tr>{'<td>Date</td>' * cells}</tr><tr>{'<td>1</td>' * cells}</tr></table>")
    assert sum(1 for _ in tables.below(document, "Date")) == cells
