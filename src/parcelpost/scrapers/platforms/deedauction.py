"""`deedauction`: a page of a county's tax deed auction. It lists cases; which parcel each is of stands elsewhere."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers import tables, values
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.document import Document, Element, Piece, text_of
from parcelpost.scrapers.record import LIEN, Lien, Record

_COLUMNS: Mapping[str, tuple[str, ...]] = {
    "case": ("Tax Deed #", "Tax Deed", "Tax Deed Number", "Case #", "Case", "Case Number"),
    "parcel": ("Parcel ID", "Parcel", "Parcel #", "Folio"),
    "certificate": ("Certificate #", "Certificate", "Cert #"),
    "opening_bid": ("Opening Bid", "Starting Bid", "Minimum Bid"),
    "best_bid": ("Best Bid", "Winning Bid"),
    "status": ("Status",),
}
_DATE = re.compile(r"(\d{1,2}/\d{1,2}/\d{4})", re.ASCII)


def read(reading: Reading) -> Found:
    document = reading.document
    table = document.by_id("results")
    if table is None or next(tables.records(table, _COLUMNS), None) is None:
        table = tables.with_headings(document, _COLUMNS)
    if table is None:
        return Retry("the page holds no list of an auction's items")
    auction_date = _auction_date(document)
    found = list(_records(table, auction_date))
    return found or NotFound("the auction lists no item")


def _auction_date(document: Document) -> str | None:
    blocks = document.root.iter("span", "h1", "h2", "div")
    titles = (one for one in blocks if "title" in (one.get("class") or one.get("id") or ""))
    for element in titles:
        found = _DATE.search(text_of(element)[:200])
        if found:
            return values.day(found[1])
    return None


def _records(table: Element, auction_date: str | None) -> Iterator[Record]:
    for row in tables.records(table, _COLUMNS):
        case, opening_bid = values.words(_text(row, "case")), values.money(_text(row, "opening_bid"))
        if case is None or opening_bid is None:
            continue
        status = values.words(_text(row, "status"))
        lien = Lien(
            case_number=case,
            certificate_number=values.words(_text(row, "certificate")),
            auction_date=auction_date,
            opening_bid=opening_bid,
            status=status.lower() if status else None,
        )
        yield Record(parcel_id=values.words(_text(row, "parcel")), record_kind=LIEN, liens=[lien])


def _text(row: Mapping[str, Piece], name: str) -> str | None:
    return row[name].text if name in row else None


PLATFORM = CountyPlatform(name="deedauction", version=1, read=read)
