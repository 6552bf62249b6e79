"""Excel: a sheet for each table, with further sheets where one is full."""

from __future__ import annotations

import traceback
from collections.abc import Mapping, Sequence
from datetime import date
from pathlib import Path
from typing import Any, BinaryIO

import xlsxwriter

from parcelpost.export.columns import KEY_COLUMNS, Kind
from parcelpost.export.tables import Parcel, Row, Table, rows

MOST_ROWS = 1_048_576
"""Excel's limit on rows per sheet, including the heading."""
MOST_CHARS = 32_767
"""Excel's limit per cell, in UTF-16 units: some characters count twice."""
_CUT = " ... (cut)"
_FIRST_DATE = date(1900, 3, 1)
"""Excel knows no day before 1900, and other programs count the two months after that differently."""

_FORMATS: Mapping[Kind, str] = {
    Kind.TEXT: "@",
    Kind.TEXTS: "@",
    Kind.WHOLE: "0",
    Kind.NUMBER: "General",
    Kind.MONEY: "#,##0.00",
    Kind.FLAG: "General",
    Kind.DATE: "yyyy-mm-dd",
    Kind.MOMENT: "yyyy-mm-dd hh:mm:ss",
}
_LEFT: Mapping[str, Any] = {"align": "left", "indent": 1}  # apart from a number before it
_RIGHT: Mapping[str, Any] = {"align": "right"}
_NUMBERS = (Kind.WHOLE, Kind.NUMBER, Kind.MONEY)
_WIDTHS: Mapping[Kind, int] = {
    Kind.TEXT: 18,
    Kind.TEXTS: 28,
    Kind.WHOLE: 10,
    Kind.NUMBER: 12,
    Kind.MONEY: 15,
    Kind.FLAG: 11,
    Kind.DATE: 12,
    Kind.MOMENT: 20,
}
_OWN_WIDTHS = {"state": 7, "situs_address": 28, "legal_description": 40}


class ExcelSink:
    def __init__(self, stream: BinaryIO, folder: Path, tables: Sequence[Table], *, most_rows: int = MOST_ROWS) -> None:
        """Rows wait in files in `folder`, which are gone when it is closed."""
        self.notes: list[str] = []
        options = {
            "constant_memory": True,
            "tmpdir": str(folder),
            "strings_to_formulas": False,
            "strings_to_numbers": False,
            "strings_to_urls": False,
        }
        self._book = xlsxwriter.Workbook(stream, options)
        self._book.use_zip64()
        self._sheets = {table.name: _Sheets(self._book, table, most_rows) for table in tables}

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        sheets, made = self._sheets[table.name], 0
        for row in rows(table, parcels):
            sheets.write(row)
            made += 1
        return made

    def close(self) -> None:
        for sheets in self._sheets.values():
            sheets.finish()
        try:
            self._book.close()
        except BaseException as error:
            traceback.clear_frames(error.__traceback__)  # a zip file is among them that is not closed
            raise
        cut = sum(sheets.cut for sheets in self._sheets.values())
        if cut:
            self.notes.append(f"cells truncated to Excel's limit of {MOST_CHARS:,} characters: {cut:,}")

    def abandon(self) -> None:
        for sheet in self._book.worksheets():
            if rows := getattr(sheet, "row_data_fh", None):  # it has no public way to be thrown away
                rows.close()


class _Sheets:
    """Of one table."""

    def __init__(self, book: Any, table: Table, most_rows: int) -> None:
        self.cut = 0
        self._book = book
        self._table = table
        self._most_rows = most_rows
        looks = {
            kind: {"num_format": form, **(_RIGHT if kind in _NUMBERS else _LEFT)} for kind, form in _FORMATS.items()
        }
        heading = {"bold": True, "bg_color": "#DDE6F0", "bottom": 1}
        self._headings = {kind: book.add_format({**looks[kind], **heading}) for kind in Kind}
        by_kind = {kind: book.add_format(look) for kind, look in looks.items()}
        self._formats = [by_kind[column.kind] for column in table.columns]
        self._kinds = [column.kind for column in table.columns]
        self._count = 0
        self._begin()

    def write(self, row: Row) -> None:
        if self._next == self._most_rows:
            self.finish()
            self._begin()
        for place, value in enumerate(row):
            if value is not None:
                self._cell(place, value)
        self._next += 1

    def finish(self) -> None:
        """The sheet is full, or the table ends."""
        self._sheet.autofilter(0, 0, self._next - 1, len(self._kinds) - 1)

    def _begin(self) -> None:
        self._count += 1
        name = self._table.name if self._count == 1 else f"{self._table.name} {self._count}"
        self._sheet = self._book.add_worksheet(name)
        self._sheet.freeze_panes(1, len(KEY_COLUMNS))
        self._sheet.set_landscape()
        self._sheet.repeat_rows(0)
        self._sheet.ignore_errors(
            {"number_stored_as_text": f"A1:XFD{MOST_ROWS}"}
        )  # parcel numbers are meant to be text
        for place, (title, kind) in enumerate(self._table.columns):
            width = max(_OWN_WIDTHS.get(title, _WIDTHS[kind]), len(title) + 3)
            self._sheet.set_column(place, place, width)
            self._sheet.write_string(0, place, title, self._headings[kind])
        self._next = 1

    def _cell(self, place: int, value: Any) -> None:
        sheet, row, kind, look = self._sheet, self._next, self._kinds[place], self._formats[place]
        if kind in (Kind.TEXT, Kind.TEXTS):
            sheet.write_string(row, place, self._short(value), look)
        elif kind is Kind.FLAG:
            sheet.write_boolean(row, place, value, look)
        elif kind is Kind.DATE and value < _FIRST_DATE:
            sheet.write_string(row, place, value.isoformat(), look)
        elif kind is Kind.DATE:
            sheet.write_datetime(row, place, value, look)
        elif kind is Kind.MOMENT:
            sheet.write_datetime(row, place, value.replace(tzinfo=None), look)
        else:
            sheet.write_number(row, place, float(value), look)

    def _short(self, text: str) -> str:
        if len(text) * 2 <= MOST_CHARS or len(units := text.encode("utf-16-le")) <= MOST_CHARS * 2:
            return text
        self.cut += 1
        return units[: (MOST_CHARS - len(_CUT)) * 2].decode("utf-16-le", errors="ignore") + _CUT
