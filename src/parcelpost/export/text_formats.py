"""CSV (UTF-8, RFC 4180) and JSONL: one file for each table."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from parcelpost.clock import iso
from parcelpost.export.columns import Kind
from parcelpost.export.tables import Parcel, Row, Table, list_items, rows

_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - some spreadsheets take these too


def escape_formula(text: str) -> str:
    """A cell that a spreadsheet takes as text: a page may hold `=HYPERLINK(...)` where an owner's name belongs."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


class CsvSink:
    def __init__(self, streams: Mapping[str, BinaryIO], tables: Sequence[Table], *, bom: bool, guard: bool) -> None:
        """`guard`: texts that a spreadsheet would take for a formula get a `'` in front."""
        self.notes: list[str] = []
        self._streams = streams
        text = escape_formula if guard else str
        self._cell_of: Mapping[Kind, Callable[[Any], str]] = {
            Kind.TEXT: text,
            Kind.TEXTS: text,
            Kind.WHOLE: str,
            Kind.NUMBER: "{:f}".format,
            Kind.MONEY: "{:f}".format,
            Kind.FLAG: lambda value: "true" if value else "false",
            Kind.DATE: str,
            Kind.MOMENT: iso,
        }
        for table in tables:
            names = [column.name for column in table.columns]
            streams[table.name].write((_BOM if bom else b"") + _csv_lines([names]))

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        cell_of = [self._cell_of[column.kind] for column in table.columns]
        made = [_csv_cells(row, cell_of) for row in rows(table, parcels)]
        self._streams[table.name].write(_csv_lines(made))
        return len(made)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def abandon(self) -> None:
        pass


def _csv_cells(row: Row, cell_of: Sequence[Callable[[Any], str]]) -> list[str]:
    return ["" if value is None else cell(value) for cell, value in zip(cell_of, row, strict=True)]


def _csv_lines(cells: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(cells)
    return text.getvalue().encode()


_encode_lines = msgspec.json.Encoder(decimal_format="number").encode_lines
_KEY_FIELDS = ("platform", "state", "county", "parcel_id")
_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""Control characters that JSON allows unescaped but a terminal would obey."""


def json_lines(lines: Sequence[Mapping[str, Any]]) -> bytes:
    text = _encode_lines(lines)
    if b"\x7f" in text or not text.isascii():
        text = _CONTROL.sub(_escape_control, text)
    return text


class JsonlSink:
    def __init__(self, streams: Mapping[str, BinaryIO]) -> None:
        self.notes: list[str] = []
        self._streams = streams

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        if table.name == "parcels":
            lines = [_parcel_line(parcel) for parcel in parcels]
        else:
            lines = [line for parcel in parcels for line in _list_lines(table, parcel)]
        self._streams[table.name].write(json_lines(lines))
        return len(lines)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def abandon(self) -> None:
        pass


def _parcel_line(parcel: Parcel) -> dict[str, Any]:
    return {
        **_parcel_key(parcel),
        "status": parcel.status,
        "error": parcel.error,
        "scraped_at": parcel.scraped_at,
        "stored_at": parcel.stored_at,
        "task_id": parcel.task_id,
        "record": _record_json(parcel),
    }


def _record_json(parcel: Parcel) -> Raw | str | None:
    data = parcel.data
    if data is None:
        return None
    # Between its tokens JSON may have line breaks; inside a text it has none.
    return Raw(data.replace(b"\n", b" ").replace(b"\r", b" ")) if parcel.is_readable else data.decode(errors="replace")


def _list_lines(table: Table, parcel: Parcel) -> list[dict[str, Any]]:
    name, scraped_at = table.noun.replace(" ", "_"), parcel.scraped_at
    return [
        {**_parcel_key(parcel), "position": position, "scraped_at": scraped_at, name: item}
        for position, item in enumerate(list_items(parcel, table.name), start=parcel.first_position)
    ]


def _parcel_key(parcel: Parcel) -> dict[str, str]:
    return dict(zip(_KEY_FIELDS, parcel.key, strict=True))


def _escape_control(match: re.Match[bytes]) -> bytes:
    return rb"\u%04x" % ord(match[0].decode())
