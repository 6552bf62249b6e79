"""Owners and their address, as pages print them in one block."""

from __future__ import annotations

import re
from collections.abc import Sequence

from parcelpost.scrapers.values import Place, clean, place

_STREET = re.compile(
    r"(P\.?\s?O\.?\s+(BOX|DRAWER)\b|\d+[A-Z]?\s+\S|RR\s*\d|RT\s*\d|ROUTE\s+\d|HC\s*\d|ONE\s+\w)", re.IGNORECASE
)
_CARE_OF = re.compile(r"(?:C/O|%|ATTN:?|CARE OF)\s", re.IGNORECASE)
_OPEN_END = ("&", " AND", " OR", ",")


def owners_and_mailing(lines: Sequence[str], names: int | None = None) -> tuple[list[str], list[str], Place | None]:
    """Names, the lines of the address between them and its last one, and what that last one says.

    `names`: how many lines at the top are known to be names; else those before the first that begins like a street or
    a box. A name that ends in `&` goes on in the next line.
    """
    rest = [line for line in map(clean, lines) if line.strip(".")]
    last = place(rest[-1]) if rest else None
    if last is not None:
        rest = rest[:-1]
    elif len(rest) > 1 and (found := place(f"{rest[-2]} {rest[-1]}")) is not None and place(rest[-2]) is None:
        last, rest = found, rest[:-2]  # the zip in a line of its own
    count = names if names is not None else _names(rest)
    return _joined(rest[:count]), rest[count:], last


def _names(lines: Sequence[str]) -> int:
    """How many of them are names: at least one, if there is any."""
    for number, line in enumerate(lines):
        if number and (_STREET.match(line) or _CARE_OF.match(line)):
            return number
    return max(1, len(lines) - 1) if len(lines) > 1 else len(lines)


def _joined(lines: Sequence[str]) -> list[str]:
    joined: list[str] = []
    for line in lines:
        if joined and joined[-1].upper().endswith(_OPEN_END):
            joined[-1] = f"{joined[-1]} {line}"
        else:
            joined.append(line)
    return [name.rstrip(" &,") for name in joined]
