"""Small graphs in a few lines of text."""

from __future__ import annotations

from collections.abc import Sequence

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
