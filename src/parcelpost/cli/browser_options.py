"""How browsers are used, from the settings."""

from __future__ import annotations

from msgspec import structs

from parcelpost.scrapers.browsers.options import BrowserOptions
from parcelpost.settings import Settings


def browser_options(settings: Settings) -> BrowserOptions:
    """The settings have the options' names."""
    return BrowserOptions(**structs.asdict(settings.browser))
