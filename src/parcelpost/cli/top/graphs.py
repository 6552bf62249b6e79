"""Small graphs in one line of text."""

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
