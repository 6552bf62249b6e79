"""Everything the ledger knows of parcels and liens, as CSV or JSONL, a page at a time."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncIterator, Iterable, Sequence
from datetime import datetime
from typing import Protocol, TypeVar

import msgspec
from msgspec import Raw, Struct

from parcelpost.export.csv_files import guarded
from parcelpost.gateway.ledger import Ledger
from parcelpost.gateway.words import LienRow, ParcelFilter, ParcelKey, ParcelRecord

PAGE = 250
"""Rows in memory at once, or fewer if their records are large."""

Row_contra = TypeVar("Row_contra", contravariant=True)


class Form(Protocol[Row_contra]):
    """How rows become bytes."""

    def head(self) -> bytes: ...

    def lines(self, rows: Sequence[Row_contra]) -> bytes: ...


async def parcel_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Sequence[ParcelRecord]]:
    after: ParcelKey | None = None
    while found := await ledger.records(wanted, after, PAGE):
        yield found
        after = found[-1].row.parcel


async def lien_pages(ledger: Ledger, wanted: ParcelFilter) -> AsyncIterator[Sequence[LienRow]]:
    after: tuple[ParcelKey, int] | None = None
    while rows := await ledger.liens(wanted, after, PAGE):
        yield rows
        after = (rows[-1].parcel, rows[-1].position)


_KEY = ("platform", "state", "county", "parcel_id")
PARCEL_COLUMNS = (*_KEY, "owner", "situs", "delinquent", "tax_due", "lien_count", "scraped_at", "first_seen_at")
RECORD_COLUMNS = (
    *("tax_account", "mailing_lines", "mailing_city", "mailing_state", "mailing_zip", "situs_city", "situs_zip"),
    *("latitude", "longitude", "legal_description", "subdivision", "land_use_code", "land_use_desc", "zoning"),
    *("land_area_acres", "building_area_sqft", "year_built", "bedrooms", "bathrooms", "value_year", "value_status"),
    *("land_value", "building_value", "market_value", "assessed_value", "exemption_value", "taxable_value"),
    *("homestead", "last_sale_date", "last_sale_price", "tax_year", "tax_amount", "delinquent_years", "source_url"),
)
"""Of the record, after the columns above."""
LIEN_COLUMNS = (*_KEY, "position", "owner", "amount", "scraped_at")
CERTIFICATE_COLUMNS = (
    *("certificate_number", "certificate_year", "tax_year", "status", "face_amount", "interest_rate_pct", "premium"),
    *("sale_date", "holder_name", "holder_type", "redemption_date", "redemption_amount", "redemption_deadline"),
    *("case_number", "auction_date", "opening_bid", "is_otc"),
)


class ParcelCsv:
    def head(self) -> bytes:
        return _csv([(*PARCEL_COLUMNS, *RECORD_COLUMNS)])

    def lines(self, rows: Sequence[ParcelRecord]) -> bytes:
        return _csv(_parcel_cells(one) for one in rows)


def _parcel_cells(one: ParcelRecord) -> tuple[str, ...]:
    row = one.row
    return (
        *(guarded(text) for text in (*_key(row.parcel), row.owner, row.situs)),
        "" if row.delinquent is None else str(row.delinquent).lower(),
        dollars(row.tax_due_cents),
        str(row.lien_count),
        moment(row.scraped_at),
        moment(row.first_seen_at),
        *_cells(one.data, RECORD_COLUMNS),
    )


class LienCsv:
    def head(self) -> bytes:
        return _csv([(*LIEN_COLUMNS, *CERTIFICATE_COLUMNS)])

    def lines(self, rows: Sequence[LienRow]) -> bytes:
        return _csv(
            (
                *(guarded(text) for text in _key(row.parcel)),
                str(row.position),
                guarded(row.owner),
                dollars(row.lien.amount_cents),
                moment(row.scraped_at),
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
                **_names(one.row.parcel),
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
                **_names(row.parcel),
                position=row.position,
                owner=row.owner,
                scraped_at=row.scraped_at,
                lien=Raw(_one_line(row.lien.json)),
            )
            for row in rows
        )


def dollars(cents: int | None) -> str:
    """Exact: 123450 -> 1234.50."""
    if cents is None:
        return ""
    whole, rest = divmod(abs(cents), 100)
    return f"{'-' if cents < 0 else ''}{whole}.{rest:02}"


def moment(at: datetime) -> str:
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
    return guarded(value if isinstance(value, str) else json.decode())


def _csv(rows: Iterable[Sequence[str]]) -> bytes:
    text = io.StringIO(newline="")
    csv.writer(text, lineterminator="\r\n").writerows(rows)
    return text.getvalue().encode()


def _encode_lines(lines: Iterable[Struct]) -> bytes:
    return _encode.encode_lines(list(lines))


def _one_line(json: bytes) -> bytes:
    """JSON holds line breaks only between its tokens."""
    return json.replace(b"\n", b" ").replace(b"\r", b" ")


def _key(parcel: ParcelKey) -> tuple[str, str, str, str]:
    return (parcel.platform, parcel.state, parcel.county, parcel.parcel_id)


def _names(parcel: ParcelKey) -> dict[str, str]:
    return dict(zip(_KEY, _key(parcel), strict=True))
