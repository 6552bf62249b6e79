"""Downloads, written page by page by the exporter's writers: records of parcels and liens, tables as a search shows
them, and raw files.
"""

from __future__ import annotations

import asyncio
import tempfile
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from functools import cache
from importlib.util import find_spec
from pathlib import Path
from typing import Any, BinaryIO, Protocol, cast

from starlette.responses import StreamingResponse
from starlette.types import Send

from parcelpost.errors import LedgerError, RawStoreUnavailable, extra_hint
from parcelpost.events import DownloadCut
from parcelpost.export import Format
from parcelpost.export.columns import Column
from parcelpost.export.tables import TABLES, Parcel, Row, Table, read_record
from parcelpost.export.text_formats import CsvSink, JsonlSink, json_lines
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError, reason_of
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import LienRow, ParcelFilter, ParcelKey, ParcelRecord, SourceKey
from parcelpost.object_store import RawPage

PAGE_ROWS = 250
"""Rows in memory at once, or fewer if their records are large."""

MEDIA_TYPES = {
    Format.CSV: "text/csv; charset=utf-8",
    Format.JSONL: "application/x-ndjson",
    Format.EXCEL: "application/vnd.openxmlformats-officedocument.spreadsheetml.sheet",
    Format.PARQUET: "application/vnd.apache.parquet",
    Format.GEOJSON: "application/geo+json",
}

_PACKAGES = {Format.EXCEL: "xlsxwriter", Format.PARQUET: "pyarrow"}

Rows = Callable[[], Sequence[Parcel]]
"""A page of rows that have been read from the ledger; decoding them may take a while."""


async def parcel_download(context: Context, wanted: ParcelFilter, form: Format) -> Download:
    """Raises LedgerError if the first page cannot be read."""
    return await _download(context, "export", TABLES["parcels"], _parcel_pages(context.ledger, wanted), form)


async def lien_download(context: Context, wanted: ParcelFilter, form: Format) -> Download:
    """Raises LedgerError if the first page cannot be read."""
    return await _download(context, "export", TABLES["liens"], _lien_pages(context.ledger, wanted), form)


async def _parcel_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Rows]:
    after: SourceKey | None = None
    while records := await ledger.records(wanted, after, PAGE_ROWS):
        yield lambda page=records: [exported_parcel(record) for record in page]  # type: ignore[misc]
        after = records[-1].source.source


async def _lien_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Rows]:
    after: tuple[ParcelKey, str] | None = None
    while rows := await ledger.liens(wanted, after, PAGE_ROWS):
        yield lambda page=rows: [exported_lien(row) for row in page if row.sources]  # type: ignore[misc]
        after = (rows[-1].parcel, rows[-1].lien.key)


def exported_parcel(record: ParcelRecord) -> Parcel:
    """A parcel as shown by one of its sources."""
    source, fields = record.source, read_record(record.data)
    key = source.source
    return Parcel(
        key=(key.platform, key.state, key.county, source.parcel_id),
        task_id=source.task_id,
        status="record",
        error=None,
        scraped_at=source.scraped_at,
        stored_at=source.received_at,
        data=record.data,
        fields=fields or {},
        is_readable=fields is not None,
    )


def exported_lien(row: LienRow) -> Parcel:
    """A parcel with this one lien, merged from its sources, at the position it has in the newest of them."""
    newest = row.sources[0]
    return Parcel(
        key=(newest.platform, row.parcel.state, row.parcel.county, newest.parcel_id),
        task_id="",
        status="record",
        error=None,
        scraped_at=newest.scraped_at,
        stored_at=row.received_at,
        data=None,
        fields={"liens": [read_record(row.lien.json) or {}]},
        is_readable=True,
        first_position=newest.position + 1,
    )


async def _download(context: Context, folder: str, table: Table, pages: AsyncIterator[Rows], form: Format) -> Download:
    first = await anext(pages, list)
    body = _excel_body(first, pages, table) if form is Format.EXCEL else _table_body(first, pages, table, form)
    file = f"{table.name}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    return Download(body, context, f"GET /v1/{folder}/{file}", headers=headers, media_type=MEDIA_TYPES[form])


class TableRow(Protocol):
    """A row of a table, and where it is on the map."""

    @property
    def values(self) -> Row: ...
    @property
    def point(self) -> tuple[float, float] | None: ...


TablePages = AsyncIterator[Callable[[], Sequence[TableRow]]]
"""Pages of rows that have been read from the ledger; converting them may take a while."""

_NEVER = datetime(1970, 1, 1, tzinfo=UTC)
_TABLES_AT_A_TIME = 2
"""Of those whose file is made before the first byte is sent."""
_CHUNK_BYTES = 256 * 1024


async def table_download(
    context: Context, name: str, columns: Sequence[Column], pages: TablePages, form: Format
) -> Download:
    """A table as a search shows it, in all formats but GeoPackage.

    Raises LedgerError if the first page cannot be read, ApiError (501) where a format's package is missing.
    """
    await _check_packages(form)
    table = Table(name, "row", tuple(columns), lambda parcel: [parcel.fields["row"]])
    return await _download(context, "search", table, _as_parcels(pages), form)


async def _as_parcels(pages: TablePages) -> AsyncIterator[Rows]:
    async for read in pages:
        yield lambda read=read: list(map(_as_parcel, read()))  # type: ignore[misc]


@cache
def table_formats() -> Sequence[Format]:
    """Returns the formats that this installation can write."""
    return [form for form in MEDIA_TYPES if form not in _PACKAGES or find_spec(_PACKAGES[form]) is not None]


