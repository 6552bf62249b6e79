"""CSV: UTF-8, one file for each table, lines that end with CR LF (RFC 4180)."""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, BinaryIO

from parcelpost.clock import iso
from parcelpost.export.columns import Kind
from parcelpost.export.tables import Parcel, Row, Table, rows

_BOM = b"\xef\xbb\xbf"
_NUMBER = re.compile(r"[+-]?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
_FORMULA = ("=", "+", "-", "@", "\t", "\r", "\n", "＝", "＋", "－", "＠")  # noqa: RUF001 - some spreadsheets take these too


def guarded(text: str) -> str:
    """A cell that a spreadsheet takes as text: a page may hold `=HYPERLINK(...)` where an owner's name belongs."""
    return f"'{text}" if text.startswith(_FORMULA) and not _NUMBER.fullmatch(text) else text


class CsvSink:
    def __init__(self, streams: Mapping[str, BinaryIO], tables: Sequence[Table], *, bom: bool, guard: bool) -> None:
        """`guard`: texts that a spreadsheet would take for a formula get a `'` in front."""
        self.notes: list[str] = []
        self._streams = streams
        text = guarded if guard else str
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
            streams[table.name].write((_BOM if bom else b"") + _lines([names]))

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        cell_of = [self._cell_of[column.kind] for column in table.columns]
        made = [_cells(row, cell_of) for row in rows(table, parcels)]
        self._streams[table.name].write(_lines(made))
        return len(made)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def abandon(self) -> None:
        pass


def _cells(row: Row, cell_of: Sequence[Callable[[Any], str]]) -> list[str]:
    return ["" if value is None else cell(value) for cell, value in zip(cell_of, row, strict=True)]


def _lines(cells: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(cells)
    return text.getvalue().encode()
