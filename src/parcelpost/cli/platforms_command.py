"""`parcelpost platforms`."""

from __future__ import annotations

import os
from typing import Annotated

import typer

from parcelpost.cli.options import AsJson, ConfigPath, SetOptions
from parcelpost.cli.output import print_json, print_lines, table

EXAMPLES = """
Examples:

\b
  parcelpost platforms
  parcelpost platforms grizzly_gis --json
"""


def platforms(
    only: Annotated[str, typer.Argument(help="Only this one.", metavar="[PLATFORM]")] = "",
    as_json: AsJson = False,
    config: ConfigPath = None,
    settings: SetOptions = None,
) -> None:
    """List the platforms, and the counties whose sites are known.

    A platform without counties works all the same for tasks that name a page.
    """
    from parcelpost.errors import InvalidInput
    from parcelpost.scrapers.counties import known
    from parcelpost.scrapers.factory import ScraperFactory
    from parcelpost.scrapers.platforms import NAMES
    from parcelpost.settings.sources import load, pairs

    loaded = load(config=config, environment=os.environ, flags=pairs(settings or []))
    counties = list(known(loaded.settings.fetch.counties_file))
    names = sorted({*NAMES, *ScraperFactory().names(), *(one.platform for one in counties)})
    if only and only not in names:
        raise InvalidInput(f"there is no platform {only!r}", hint=f"known are {', '.join(names)}")
    names = [only] if only else names
    if as_json:
        print_json(
            [
                {
                    "platform": name,
                    "counties": [
                        {
                            "state": one.state,
                            "county": one.county,
                            "fips": one.fips,
                            "site": one.site or one.url,
                            "example": one.example,
                        }
                        for one in counties
                        if one.platform == name
                    ],
                }
                for name in names
            ]
        )
        return
    rows: list[tuple[str | None, ...]] = []
    for name in names:
        found = [one for one in counties if one.platform == name]
        rows += [(name, one.state, one.county, one.site or one.url) for one in found] or [(name, None, None, None)]
    print_lines(table(("platform", "state", "county", "site"), rows))
