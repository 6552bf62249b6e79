"""Mutations of CSV files. Each returns the mutated page, or None if it does not apply."""

from __future__ import annotations

import csv
import html
from collections.abc import Callable, Sequence
from datetime import date
from io import StringIO
from random import Random

from bench.mutate.responses import IS_DATE, RENAMED, TROUBLE, WORDS, kind, kind_of, other_digits


class Sheet:
    def __init__(self, body: bytes, texts: Sequence[str], chance: Random, parcel_id: str = "") -> None:
        self.rows = list(csv.reader(StringIO(body.decode("utf-8-sig"), newline="")))
        self.chance = chance

    def bytes(self, delimiter: str = ",", line_end: str = "\r\n") -> bytes:
        file = StringIO(newline="")
        csv.writer(file, delimiter=delimiter, lineterminator=line_end).writerows(self.rows)
        return file.getvalue().encode()

    def row(self) -> int:
        return self.chance.randrange(1, len(self.rows))

    def column(self) -> int:
        return self.chance.randrange(len(self.rows[0]))


def sheet_cut(body: bytes, sheet: Sheet) -> bytes | None:
    """Between two cells: a number that is cut off is another number."""
    return body[: body.rfind(b",", 0, int(len(body) * sheet.chance.uniform(0.05, 0.98)))]


def sheet_cut_and_ended(body: bytes, sheet: Sheet) -> bytes | None:
    return body[: body.rfind(b",", 0, int(len(body) * sheet.chance.uniform(0.05, 0.98)))] + b"\n"


