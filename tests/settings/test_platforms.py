"""`[platforms.NAME]`: what may stand there."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from parcelpost.settings.schema import PlatformSettings
from parcelpost.settings.sources import Loaded

Load = Callable[..., Loaded]
Refused = Callable[..., str]

GOOD = """
[platforms.mycounty]
scrape = "my_package.module:function"
parse = "my_package.module:parse_html"

[platforms."old-one"]
class = "old:Scraper"
scrape = "lookup"
"""


def test_each_platform_is_named_by_its_place(loading: Load) -> None:
    loaded = loading(GOOD)
    assert loaded.settings.platforms == {
        "mycounty": PlatformSettings(scrape="my_package.module:function", parse="my_package.module:parse_html"),
        "old-one": PlatformSettings(class_="old:Scraper", scrape="lookup"),
    }
    assert loaded.origins["platforms.mycounty.parse"] == "parcelpost.toml:4"
    assert loaded.origins["platforms.old-one.class"] == "parcelpost.toml:7"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[platforms.a]\nscrap = "m:f"\nscrape = "m:f"',
            "parcelpost.toml:2: unknown setting platforms.a.scrap (did you mean platforms.a.scrape?)",
        ),
        (
            '[platforms.a]\nscrape = "m.f"',
            "parcelpost.toml:2: platforms.a.scrape must be an import path such as my_package.my_module:my_name",
        ),
        (
            "[platforms.a]\nscrape = 7",
            "parcelpost.toml:2: platforms.a.scrape must be an import path such as my_package.my_module:my_name",
        ),
        (
            '[platforms.a]\nclass = "m:C"\nparse = "m:f"',
            "parcelpost.toml:3: platforms.a.parse must be the name of a method of the class",
        ),
        (
            '[platforms.a]\nparse = "m:f"',
            "parcelpost.toml:1: platforms.a sets neither scrape (a function) nor class",
        ),
        ("platforms = 3", "parcelpost.toml:1: platforms is a section, not a setting"),
        ("[platforms]\na = 3", "parcelpost.toml:2: platforms.a must be a section of its own"),
        (
            '[platforms."a b"]\nscrape = "m:f"',
            "parcelpost.toml: a platform's name must be at most 100 letters, digits, '_', '-' and '.', not 'a b'",
        ),
    ],
)
def test_what_is_wrong_names_the_key(refused: Refused, text: str, message: str) -> None:
    assert refused(text).startswith(message)
