"""How many browsers this machine can bear, and what is asked of those who keep them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

from parcelpost.settings.keys import ResourcesSettings
from parcelpost.worker.memory import Memory
from parcelpost.worker.pressure import Pressure

UNMEASURED_BROWSER_BYTES = 350 * 1024**2
"""What a browser is taken to need until the first one was measured."""


class Figures(Protocol):
    @property
    def browsers(self) -> int: ...

    @property
    def busy(self) -> int: ...

    @property
    def pss_bytes(self) -> int:
        """Of all browsers together; what several processes share is counted once."""

    @property
    def pss_per_browser(self) -> float | None:
        """None: not measured yet."""


class Browsers(Protocol):
    """A pool of them."""

    @property
    def figures(self) -> Figures: ...

    def allow(self, most: int) -> None:
        """Idle ones above it are stopped, and none is started above it."""

    async def stop_largest(self) -> bool:
        """Whether there was one; its task is given back at no cost."""


def safe_browsers(
    memories: Sequence[Memory], settings: ResourcesSettings, most: int, now: Figures | None = None
) -> int:
    """As many as fit below `slow_percent` of all that bounds us, beside everything that is no browser.

    At least one below `no_new_tasks_percent`: one browser that makes us slow gets more done than none. `now`: those
    there are, None if there is no pool yet.
    """
    each = (now.pss_per_browser if now else None) or UNMEASURED_BROWSER_BYTES
    room = min(one.limit_bytes * settings.slow_percent / 100 - one.used_bytes for one in memories)
    fitting = int((room + (now.pss_bytes if now else 0)) // max(each, 1))
    least = int(all(one.percent < settings.no_new_tasks_percent for one in memories))
    return min(most, max(least, fitting))


def allowed_browsers(safe: int, pressure: Pressure, browsers: int) -> int:
    """A pool grows only while all is fine."""
    match pressure:
        case Pressure.FINE:
            return safe
        case Pressure.SLOW:
            return min(safe, max(1, browsers))
        case Pressure.NO_NEW_TASKS:
            return min(safe, browsers)
        case Pressure.STOP_BROWSERS:
            return 0
