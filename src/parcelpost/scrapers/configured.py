"""Platforms that the settings name: imported when first called."""

from __future__ import annotations

import sys
from importlib.metadata import EntryPoint
from pathlib import Path
from typing import Any

from msgspec import Struct

from parcelpost.scrapers.adapted import Adapted, How, how
from parcelpost.scrapers.platform import Scrape


class Configured(Struct, frozen=True, kw_only=True):
    """Where it is, as `package.module:name`. With `class_`, `scrape` and `parse` are names of its methods."""

    scrape: str = ""
    parse: str = ""
    class_: str = ""

    def load(self) -> Scrape:
        """Raises whatever importing it raises, and TypeError for what is no platform."""
        if self.class_:
            return Adapted(_found(self.class_), How(scrape=self.scrape, parse=self.parse)).scrape
        offered = _found(self.scrape)
        said = how(offered) or How()
        return Adapted(offered, How(parse=_found(self.parse)) if self.parse else said).scrape


def _found(place: str) -> Any:
    folder = str(Path.cwd())
    if folder not in sys.path:  # last: what is installed is never hidden by a file that lies here
        sys.path.append(folder)
    return EntryPoint(name="", value=place, group="").load()