def heading_renamed(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[0][sheet.column()] = RENAMED
    return sheet.bytes()


def heading_emptied(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[0][sheet.column()] = ""
    return sheet.bytes()


def headings_dropped(body: bytes, sheet: Sheet) -> bytes | None:
    del sheet.rows[0]
    return sheet.bytes()


def headings_in_words(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[0] = [name.replace("_", " ").title() for name in sheet.rows[0]]
    return sheet.bytes()


def headings_repeated(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows.insert(sheet.row(), list(sheet.rows[0]))
    return sheet.bytes()


def column_dropped(body: bytes, sheet: Sheet) -> bytes | None:
    at = sheet.column()
    for row in sheet.rows:
        del row[at : at + 1]
    return sheet.bytes()


def column_added(body: bytes, sheet: Sheet) -> bytes | None:
    at = sheet.column()
    for number, row in enumerate(sheet.rows):
        row.insert(at, "surveyor" if number == 0 else str(sheet.chance.randrange(1000)))
    return sheet.bytes()


def columns_swapped(body: bytes, sheet: Sheet) -> bytes | None:
    first, second = sheet.column(), sheet.column()
    for row in sheet.rows:
        if max(first, second) < len(row):
            row[first], row[second] = row[second], row[first]
    return sheet.bytes()


def cell_dropped(body: bytes, sheet: Sheet) -> bytes | None:
    row = sheet.rows[sheet.row()]
    del row[sheet.chance.randrange(len(row))]
    return sheet.bytes()


def cell_added(body: bytes, sheet: Sheet) -> bytes | None:
    row = sheet.rows[sheet.row()]
    row.insert(sheet.chance.randrange(len(row)), sheet.chance.choice(("", "7", "01/01/99", "X")))
    return sheet.bytes()


def cell_emptied(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[sheet.row()][sheet.column()] = ""
    return sheet.bytes()


def cell_masked(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[sheet.row()][sheet.column()] = "*****"
    return sheet.bytes()


def cell_is_error(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[sheet.row()][sheet.column()] = "#REF!"
    return sheet.bytes()


def row_emptied(body: bytes, sheet: Sheet) -> bytes | None:
    at = sheet.row()
    sheet.rows[at] = [""] * len(sheet.rows[at])
    return sheet.bytes()


def row_dropped(body: bytes, sheet: Sheet) -> bytes | None:
    del sheet.rows[sheet.row()]
    return sheet.bytes()


def rows_reversed(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[1:] = sheet.rows[:0:-1]
    return sheet.bytes()


def blank_lines(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows.insert(sheet.row(), [])
    return sheet.bytes()


def title_added(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[:0] = [["Register of tax liens"], ["as of 1/1/2024"], []]
    return sheet.bytes()


def totals_added(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows.append(["Total", *["" for _ in sheet.rows[0][2:]], "123456.78"])
    return sheet.bytes()


def semicolons(body: bytes, sheet: Sheet) -> bytes | None:
    return sheet.bytes(";")


def tabs(body: bytes, sheet: Sheet) -> bytes | None:
    return sheet.bytes("\t", "\n")


def quote_added(body: bytes, sheet: Sheet) -> bytes | None:
    places = [at for at, sign in enumerate(body) if sign == ord(",")]
    at = sheet.chance.choice(places) + 1
    return body[:at] + b'"' + body[at:]


def second_table(body: bytes, sheet: Sheet) -> bytes | None:
    """Another table below, with the same number of columns and other headings."""
    sheet.rows += [[], [f"{RENAMED} {at}" for at, _ in enumerate(sheet.rows[0])]]
    sheet.rows += [[str(sheet.chance.randrange(9999)) for _ in sheet.rows[0]] for _ in range(3)]
    return sheet.bytes()


def heading_twice(body: bytes, sheet: Sheet) -> bytes | None:
    """A second column has the same heading."""
    at = sheet.column()
    for number, row in enumerate(sheet.rows):
        if at < len(row):
            row.insert(at, row[at] if number == 0 else other_digits(row[at], sheet.chance))
    return sheet.bytes()


def cells_swapped_below_headings(body: bytes, sheet: Sheet) -> bytes | None:
    """Two columns of different kinds change places, and their headings do not."""
    kinds = [{kind(row[at]) for row in sheet.rows[1:] if at < len(row)} - {""} for at in range(len(sheet.rows[0]))]
    pairs = [
        (a, b) for a, one in enumerate(kinds) for b, other in enumerate(kinds[:a]) if one and other and not one & other
    ]
    if not pairs:
        return None
    first, second = sheet.chance.choice(pairs)
    for row in sheet.rows[1:]:
        if max(first, second) < len(row):
            row[first], row[second] = row[second], row[first]
    return sheet.bytes()


def heading_shifted(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[0].insert(sheet.column(), "surveyor")
    return sheet.bytes()


def row_duplicated(body: bytes, sheet: Sheet) -> bytes | None:
    at = sheet.row()
    sheet.rows.insert(at, list(sheet.rows[at]))
    return sheet.bytes()


def rows_joined(body: bytes, sheet: Sheet) -> bytes | None:
    """A line end is missing."""
    at = sheet.row()
    if at + 1 == len(sheet.rows):
        return None
    sheet.rows[at] += sheet.rows.pop(at + 1)
    return sheet.bytes()


def decimals_with_comma(body: bytes, sheet: Sheet) -> bytes | None:
    for row in sheet.rows[1:]:
        row[:] = [cell.replace(".", ",") if kind(cell) == "amount" else cell for cell in row]
    return sheet.bytes()


def dates_with_dots(body: bytes, sheet: Sheet) -> bytes | None:
    for row in sheet.rows[1:]:
        row[:] = [".".join(cell.split("/")) if kind(cell) == "date" else cell for cell in row]
    return sheet.bytes()


def cell_is_words(body: bytes, sheet: Sheet) -> bytes | None:
    sheet.rows[sheet.row()][sheet.column()] = sheet.chance.choice(WORDS)
    return sheet.bytes()


def sheet_replaced(body: bytes, sheet: Sheet) -> bytes | None:
    return sheet.chance.choice((*TROUBLE, b"", b"error\r\ntimeout\r\n"))


def numbers_scientific(body: bytes, sheet: Sheet) -> bytes | None:
    """What a spreadsheet makes of long numbers."""
    long = [at for at in range(len(sheet.rows[0])) if _is_long(sheet, at)]
    if not long:
        return None
    at = sheet.chance.choice(long)
    for row in sheet.rows[1:]:
        if at < len(row) and row[at].isdigit() and len(row[at]) > 8:
            row[at] = f"{float(row[at]):.5E}"
    return sheet.bytes()


def _is_long(sheet: Sheet, at: int) -> bool:
    return any(at < len(row) and row[at].isdigit() and len(row[at]) > 8 for row in sheet.rows[1:])


def dates_as_serials(body: bytes, sheet: Sheet) -> bytes | None:
    """Days since the end of 1899, as spreadsheets store them."""
    count = 0
    for row in sheet.rows[1:]:
        for at, cell in enumerate(row):
            if match := IS_DATE.fullmatch(cell):
                row[at] = str((date(int(match[3][:4]), int(match[1]), int(match[2])) - date(1899, 12, 30)).days)
                count += 1
    return sheet.bytes() if count else None


def sheet_dates_day_first(body: bytes, sheet: Sheet) -> bytes | None:
    dates = [match for row in sheet.rows for cell in row if (match := IS_DATE.fullmatch(cell))]
    if max((int(match[2]) for match in dates), default=0) <= 12:
        return None
    sheet.rows = [[IS_DATE.sub(r"\2/\1/\3", cell) for cell in row] for row in sheet.rows]
    return sheet.bytes()


def row_shifted(body: bytes, sheet: Sheet) -> bytes | None:
    """By one cell, where the last one is empty: the row has as many as before."""
    row = sheet.rows[sheet.row()]
    if row[-1]:
        return None
    row.insert(sheet.chance.randrange(len(row)), "")
    row.pop()
    return sheet.bytes()


def cells_swapped_in_row(body: bytes, sheet: Sheet) -> bytes | None:
    """Two cells of different kinds."""
    row = sheet.rows[sheet.row()]
    pairs = [
        (a, b)
        for a in range(len(row))
        for b in range(a)
        if "" not in (k := {kind_of(row[a]), kind_of(row[b])}) and len(k) > 1
    ]
    if not pairs:
        return None
    first, second = sheet.chance.choice(pairs)
    row[first], row[second] = row[second], row[first]
    return sheet.bytes()


def column_of_previous(body: bytes, sheet: Sheet) -> bytes | None:
    """Before a column, the one of an earlier year."""
    at = sheet.column()
    for number, row in enumerate(sheet.rows):
        if at < len(row):
            row.insert(at, f"Previous {row[at]}" if number == 0 else other_digits(row[at], sheet.chance))
    return sheet.bytes()


def sheet_texts_escaped(body: bytes, sheet: Sheet) -> bytes | None:
    count = sum("&" in cell for row in sheet.rows for cell in row)
    sheet.rows = [[html.escape(cell, quote=False) for cell in row] for row in sheet.rows]
    return sheet.bytes() if count else None


CsvMutation = Callable[[bytes, Sheet], bytes | None]
CSV: Sequence[CsvMutation] = (
    *(sheet_cut, sheet_cut_and_ended, heading_renamed, heading_emptied, headings_dropped, headings_in_words),
    *(headings_repeated, column_dropped, column_added, columns_swapped, cell_dropped, cell_added, cell_emptied),
    *(cell_masked, cell_is_error, row_emptied, row_dropped, rows_reversed, blank_lines, title_added, totals_added),
    *(semicolons, tabs, quote_added, second_table, heading_twice, cells_swapped_below_headings, heading_shifted),
    *(row_duplicated, rows_joined, decimals_with_comma, dates_with_dots, cell_is_words, sheet_replaced),
    *(numbers_scientific, dates_as_serials, sheet_dates_day_first, row_shifted, cells_swapped_in_row),
    *(column_of_previous, sheet_texts_escaped),
)
