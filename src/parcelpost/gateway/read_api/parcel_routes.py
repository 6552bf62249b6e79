"""Parcels and liens: lists, one with its history, its raw file, and whole exports."""

from __future__ import annotations

import asyncio
import re
from typing import Annotated

from fastapi import APIRouter, Query, Request
from starlette.responses import Response

from parcelpost.gateway import exporting
from parcelpost.gateway.history import History
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.read_api.addresses import read_address
from parcelpost.gateway.read_api.answers import (
    Liens,
    OneParcel,
    Parcels,
    json_answer,
    lien_answer,
    parcel_answer,
    record_answer,
)
from parcelpost.gateway.read_api.asking import (
    Filters,
    Latest,
    Listed,
    after_lien,
    after_parcel,
    before_lien,
    before_row,
    latest_lien_cursor,
    latest_parcel_cursor,
    lien_cursor,
    parcel_cursor,
)
from parcelpost.gateway.read_api.declaring import answers, download
from parcelpost.gateway.read_api.downloads import Download, download_of
from parcelpost.gateway.refusals import Refusal
from parcelpost.gateway.words import ParcelKey

_MOST_HISTORY = 100
_HISTORIES_AT_A_TIME = 2  # what is compared at the same time is in memory at the same time
_NO_PARCEL = "no such parcel is known here"
_NEVER_RENDERED = "sandbox; default-src 'none'; frame-ancestors 'none'"
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9]+")


def add_lists(routes: APIRouter, parts: Parts) -> None:
    ledger = parts.ledger

    @routes.get("/parcels", responses=answers(Parcels))
    async def parcels(asked: Annotated[Listed, Query()]) -> Response:
        """Parcels in the order of their keys, a page at a time; with large records a page has fewer than `limit`."""
        if asked.records:
            return json_answer(await _with_records(ledger, asked))
        rows = await ledger.parcels(asked.wanted(), after_parcel(asked.cursor), asked.limit + 1)
        page = rows[: asked.limit]
        more = parcel_cursor(page[-1].parcel) if len(rows) > asked.limit else None
        return json_answer(Parcels([parcel_answer(row) for row in page], more))

    @routes.get("/parcels/latest", responses=answers(Parcels))
    async def latest(asked: Annotated[Latest, Query()]) -> Response:
        """Those that came last, the newest first, a page at a time."""
        rows = await ledger.latest_parcels(asked.wanted(), asked.limit + 1, before_row(asked.cursor))
        page = rows[: asked.limit]
        more = latest_parcel_cursor(page[-1]) if len(rows) > asked.limit else None
        return json_answer(Parcels([parcel_answer(row) for row in page], more))

    @routes.get("/liens", responses=answers(Liens))
    async def liens(asked: Annotated[Listed, Query()]) -> Response:
        """Liens that themselves have the status and amount asked for."""
        rows = await ledger.liens(asked.wanted(), after_lien(asked.cursor), asked.limit + 1)
        page = rows[: asked.limit]
        more = lien_cursor(page[-1].parcel, page[-1].position) if len(rows) > asked.limit else None
        return json_answer(Liens([lien_answer(row, record=asked.records) for row in page], more))

    @routes.get("/liens/latest", responses=answers(Liens))
    async def latest_liens(asked: Annotated[Latest, Query()]) -> Response:
        """Liens of the parcels that came last, the newest first, a page at a time."""
        rows = await ledger.latest_liens(asked.wanted(), asked.limit + 1, before_lien(asked.cursor))
        page = rows[: asked.limit]
        more = latest_lien_cursor(page[-1]) if len(rows) > asked.limit else None
        return json_answer(Liens([lien_answer(row) for row in page], more))


async def _with_records(ledger: Ledger, asked: Listed) -> Parcels:
    found = await ledger.records(asked.wanted(), after_parcel(asked.cursor), asked.limit)
    last = found[-1].row.parcel if found else None
    is_more = last is not None and await ledger.parcels(asked.wanted(), last, 1)
    return Parcels([record_answer(one) for one in found], parcel_cursor(last) if last and is_more else None)