async def _check_packages(form: Format) -> None:
    def load() -> None:
        if form is Format.EXCEL:
            import parcelpost.export.excel  # noqa: PLC0415 - an extra
        elif form is Format.PARQUET:
            import parcelpost.export.parquet  # noqa: F401, PLC0415 - an extra

    try:
        await asyncio.to_thread(load)
    except ModuleNotFoundError as error:
        message = f"{form} needs the package {error.name}, which the gateway does not have: {extra_hint('export')}"
        raise ApiError(501, message) from None


class _Output:
    """A file that is sent while it is written."""

    closed = False

    def __init__(self) -> None:
        self._parts: list[bytes] = []
        self._written = 0

    def write(self, data: bytes) -> int:
        self._parts.append(bytes(data))
        self._written += len(self._parts[-1])
        return len(self._parts[-1])

    def tell(self) -> int:
        return self._written

    def flush(self) -> None:
        pass

    def seekable(self) -> bool:
        return False

    def take(self) -> bytes:
        parts, self._parts = self._parts, []
        return b"".join(parts)


class _LinesSink:
    def __init__(self, stream: BinaryIO) -> None:
        self._stream = stream

    def write(self, table: Table, parcels: Sequence[Parcel]) -> None:
        names = [column.name for column in table.columns]
        lines = [dict(zip(names, row, strict=True)) for parcel in parcels for row in table.rows(parcel)]
        self._stream.write(json_lines(lines))

    def close(self) -> None:
        pass


def table_sink(table: Table, form: Format, stream: BinaryIO) -> Any:
    match form:
        case Format.CSV:
            return CsvSink({table.name: stream}, [table], bom=False, guard=True)
        case Format.PARQUET:
            from parcelpost.export.parquet import ParquetSink  # noqa: PLC0415 - an extra

            return ParquetSink({table.name: stream}, [table])
        case Format.GEOJSON:
            from parcelpost.export.geo import GeoJsonSink  # noqa: PLC0415 - loads SQLite

            return GeoJsonSink(stream, may_be_empty=True)
        case _ if table is TABLES.get(table.name):
            return JsonlSink({table.name: stream})
        case _:
            return _LinesSink(stream)


async def _table_body(first: Rows, pages: AsyncIterator[Rows], table: Table, form: Format) -> AsyncIterator[bytes]:
    output = _Output()
    sink = await asyncio.to_thread(table_sink, table, form, cast(BinaryIO, output))

    def write(read: Rows) -> bytes:
        sink.write(table, read())
        return output.take()

    yield await asyncio.to_thread(write, first)
    async for page in pages:
        yield await asyncio.to_thread(write, page)
    await asyncio.to_thread(sink.close)
    yield output.take()


_excel_files = asyncio.Semaphore(_TABLES_AT_A_TIME)


async def _excel_body(first: Rows, pages: AsyncIterator[Rows], table: Table) -> AsyncIterator[bytes]:
    """A workbook is a zip file whose first part is known last: it is made on disk."""
    from parcelpost.export.excel import ExcelSink  # noqa: PLC0415 - an extra

    async with _excel_files:
        with tempfile.TemporaryDirectory(prefix="parcelpost-") as folder, tempfile.TemporaryFile() as file:
            sink = ExcelSink(cast(BinaryIO, file), Path(folder), [table])
            try:
                await asyncio.to_thread(lambda: sink.write(table, first()))
                async for page in pages:
                    await asyncio.to_thread(lambda read=page: sink.write(table, read()))  # type: ignore[misc]
                    yield b""  # a stopping gateway ends it
                await asyncio.to_thread(sink.close)
            except BaseException:
                sink.abandon()
                raise
            file.seek(0)
            while chunk := await asyncio.to_thread(file.read, _CHUNK_BYTES):
                yield chunk


def _as_parcel(row: TableRow) -> Parcel:
    longitude, latitude = (Decimal(repr(part)) for part in row.point) if row.point else (None, None)
    fields: Mapping[str, Any] = {"row": row.values, "longitude": longitude, "latitude": latitude}
    return Parcel(
        key=("", "", "", ""),
        task_id="",
        status="record",
        error=None,
        scraped_at=_NEVER,
        stored_at=_NEVER,
        data=None,
        fields=fields,
        is_readable=True,
    )


NEVER_RENDERED = "sandbox; default-src 'none'; frame-ancestors 'none'"
"""Content-Security-Policy of a file that a browser should only save, or show as an image."""
_RENDERED_ALONE = "sandbox; default-src 'none'; style-src 'unsafe-inline'; img-src data:; frame-ancestors 'none'"


def shown_page(page: RawPage, context: Context, path: str) -> Download:
    """A page that a site sent, for a browser, without its scripts and without anything that it loads from elsewhere."""
    headers = {"Content-Encoding": "gzip", "Content-Security-Policy": _RENDERED_ALONE}
    headers["Content-Type"] = "text/html"  # without a charset: the browser finds it in the page
    return Download(page.chunks, context, path, headers=headers)


class Download(StreamingResponse):
    """Cut off when its source fails or the gateway stops, so that nobody mistakes a part for the whole."""

    def __init__(
        self,
        body: AsyncIterator[bytes],
        context: Context,
        path: str,
        *,
        headers: dict[str, str],
        media_type: str | None = None,
    ) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._context = context
        self._path = path

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                if self._context.stopping.is_set():
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (LedgerError, RawStoreUnavailable) as error:
            self._context.emit(DownloadCut(path=self._path, reason=reason_of(error)))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
