"""Markdown tables, identified by their header."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    lines = [header, ["---"] * len(header), *rows]
    return "".join(f"| {' | '.join(_cell(cell) for cell in line)} |\n" for line in lines).replace(
        f"| {' | '.join(['---'] * len(header))} |", f"|{'---|' * len(header)}"
    )


def with_table(text: str, header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """Replaces the rows of the first table with that header, or appends the table if there is none."""
    made = table(header, rows)
    begins = re.escape(f"| {' | '.join(header)} |\n")
    if re.search(rf"^{begins}", text, flags=re.MULTILINE):
        return re.sub(rf"^{begins}(?:\|.*\n)*", lambda _: made, text, count=1, flags=re.MULTILINE)
    return f"{text.rstrip()}\n\n{made}\n"


def sections(text: str) -> list[tuple[str, str]]:
    """Splits a page into the text before the first second-level heading, and each heading with its text."""
    first, *parts = re.split(r"^## (.+)\n", text, flags=re.MULTILINE)
    return [("", first), *zip(parts[::2], parts[1::2], strict=True)]


def joined(parts: Iterable[tuple[str, str]]) -> str:
    return "".join(f"## {title}\n{text}" if title else text for title, text in parts).rstrip() + "\n"


def _cell(text: str) -> str:
    return " ".join(text.split()).replace("|", "\\|")
