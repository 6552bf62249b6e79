"""When an idle slot looks for a task again."""

from __future__ import annotations

from collections.abc import Sequence

from parcelpost.clock import Clock

_SAME_MOMENT_SECONDS = 0.01


class Openings:
    """One idle slot comes back for each host that opens: all of them at once would find one task between them."""

    def __init__(self, idle_seconds: float, clock: Clock) -> None:
        self._idle_seconds = idle_seconds
        self._clock = clock
        self._back_at: dict[str, float] = {}
        """Slot -> the moment for which it promised to be back."""

    def back_in(self, slot: str, opens_in: Sequence[float]) -> float:
        """The seconds until this slot looks again. `opens_in`: until each host opens, soonest first."""
        now = self._clock.monotonic()
        self._back_at.pop(slot, None)
        promised = [at - now for at in self._back_at.values() if at > now]
        for place, seconds in enumerate(opens_in):
            if seconds >= self._idle_seconds:
                break
            if sum(other <= seconds + _SAME_MOMENT_SECONDS for other in promised) <= place:
                self._back_at[slot] = now + seconds
                return seconds
        return self._idle_seconds
