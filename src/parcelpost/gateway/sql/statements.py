"""Statements that both databases understand."""

from __future__ import annotations

from functools import cache
from itertools import count
from typing import Any


@cache
def numbered(sql: str) -> str:
    """With `$1`, `$2`, ... for each `?`. No statement of ours has a question mark in a literal."""
    first, *rest = sql.split("?")
    return first + "".join(f"${number}{part}" for number, part in zip(count(1), rest, strict=False))


def containing(word: str) -> str:
    """The LIKE pattern (ESCAPE '!') of texts that hold this word, whatever its case."""
    escaped = _fold(word).replace("!", "!!").replace("%", "!%").replace("_", "!_")
    return f"%{escaped}%"


def search_text(*parts: str) -> str:
    """What `containing` looks into: a line for each part."""
    return "\n".join(map(_fold, parts))


def _fold(text: str) -> str:
    return text.casefold().replace("\n", " ")


def is_matchable(value: Any) -> bool:
    """Whether a stored value can equal it: no text in a database holds a NUL or half a character."""
    if not isinstance(value, str):
        return True
    return "\0" not in value and not any("\ud800" <= letter <= "\udfff" for letter in value)
