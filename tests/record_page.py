"""The tables of docs/record.md: a row describes one field, or several of the same type."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

PAGE = Path(__file__).parents[1] / "docs" / "record.md"


class Field(NamedTuple):
    table: str
    name: str
    kind: str
    platforms: tuple[str, ...]


def fields() -> Iterator[Field]:
    _, *parts = re.split(r"^##+ (.+)$", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)
    for title, section in zip(parts[::2], parts[1::2], strict=True):
        rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \| ([a-z ]+) \| .* \| (.*) \|$", section, flags=re.MULTILINE)
        for names, kind, platforms in rows:
            yield from (Field(title, name, kind, tuple(platforms.split(", "))) for name in re.findall(r"\w+", names))
