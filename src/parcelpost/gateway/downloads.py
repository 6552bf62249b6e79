"""Downloads of parcels and liens as CSV or JSONL, streamed page by page."""

from __future__ import annotations

import asyncio
import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct
from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from parcelpost.errors import LedgerError, RawStoreUnavailable
from parcelpost.events import DownloadCut
from parcelpost.export.text_formats import escape_formula
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import reason_of
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import LienRow, ParcelFilter, ParcelKey, ParcelRecord

PAGE_ROWS = 250
"""Rows in memory at once, or fewer if their records are large."""

Row_contra = TypeVar("Row_contra", contravariant=True)


class LineFormat(Protocol[Row_contra]):
    """How rows become bytes."""

    def head(self) -> bytes: ...

    def lines(self, rows: Sequence[Row_contra]) -> bytes: ...


async def parcel_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Sequence[ParcelRecord]]:
    after: ParcelKey | None = None
    while found := await ledger.records(wanted, after, PAGE_ROWS):
        yield found
        after = found[-1].row.parcel


async def lien_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Sequence[LienRow]]:
    after: tuple[ParcelKey, int] | None = None
    while rows := await ledger.liens(wanted, after, PAGE_ROWS):
        yield rows
        after = (rows[-1].parcel, rows[-1].position)


_KEY_COLUMNS = ("platform", "state", "county", "parcel_id")
PARCEL_COLUMNS = (*_KEY_COLUMNS, "owner", "situs", "delinquent", "tax_due", "lien_count", "scraped_at", "first_seen_at")
RECORD_COLUMNS = (
    *("tax_account", "mailing_lines", "mailing_city", "mailing_state", "mailing_zip", "situs_city", "situs_zip"),
    *("latitude", "longitude", "legal_description", "subdivision", "land_use_code", "land_use_desc", "zoning"),
    *("land_area_acres", "building_area_sqft", "year_built", "bedrooms", "bathrooms", "value_year", "value_status"),
    *("land_value", "building_value", "market_value", "assessed_value", "exemption_value", "taxable_value"),
    *("homestead", "last_sale_date", "last_sale_price", "tax_year", "tax_amount", "delinquent_years", "source_url"),
)
"""Of the record, after the columns above."""
LIEN_COLUMNS = (*_KEY_COLUMNS, "position", "owner", "amount", "scraped_at")
CERTIFICATE_COLUMNS = (
    *("certificate_number", "certificate_year", "tax_year", "status", "face_amount", "interest_rate_pct", "premium"),
    *("sale_date", "holder_name", "holder_type", "redemption_date", "redemption_amount", "redemption_deadline"),
    *("case_number", "auction_date", "opening_bid", "is_otc"),
)


class ParcelCsv:
    def head(self) -> bytes:
        return _csv_lines([(*PARCEL_COLUMNS, *RECORD_COLUMNS)])

    def lines(self, rows: Sequence[ParcelRecord]) -> bytes:
        return _csv_lines(_parcel_cells(one) for one in rows)


def _parcel_cells(one: ParcelRecord) -> tuple[str, ...]:
    row = one.row
    return (
        *(escape_formula(text) for text in (*_key_cells(row.parcel), row.owner, row.situs)),
        "" if row.delinquent is None else str(row.delinquent).lower(),
        format_dollars(row.tax_due_cents),
        str(row.lien_count),
        format_time(row.scraped_at),
        format_time(row.first_seen_at),
        *_cells(one.data, RECORD_COLUMNS),
    )


class LienCsv:
    def head(self) -> bytes:
        return _csv_lines([(*LIEN_COLUMNS, *CERTIFICATE_COLUMNS)])

    def lines(self, rows: Sequence[LienRow]) -> bytes:
        return _csv_lines(
            (
                *(escape_formula(text) for text in _key_cells(row.parcel)),
                str(row.position),
                escape_formula(row.owner),
                format_dollars(row.lien.amount_cents),
                format_time(row.scraped_at),
                *_cells(row.lien.json, CERTIFICATE_COLUMNS),
            )
            for row in rows
        )


