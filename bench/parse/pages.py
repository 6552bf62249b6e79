"""The pages that are read: the simulator's, and real ones where PARCELPOST_CORPUS names a folder of them."""

from __future__ import annotations

import os
from itertools import cycle, islice
from pathlib import Path
from urllib.parse import quote

from parcelpost.simulator.looks import Looks
from parcelpost.simulator.sites import SITES
from parcelpost.simulator.web import Request
from parcelpost.simulator.world import World

_REAL = {
    "grizzly_gis": "grizzly_gis*/FL_columbia_[0-9]*.html",
    "qpublic": "qpublic/*.html",
    "vgsi": "vgsi/*.html",
    "leepa": "leepa/*.html",
    "collier_pa": "collier_pa/*.html",
}
"""Of one county each: an ordinary scraper is written for one."""
PLATFORMS = tuple(_REAL)
_REAL_PAGES = 8


def simulated(platform: str, count: int) -> list[bytes]:
    world = World(county="invented", size=count)
    return [_page(platform, number, world) for number in range(1, count + 1)]


def real(platform: str) -> list[bytes]:
    """So many, the same ones again where there are fewer. Empty: there are none here."""
    folder = os.environ.get("PARCELPOST_CORPUS", "")
    files = sorted(Path(folder).glob(_REAL[platform])) if folder else []
    return [file.read_bytes() for file in islice(cycle(files), _REAL_PAGES if files else 0)]


def _page(platform: str, number: int, world: World) -> bytes:
    site = SITES[platform]
    assert site.parcel_id is not None
    parcel = quote(site.parcel_id(number))
    if platform == "grizzly_gis":  # its address gives a frame, whose form leads to the page
        form = f"bHandoff_PIN={parcel}".encode()
        asked = Request(method="POST", target="/gis/recordSearch_2_Results/", headers={}, body=form)
    else:
        asked = Request(method="GET", target=site.address.replace("{parcel}", parcel), headers={})
    return site.respond(asked, world, Looks()).body
