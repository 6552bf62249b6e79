"""Lists of any length in bounded memory: some rows are read, printed and let go."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from parcelpost.cli.mending.fitting import Fitting
from parcelpost.cli.output import Cell, fitted, print_lines, table, terminal_width
from parcelpost.cli.progress import Meter
from parcelpost.cli.running import looking
from parcelpost.storage.db import LocalDatabase

_ROWS = 500


class Kind(NamedTuple):
    """What is listed."""

    noun: str
    headers: Sequence[str]
    spare: Sequence[str]
    """Of these, the least needed first: a narrow terminal goes without."""
    read: Callable[[LocalDatabase, int, int], Awaitable[Sequence[Any]]]
    """At most so many, behind a seq; each has a `seq`."""
    row: Callable[[Any], Sequence[Cell]]
    document: Callable[[Any], object]


async def print_list(store: Path, kind: Kind, limit: int, after: int, *, as_json: bool) -> None:
    show = _Document(kind) if as_json else _Table(kind)
    async with looking(store) as database, Meter(f"looking for {kind.noun}s") as meter:
        shown = 0
        while shown < limit and (rows := await kind.read(database, min(limit - shown, _ROWS), after)):
            show.rows(rows)
            shown += len(rows)
            after = rows[-1].seq
            meter(shown, None)
        more = shown == limit and bool(await kind.read(database, 1, after))
    show.end(shown, after if more else None)


class _Table:
    """Columns are as wide as the rows that are printed together need; a terminal's width is kept to, pipes see all."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._is_first = True
        width = terminal_width()
        self._fitting = Fitting(kind.headers, kind.spare, width) if width else None

    def rows(self, found: Sequence[Any]) -> None:
        if found:
            rows: Sequence[Sequence[Cell]] = [self._kind.row(one) for one in found]
            if self._fitting:
                rows = self._fitting.rows(rows)
            lines = table(self._fitting.headers if self._fitting else self._kind.headers, rows)
            print_lines(lines if self._is_first else lines[1:])
            self._is_first = False

    def end(self, shown: int, next_after: int | None) -> None:
        if not shown:
            print(f"No {self._kind.noun}s.")
        if self._fitting and self._fitting.left_out:
            print_lines(fitted([f"Left out here: {', '.join(self._fitting.left_out)}. All: --json."], terminal_width()))
        if next_after is not None:
            print(f"There are more: --after {next_after}")


class _Document:
    """One JSON document, written as it grows, in UTF-8 whatever the terminal's encoding is."""

    def __init__(self, kind: Kind) -> None:
        self._kind = kind
        self._before = f'{{"{kind.noun}s":['.encode()

    def rows(self, found: Sequence[Any]) -> None:
        from msgspec.json import encode

        sys.stdout.flush()
        for one in found:
            sys.stdout.buffer.write(self._before + encode(self._kind.document(one)))
            self._before = b","

    def end(self, shown: int, next_after: int | None) -> None:
        from msgspec.json import encode

        opening = b"" if shown else self._before
        sys.stdout.buffer.write(opening + b'],"next_after":' + encode(next_after) + b"}\n")
