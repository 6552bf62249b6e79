"""Conversions that all of these scrapers use: text, amounts, dates, tables, addresses."""

from __future__ import annotations

import re
from datetime import datetime
from typing import Any

from bs4 import Tag

_NO_DIGITS = re.compile(r"[^\d.-]")
_PLACE = re.compile(r"(.*?),? ([A-Z]{2}) (\d{5}(?:-\d{4})?)")
_STREET = re.compile(r"\d|P\.? ?O\.? BOX", re.IGNORECASE)


def text(element: Tag | None) -> str | None:
    words = " ".join(element.get_text(" ").split()) if element is not None else ""
    return words or None


def lines(element: Tag | None) -> list[str]:
    return [" ".join(line.split()) for line in element.stripped_strings] if element is not None else []


def number(written: str | None) -> float | None:
    digits = _NO_DIGITS.sub("", written or "")
    return float(digits) if digits else None


def whole(written: str | None) -> int | None:
    value = number(written)
    return int(value) if value is not None else None


def day(written: str | None, form: str = "%m/%d/%Y") -> str | None:
    return datetime.strptime(written, form).date().isoformat() if written else None  # noqa: DTZ007


def rows(table: Tag | None) -> list[list[str | None]]:
    """Returns the rows below the headings."""
    body = table.find_all("tr")[1:] if table is not None else []
    return [[text(cell) for cell in row.find_all(["td", "th"])] for row in body]


def place(line: str) -> re.Match[str] | None:
    """Matches city, state and zip."""
    return _PLACE.fullmatch(line)


def owner(shown: list[str]) -> dict[str, Any]:
    """Splits lines into names, street or PO box, and city."""
    shown = [line for line in shown if line.strip(".")]
    last = place(shown[-1]) if shown else None
    if last:
        shown = shown[:-1]
    at = next((at for at, line in enumerate(shown) if at and _STREET.match(line)), len(shown))
    parts: dict[str, Any] = {"owner_names": shown[:at], "mailing_lines": shown[at:]}
    if last:
        parts |= {"mailing_city": last[1], "mailing_state": last[2], "mailing_zip": last[3]}
    return parts
