"""The mark of an end that a person has willed: nothing went wrong, and nobody is to be called."""

from __future__ import annotations

_MARK = "by a person: "


def said(reason: str) -> str:
    """As it is stored: a task's error, or why a result is not sent."""
    return f"{_MARK}{reason}"


def by_others(reason: str) -> str:
    """An upstream's words do not pass for a person's."""
    return f"refused: {reason}" if reason.startswith(_MARK) else reason


def is_said(column: str) -> str:
    """SQL."""
    return f"coalesce({column} GLOB '{_MARK}*', FALSE)"
