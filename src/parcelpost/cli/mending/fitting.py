"""A table in a terminal that is too narrow for it: columns are left out, the least needed first, and long texts cut."""

from __future__ import annotations

from collections.abc import Sequence

from parcelpost.cli.output import Cell, printable

_LONGEST = 23  # a moment
_LEAST_OF_LAST = 20


class Fitting:
    """The first rows decide which columns there are; the last column takes the room that the others leave."""

    def __init__(self, headers: Sequence[str], spare: Sequence[str], width: int) -> None:
        self._headers = headers
        self._spare = spare
        """Columns that may be left out, the least needed first; their texts may be cut."""
        self._width = width
        self._shown: list[int] | None = None

    @property
    def headers(self) -> list[str]:
        return [self._headers[i] for i in self._shown or ()]

    @property
    def left_out(self) -> list[str]:
        return [name for name in self._headers if self._shown is not None and name not in self.headers]

    def rows(self, found: Sequence[Sequence[Cell]]) -> list[list[Cell]]:
        """These rows, in the columns of `headers`."""
        cut = [[self._cut(name, cell) for name, cell in zip(self._headers, row, strict=True)] for row in found]
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
        return _short(cell, _LONGEST) if name in self._spare else cell


def _length(cell: Cell) -> int:
    return 1 if cell is None else len(f"{cell:,}" if isinstance(cell, int) else printable(cell))


def _short(cell: Cell, most: int) -> Cell:
    if not isinstance(cell, str) or len(text := printable(cell)) <= most:
        return cell
    return f"{text[: most - 3]}..."
