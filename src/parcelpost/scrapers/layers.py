"""Reads the columns and sample rows of a layer or table, from a URL or a saved response.

Understands layers of ArcGIS servers and answers to their queries, GeoJSON, tables of Socrata, and CSV."""

from __future__ import annotations

import csv
import re
from collections.abc import Mapping, Sequence
from decimal import InvalidOperation
from itertools import islice
from urllib.parse import urlencode, urlsplit

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Page
from parcelpost.scrapers.html.encoding import decode
from parcelpost.scrapers.html.values import json_at, json_objects, json_text
from parcelpost.scrapers.platform import Fetcher, decode_json
from parcelpost.scrapers.platforms.arcgis import cannot_page, described_columns
from parcelpost.scrapers.records.column_values import DATE, NUMBER, SYSTEM, TEXT
from parcelpost.scrapers.records.columns import Column, described
from parcelpost.scrapers.tabular import csv_lines

SAMPLE_ROWS = 200
_MAX_ROWS = 1_000
_MAX_COLUMNS = 1_000
_MAX_LISTED = 20
_ARCGIS_LAYER = re.compile(r"(.*?/(?:MapServer|FeatureServer)/\d+)(?:[/?#].*)?", re.IGNORECASE | re.ASCII)
_ARCGIS_SERVICE = re.compile(r"(.*?/(?:MapServer|FeatureServer))/?(?:[?#].*)?", re.IGNORECASE | re.ASCII)
_SOCRATA_ID = re.compile(r"(?:^|[/=])([a-z0-9]{4}-[a-z0-9]{4})(?=$|[/.?&#])", re.ASCII)
_SOCRATA_KINDS = {
    **dict.fromkeys(("calendar_date", "date", "floating_timestamp", "fixed_timestamp"), DATE),
    **dict.fromkeys(("number", "money", "double", "percent"), NUMBER),
    **dict.fromkeys(("meta_data", "point", "multipolygon", "polygon", "location", "url", "photo", "document"), SYSTEM),
    "text": TEXT,
}
_DELIMITERS = ",\t;|"


class Layer(Struct, frozen=True):
    columns: Sequence[Column]
    rows: Sequence[Mapping[str, Json]] = ()
    """A sample."""


async def fetch_layer(url: str, fetcher: Fetcher) -> Layer:
    """Fetches the description of a layer or table and a sample of its rows. Raises InvalidInput and FetchFailed."""
    if match := _ARCGIS_LAYER.fullmatch(url):
        return await _fetch_arcgis(match[1], fetcher)
    if match := _ARCGIS_SERVICE.fullmatch(url):
        return read_layer(await fetcher.get(f"{match[1]}?f=json", cached=False))
    parts = urlsplit(url)
    identifier = _SOCRATA_ID.search(parts.path)
    if identifier and not parts.path.endswith((".csv", ".geojson")):
        return await _fetch_socrata(f"{parts.scheme}://{parts.netloc}", identifier[1], fetcher)
    return read_layer(await fetcher.get(url, cached=False))


async def _fetch_arcgis(layer: str, fetcher: Fetcher) -> Layer:
    description = read_layer(await fetcher.get(f"{layer}?f=json", cached=False))
    asked = {"where": "1=1", "outFields": "*", "returnGeometry": "false", "f": "json"}
    page = await fetcher.get(
        f"{layer}/query?{urlencode(asked | {'resultRecordCount': str(SAMPLE_ROWS)})}", cached=False
    )
    if cannot_page(page):
        page = await fetcher.get(f"{layer}/query?{urlencode(asked)}", cached=False)
    sample = read_layer(page)
    return Layer(description.columns or sample.columns, sample.rows)


async def _fetch_socrata(site: str, identifier: str, fetcher: Fetcher) -> Layer:
    description = read_layer(await fetcher.get(f"{site}/api/views/{identifier}.json", cached=False))
    asked = urlencode({"$limit": str(SAMPLE_ROWS)})
    sample = read_layer(await fetcher.get(f"{site}/resource/{identifier}.json?{asked}", cached=False))
    return Layer(description.columns or sample.columns, sample.rows)


