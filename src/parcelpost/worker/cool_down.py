"""How long a platform that blocks us is left alone."""

from __future__ import annotations

from typing import NamedTuple

_LONGEST_WISH_SECONDS = 86_400.0


class _Pause(NamedTuple):
    began: float
    ends: float
    seconds: float
    """What the next one doubles."""


class CoolDowns:
    """Doubles per platform from `first` to `longest` seconds while it stays blocked. Moments are `Clock.monotonic`."""

    def __init__(self, first: float, longest: float) -> None:
        self._first = first
        self._longest = max(first, longest)
        self._last: dict[str, _Pause] = {}

    def blocked(self, platform: str, *, started: float, now: float, wish: float | None = None) -> float:
        """The seconds to pause from now, `wish` (up to a day) if there is one.

        0: the attempt began before the pause that holds already, so that this is no news.
        """
        last = self._last.get(platform)
        if last is None:
            seconds = self._first
        elif started <= last.began:
            seconds = last.seconds
            if wish is None or now + wish <= last.ends:
                return 0.0
        else:
            seconds = min(2 * last.seconds, self._longest)
        pause = seconds if wish is None else min(wish, _LONGEST_WISH_SECONDS)
        self._last[platform] = _Pause(now, now + pause, seconds)
        return pause

    def worked(self, platform: str, *, started: float) -> None:
        """The platform let an attempt through; one that began before the pause says nothing about it."""
        last = self._last.get(platform)
        if last is not None and started > last.began:
            del self._last[platform]
