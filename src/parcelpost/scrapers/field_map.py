"""Rows of somebody's table -> records, by a field map: which column says what, and how it is written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from decimal import Decimal
from typing import Any

from msgspec import Struct

from parcelpost.model import Json
from parcelpost.scrapers import json_values, values
from parcelpost.scrapers.addresses import owners_and_mailing
from parcelpost.scrapers.csv_rows import plain
from parcelpost.scrapers.record import LIEN, Lien, Record, Sale

Row = Mapping[str, Json]
"""By column names as `column_name` writes them."""

_MOST_ROWS_LOOKED_AT = 1_000
_BOROUGHS = {"1": "NEW YORK", "2": "BRONX", "3": "BROOKLYN", "4": "QUEENS", "5": "STATEN ISLAND"}


class Source(Struct, frozen=True):
    """Where one field's value comes from."""

    way: str
    columns: tuple[str, ...]

    def value(self, row: Row) -> Any:
        return WAYS[self.way].read([row.get(column) for column in self.columns])


class FieldMap(Struct, frozen=True, kw_only=True):
    name: str
    has: frozenset[str]
    """Columns by which a table of this kind is recognized; none: only where a county's entry names the map."""
    kind: str
    fields: Mapping[str, Source]
    lien: Mapping[str, Source]

    def record(self, row: Row) -> Record | None:
        """None: the row names no parcel."""
        found = {name: source.value(row) for name, source in self.fields.items()}
        mailing = found.pop("mailing", None)
        if found["parcel_id"] is None:
            return None
        record = Record(**{name: value for name, value in found.items() if value is not None})
        if mailing:
            _take_mailing(record, mailing)
        if record.last_sale_date or record.last_sale_price is not None:
            record.sales = [Sale(date=record.last_sale_date, price=record.last_sale_price)]
        if self.kind == LIEN:
            record.record_kind = LIEN
            record.liens = [Lien(**{name: source.value(row) for name, source in self.lien.items()})]
        return record


def records(field_map: FieldMap, rows: Iterable[Row]) -> list[Record]:
    return [record for row in rows if (record := field_map.record(row)) is not None]


def plain_row(row: Mapping[str, Json]) -> Row:
    """By the columns' own names: of `DB.OWNER.TABLE.FIELD` the last. Tables that contradict each other say nothing."""
    found: dict[str, Json] = {}
    for name, value in row.items():
        column = column_name(name)
        known = found.get(column)
        found[column] = value if known in (None, "", value) else known if value in (None, "") else None
    return found


def column_name(given: str) -> str:
    return plain(given.rpartition(".")[2])


def columns_of(rows: Sequence[Row]) -> set[str]:
    """Of all of them: some servers leave out what is empty."""
    return {name for row in rows[:_MOST_ROWS_LOOKED_AT] for name in row}


def _take_mailing(record: Record, lines: list[str]) -> None:
    _, record.mailing_lines, place = owners_and_mailing(lines, names=0)
    if place is not None and record.mailing_city is None:
        record.mailing_city, record.mailing_state, record.mailing_zip = place.city, place.state, place.zip


def _first(read: Callable[[Json], Any]) -> Callable[[list[Json]], Any]:
    def value(given: list[Json]) -> Any:
        return next((found for one in given if (found := read(one)) is not None), None)

    return value


def _texts(given: list[Json]) -> list[str]:
    return [text for one in given if (text := json_values.words(one)) is not None]


def _joined(given: list[Json]) -> str | None:
    return values.words(" ".join(_texts(given)))


def _bbl(given: list[Json]) -> str | None:
    """Borough, block and lot of New York City in ten digits."""
    parts = [values.whole(json_values.words(one)) for one in given]
    if len(parts) != 3 or any(part is None for part in parts):
        return None
    return f"{parts[0]}{parts[1]:05}{parts[2]:04}"


def _notice(given: list[Json]) -> str | None:
    text = (json_values.words(given[0]) or "").lower()
    return "noticed" if "notice" in text else "sold" if "sale" in text else text or None


def _zip(given: Json) -> str | None:
    text = json_values.words(given)
    if text and text.isdigit() and len(text) in (8, 9):
        text = f"{text.zfill(9)[:5]}-{text.zfill(9)[5:]}"
    return text.zfill(5) if text and text.isdigit() and len(text) == 4 else text


class Way(Struct, frozen=True):
    """How columns are read, and what comes of it."""

    read: Callable[[list[Json]], Any]
    gives: Any
    columns: int = 0
    """How many it needs; 0: any number."""


WAYS: Mapping[str, Way] = {
    "text": Way(_first(json_values.words), str),
    "texts": Way(_texts, list[str]),
    "lines": Way(_texts, list[str]),
    "joined": Way(_joined, str),
    "money": Way(_first(json_values.money), Decimal),
    "some": Way(_first(json_values.some), Decimal),
    "year": Way(_first(json_values.year), int),
    "day": Way(_first(json_values.day), str),
    "whole": Way(_first(lambda one: values.whole(json_values.words(one))), int),
    "flag": Way(_first(lambda one: values.yes_no(json_values.words(one))), bool),
    "zip": Way(_first(_zip), str),
    "bbl": Way(_bbl, str, columns=3),
    "borough": Way(lambda given: _BOROUGHS.get(json_values.words(given[0]) or ""), str, columns=1),
    "notice": Way(_notice, str, columns=1),
}
