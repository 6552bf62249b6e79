"""Downloads: parcels and liens, written page by page by the exporter's writers, and raw files."""

from __future__ import annotations

import asyncio
import io
from collections.abc import AsyncIterator, Callable, Sequence

from starlette.responses import StreamingResponse
from starlette.types import Send

from parcelpost.errors import LedgerError, RawStoreUnavailable
from parcelpost.events import DownloadCut
from parcelpost.export import Format
from parcelpost.export.tables import TABLES, Parcel, read_record
from parcelpost.export.text_formats import CsvSink, JsonlSink
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import reason_of
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import LienRow, ParcelFilter, ParcelKey, ParcelRecord, SourceKey

PAGE_ROWS = 250
"""Rows in memory at once, or fewer if their records are large."""

_MEDIA_TYPES = {Format.CSV: "text/csv; charset=utf-8", Format.JSONL: "application/x-ndjson"}

Rows = Callable[[], Sequence[Parcel]]
"""A page of rows that have been read from the ledger; decoding them may take a while."""


async def parcel_download(context: Context, wanted: ParcelFilter, form: Format) -> Download:
    """Raises LedgerError if the first page cannot be read."""
    return await _export(context, _parcel_pages(context.ledger, wanted), "parcels", form)


async def lien_download(context: Context, wanted: ParcelFilter, form: Format) -> Download:
    """Raises LedgerError if the first page cannot be read."""
    return await _export(context, _lien_pages(context.ledger, wanted), "liens", form)


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


class TableWriter:
    """Turns pages of parcels into bytes of one table: CSV with guarded formulas, or JSON lines."""

    def __init__(self, name: str, form: Format) -> None:
        self._table = TABLES[name]
        self._buffer = io.BytesIO()
        streams = {name: self._buffer}
        is_csv = form is Format.CSV
        self._sink = CsvSink(streams, [self._table], bom=False, guard=True) if is_csv else JsonlSink(streams)

    def write(self, parcels: Sequence[Parcel]) -> bytes:
        """Returns what these parcels add to the file; the first call also returns the header."""
        self._sink.write(self._table, parcels)
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text


async def _export(context: Context, pages: AsyncIterator[Rows], name: str, form: Format) -> Download:
    first = await anext(pages, list)
    file = f"{name}.{form}"
    headers = {"Content-Disposition": f'attachment; filename="{file}"'}
    body = _body(first, pages, TableWriter(name, form))
    return Download(body, context, f"GET /v1/export/{file}", headers=headers, media_type=_MEDIA_TYPES[form])


async def _body(first: Rows, pages: AsyncIterator[Rows], writer: TableWriter) -> AsyncIterator[bytes]:
    yield await asyncio.to_thread(lambda: writer.write(first()))
    async for page in pages:
        yield await asyncio.to_thread(lambda read=page: writer.write(read()))  # type: ignore[misc]


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
