"""Prints lists of any length in bounded memory, as a table that fits the terminal or as JSON."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, NamedTuple

from parcelpost.cli.context import open_for_reading
from parcelpost.cli.output import Cell, fitted, print_lines, printable, table, terminal_width
from parcelpost.cli.progress import Meter
from parcelpost.cli.settings_options import StoreContext
from parcelpost.storage.db import LocalDatabase

_LONGEST_CELL = 23  # the length of a timestamp
_LEAST_OF_LAST = 20


class ColumnFitter:
    """Chooses the columns that fit, based on the first rows; the last column gets the remaining width."""

    def __init__(self, headers: Sequence[str], spare: Sequence[str], width: int) -> None:
        self._headers = headers
        self._spare = spare
        """Columns that may be dropped or truncated, least important first."""
        self._width = width
        self._shown: list[int] | None = None

    @property
    def headers(self) -> list[str]:
        return [self._headers[i] for i in self._shown or ()]

    @property
    def left_out(self) -> list[str]:
        return [name for name in self._headers if self._shown is not None and name not in self.headers]

    def rows(self, items: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
        """Returns these rows, reduced to the columns in `headers`."""
        cut = [[self._cut(name, cell) for name, cell in zip(self._headers, row, strict=True)] for row in items]
        widths = [max(map(_length, column)) for column in zip(self._headers, *cut, strict=True)]
        if self._shown is None:
            self._shown = self._choose(widths)
        *others, last = self._shown
        room = max(self._width - sum(widths[i] + 2 for i in others), _LEAST_OF_LAST)
        return [[*(row[i] for i in others), _short(row[last], room)] for row in cut]

    def _choose(self, widths: Sequence[int]) -> list[int]:
        shown = list(range(len(self._headers)))
        last = shown[-1]
        spare = [self._headers.index(name) for name in self._spare]
        while spare:
            needed = sum(widths[i] + 2 for i in shown[:-1]) + min(widths[last], _LEAST_OF_LAST)
            if needed <= self._width:
                break
            shown.remove(spare.pop(0))
        return shown

    def _cut(self, name: str, cell: Cell) -> Cell:
        return _short(cell, _LONGEST_CELL) if name in self._spare else cell


def _length(cell: Cell) -> int:
    return 1 if cell is None else len(f"{cell:,}" if isinstance(cell, int) else printable(cell))


def _short(cell: Cell, most: int) -> Cell:
    if not isinstance(cell, str) or len(text := printable(cell)) <= most:
        return cell
    return f"{text[: most - 3]}..."


_ROWS_PER_QUERY = 500


class ListSpec(NamedTuple):
    """How to read and print one kind of list."""

    noun: str
    headers: Sequence[str]
    spare: Sequence[str]
    """The columns to drop on a narrow terminal, least important first."""
    read: Callable[[LocalDatabase, int, int], Awaitable[Sequence[Any]]]
    """Takes a limit and a seq, and returns up to that many items with a higher seq."""
    row: Callable[[Any], Sequence[Cell]]
    document: Callable[[Any], object]


async def print_list(store: StoreContext, kind: ListSpec, limit: int, after: int, *, as_json: bool) -> None:
    show = _Document(kind) if as_json else _Table(kind)
    async with open_for_reading(store) as database, Meter(f"reading {kind.noun}s") as meter:
        shown = 0
        while shown < limit and (rows := await kind.read(database, min(limit - shown, _ROWS_PER_QUERY), after)):
            show.rows(rows)
            shown += len(rows)
            after = rows[-1].seq
            meter(shown, None)
        more = shown == limit and bool(await kind.read(database, 1, after))
    show.end(shown, after if more else None)


class _Table:
    """Fits a terminal's width; pipes get all columns in full. Column widths may differ between batches of rows."""

    def __init__(self, kind: ListSpec) -> None:
        self._kind = kind
        self._is_first = True
        width = terminal_width()
        self._fitting = ColumnFitter(kind.headers, kind.spare, width) if width else None

    def rows(self, items: Sequence[Any]) -> None:
        if items:
            rows: Sequence[Sequence[Cell]] = [self._kind.row(item) for item in items]
            if self._fitting:
                rows = self._fitting.rows(rows)
            lines = table(self._fitting.headers if self._fitting else self._kind.headers, rows)
            print_lines(lines if self._is_first else lines[1:])
            self._is_first = False

    def end(self, shown: int, next_after: int | None) -> None:
        if not shown:
            print(f"No {self._kind.noun}s.")
        if self._fitting and self._fitting.left_out:
            print_lines(
                fitted([f"Columns not shown: {', '.join(self._fitting.left_out)} (see --json)."], terminal_width())
            )
        if next_after is not None:
            print(f"More: --after {next_after}")


class _Document:
    """One JSON document, streamed, always in UTF-8."""

    def __init__(self, kind: ListSpec) -> None:
        self._kind = kind
        self._before = f'{{"{kind.noun}s":['.encode()

    def rows(self, items: Sequence[Any]) -> None:
        from msgspec.json import encode

        sys.stdout.flush()
        for item in items:
            sys.stdout.buffer.write(self._before + encode(self._kind.document(item)))
            self._before = b","

    def end(self, shown: int, next_after: int | None) -> None:
        from msgspec.json import encode

        opening = b"" if shown else self._before
        sys.stdout.buffer.write(opening + b'],"next_after":' + encode(next_after) + b"}\n")
