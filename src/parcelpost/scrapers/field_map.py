"""Rows of somebody's table -> records, by a field map: which column says what, and how it is written.

A map is data. Those that come with the program are in `field_maps/`; an operator may add others.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import cache
from importlib.resources import files
from typing import Any

from msgspec import Struct

from parcelpost.errors import InvalidSettings
from parcelpost.model import Json
from parcelpost.scrapers import json_values, values
from parcelpost.scrapers.addresses import owners_and_mailing
from parcelpost.scrapers.csv_rows import plain
from parcelpost.scrapers.record import LIEN, Lien, Record, Sale

Row = Mapping[str, Json]
"""By column names as `csv_rows.plain` writes them."""

_MOST_ROWS_LOOKED_AT = 1_000
_BOROUGHS = {"1": "NEW YORK", "2": "BRONX", "3": "BROOKLYN", "4": "QUEENS", "5": "STATEN ISLAND"}


class Source(Struct, frozen=True):
    """Where one field's value comes from."""

    way: str
    columns: tuple[str, ...]

    def value(self, row: Row) -> Any:
        return _WAYS[self.way]([row.get(column) for column in self.columns])


class FieldMap(Struct, frozen=True, kw_only=True):
    name: str
    has: frozenset[str]
    """Columns by which a table of this kind is recognized."""
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
        column = plain(name.rpartition(".")[2])
        known = found.get(column)
        found[column] = value if known in (None, "", value) else known if value in (None, "") else None
    return found


def columns_of(rows: Sequence[Row]) -> set[str]:
    """Of all of them: some servers leave out what is empty."""
    return {name for row in rows[:_MOST_ROWS_LOOKED_AT] for name in row}


def that_fits(columns: Iterable[str], maps: Iterable[FieldMap] | None = None) -> FieldMap | None:
    """The map all of whose marks are among these columns; of several the one with the most."""
    known = {plain(column) for column in columns}
    fitting = [one for one in (shipped() if maps is None else maps) if one.has <= known]
    return max(fitting, key=lambda one: len(one.has), default=None)


@cache
def shipped() -> tuple[FieldMap, ...]:
    folder = files("parcelpost.scrapers") / "field_maps"
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=lambda one: one.name)
    return tuple(parse(one.name.removesuffix(".toml"), one.read_text("utf-8")) for one in found)


def parse(name: str, text: str) -> FieldMap:
    """Raises InvalidSettings that names the map and what is wrong with it."""
    try:
        given = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise InvalidSettings(f"field map {name} is no TOML: {error}") from None
    has, fields = given.get("has"), given.get("fields")
    if not isinstance(has, list) or not has or not isinstance(fields, dict) or "parcel_id" not in fields:
        raise InvalidSettings(
            f"field map {name} needs 'has', a list of columns, and [fields] with a parcel_id",
            hint="see docs/new-platform.md for an example",
        )
    return FieldMap(
        name=name,
        has=frozenset(plain(str(column)) for column in has),
        kind=str(given.get("kind", "parcel")),
        fields={
            field: _source(name, field, one, (*Record.__struct_fields__, "mailing")) for field, one in fields.items()
        },
        lien={field: _source(name, field, one, Lien.__struct_fields__) for field, one in given.get("lien", {}).items()},
    )


def _source(name: str, field: str, given: Any, known: Sequence[str]) -> Source:
    if field not in known:
        raise InvalidSettings(f"field map {name}: {field} is no field of a record")
    if not isinstance(given, dict) or len(given) != 1:
        raise InvalidSettings(f'field map {name}: {field} must be written as {{ text = ["COLUMN"] }}')
    way, columns = next(iter(given.items()))
    if way not in _WAYS or not isinstance(columns, list) or not columns:
        raise InvalidSettings(
            f"field map {name}: {field} is read by {way!r}", hint=f"known are {', '.join(sorted(_WAYS))}"
        )
    return Source(way, tuple(plain(str(column)) for column in columns))


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


_WAYS: Mapping[str, Callable[[list[Json]], Any]] = {
    "text": _first(json_values.words),
    "texts": _texts,
    "lines": _texts,
    "joined": _joined,
    "money": _first(json_values.money),
    "some": _first(json_values.some),
    "year": _first(json_values.year),
    "day": _first(json_values.day),
    "whole": _first(lambda one: values.whole(json_values.words(one))),
    "flag": _first(lambda one: values.yes_no(json_values.words(one))),
    "zip": _first(_zip),
    "bbl": _bbl,
    "borough": lambda given: _BOROUGHS.get(json_values.words(given[0]) or ""),
    "notice": _notice,
}
