"""Styled text measured in terminal cells, with grids and small graphs."""

from __future__ import annotations

import unicodedata
from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from parcelpost.cli.output import printable

Style = Literal["plain", "title", "dim", "good", "warn", "bad", "accent", "chosen"]


class Span(NamedTuple):
    text: str
    style: Style = "plain"


Line = tuple[Span, ...]

_CODES: dict[Style, str] = {
    "plain": "", "title": "1", "dim": "2", "good": "32", "warn": "33", "bad": "1;31", "accent": "36", "chosen": "7",
}  # fmt: skip
_COLORLESS: dict[Style, str] = {
    "plain": "", "title": "1", "dim": "2", "good": "", "warn": "1", "bad": "1", "accent": "", "chosen": "7",
}  # fmt: skip

ELLIPSIS, ASCII_ELLIPSIS = "…", "~"


def clean(text: str) -> str:
    """Neither moves the cursor nor ends the line, nor heaps marks upon its neighbours."""
    if text.isascii():
        return printable(text)
    composed = unicodedata.normalize("NFC", text)
    return printable("".join(char for char in composed if not unicodedata.category(char).startswith("M")))


def in_ascii(text: str) -> str:
    return text.encode("ascii", "backslashreplace").decode()


def cells(text: str) -> int:
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(char) in "WF" else 1 for char in text)


def cut(text: str, width: int) -> str:
    """At most so wide; what was cut ends in an ellipsis."""
    if cells(text) <= width:
        return text
    kept, room = "", width - 1
    for char in text:
        room -= cells(char)
        if room < 0:
            break
        kept += char
    return f"{kept}{ELLIPSIS}" if width > 0 else ""


def padded(text: str, width: int, *, right: bool = False) -> str:
    fitting = cut(text, width)
    space = " " * (width - cells(fitting))
    return space + fitting if right else fitting + space


def width_of(line: Line) -> int:
    return sum(cells(span.text) for span in line)


def fitted(line: Iterable[Span], width: int) -> Line:
    """At most so wide."""
    found: list[Span] = []
    for span in line:
        if width <= 0:
            break
        text = cut(span.text, width)
        found.append(Span(text, span.style))
        width -= cells(text)
    return tuple(found)


def wrapped(text: str, width: int, most: int) -> list[str]:
    """At words, where that goes; at most so many lines, the last of them cut."""
    lines: list[str] = []
    rest = text.strip()
    while rest and len(lines) < most:
        if cells(rest) <= width or len(lines) == most - 1:
            lines.append(cut(rest, width))
            break
        head = _head(rest, width)
        space = head.rfind(" ")
        end = space if space > width // 3 else len(head)
        lines.append(rest[:end].rstrip())
        rest = rest[end:].lstrip()
    return lines


def _head(text: str, width: int) -> str:
    end = 0
    for char in text:
        width -= cells(char)
        if width < 0:
            break
        end += 1
    return text[: max(end, 1)]


def without_ellipsis(line: Line) -> Line:
    """For a terminal that has ASCII only: all else is ASCII already."""
    return tuple(Span(text.replace(ELLIPSIS, ASCII_ELLIPSIS), style) for text, style in line)


def plain(line: Line) -> str:
    return "".join(span.text for span in line).rstrip()


def ansi(line: Line, *, color: bool) -> str:
    codes = _CODES if color else _COLORLESS
    return "".join(f"\x1b[{codes[style]}m{text}\x1b[0m" if codes[style] else text for text, style in line)


def beside(left: Sequence[Line], right: Sequence[Line], left_width: int) -> list[Line]:
    """Two columns, with two cells between them."""
    rows = max(len(left), len(right))
    found = []
    for number in range(rows):
        first = fitted(left[number], left_width) if number < len(left) else ()
        gap = Span(" " * (left_width - width_of(first) + 2))
        found.append((*first, gap, *right[number]) if number < len(right) else first)
    return found


_LEAST_COLUMN = 4
_GAP = 2

Cell = str | int | Span


def grid(headers: Sequence[str], rows: Sequence[Sequence[Cell]], width: int) -> list[Line]:
    """A line of headers, then one for each row; numbers stand to the right."""
    if not rows:
        return []
    texts = [[_cell_span(cell) for cell in row] for row in rows]
    columns = list(zip([Span(name, "dim") for name in headers], *texts, strict=True))
    widths = _fit_widths([max(cells(span.text) for span in column) for column in columns], width)
    numeric = [all(isinstance(row[index], int) for row in rows) for index in range(len(headers))]
    body = [[column[number] for column in columns] for number in range(len(rows) + 1)]
    return [_grid_line(row, widths, numeric) for row in body]


def _cell_span(cell: Cell) -> Span:
    if isinstance(cell, Span):
        return cell
    return Span(f"{cell:,}" if isinstance(cell, int) else cell)


def _fit_widths(widths: list[int], width: int) -> list[int]:
    """Shrinks the widest until all fit; where nothing helps, the last ones are left out by the screen's edge."""
    fitting = list(widths)
    while sum(fitting) + _GAP * (len(fitting) - 1) > width and max(fitting) > _LEAST_COLUMN:
        fitting[fitting.index(max(fitting))] -= 1
    return fitting


def _grid_line(row: Sequence[Span], widths: Sequence[int], numeric: Sequence[bool]) -> Line:
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


_BARS = "▁▂▃▄▅▆▇█"
_ASCII_BARS = "_.-:=+*#"
_NONE, _ASCII_NONE = "·", " "


def sparkline(values: Sequence[float | None], width: int, *, ascii_only: bool, most: float | None = None) -> str:
    """The newest at the right end. None: not known. `most`: what the highest bar stands for; else the largest value."""
    shown = list(values[-width:]) if width > 0 else []
    top = most or max((value for value in shown if value is not None), default=0)
    bars, none = (_ASCII_BARS, _ASCII_NONE) if ascii_only else (_BARS, _NONE)
    line = "".join(_bar(value, top, bars, none) for value in shown)
    return none * (width - len(line)) + line


def _bar(value: float | None, top: float, bars: str, none: str) -> str:
    if value is None or value <= 0 or top <= 0:
        return none
    return bars[min(len(bars) - 1, int(value / top * (len(bars) - 1) + 0.5))]


def graph(
    values: Sequence[float | None], width: int, rows: int, *, ascii_only: bool, most: float | None = None
) -> list[str]:
    """The same on several lines, the highest first, where there is room for it."""
    if rows <= 1:
        return [sparkline(values, width, ascii_only=ascii_only, most=most)]
    shown = list(values[-width:]) if width > 0 else []
    top = most or max((value for value in shown if value is not None), default=0)
    bars, none = (_ASCII_BARS, _ASCII_NONE) if ascii_only else (_BARS, _NONE)
    eighths = [0 if not value or top <= 0 else max(1, round(value / top * rows * len(bars))) for value in shown]
    lines = []
    for below in range((rows - 1) * len(bars), -1, -len(bars)):
        empty = " " if below else none
        line = "".join(bars[min(high - below, len(bars)) - 1] if high > below else empty for high in eighths)
        lines.append(empty * (width - len(line)) + line)
    return lines
