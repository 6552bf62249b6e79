"""`arcgis`: layers of parcels behind an ArcGIS server's query. What a layer's columns mean a field map says."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from msgspec import Raw

from parcelpost.model import Blocked, GiveUp, NotFound, Page, Retry, Target
from parcelpost.scrapers.addressing import given_url, needed
from parcelpost.scrapers.asking import PAGE_ROWS, Rows, all_rows, where_of
from parcelpost.scrapers.counties import County
from parcelpost.scrapers.county_platform import CountyPlatform, Fetcher, Found, Reading
from parcelpost.scrapers.json_values import at, objects, words

_PART = ("resultoffset=", "resultrecordcount=")
_BUSY = ("429", "500", "503", "504")


def read(reading: Reading) -> Found:
    found = reading.json
    if (error := at(found, "error")) is not None:
        code, message = words(at(error, "code")) or "?", words(at(error, "message")) or ""
        if code in ("401", "403", "498", "499"):
            return Blocked(f"the layer wants a token: {message}")
        return (
            Retry(f"the server says {code} {message}") if code in _BUSY else GiveUp(f"the server says {code} {message}")
        )
    if not isinstance(at(found, "features"), list):
        return Retry("the answer holds no features")
    features = objects(found, "features")
    given = (one.get("attributes") or one.get("properties") for one in features)  # the latter in GeoJSON
    rows = [row for row in given if isinstance(row, Mapping)]
    if not rows:
        return Retry("the features have no attributes") if features else NotFound("the layer has no such parcel")
    return reading.records_of(rows)


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """The site of an entry is the layer's address: `https://host/arcgis/rest/services/Parcels/MapServer/0`."""
    layer = given_url(target, county) or needed(county, target).base
    if "/query?" in layer:
        return await _answer(layer, fetcher)
    asked = {"where": where_of(target, county), "outFields": "*", "returnGeometry": "false", "f": "json"}

    async def ask(start: int) -> tuple[Page, Rows | None, bool]:
        paging = {"resultOffset": str(start), "resultRecordCount": str(PAGE_ROWS)}
        page = await fetcher.get(f"{layer.rstrip('/')}/query?{urlencode(asked | paging)}")
        return (page, *_features(page))

    return await all_rows(ask, _join)


async def _answer(query: str, fetcher: Fetcher) -> Page:
    """To a query that was given whole: all of its rows, unless it says itself which part it wants."""
    if any(name in query.lower() for name in _PART):
        return await fetcher.get(query)

    async def ask(start: int) -> tuple[Page, Rows | None, bool]:
        page = await fetcher.get(f"{query}&resultOffset={start}" if start else query)
        return (page, *_features(page))

    return await all_rows(ask, _join)


def _features(page: Page) -> tuple[Rows | None, bool]:
    """Untouched, so that no number changes on the way; and whether the server has more."""
    try:
        members = msgspec.json.decode(page.body, type=dict[str, Raw])
        features = msgspec.json.decode(members["features"], type=Rows)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None, False
    return features, bytes(members.get("exceededTransferLimit", b"")) == b"true"


def _join(first: Page, features: Rows) -> bytes:
    members: dict[str, object] = {**msgspec.json.decode(first.body, type=dict[str, Raw])}
    return msgspec.json.encode({**members, "features": features, "exceededTransferLimit": False})


PLATFORM = CountyPlatform(name="arcgis", version=2, sparse=True, read=read, fetch=fetch)