def read_layer(page: Page) -> Layer:
    """Reads a description, rows, or both. Raises InvalidInput if the page is none of these."""
    start = page.body[:64].lstrip(b"\xef\xbb\xbf \t\r\n")
    if start.startswith(b"<"):
        raise InvalidInput(
            "this is a web page, not a layer or table", hint="use the URL of the layer: https://host/.../MapServer/0"
        )
    if not start.startswith((b"[", b"{")):
        return _read_csv(decode(page.body, page.content_type))
    try:
        response = decode_json(page.body)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidOperation) as error:
        raise InvalidInput(f"not valid JSON: {error}"[:200]) from None
    layer = _of_rows(_objects(response)) if isinstance(response, list) else _read_object(response)
    if not layer.columns:
        raise InvalidInput("it has neither columns nor rows", hint=_HINT)
    return layer


_HINT = "use a layer of an ArcGIS server, a Socrata table, or a file: a saved response of one of them, GeoJSON or CSV"


def _read_object(response: Json) -> Layer:
    if (error := json_at(response, "error")) is not None:
        message = json_text(json_at(error, "message")) or json_text(error) or "no"
        raise InvalidInput(f"the server replied {json_text(json_at(error, 'code')) or ''} {message}"[:300])
    if isinstance(json_at(response, "features"), list):
        features = islice(json_objects(response, "features"), _MAX_ROWS)
        rows = [
            row
            for feature in features
            if isinstance(row := feature.get("attributes") or feature.get("properties"), Mapping)
        ]
        return Layer(described_columns(response)[:_MAX_COLUMNS] or described(rows), rows)
    if columns := described_columns(response):
        return Layer(columns[:_MAX_COLUMNS])
    view = json_at(response, "meta", "view") or response
    if columns := _socrata_columns(view):
        return Layer(columns, _by_position(json_objects(view, "columns"), json_at(response, "data")))
    if layers := json_objects(response, "layers"):
        names = [
            f"{json_text(sublayer.get('id'))} {json_text(sublayer.get('name'))}" for sublayer in layers[:_MAX_LISTED]
        ]
        raise InvalidInput(
            f"this is a service with several layers: {', '.join(names)}"[:600],
            hint="add the number of the layer to the URL, such as /0",
        )
    reply = json_text(json_at(response, "message"))
    raise InvalidInput(f"the server replied {reply}"[:300] if reply else "this is not a layer or table", hint=_HINT)


def _socrata_columns(view: Json) -> list[Column]:
    return [
        Column(name, json_text(column.get("name")) or "", _SOCRATA_KINDS.get(str(column.get("dataTypeName")), ""))
        for column in json_objects(view, "columns")[:_MAX_COLUMNS]
        if (name := json_text(column.get("fieldName")))
    ]


def _by_position(columns: Sequence[Mapping[str, Json]], data: Json) -> list[Mapping[str, Json]]:
    names = [json_text(column.get("fieldName")) or "" for column in columns]
    lines = [line for line in islice(data, _MAX_ROWS) if isinstance(line, list)] if isinstance(data, list) else []
    return [{name: value for name, value in zip(names, line, strict=False) if name} for line in lines]


def _objects(items: list[Json]) -> list[Mapping[str, Json]]:
    return [row for row in islice(items, _MAX_ROWS) if isinstance(row, Mapping)]


def _of_rows(rows: Sequence[Mapping[str, Json]]) -> Layer:
    return Layer(described(rows)[:_MAX_COLUMNS], rows)


def _read_csv(text: str) -> Layer:
    first = text[:100_000].partition("\n")[0]
    lines = csv_lines(text, max(_DELIMITERS, key=first.count))
    try:
        names = [name.strip() for name in next(lines, [])][:_MAX_COLUMNS]
        rows = [dict(zip(names, line, strict=False)) for line in islice(lines, _MAX_ROWS) if any(line)]
    except csv.Error as error:
        raise InvalidInput(f"the table cannot be read: {error}", hint=_HINT) from None
    if len(names) < 2 or not rows:
        raise InvalidInput("this is not a layer or table", hint=_HINT)
    return Layer([Column(name) for name in dict.fromkeys(names) if name], rows)
