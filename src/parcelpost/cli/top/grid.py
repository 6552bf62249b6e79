"""Rows of cells in a given width: the widest columns give way first."""

from __future__ import annotations

from collections.abc import Sequence

from parcelpost.cli.top.text import Line, Span, Style, cells, padded

_LEAST = 4
_GAP = 2

Cell = str | int | Span


def grid(headers: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """A line of headers, then one for each row; numbers stand to the right."""
    if not rows:
        return []
    texts = [[_span(cell) for cell in row] for row in rows]
    columns = list(zip([Span(name, "dim") for name in headers], *texts, strict=True))
    widths = _fit([max(cells(span.text) for span in column) for column in columns], width)
    numeric = [all(isinstance(row[index], int) for row in rows) for index in range(len(headers))]
    body = [[column[number] for column in columns] for number in range(len(rows) + 1)]
    return [_line(row, widths, numeric) for row in body]


def _span(cell: Cell) -> Span:
    if isinstance(cell, Span):
        return cell
    return Span(f"{cell:,}" if isinstance(cell, int) else cell)


def _fit(widths: list[int], width: int) -> list[int]:
    """Shrinks the widest until all fit; where nothing helps, the last ones are left out by the screen's edge."""
    fitting = list(widths)
    while sum(fitting) + _GAP * (len(fitting) - 1) > width and max(fitting) > _LEAST:
        fitting[fitting.index(max(fitting))] -= 1
    return fitting


def _line(row: Sequence[Span], widths: Sequence[int], numeric: Sequence[bool]) -> Line:
    spans: list[Span] = []
    for (text, style), width, right in zip(row, widths, numeric, strict=True):
        spans += [Span(padded(text, width, right=right), style), Span(" " * _GAP)]
    return tuple(spans[:-1])


def heading(title: str, note: str, width: int, *, ascii_only: bool, style: Style = "title") -> Line:
    """`slots  4 of 8 busy ------`, as wide as it may be."""
    rule = "-" if ascii_only else "─"
    words = f"{title} " + (f"{note} " if note else "")
    return (
        Span(f"{title} ", style),
        Span(f"{note} " if note else "", "dim"),
        Span(rule * max(0, width - cells(words)), "dim"),
    )
