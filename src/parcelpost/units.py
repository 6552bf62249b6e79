"""Counts, sizes and ages for people."""

from __future__ import annotations


def count(number: int, singular: str, plural: str = "") -> str:
    """`1 task`, `2,000 tasks`."""
    return f"{number:,} {singular if number == 1 else plural or singular + 's'}"


def size(number: int) -> str:
    """`512 B`, `1.5 GiB`."""
    value = float(number)
    for unit in ("B", "KiB", "MiB", "GiB"):
        if value < 1024:
            return f"{value:,.0f} {unit}" if unit == "B" else f"{value:,.1f} {unit}"
        value /= 1024
    return f"{value:,.1f} TiB"


def age(seconds: float) -> str:
    """`12 s`, `5 min`, `3 h`, `4 days`."""
    for unit, length in (("days", 86_400), ("h", 3_600), ("min", 60)):
        if seconds >= 2 * length:
            return f"{seconds / length:,.0f} {unit}"
    return f"{max(seconds, 0):.0f} s"
