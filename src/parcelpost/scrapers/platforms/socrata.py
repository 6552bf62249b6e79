"""`socrata`: open data tables of cities, as JSON or CSV. A field map gives the meaning of the columns."""

from __future__ import annotations

import csv
from collections.abc import Mapping
from itertools import zip_longest
from urllib.parse import urlencode

import msgspec

from parcelpost.model import GiveUp, Json, NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, quote_part, require_county, required_id, target_url
from parcelpost.scrapers.html.encoding import decode
from parcelpost.scrapers.html.values import json_at, json_text
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, ReadResult
from parcelpost.scrapers.records.columns import described
from parcelpost.scrapers.tabular import PAGE_ROWS, Rows, csv_lines, fetch_all_rows, standard_json, where_clause

_BUSY = ("throttl", "too many requests", "try again", "timeout", "timed out", "internal error")


def read(reader: PageReader) -> ReadResult:
    rows = _rows(reader)
    if isinstance(rows, Retry | GiveUp):
        return rows
    if not rows:
        return NotFound("the table has no such row")
    is_csv = not reader.page.body[:64].lstrip().startswith((b"[", b"{"))
    return reader.records_of(rows, described(rows) if is_csv else ())


def _rows(reader: PageReader) -> list[Mapping[str, Json]] | Retry | GiveUp:
    start = reader.page.body[:64].lstrip()
    if start.startswith(b"<"):
        return Retry("the response is a web page")
    if not start.startswith((b"[", b"{")):
        return _csv(decode(reader.page.body, reader.page.content_type))
    response = reader.json
    if isinstance(response, Mapping):
        message = json_text(json_at(response, "message")) or json_text(json_at(response, "code")) or "no"
        is_busy = any(word in message.lower() for word in _BUSY)
        return Retry(f"the server replied {message}") if is_busy else GiveUp(f"the server replied {message}")
    if not isinstance(response, list):
        return Retry("the response is not a table")
    rows = [row for row in response if isinstance(row, Mapping)]
    if len(rows) < len(response):
        reader.problems.lacks(f"{len(response) - len(rows)} rows, which cannot be read")
    return rows


def _rows_of(page: Page) -> Rows:
    try:
        return msgspec.json.decode(page.body, type=Rows)
    except msgspec.DecodeError:
        return msgspec.json.decode(standard_json(page.body), type=Rows)


def _csv(text: str) -> list[Mapping[str, Json]] | Retry:
    try:
        names, *lines = csv_lines(text) if text.strip() else [[]]
    except csv.Error as error:
        return Retry(f"the table cannot be read: {error}")
    if len(names) < 2 or (not lines and not text.endswith(("\n", "\r"))):
        return Retry("the response is not a table, or its end is missing")
    return [{name: cell for name, cell in zip_longest(names, line, fillvalue="") if name} for line in lines if line]


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """`ids.dataset`: the table's id, such as `9rz4-mjek`; `ids.app_token`: the operator's token, if any."""
    token = county.ids.get("app_token") if county is not None else None
    headers = {"X-App-Token": token} if token else {}
    if url := target_url(target, county):
        return await fetcher.get(url, headers=headers)
    known = require_county(county, target)
    table = f"{known.base}/resource/{quote_part(required_id(known, 'dataset'))}.json"
    where = where_clause(target, known)

    async def ask(start: int) -> tuple[Page, Rows | None, bool]:
        asked = {"$where": where, "$limit": str(PAGE_ROWS), "$offset": str(start), "$order": ":id"}
        page = await fetcher.get(f"{table}?{urlencode(asked)}", headers=headers)
        try:
            rows = _rows_of(page)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
            return page, None, False
        return page, rows, len(rows) >= PAGE_ROWS

    return await fetch_all_rows(ask, lambda _, rows: msgspec.json.encode(rows), distinct=False)


PLATFORM = CountyPlatform(name="socrata", version=7, sparse=True, read=read, fetch=fetch)
