"""Rows of a table of sales, as most sites show them."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from parcelpost.scrapers import tables, values
from parcelpost.scrapers.record import Sale


def sales_of(rows: Iterable[tables.Row]) -> Iterator[Sale]:
    """Those with a date; a `+` before it opens details. A column that a site does not have is null."""
    for row in rows:
        date = values.day(tables.text(row, "date").lstrip("+ "))
        if date is None:
            continue
        yield Sale(
            date=date,
            price=values.money(tables.text(row, "price")),
            book_page=values.words(tables.text(row, "book_page")),
            instrument=values.words(tables.text(row, "instrument")),
            qualified=values.words(tables.text(row, "qualified")),
            vacant_improved=values.words(tables.text(row, "vacant_improved")),
        )
