"""The names of platforms, as far as they are known without importing any."""

from __future__ import annotations

import difflib
from functools import lru_cache
from importlib.metadata import entry_points

from parcelpost.errors import InvalidInput
from parcelpost.scrapers.platforms import ECHO, GROUP, NAMES
from parcelpost.settings import Settings


def names(settings: Settings) -> frozenset[str]:
    """Ours, those of installed packages, and those of the settings."""
    installed = (entry.name for entry in entry_points(group=GROUP))
    return frozenset({ECHO, *NAMES, *installed, *settings.platforms})


def spelled(name: str, known: frozenset[str]) -> str:
    """The platform of that name, however its letters are written. Raises InvalidInput for one that is not known."""
    found = _spelling(name, known)
    if not found:
        hint = f"known are {', '.join(sorted(known))}; --any-platform takes it all the same"
        raise InvalidInput(unknown(name, known), hint=hint)
    return found


@lru_cache(maxsize=1_000)
def unknown(name: str, known: frozenset[str]) -> str:
    """What to say of a platform that is not there."""
    lower = {one.lower(): one for one in known}
    close = difflib.get_close_matches(name.lower()[:100], sorted(lower), n=1)
    return f"there is no platform {name!r:.60}" + (f"; the nearest is {lower[close[0]]}" if close else "")


@lru_cache(maxsize=1_000)
def _spelling(name: str, known: frozenset[str]) -> str:
    return name if name in known else next((one for one in sorted(known) if one.lower() == name.lower()), "")
