"""The built-in platforms, one module each."""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from parcelpost.scrapers.platform import CountyPlatform

GROUP = "parcelpost.platforms"
"""The entry point group of platforms from other packages."""

ECHO = "echo"
"""The platform that invents its pages."""

EXPERIMENTAL = frozenset({"realauction"})
"""Written without access to a page of the real site."""

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
"""Platforms that read county sites."""

LISTS = frozenset({"deedauction", "govease", "lien_register", "pioneer_taxdeed", "realauction"})
"""Platforms whose pages are lists of records."""

TABLES = frozenset({"arcgis", "socrata"})
"""Platforms that return a list for a target with a `where`."""

RENDERED = frozenset({"beacon", "grizzly_gis", "qpublic"})
"""Platforms that can use a browser, and a county's browser profile."""


@cache
def county_platform(name: str) -> CountyPlatform | None:
    """Imports the platform's module on first use. Returns None if there is no such platform."""
    if name not in NAMES:
        return None
    if name == "beacon":
        platform: CountyPlatform = import_module("parcelpost.scrapers.platforms.qpublic").BEACON
    else:
        platform = import_module(f"parcelpost.scrapers.platforms.{name}").PLATFORM
    return platform