def add_one(routes: APIRouter, parts: Parts) -> None:
    """Two routes, for the documents' sake: which of them is meant shows only in the path as it was sent."""
    path = "/parcels/{platform}/{state}/{county}/{parcel_id:path}"
    turns = asyncio.Semaphore(_HISTORIES_AT_A_TIME)

    @routes.get(f"{path}/raw", responses=download("application/octet-stream", 404))
    async def raw(
        request: Request, platform: str, state: str, county: str, parcel_id: str, sha256: str = ""
    ) -> Response:
        """The newest page kept of it, or that of a certain scrape, compressed with gzip."""
        return await _one_or_raw(parts, turns, request, sha256)

    @routes.get(path, responses=answers(OneParcel, 404))
    async def one(request: Request, platform: str, state: str, county: str, parcel_id: str) -> Response:
        """The record, and what changed in it and when. What is empty is spelled `-`."""
        return await _one_or_raw(parts, turns, request, "")


async def _one_or_raw(parts: Parts, turns: asyncio.Semaphore, request: Request, sha256: str) -> Response:
    found = read_address(request.scope.get("raw_path") or request.url.path.encode())
    if found is None:
        raise Refusal(404, _NO_PARCEL)
    key, wants_raw = found
    if wants_raw:
        return await _raw(parts, request, key, sha256)
    async with turns:
        return await _one(parts.ledger, key)


async def _one(ledger: Ledger, key: ParcelKey) -> Response:
    found = await ledger.record(key)
    if found is None:
        raise Refusal(404, _NO_PARCEL)
    told = await _history(ledger, key)
    return await asyncio.to_thread(json_answer, OneParcel(record_answer(found), told.scrapes, not told.is_whole))


async def _history(ledger: Ledger, key: ParcelKey) -> History:
    """Read and compared in parts: a record may be large."""
    told = History(_MOST_HISTORY)
    while not told.is_full and (versions := await ledger.versions(key, told.room, told.oldest)):
        await asyncio.to_thread(told.add, versions)
    told.end()
    return told


async def _raw(parts: Parts, request: Request, key: ParcelKey, sha256: str) -> Response:
    row = await parts.ledger.parcel(key)
    if row is None:
        raise Refusal(404, _NO_PARCEL)
    wanted = sha256 or row.raw_sha256
    if sha256 and sha256 != row.raw_sha256:
        wanted = sha256 if await parts.ledger.has_page(key, sha256) else None
    page = await parts.raw_store.open(wanted) if wanted else None
    if page is None:
        raise Refusal(404, "no such page of this parcel was kept")
    name = _NOT_IN_A_FILE_NAME.sub("_", f"{key.platform} {key.parcel_id}")[:100]
    headers = {
        "Content-Disposition": f'attachment; filename="{name}.gz"',
        "Content-Length": str(page.size),
        "Content-Security-Policy": _NEVER_RENDERED,
    }
    path = f"GET {request.url.path}"
    return Download(page.chunks, parts, path, headers=headers, media_type="application/octet-stream")


def add_exports(routes: APIRouter, parts: Parts) -> None:
    ledger = parts.ledger
    csv, jsonl = "text/csv; charset=utf-8", "application/x-ndjson"

    @routes.get("/export/parcels.csv", responses=download("text/csv"))
    async def parcels_csv(request: Request, asked: Annotated[Filters, Query()]) -> Response:
        pages = exporting.parcel_pages(ledger, asked.wanted())
        return await download_of(parts, request, pages, exporting.ParcelCsv(), csv)

    @routes.get("/export/parcels.jsonl", responses=download(jsonl))
    async def parcels_jsonl(request: Request, asked: Annotated[Filters, Query()]) -> Response:
        pages = exporting.parcel_pages(ledger, asked.wanted())
        return await download_of(parts, request, pages, exporting.ParcelJsonl(), jsonl)

    @routes.get("/export/liens.csv", responses=download("text/csv"))
    async def liens_csv(request: Request, asked: Annotated[Filters, Query()]) -> Response:
        pages = exporting.lien_pages(ledger, asked.wanted())
        return await download_of(parts, request, pages, exporting.LienCsv(), csv)

    @routes.get("/export/liens.jsonl", responses=download(jsonl))
    async def liens_jsonl(request: Request, asked: Annotated[Filters, Query()]) -> Response:
        pages = exporting.lien_pages(ledger, asked.wanted())
        return await download_of(parts, request, pages, exporting.LienJsonl(), jsonl)
