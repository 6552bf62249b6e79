"""What of a page is not loaded: it is read, not looked at."""

from __future__ import annotations

from collections.abc import Collection
from functools import cache
from importlib.resources import files
from urllib.parse import urlsplit

from parcelpost.scrapers.browsers.options import Kind

_KINDS: dict[str, Kind] = {
    "image": "image",
    "imageset": "image",
    "font": "font",
    "media": "media",
    "texttrack": "media",
}
"""As Playwright calls them -> as the settings do."""


def is_blocked(url: str, resource_type: str, page_host: str, kinds: Collection[Kind]) -> bool:
    """`page_host`: whose own scripts are no trackers, whatever the list says."""
    if _KINDS.get(resource_type) in kinds:
        return True
    host = host_of(url)
    return "tracker" in kinds and host != page_host and is_tracker(host)


def is_tracker(host: str) -> bool:
    """Whether it or a domain that it belongs to is on the list."""
    labels = host.split(".")
    return any(".".join(labels[at:]) in _trackers() for at in range(len(labels) - 1))


def host_of(url: str) -> str:
    try:
        return (urlsplit(url).hostname or "").rstrip(".")
    except ValueError:
        return ""


@cache
def _trackers() -> frozenset[str]:
    text = (files("parcelpost.scrapers.browsers") / "trackers.txt").read_text("utf-8")
    return frozenset(line for line in text.splitlines() if line and not line.startswith("#"))
