"""The tables: parcels, and each of a record's lists with the parcel's key beside every row."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence, Set
from datetime import datetime
from decimal import Decimal
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.export import columns
from parcelpost.export.columns import CONVERTERS, Column, Value, clean_text
from parcelpost.model import OutboxEntry

Row = tuple[Value, ...]

_decode = msgspec.json.Decoder(dict[str, Any], float_hook=Decimal).decode
_encode = msgspec.json.Encoder(decimal_format="number").encode


class Parcel(Struct, frozen=True, kw_only=True, gc=False):
    """What is written of a result, and its record's fields with numbers as exact as they were written."""

    key: tuple[str, str, str, str]
    """Platform, state, county, parcel id."""
    task_id: str
    status: str
    """record, not_found, failed or expired."""
    error: str | None
    scraped_at: datetime
    stored_at: datetime
    data: bytes | None
    fields: Mapping[str, Any]
    is_readable: bool
    """False: the record is no JSON object."""
    first_position: int = 1
    """Position of the first item in each of its lists."""


def read_parcel(entry: OutboxEntry) -> Parcel:
    if entry.data is not None:
        status = "record"
    elif entry.success:
        status = "not_found"
    else:
        status = "expired" if entry.status == "expired" else "failed"
    fields = {} if entry.data is None else read_record(entry.data)
    return Parcel(
        key=(entry.platform, entry.state, entry.county, entry.parcel_id),
        task_id=entry.task_id,
        status=status,
        error=entry.error_text,
        scraped_at=entry.scraped_at,
        stored_at=entry.created_at,
        data=entry.data,
        fields=fields or {},
        is_readable=fields is not None,
    )


def read_record(data: bytes) -> Mapping[str, Any] | None:
    """Returns a record's fields, None if it is not a JSON object."""
    try:
        fields: Mapping[str, Any] = _decode(data)
    except (ValueError, RecursionError):
        return None
    return fields


class Table(Struct, frozen=True):
    name: str
    noun: str
    """What a row is."""
    columns: tuple[Column, ...]
    rows: Callable[[Parcel], list[Row]]


def rows(table: Table, parcels: Sequence[Parcel]) -> Iterator[Row]:
    for parcel in parcels:
        yield from table.rows(parcel)


def list_items(parcel: Parcel, name: str) -> list[Mapping[str, Any]]:
    """Of one of the record's lists."""
    items = parcel.fields.get(name)
    return [item for item in items if isinstance(item, dict)] if isinstance(items, list) else []


_Converters = tuple[tuple[str, Callable[[Any], Value]], ...]
"""One converter per column."""


def _converters(own: tuple[Column, ...]) -> _Converters:
    return tuple((column.name, CONVERTERS[column.kind]) for column in own)


def _list_table(name: str, noun: str, own: tuple[Column, ...]) -> Table:
    fits, known = _converters(own), frozenset(column.name for column in own)

    def rows_of(parcel: Parcel) -> list[Row]:
        gaps, _ = _cells(_GAP_CONVERTERS, parcel.fields, parcel.fields.keys())
        return [
            (*map(clean_text, parcel.key), position, *cells, *gaps, parcel.scraped_at, _json(rest))
            for position, item in enumerate(list_items(parcel, name), start=parcel.first_position)
            for cells, rest in (_cells(fits, item, known),)
        ]

    first, last = (*columns.KEY_COLUMNS, columns.POSITION_COLUMN), (columns.SCRAPED_AT_COLUMN, columns.OTHER_COLUMN)
    return Table(name, noun, (*first, *own, *columns.GAP_COLUMNS, *last), rows_of)


_LISTS = {
    "liens": ("lien", columns.LIEN_COLUMNS),
    "sales": ("sale", columns.SALE_COLUMNS),
    "tax_bills": ("tax bill", columns.TAX_BILL_COLUMNS),
    "valuations": ("valuation", columns.VALUATION_COLUMNS),
    "buildings": ("building", columns.BUILDING_COLUMNS),
}
_GAP_CONVERTERS = _converters(columns.GAP_COLUMNS)
_PARCEL_CONVERTERS = _converters(columns.PARCEL_COLUMNS)
_LIEN_FIELDS = frozenset(column.name for column in columns.LIEN_COLUMNS)
_OF_THE_KEY = frozenset({"platform", "state", "county", "parcel_id", "scraped_at"})
_KNOWN = frozenset({*(column.name for column in columns.PARCEL_COLUMNS), *_OF_THE_KEY, *_LISTS})


def _parcel_rows(parcel: Parcel) -> list[Row]:
    fields = parcel.fields
    known = _KNOWN | _LIEN_FIELDS if fields.get("record_kind") == "lien" else _KNOWN
    cells, rest = _cells(_PARCEL_CONVERTERS, fields, known)
    for name in _LISTS:
        rest |= _not_in_rows(name, fields.get(name))
    shown = fields.get("parcel_id")
    return [
        (
            *map(clean_text, parcel.key),
            *cells,
            clean_text(shown) if isinstance(shown, str) else None,
            len(list_items(parcel, "liens")),
            parcel.status,
            None if parcel.error is None else clean_text(parcel.error),
            parcel.scraped_at,
            parcel.stored_at,
            clean_text(parcel.task_id),
            _json(rest) if parcel.is_readable else clean_text((parcel.data or b"").decode(errors="replace")),
        )
    ]


def _cells(fits: _Converters, fields: Mapping[str, Any], known: Set[str]) -> tuple[list[Value], dict[str, Any]]:
    """One for each column, and what they do not hold."""
    rest = {name: fields[name] for name in fields.keys() - known}
    cells: list[Value] = []
    for name, fit in fits:
        value = fields.get(name)
        if value is not None:
            try:
                value = fit(value)
            except ValueError:
                rest[name] = value
                value = None
        cells.append(value)
    return cells, rest


def _not_in_rows(name: str, value: Any) -> dict[str, Any]:
    """What stands in place of a list, or in it in place of an object."""
    if value is None:
        return {}
    bad = [item for item in value if not isinstance(item, dict)] if isinstance(value, list) else value
    return {name: bad} if bad != [] else {}


def _json(rest: Mapping[str, Any]) -> str | None:
    return clean_text(_encode(rest).decode()) if rest else None


PARCELS = Table(
    "parcels",
    "parcel",
    (
        *columns.KEY_COLUMNS,
        *columns.PARCEL_COLUMNS,
        columns.SHOWN_ID_COLUMN,
        *columns.RESULT_COLUMNS,
        columns.OTHER_COLUMN,
    ),
    _parcel_rows,
)


def _change_rows(parcel: Parcel) -> list[Row]:
    return [
        (
            *map(clean_text, parcel.key),
            clean_text(item["kind"]),
            clean_text(item["subject"]),
            _json(item["before"]),
            _json(item["after"]),
            parcel.scraped_at,
            parcel.stored_at,
            clean_text(parcel.task_id),
        )
        for item in list_items(parcel, "changes")
    ]


CHANGES = Table("changes", "change", (*columns.KEY_COLUMNS, *columns.CHANGE_COLUMNS), _change_rows)
"""What changed, in place of records; see `export.changes`."""
TABLES = {"parcels": PARCELS, **{name: _list_table(name, *of) for name, of in _LISTS.items()}}
"""All tables by name."""
