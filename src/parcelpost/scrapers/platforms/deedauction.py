"""`deedauction`: a county's tax deed auction. The page lists cases, without their parcels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Document, Piece, text_of
from parcelpost.scrapers.html.extract import section
from parcelpost.scrapers.html.selectors import Id, Label
from parcelpost.scrapers.html.tables import Columns, Headed, Row
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import LIEN, Lien, Record

_COLUMNS = Columns(
    {
        "case": ("Tax Deed #", "Tax Deed", "Tax Deed Number", "Case #", "Case", "Case Number"),
        "parcel": ("Parcel ID", "Parcel", "Parcel #", "Folio"),
        "certificate": ("Certificate #", "Certificate", "Cert #"),
        "opening_bid": ("Opening Bid", "Starting Bid", "Minimum Bid"),
        "best_bid": ("Best Bid", "Winning Bid"),
        "status": ("Status",),
    }
)
ITEMS = section("liens", _COLUMNS, Id("results"), Headed(_COLUMNS))
_DETAILS: Mapping[str, tuple[str, ...]] = {
    "parcel": ("Parcel ID", "Parcel Number", "Parcel #", "Folio", "Folio Number", "Property ID", "Parcel"),
    "certificate": ("Certificate Number", "Certificate #", "Certificate"),
    "owner": ("Owner", "Owner Name", "Owners", "Titleholder"),
    "situs": ("Property Address", "Situs Address", "Site Address", "Situs"),
}
_DATE = re.compile(r"(\d{1,2}/\d{1,2}/\d{4})", re.ASCII)
_STARTS = re.compile(r"(?:bidding|auction|sale) starts (?:at|on):?\s*(\d{1,2}/\d{1,2}/\d{4})", re.ASCII | re.IGNORECASE)


def read(reader: PageReader) -> ReadResult:
    document = reader.document
    rows = reader.extractor.rows(ITEMS)
    if rows is None:
        return Retry("the page has no list of auction items")
    found = list(_records(document, rows, _auction_date(document)))
    if not found and any(values.money(tables.text(row, "opening_bid")) for row in rows):
        return Retry("the list is incomplete: its rows have no case")
    return found or NotFound("the auction has no items")


def _auction_date(document: Document) -> str | None:
    blocks = document.root.iter("span", "h1", "h2", "div")
    titles = (one for one in blocks if "title" in (one.get("class") or one.get("id") or ""))
    for element in titles:
        found = _DATE.search(text_of(element)[:200])
        if found:
            return values.iso_date(found[1])
    starts = _STARTS.search(text_of(document.root))
    return values.iso_date(starts[1]) if starts else None


def _records(document: Document, rows: Iterable[Row], auction_date: str | None) -> Iterator[Record]:
    for row in rows:
        case, opening_bid = values.text_or_none(tables.text(row, "case")), values.money(tables.text(row, "opening_bid"))
        status = values.text_or_none(tables.text(row, "status"))
        if case is None or not any(sign.isdigit() for sign in case) or (opening_bid is None and status is None):
            continue
        more = _details(document, row["case"])
        owner = more.get("owner")
        lien = Lien(
            case_number=case,
            certificate_number=values.text_or_none(tables.text(row, "certificate")) or more.get("certificate"),
            auction_date=auction_date,
            opening_bid=opening_bid,
            status=status.lower() if status else None,
        )
        yield Record(
            parcel_id=values.text_or_none(tables.text(row, "parcel")) or more.get("parcel"),
            record_kind=LIEN,
            owner_names=[owner] if owner else [],
            situs_address=more.get("situs"),
            liens=[lien],
        )


def _details(document: Document, case: Piece) -> dict[str, str]:
    """The details below a row, if they were open when the page was saved."""
    row = next(case.element.iterancestors("tr"), None) if case.element is not None else None
    item = ((row.get("id") if row is not None else None) or "").partition(".")[0]
    block = document.by_id(f"item_details.{item}") if item else None
    if block is None:
        return {}
    found = {}
    for name, labels in _DETAILS.items():
        pieces = (piece for one in labels for piece in Label(one).find(document, block))
        if text := next((text for piece in pieces if (text := values.text_or_none(piece.text))), None):
            found[name] = text
    return found


PLATFORM = CountyPlatform(name="deedauction", version=3, is_list=True, read=read)
