"""Routes for parcels and liens: lists, details with history, raw files and exports."""

from __future__ import annotations

import asyncio
import re

from starlette.requests import Request
from starlette.responses import Response

from parcelpost.export import Format
from parcelpost.gateway.api.params import (
    AfterLien,
    BeforeLien,
    BeforeRow,
    ChangesParams,
    FilterParams,
    LatestChangesParams,
    LatestParams,
    ListParams,
    RawParams,
    first_page,
    make_cursor,
    read_cursor,
)
from parcelpost.gateway.api.responses import (
    Changes,
    LatestChanges,
    Liens,
    MapLayersReply,
    ParcelDetail,
    Parcels,
    SourceDetail,
    lien_response,
    parcel_response,
    record_responses,
    source_detail,
)
from parcelpost.gateway.context import Context
from parcelpost.gateway.downloads import NEVER_RENDERED, Download, lien_download, parcel_download, shown_page
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.history import History, change_response
from parcelpost.gateway.map_layers import MapOutline
from parcelpost.gateway.models import ParcelKey, ParcelRow, SourceKey
from parcelpost.gateway.parcel_paths import parse_parcel_path
from parcelpost.gateway.routes import JSON, Role, Route, encode

_MAX_SCRAPES = 100
_HISTORIES_AT_A_TIME = 2  # records that are compared at the same time are in memory at the same time
_NO_PARCEL = "no such parcel"
_NOT_IN_A_FILE_NAME = re.compile(r"[^A-Za-z0-9]+")
_CSV, _JSONL = "text/csv", "application/x-ndjson"
_OUTLINE = "/v1/map/outline"
_PARCEL = "/v1/parcels/{state}/{county}/{parcel_id:path}"


class ParcelsApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger
        self._histories = asyncio.Semaphore(_HISTORIES_AT_A_TIME)

    def routes(self) -> list[Route]:
        return [
            Route("GET", "/v1/parcels", self.parcels, Role.READER),
            Route("GET", "/v1/parcels/latest", self.latest_parcels, Role.READER),
            Route("GET", "/v1/liens", self.liens, Role.READER),
            Route("GET", "/v1/liens/latest", self.latest_liens, Role.READER),
            Route("GET", "/v1/changes", self.changes, Role.READER),
            Route("GET", "/v1/changes/latest", self.latest_changes, Role.READER),
            Route("GET", f"{_PARCEL}/raw", self.raw, Role.READER, errors=(404,), media_type="application/octet-stream"),
            Route("GET", f"{_PARCEL}/page", self.page, Role.READER, errors=(404,), media_type="text/html"),
            Route("GET", _PARCEL, self.parcel, Role.READER, errors=(404,), reply_type=ParcelDetail),
            Route("GET", "/v1/map", self.map_layers, Role.READER),
            Route("GET", _OUTLINE, self.map_outline, Role.READER, errors=(404,), reply_type=MapOutline),
            Route("GET", "/v1/export/parcels.csv", self.parcels_csv, Role.READER, media_type=_CSV),
            Route("GET", "/v1/export/parcels.jsonl", self.parcels_jsonl, Role.READER, media_type=_JSONL),
            Route("GET", "/v1/export/liens.csv", self.liens_csv, Role.READER, media_type=_CSV),
            Route("GET", "/v1/export/liens.jsonl", self.liens_jsonl, Role.READER, media_type=_JSONL),
        ]

    async def parcels(self, query: ListParams) -> Parcels:
        """List parcels ordered by place and number, each with its sources.

        With `records`, only matching sources are listed and `limit` counts sources. A page may have fewer, and a
        parcel's sources may continue on the next page.
        """
        if query.records:
            return await self._with_records(query)
        rows = await self._ledger.parcels(query.filter(), read_cursor(query.cursor, ParcelKey), query.limit + 1)
        page, more = first_page(rows, query.limit, lambda row: row.parcel)
        return Parcels([parcel_response(row) for row in page], more)

    async def latest_parcels(self, query: LatestParams) -> Parcels:
        """List the most recently received parcels, newest first."""
        before = read_cursor(query.cursor, BeforeRow)
        rows = await self._ledger.latest_parcels(query.filter(), query.limit + 1, before)
        page, more = first_page(rows, query.limit, lambda row: (row.received_at, row.parcel_no))
        return Parcels([parcel_response(row) for row in page], more)

    async def liens(self, query: ListParams) -> Liens:
        """List liens, each once with its sources. Status and amount are matched against each lien."""
        rows = await self._ledger.liens(query.filter(), read_cursor(query.cursor, AfterLien), query.limit + 1)
        page, more = first_page(rows, query.limit, lambda row: (row.parcel, row.lien.key))
        return Liens([lien_response(row, record=query.records) for row in page], more)

    async def latest_liens(self, query: LatestParams) -> Liens:
        """List the liens of the most recently received parcels, newest first."""
        before = read_cursor(query.cursor, BeforeLien)
        rows = await self._ledger.latest_liens(query.filter(), query.limit + 1, before)
        page, more = first_page(rows, query.limit, lambda row: (row.received_at, row.parcel_no, row.lien.key))
        return Liens([lien_response(row) for row in page], more)

    async def changes(self, query: ChangesParams) -> Changes:
        """List changes in the order in which they were found: new parcels and liens, owners, values, taxes, sales.

        For the next page, send the response's `next` as `since`, immediately if `more` is true. No change is skipped,
        and none is repeated unless you send the same number again. A response may be empty although there are more.
        """
        page = await self._ledger.changes(query.filter(), query.since, query.limit)
        if query.since > page.last:
            raise ApiError(422, f"since: the last change is {page.last}; was the ledger restored from a backup?")
        return Changes([change_response(row) for row in page.rows], page.next, page.next < page.last)

    async def latest_changes(self, query: LatestChangesParams) -> LatestChanges:
        """List changes, the last found first."""
        page = await self._ledger.latest_changes(query.filter(), query.before, query.limit)
        return LatestChanges([change_response(row) for row in page.rows], page.next or None)

    async def _with_records(self, query: ListParams) -> Parcels:
        records = await self._ledger.records(query.filter(), read_cursor(query.cursor, SourceKey), query.limit)
        last = records[-1].source.source if records else None
        has_more = last is not None and await self._ledger.records(query.filter(), last, 1)
        return Parcels(record_responses(records), make_cursor(last) if has_more else None)

    # Only the path as it was sent shows whether a detail or a file is meant: a parcel number may end in /raw or /page.

    async def raw(self, request: Request, query: RawParams) -> Response:
        """Download a parcel's newest raw page, that of one platform, or that of an earlier scrape, gzip-compressed."""
        return await self._detail_or_file(request, query)

    async def page(self, request: Request, query: RawParams) -> Response:
        """Show a raw page in a browser, without its scripts and without anything that it loads from elsewhere."""
        return await self._detail_or_file(request, query)

    async def parcel(self, request: Request) -> Response:
        """Return a parcel, with the record and the history of each source.

        Write an empty part of the path as `-`. Punctuation in the number is ignored.
        """
        return await self._detail_or_file(request, RawParams())

    async def _detail_or_file(self, request: Request, query: RawParams) -> Response:
        parsed = parse_parcel_path(request.scope.get("raw_path") or request.url.path.encode())
        if parsed is None:
            raise ApiError(404, _NO_PARCEL)
        key, wanted = parsed
        if wanted:
            return await self._file(request, key, query, is_download=wanted == "raw")
        async with self._histories:
            return await self._detail(await self._row(key))

    async def _row(self, key: ParcelKey) -> ParcelRow:
        row = await self._ledger.parcel(key)
        if row is None:
            raise ApiError(404, _NO_PARCEL)
        return row

    async def _detail(self, row: ParcelRow) -> Response:
        sources: list[SourceDetail] = []
        for source in row.sources:
            record = await self._ledger.record(source.source)
            if record is not None:
                history = await self._history(source.source)
                sources.append(await asyncio.to_thread(source_detail, record, history))
        detail = ParcelDetail(parcel_response(row), sources)
        return Response(await asyncio.to_thread(encode, detail), media_type=JSON)

    async def _history(self, key: SourceKey) -> History:
        """Read and compared a few versions at a time: records may be large."""
        history = History(_MAX_SCRAPES)
        while not history.is_full and (versions := await self._ledger.versions(key, history.room, history.oldest)):
            await asyncio.to_thread(history.add, versions)
        history.end()
        return history

    async def _file(self, request: Request, key: ParcelKey, query: RawParams, *, is_download: bool) -> Response:
        row = await self._row(key)
        newest = (source.raw_sha256 for source in row.sources if query.platform in (source.source.platform, ""))
        wanted = query.sha256 or next(filter(None, newest), None)
        if query.sha256 and not await self._ledger.has_page(key, query.sha256):
            wanted = None
        page = await self._context.raw_store.open(wanted) if wanted else None
        if page is None:
            raise ApiError(404, "no such raw page is stored for this parcel")
        path = f"GET {request.url.path}"
        if not is_download:
            return shown_page(page, self._context, path)
        name = _NOT_IN_A_FILE_NAME.sub("_", row.parcel_id)[:100]
        headers = {
            "Content-Disposition": f'attachment; filename="{name}.gz"',
            "Content-Length": str(page.size),
            "Content-Security-Policy": NEVER_RENDERED,
        }
        return Download(page.chunks, self._context, path, headers=headers, media_type="application/octet-stream")

    async def map_layers(self) -> MapLayersReply:
        """Return which background the map has: none, unless the settings name one."""
        layers = self._context.map_layers
        return MapLayersReply(tiles=layers.tiles, outline=_OUTLINE if layers.outline else None)

    async def map_outline(self) -> Response:
        """Return the lines of the file that `server.map_outline` names."""
        if not self._context.map_layers.outline:
            raise ApiError(404, "server.map_outline names no file")
        return Response(self._context.map_layers.outline, media_type=JSON)

    async def parcels_csv(self, query: FilterParams) -> Response:
        """Download parcels as CSV, with the columns of `parcelpost export`: one row for each source that matches."""
        return await parcel_download(self._context, query.filter(), Format.CSV)

    async def parcels_jsonl(self, query: FilterParams) -> Response:
        """Download parcels as JSON lines: one for each source that matches, with its full record."""
        return await parcel_download(self._context, query.filter(), Format.JSONL)

    async def liens_csv(self, query: FilterParams) -> Response:
        """Download liens as CSV, with the columns of `parcelpost export`: one row for each lien, merged."""
        return await lien_download(self._context, query.filter(), Format.CSV)

    async def liens_jsonl(self, query: FilterParams) -> Response:
        """Download liens as JSON lines, each merged from its sources."""
        return await lien_download(self._context, query.filter(), Format.JSONL)
