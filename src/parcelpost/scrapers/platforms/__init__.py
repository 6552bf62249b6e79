"""The platforms that come with the package, one module each."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parcelpost.scrapers.platform import CountyPlatform

GROUP = "parcelpost.platforms"
"""The entry points under which somebody else's package offers platforms."""

ECHO = "echo"
"""The one that makes its pages up."""

EXPERIMENTAL = frozenset({"realauction"})
"""Written without a page of a real site."""

NAMES = (
    "arcgis",
    "beacon",
    "broward_bcpa",
    "collier_pa",
    "deedauction",
    "govease",
    "grizzly_gis",
    "leepa",
    "lien_register",
    "miamidade_pa",
    "mygov_due",
    "pioneer_taxdeed",
    "qpublic",
    "realauction",
    "socrata",
    "vgsi",
)
"""Those that read a county's pages."""

RENDERED = frozenset({"beacon", "grizzly_gis", "qpublic"})
"""Those whose pages are rendered where they need it, and with a county's profile."""


@cache
def county_platform(name: str) -> CountyPlatform | None:
    """None: there is none of that name. Its module is imported when it is first asked for."""
    if name not in NAMES:
        return None
    if name == "beacon":
        found: CountyPlatform = import_module("parcelpost.scrapers.platforms.qpublic").BEACON
    else:
        found = import_module(f"parcelpost.scrapers.platforms.{name}").PLATFORM
    return found
