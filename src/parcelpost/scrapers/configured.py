"""Platforms that the settings name: imported when first called."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from msgspec import Struct

from parcelpost.scrapers.adapted import Adapted, How, how
from parcelpost.scrapers.county_platform import CountyPlatform
from parcelpost.scrapers.offered import of_adapted, usable
from parcelpost.scrapers.platform import Usable
from parcelpost.scrapers.sites import Sites


class Configured(Struct, frozen=True, kw_only=True):
    """Where it is, as `package.module:name`. With `class_`, `scrape` and `parse` are names of its methods."""

    scrape: str = ""
    parse: str = ""
    class_: str = ""

    def load(self, name: str, sites: Sites) -> Usable:
        """Raises whatever importing it raises, and TypeError for what is no platform."""
        if self.class_:
            said = How(scrape=self.scrape, parse=self.parse)
            return of_adapted(name, Adapted(_found(self.class_), said, sites.session))
        offered = _found(self.scrape)
        if isinstance(offered, CountyPlatform):
            return usable(name, offered, sites)
        said = How(parse=_found(self.parse)) if self.parse else how(offered) or How()
        return of_adapted(name, Adapted(offered, said, sites.session))


def _found(place: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:  # last: what is installed is never hidden by a file that lies here
        sys.path.append(folder)
    return EntryPoint(name="", value=place, group="").load()
