"""What the settings say of browsers is what the pool is told."""

from __future__ import annotations

from msgspec import structs

from parcelpost.cli.fetch_setup import browser_options
from parcelpost.scrapers.browser.base import BrowserOptions
from parcelpost.settings.sources import load


def test_the_defaults_are_the_same_on_both_sides() -> None:
    settings = load(config=None, environment={}, flags={}).settings
    assert browser_options(settings) == BrowserOptions()
    assert structs.asdict(settings.browser).keys() == structs.asdict(BrowserOptions()).keys()


def test_what_is_set_arrives() -> None:
    flags = {"browser.most": "2", "browser.block": "image", "browser.sandbox": "off", "browser.page_seconds": "10"}
    options = browser_options(load(config=None, environment={}, flags=flags).settings)
    assert (options.most, options.block, options.sandbox, options.page_seconds) == (2, ("image",), "off", 10.0)
