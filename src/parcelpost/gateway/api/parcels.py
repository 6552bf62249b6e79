"""Routes for parcels and liens: lists, details with history, raw files and exports."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from parcelpost.gateway import downloads
from parcelpost.gateway.api.params import (
    FilterParams,
    LatestParams,
    ListParams,
    after_lien,
    after_parcel,
    before_lien,
    before_row,
    latest_lien_cursor,
    latest_parcel_cursor,
    lien_cursor,
    parcel_cursor,
    parse_parcel_path,
)
from parcelpost.gateway.api.responses import (
    Liens,
    ParcelDetail,
    Parcels,
    json_response,
    lien_response,
    parcel_response,
    record_response,
)
from parcelpost.gateway.context import Context
from parcelpost.gateway.downloads import Download, export_download
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.history import History
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ParcelKey
from parcelpost.gateway.openapi import download_responses, responses

_MOST_HISTORY = 100
_HISTORIES_AT_A_TIME = 2  # what is compared at the same time is in memory at the same time
_NO_PARCEL = "no such parcel is known here"
_NEVER_RENDERED = "sandbox; default-src 'none'; frame-ancestors 'none'"
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9]+")


def add_list_routes(routes: APIRouter, parts: Context) -> None:
    ledger = parts.ledger

    @routes.get("/parcels", responses=responses(Parcels))
    async def parcels(asked: Annotated[ListParams, Query()]) -> Response:
        """Parcels in the order of their keys, a page at a time; with large records a page has fewer than `limit`."""
        if asked.records:
            return json_response(await _with_records(ledger, asked))
        rows = await ledger.parcels(asked.wanted(), after_parcel(asked.cursor), asked.limit + 1)
        page = rows[: asked.limit]
        more = parcel_cursor(page[-1].parcel) if len(rows) > asked.limit else None
        return json_response(Parcels([parcel_response(row) for row in page], more))

    @routes.get("/parcels/latest", responses=responses(Parcels))
    async def latest(asked: Annotated[LatestParams, Query()]) -> Response:
        """Those that came last, the newest first, a page at a time."""
        rows = await ledger.latest_parcels(asked.wanted(), asked.limit + 1, before_row(asked.cursor))
        page = rows[: asked.limit]
        more = latest_parcel_cursor(page[-1]) if len(rows) > asked.limit else None
        return json_response(Parcels([parcel_response(row) for row in page], more))

    @routes.get("/liens", responses=responses(Liens))
    async def liens(asked: Annotated[ListParams, Query()]) -> Response:
        """Liens that themselves have the status and amount asked for."""
        rows = await ledger.liens(asked.wanted(), after_lien(asked.cursor), asked.limit + 1)
        page = rows[: asked.limit]
        more = lien_cursor(page[-1].parcel, page[-1].position) if len(rows) > asked.limit else None
        return json_response(Liens([lien_response(row, record=asked.records) for row in page], more))

    @routes.get("/liens/latest", responses=responses(Liens))
    async def latest_liens(asked: Annotated[LatestParams, Query()]) -> Response:
        """Liens of the parcels that came last, the newest first, a page at a time."""
        rows = await ledger.latest_liens(asked.wanted(), asked.limit + 1, before_lien(asked.cursor))
        page = rows[: asked.limit]
        more = latest_lien_cursor(page[-1]) if len(rows) > asked.limit else None
        return json_response(Liens([lien_response(row) for row in page], more))


async def _with_records(ledger: Ledger, asked: ListParams) -> Parcels:
    found = await ledger.records(asked.wanted(), after_parcel(asked.cursor), asked.limit)
    last = found[-1].row.parcel if found else None
    is_more = last is not None and await ledger.parcels(asked.wanted(), last, 1)
    return Parcels([record_response(one) for one in found], parcel_cursor(last) if last and is_more else None)


def add_parcel_routes(routes: APIRouter, parts: Context) -> None:
    """Two routes, for the documents' sake: which of them is meant shows only in the path as it was sent."""
    path = "/parcels/{platform}/{state}/{county}/{parcel_id:path}"
    turns = asyncio.Semaphore(_HISTORIES_AT_A_TIME)

    @routes.get(f"{path}/raw", responses=download_responses("application/octet-stream", 404))
    async def raw(
        request: Request, platform: str, state: str, county: str, parcel_id: str, sha256: str = ""
    ) -> Response:
        """The newest page kept of it, or that of a certain scrape, compressed with gzip."""
        return await _detail_or_raw(parts, turns, request, sha256)

    @routes.get(path, responses=responses(ParcelDetail, 404))
    async def one(request: Request, platform: str, state: str, county: str, parcel_id: str) -> Response:
        """The record, and what changed in it and when. What is empty is spelled `-`."""
        return await _detail_or_raw(parts, turns, request, "")


