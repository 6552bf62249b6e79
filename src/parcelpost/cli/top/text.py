"""Lines of styled text, measured in the cells of a terminal. What came from elsewhere is made harmless here."""

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
