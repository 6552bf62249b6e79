"""How many browsers this machine can bear, as far as a command can tell."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec import Struct

from parcelpost.cli.browser_seen import SeenBrowser
from parcelpost.settings import Settings
from parcelpost.worker.resources import UNMEASURED_BROWSER_BYTES, fullest, memories, safe_browsers

_MIB = 1024**2


class Running(Struct, frozen=True, kw_only=True):
    """Browsers that run on this machine for a store; `Figures` for who works out how many are safe."""

    browsers: int
    busy: int
    pss_bytes: int
    pss_per_browser: float | None


class Room(Struct, frozen=True, kw_only=True):
    safe: int
    most: int
    """What the settings allow."""
    bytes_per_browser: int
    measured: bool
    """Else that is what one is taken to need."""
    memory_used_bytes: int
    memory_limit_bytes: int
    """The machine's, or its container's, whichever is fuller."""


def running(states: Sequence[SeenBrowser], measured: float | None = None) -> Running:
    """`measured`: bytes of one, where somebody has just looked."""
    known = [state.memory_mb * _MIB for state in states if state.memory_mb]
    return Running(
        browsers=len(states),
        busy=sum(state.status == "busy" for state in states),
        pss_bytes=sum(known),
        pss_per_browser=measured or (sum(known) / len(known) if known else None),
    )


def room(settings: Settings, now: Running) -> Room:
    bounds = memories()
    tightest = fullest(bounds)
    return Room(
        safe=safe_browsers(bounds, settings.resources, settings.browser.most, now),
        most=settings.browser.most,
        bytes_per_browser=round(now.pss_per_browser or UNMEASURED_BROWSER_BYTES),
        measured=now.pss_per_browser is not None,
        memory_used_bytes=tightest.used_bytes,
        memory_limit_bytes=tightest.limit_bytes,
    )