class ParcelLine(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    parcel_id: str
    scraped_at: datetime
    first_seen_at: datetime
    record: Raw


class LienLine(Struct, frozen=True, kw_only=True):
    platform: str
    state: str
    county: str
    parcel_id: str
    position: int
    owner: str
    scraped_at: datetime
    lien: Raw


class ParcelJsonl:
    def head(self) -> bytes:
        return b""

    def lines(self, rows: Sequence[ParcelRecord]) -> bytes:
        return _encode_lines(
            ParcelLine(
                **_key_fields(one.row.parcel),
                scraped_at=one.row.scraped_at,
                first_seen_at=one.row.first_seen_at,
                record=Raw(_one_line(one.data)),
            )
            for one in rows
        )


class LienJsonl:
    def head(self) -> bytes:
        return b""

    def lines(self, rows: Sequence[LienRow]) -> bytes:
        return _encode_lines(
            LienLine(
                **_key_fields(row.parcel),
                position=row.position,
                owner=row.owner,
                scraped_at=row.scraped_at,
                lien=Raw(_one_line(row.lien.json)),
            )
            for row in rows
        )


def format_dollars(cents: int | None) -> str:
    """Exact: 123450 -> 1234.50."""
    if cents is None:
        return ""
    whole, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{whole}.{rest:02}"


def format_time(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


_raw_members = msgspec.json.Decoder(dict[str, Raw]).decode
_encode = msgspec.json.Encoder()


def _cells(data: bytes, names: Iterable[str]) -> list[str]:
    try:
        members = _raw_members(data)
    except (ValueError, RecursionError):
        members = {}
    return [_cell(bytes(members[name])) if name in members else "" for name in names]


def _cell(json: bytes) -> str:
    """A number stays as it was written; what is a list of texts is joined."""
    if json == b"null":
        return ""
    if json[:1] not in b'"[':
        return json.decode()
    value = msgspec.json.decode(json)
    if isinstance(value, list) and all(isinstance(one, str | int | float) for one in value):
        value = "; ".join(map(str, value))
    return escape_formula(value if isinstance(value, str) else json.decode())


def _csv_lines(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _encode_lines(lines: Iterable[Struct]) -> bytes:
    return _encode.encode_lines(list(lines))


def _one_line(json: bytes) -> bytes:
    """JSON holds line breaks only between its tokens."""
    return json.replace(b"\n", b" ").replace(b"\r", b" ")


def _key_cells(parcel: ParcelKey) -> tuple[str, str, str, str]:
    return (parcel.platform, parcel.state, parcel.county, parcel.parcel_id)


def _key_fields(parcel: ParcelKey) -> dict[str, str]:
    return dict(zip(_KEY_COLUMNS, _key_cells(parcel), strict=True))


T = TypeVar("T")


async def export_download(
    parts: Context, request: Request, pages: AsyncIterator[Sequence[T]], form: LineFormat[T], media_type: str
) -> StreamingResponse:
    """Raises LedgerError while it still can be told."""
    try:
        first = await anext(pages)
    except StopAsyncIteration:
        first = ()
    name = request.url.path.rpartition("/")[2]
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = _body(first, pages, form)
    return Download(body, parts, f"GET {request.url.path}", headers=headers, media_type=media_type)


async def _body(first: Sequence[T], pages: AsyncIterator[Sequence[T]], form: LineFormat[T]) -> AsyncIterator[bytes]:
    yield form.head()
    if first:
        yield await asyncio.to_thread(form.lines, first)
    async for rows in pages:
        yield await asyncio.to_thread(form.lines, rows)


class Download(StreamingResponse):
    """Cut off, so that nobody takes a part for the whole, when its source goes away or the gateway is to stop."""

    def __init__(
        self, body: AsyncIterator[bytes], parts: Context, path: str, *, headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._parts = parts
        self._path = path

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                if self._parts.stopping.is_set():
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (LedgerError, RawStoreUnavailable) as error:
            self._parts.emit(DownloadCut(path=self._path, reason=reason_of(error)))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
