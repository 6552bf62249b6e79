"""`arcgis`: layers of parcels behind an ArcGIS server's query. What a layer's columns mean a field map says."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.model import Blocked, GiveUp, NotFound, Retry
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.field_map import plain_row, records, that_fits
from parcelpost.scrapers.json_values import at, objects, words

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
    rows = [row for one in objects(found, "features") if isinstance(row := one.get("attributes"), Mapping)]
    if not rows:
        return NotFound("the layer has no such parcel")
    field_map = that_fits(rows[0])
    if field_map is None:
        return GiveUp("no field map fits this layer's columns: add one (docs/new-platform.md)")
    return records(field_map, map(plain_row, rows)) or Retry("the rows name no parcel")


PLATFORM = CountyPlatform(name="arcgis", version=1, read=read)
