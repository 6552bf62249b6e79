"""`arcgis`: parcel layers of ArcGIS servers. A field map gives the meaning of the columns."""

from __future__ import annotations

from collections.abc import Mapping
from urllib.parse import urlencode

import msgspec
from msgspec import Raw

from parcelpost.model import Blocked, GiveUp, Json, NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, require_county, target_url
from parcelpost.scrapers.fetch.errors import CannotFetch
from parcelpost.scrapers.html.values import json_at, json_objects, json_text
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, ReadResult, has_more
from parcelpost.scrapers.records.column_values import DATE, NUMBER, SYSTEM, TEXT
from parcelpost.scrapers.records.columns import Column
from parcelpost.scrapers.tabular import PAGE_ROWS, Rows, fetch_all_rows, standard_json, where_clause

_PART = ("resultoffset=", "resultrecordcount=")
_MOST_ERROR_BYTES = 4_096
_ROUND = 100
_KINDS = {
    **dict.fromkeys(
        ("esriFieldTypeOID", "esriFieldTypeGlobalID", "esriFieldTypeGUID", "esriFieldTypeGeometry"), SYSTEM
    ),
    **dict.fromkeys(("esriFieldTypeBlob", "esriFieldTypeRaster", "esriFieldTypeXML"), SYSTEM),
    **dict.fromkeys(("esriFieldTypeDate", "esriFieldTypeDateOnly", "esriFieldTypeTimestampOffset"), DATE),
    **dict.fromkeys(("esriFieldTypeSmallInteger", "esriFieldTypeInteger", "esriFieldTypeBigInteger"), NUMBER),
    **dict.fromkeys(("esriFieldTypeSingle", "esriFieldTypeDouble"), NUMBER),
    "esriFieldTypeString": TEXT,
}
_BUSY = ("429", "500", "503", "504")


def read(reader: PageReader) -> ReadResult:
    response = reader.json
    if (error := json_at(response, "error")) is not None:
        code, message = json_text(json_at(error, "code")) or "?", json_text(json_at(error, "message")) or ""
        if code in ("401", "403", "498", "499"):
            return Blocked(f"the layer requires a token: {message}")
        return (
            Retry(f"the server replied {code} {message}")
            if code in _BUSY
            else GiveUp(f"the server replied {code} {message}")
        )
    listed = json_at(response, "features")
    if not isinstance(listed, list):
        return Retry("the response has no features")
    features = json_objects(response, "features")
    given = (feature.get("attributes") or feature.get("properties") for feature in features)  # the latter in GeoJSON
    rows = [row for row in given if isinstance(row, Mapping)]
    if not rows:
        return Retry("the features have no attributes") if listed else NotFound("the layer has no such parcel")
    if len(rows) < len(listed):
        reader.problems.lacks(f"{len(listed) - len(rows)} features, which cannot be read")
    if has_more(response, len(listed)):
        reader.problems.lacks("features that the layer did not return")
    known = {column.name for column in described_columns(response)} if "attributes" in features[-1] else set()
    if known and not known <= rows[-1].keys():
        reader.problems.lacks("columns of the last feature")
    return reader.records_of(rows, described_columns(response))


def described_columns(response: Json) -> list[Column]:
    """The columns as a layer, or the answer to a query, describes them."""
    aliases = json_at(response, "fieldAliases")
    return [
        Column(
            name,
            json_text(field.get("alias")) or json_text(json_at(aliases, name)) or "",
            _KINDS.get(str(field.get("type")), ""),
        )
        for field in json_objects(response, "fields")
        if (name := json_text(field.get("name")))
    ]


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """The site of an entry is the layer's URL: `https://host/arcgis/rest/services/Parcels/MapServer/0`."""
    layer = target_url(target, county) or require_county(county, target).base
    if "/query?" in layer:
        return await _answer(layer, fetcher)
    asked = {"where": where_clause(target, county), "outFields": "*", "returnGeometry": "false", "f": "json"}

    query = f"{layer.rstrip('/')}/query"

    async def ask(start: int) -> tuple[Page, Rows | None, bool]:
        paging = {"resultOffset": str(start), "resultRecordCount": str(PAGE_ROWS)}
        page = await fetcher.get(f"{query}?{urlencode(asked | paging)}")
        if start == 0 and cannot_page(page):
            return await _all_at_once(f"{query}?{urlencode(asked)}", fetcher)
        return (page, *_features(page))

    return await fetch_all_rows(ask, _join, distinct=True)


def cannot_page(page: Page) -> bool:
    """Whether the layer cannot return rows page by page (it lacks `supportsPagination`)."""
    return len(page.body) < _MOST_ERROR_BYTES and b'"error"' in page.body and b"pagination" in page.body.lower()


async def _all_at_once(query: str, fetcher: Fetcher) -> tuple[Page, Rows | None, bool]:
    """Raises CannotFetch if these may not be all rows."""
    page = await fetcher.get(query)
    rows, more = _features(page)
    if rows is not None and more:
        raise CannotFetch(f"the layer returns {len(rows):,} rows without further pages: request fewer at a time")
    return page, rows, False


async def _answer(query: str, fetcher: Fetcher) -> Page:
    """Runs a complete query URL and returns all rows, unless the query itself asks for a part."""
    if any(name in query.lower() for name in _PART):
        return await fetcher.get(query)

    async def ask(start: int) -> tuple[Page, Rows | None, bool]:
        page = await fetcher.get(f"{query}&resultOffset={start}" if start else query)
        return (page, *_features(page))

    return await fetch_all_rows(ask, _join, distinct=True)


def _features(page: Page) -> tuple[Rows | None, bool]:
    """Returns the rows undecoded, so that no number changes, and whether there are more.

    Some servers never say so; a round number of rows then means that there are more.
    """
    try:
        members = _members(page)
        features = msgspec.json.decode(members["features"], type=Rows)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, KeyError):
        return None, False
    says_more = bytes(members.get("exceededTransferLimit", b"")) == b"true"
    return features, says_more or (len(features) > 0 and len(features) % _ROUND == 0)


def _members(page: Page) -> dict[str, Raw]:
    try:
        return msgspec.json.decode(page.body, type=dict[str, Raw])
    except msgspec.DecodeError:
        return msgspec.json.decode(standard_json(page.body), type=dict[str, Raw])


def _join(first: Page, features: Rows) -> bytes:
    return msgspec.json.encode({**_members(first), "features": features, "exceededTransferLimit": False})


PLATFORM = CountyPlatform(name="arcgis", version=6, sparse=True, read=read, fetch=fetch)
