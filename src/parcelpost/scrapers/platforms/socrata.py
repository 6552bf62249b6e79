"""`socrata`: tables of cities' open data, as JSON or CSV. What a table's columns mean a field map says."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from io import StringIO

from parcelpost.model import GiveUp, Json, NotFound, Retry
from parcelpost.scrapers.charset import decoded
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.field_map import plain_row, records, that_fits
from parcelpost.scrapers.json_values import at, words


def read(reading: Reading) -> Found:
    rows = _rows(reading)
    if isinstance(rows, Retry | GiveUp):
        return rows
    if not rows:
        return NotFound("the table has no such row")
    field_map = that_fits(rows[0])
    if field_map is None:
        return GiveUp("no field map fits this table's columns: add one (docs/new-platform.md)")
    return records(field_map, map(plain_row, rows)) or Retry("the rows name no parcel")


def _rows(reading: Reading) -> list[Mapping[str, Json]] | Retry | GiveUp:
    start = reading.page.body[:64].lstrip()
    if start.startswith(b"<"):
        return Retry("the answer is a web page")
    if not start.startswith((b"[", b"{")):
        return list(_csv(decoded(reading.page.body, reading.page.content_type)))
    found = reading.json
    if isinstance(found, Mapping):
        return GiveUp(f"the server says {words(at(found, 'message')) or words(at(found, 'code')) or 'no'}")
    return (
        [row for row in found if isinstance(row, Mapping)]
        if isinstance(found, list)
        else Retry("the answer is no table")
    )


def _csv(text: str) -> list[Mapping[str, Json]]:
    try:
        found = csv.DictReader(StringIO(text.replace("\0", ""), newline=""), restkey="", restval="")
        return [{name: value for name, value in row.items() if name} for row in found]
    except csv.Error:
        return []


PLATFORM = CountyPlatform(name="socrata", version=1, read=read)
