"""Routes for parcels and liens: lists, details with history, raw files and exports."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response

from parcelpost.export import Format
from parcelpost.gateway.api.params import (
    FilterParams,
    LatestParams,
    ListParams,
    RawParams,
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
    lien_response,
    parcel_response,
    record_response,
)
from parcelpost.gateway.context import Context
from parcelpost.gateway.downloads import Download, lien_download, parcel_download
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.history import History
from parcelpost.gateway.models import ParcelKey
from parcelpost.gateway.routes import JSON, Role, Route, add, encode

_MAX_SCRAPES = 100
_HISTORIES_AT_A_TIME = 2  # records that are compared at the same time are in memory at the same time
_NO_PARCEL = "no such parcel"
_NEVER_RENDERED = "sandbox; default-src 'none'; frame-ancestors 'none'"
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9]+")
_CSV, _JSONL = "text/csv", "application/x-ndjson"
_PARCEL = "/v1/parcels/{platform}/{state}/{county}/{parcel_id:path}"


class ParcelsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger
        self._histories = asyncio.Semaphore(_HISTORIES_AT_A_TIME)

    def routes(self) -> list[Route]:
        return [
            add("GET", "/v1/parcels", self.parcels, Role.READER),
            add("GET", "/v1/parcels/latest", self.latest_parcels, Role.READER),
            add("GET", "/v1/liens", self.liens, Role.READER),
            add("GET", "/v1/liens/latest", self.latest_liens, Role.READER),
            add("GET", f"{_PARCEL}/raw", self.raw, Role.READER, errors=(404,), media_type="application/octet-stream"),
            add("GET", _PARCEL, self.parcel, Role.READER, errors=(404,), reply_type=ParcelDetail),
            add("GET", "/v1/export/parcels.csv", self.parcels_csv, Role.READER, media_type=_CSV),
            add("GET", "/v1/export/parcels.jsonl", self.parcels_jsonl, Role.READER, media_type=_JSONL),
            add("GET", "/v1/export/liens.csv", self.liens_csv, Role.READER, media_type=_CSV),
            add("GET", "/v1/export/liens.jsonl", self.liens_jsonl, Role.READER, media_type=_JSONL),
        ]

    async def parcels(self, query: ListParams) -> Parcels:
        """List parcels ordered by key. With `records`, a page may hold fewer than `limit` parcels."""
        if query.records:
            return await self._with_records(query)
        rows = await self._ledger.parcels(query.filter(), after_parcel(query.cursor), query.limit + 1)
        page = rows[: query.limit]
        more = parcel_cursor(page[-1].parcel) if len(rows) > query.limit else None
        return Parcels([parcel_response(row) for row in page], more)

    async def latest_parcels(self, query: LatestParams) -> Parcels:
        """List the most recently received parcels, newest first."""
        rows = await self._ledger.latest_parcels(query.filter(), query.limit + 1, before_row(query.cursor))
        page = rows[: query.limit]
        more = latest_parcel_cursor(page[-1]) if len(rows) > query.limit else None
        return Parcels([parcel_response(row) for row in page], more)

    async def liens(self, query: ListParams) -> Liens:
        """List liens. Status and amount are matched against each lien."""
        rows = await self._ledger.liens(query.filter(), after_lien(query.cursor), query.limit + 1)
        page = rows[: query.limit]
        more = lien_cursor(page[-1].parcel, page[-1].position) if len(rows) > query.limit else None
        return Liens([lien_response(row, record=query.records) for row in page], more)

    async def latest_liens(self, query: LatestParams) -> Liens:
        """List the liens of the most recently received parcels, newest first."""
        rows = await self._ledger.latest_liens(query.filter(), query.limit + 1, before_lien(query.cursor))
        page = rows[: query.limit]
        more = latest_lien_cursor(page[-1]) if len(rows) > query.limit else None
        return Liens([lien_response(row) for row in page], more)

    async def _with_records(self, query: ListParams) -> Parcels:
        records = await self._ledger.records(query.filter(), after_parcel(query.cursor), query.limit)
        last = records[-1].row.parcel if records else None
        has_more = last is not None and await self._ledger.parcels(query.filter(), last, 1)
        more = parcel_cursor(last) if last and has_more else None
        return Parcels([record_response(record) for record in records], more)

    # Only the path as it was sent shows whether a detail or a raw file is meant: a parcel number may end in /raw.

    async def raw(self, request: Request, query: RawParams) -> Response:
        """Download the newest raw page of a parcel, or that of an earlier scrape, gzip-compressed."""
        return await self._detail_or_raw(request, query.sha256)

    async def parcel(self, request: Request) -> Response:
        """Return a parcel's record and how it changed over time. An empty part of the path is written as `-`."""
        return await self._detail_or_raw(request, "")

    async def _detail_or_raw(self, request: Request, sha256: str) -> Response:
        found = parse_parcel_path(request.scope.get("raw_path") or request.url.path.encode())
        if found is None:
            raise ApiError(404, _NO_PARCEL)
        key, wants_raw = found
        if wants_raw:
            return await self._raw(request, key, sha256)
        async with self._histories:
            return await self._detail(key)

    async def _detail(self, key: ParcelKey) -> Response:
        record = await self._ledger.record(key)
        if record is None:
            raise ApiError(404, _NO_PARCEL)
        history = await self._history(key)
        detail = ParcelDetail(record_response(record), history.scrapes, not history.is_whole)
        return Response(await asyncio.to_thread(encode, detail), media_type=JSON)

    async def _history(self, key: ParcelKey) -> History:
        """Read and compared a few versions at a time: records may be large."""
        history = History(_MAX_SCRAPES)
        while not history.is_full and (versions := await self._ledger.versions(key, history.room, history.oldest)):
            await asyncio.to_thread(history.add, versions)
        history.end()
        return history

    async def _raw(self, request: Request, key: ParcelKey, sha256: str) -> Response:
        row = await self._ledger.parcel(key)
        if row is None:
            raise ApiError(404, _NO_PARCEL)
        wanted = sha256 or row.raw_sha256
        if sha256 and sha256 != row.raw_sha256:
            wanted = sha256 if await self._ledger.has_page(key, sha256) else None
        page = await self._context.raw_store.open(wanted) if wanted else None
        if page is None:
            raise ApiError(404, "no such raw page is stored for this parcel")
        name = _NOT_IN_A_FILE_NAME.sub("_", f"{key.platform} {key.parcel_id}")[:100]
        headers = {
            "Content-Disposition": f'attachment; filename="{name}.gz"',
            "Content-Length": str(page.size),
            "Content-Security-Policy": _NEVER_RENDERED,
        }
        path = f"GET {request.url.path}"
        return Download(page.chunks, self._context, path, headers=headers, media_type="application/octet-stream")

    async def parcels_csv(self, query: FilterParams) -> Response:
        """Download parcels as CSV, with the columns of `parcelpost export`."""
        return await parcel_download(self._context, query.filter(), Format.CSV)

    async def parcels_jsonl(self, query: FilterParams) -> Response:
        """Download parcels as JSON lines, each with its full record."""
        return await parcel_download(self._context, query.filter(), Format.JSONL)

    async def liens_csv(self, query: FilterParams) -> Response:
        """Download liens as CSV, with the columns of `parcelpost export`."""
        return await lien_download(self._context, query.filter(), Format.CSV)

    async def liens_jsonl(self, query: FilterParams) -> Response:
        """Download liens as JSON lines."""
        return await lien_download(self._context, query.filter(), Format.JSONL)