async def _detail_or_raw(parts: Context, turns: asyncio.Semaphore, request: Request, sha256: str) -> Response:
    found = parse_parcel_path(request.scope.get("raw_path") or request.url.path.encode())
    if found is None:
        raise ApiError(404, _NO_PARCEL)
    key, wants_raw = found
    if wants_raw:
        return await _raw(parts, request, key, sha256)
    async with turns:
        return await _detail(parts.ledger, key)


async def _detail(ledger: Ledger, key: ParcelKey) -> Response:
    found = await ledger.record(key)
    if found is None:
        raise ApiError(404, _NO_PARCEL)
    told = await _history(ledger, key)
    return await asyncio.to_thread(json_response, ParcelDetail(record_response(found), told.scrapes, not told.is_whole))


async def _history(ledger: Ledger, key: ParcelKey) -> History:
    """Read and compared in parts: a record may be large."""
    told = History(_MOST_HISTORY)
    while not told.is_full and (versions := await ledger.versions(key, told.room, told.oldest)):
        await asyncio.to_thread(told.add, versions)
    told.end()
    return told


async def _raw(parts: Context, request: Request, key: ParcelKey, sha256: str) -> Response:
    row = await parts.ledger.parcel(key)
    if row is None:
        raise ApiError(404, _NO_PARCEL)
    wanted = sha256 or row.raw_sha256
    if sha256 and sha256 != row.raw_sha256:
        wanted = sha256 if await parts.ledger.has_page(key, sha256) else None
    page = await parts.raw_store.open(wanted) if wanted else None
    if page is None:
        raise ApiError(404, "no such page of this parcel was kept")
    name = _NOT_IN_A_FILE_NAME.sub("_", f"{key.platform} {key.parcel_id}")[:100]
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.gz"',
        "Content-Length": str(page.size),
        "Content-Security-Policy": _NEVER_RENDERED,
    }
    path = f"GET {request.url.path}"
    return Download(page.chunks, parts, path, headers=headers, media_type="application/octet-stream")


def add_export_routes(routes: APIRouter, parts: Context) -> None:
    ledger = parts.ledger
    csv, jsonl = "text/csv; charset=utf-8", "application/x-ndjson"

    @routes.get("/export/parcels.csv", responses=download_responses("text/csv"))
    async def parcels_csv(request: Request, asked: Annotated[FilterParams, Query()]) -> Response:
        pages = downloads.parcel_pages(ledger, asked.wanted())
        return await export_download(parts, request, pages, downloads.ParcelCsv(), csv)

    @routes.get("/export/parcels.jsonl", responses=download_responses(jsonl))
    async def parcels_jsonl(request: Request, asked: Annotated[FilterParams, Query()]) -> Response:
        pages = downloads.parcel_pages(ledger, asked.wanted())
        return await export_download(parts, request, pages, downloads.ParcelJsonl(), jsonl)

    @routes.get("/export/liens.csv", responses=download_responses("text/csv"))
    async def liens_csv(request: Request, asked: Annotated[FilterParams, Query()]) -> Response:
        pages = downloads.lien_pages(ledger, asked.wanted())
        return await export_download(parts, request, pages, downloads.LienCsv(), csv)

    @routes.get("/export/liens.jsonl", responses=download_responses(jsonl))
    async def liens_jsonl(request: Request, asked: Annotated[FilterParams, Query()]) -> Response:
        pages = downloads.lien_pages(ledger, asked.wanted())
        return await export_download(parts, request, pages, downloads.LienJsonl(), jsonl)
