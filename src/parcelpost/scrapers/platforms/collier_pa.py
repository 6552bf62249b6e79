"""`collier_pa`: the property appraiser of Collier County, Florida."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import date
from decimal import Decimal

from msgspec import Struct

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers import tables, values
from parcelpost.scrapers.addresses import owners_and_mailing
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.document import Document, Element, Piece, label, text_of
from parcelpost.scrapers.looking import Field, Look, section
from parcelpost.scrapers.no_parcel import is_said_to_be_none
from parcelpost.scrapers.platforms.collier_buildings import take_buildings
from parcelpost.scrapers.platforms.collier_values import ROLL, TAX, amount, history, homestead, valuation
from parcelpost.scrapers.record import Record, Sale, take_last_sale, take_values
from parcelpost.scrapers.tables import Columns, Headed, Numbered
from parcelpost.scrapers.ways import IN_ONE_LINE, Id, Label, XPath

_CODED = re.compile(r"([0-9A-Z]{1,8})\s*-\s*(.+)", re.ASCII)
_SITE = re.compile(r"(.*),\s*([^,\d]+?)\s+(\d{5}(?:-\d{4})?)", re.ASCII)
_OWNER_LINES = 5
_STATE = re.compile(r"[A-Z]{2}", re.ASCII)
_SALES = Columns({"date": ("Date",), "book_page": ("Book-Page",), "price": ("Amount",)}, "book_page")
SALES = section(
    "sales",
    _SALES,
    Numbered({"date": "SaleDate", "price": "SaleAmount", "book_page": "TrSale"}),  # that one has no id but its row's
    Headed(_SALES),
)


def _words(piece: Piece) -> str | None:
    return values.words(piece.text)


def _line(piece: Piece) -> str | None:
    return piece.text or None


def _acres(piece: Piece) -> Decimal | None:
    return values.acres(piece.text)


def _state(piece: Piece) -> str | None:
    text = values.clean(piece.text)
    return text if _STATE.fullmatch(text) else None


def _parcel(piece: Piece) -> str | None:
    text = values.clean(piece.text)
    return text if len(text) >= 6 and text.replace("-", "").isalnum() and any(one.isdigit() for one in text) else None


def _coded(piece: Piece) -> tuple[str, str] | None:
    found = _CODED.fullmatch(values.clean(piece.text))
    return (found[1], found[2]) if found else None


class OwnerLines(Struct, frozen=True):
    """Names and street, a line each in numbered elements; what follows has labels of its own."""

    type = "css"
    selector = "#OwnerLine1"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        found = [document.by_id(f"OwnerLine{number}") for number in range(1, _OWNER_LINES + 1)]
        if found[0] is None:
            return iter(())  # the first of the others may be the street
        return (Piece(one) for one in found if one is not None)


class BelowName(Struct, frozen=True):
    """The same, in the rows from that label on."""

    type = "label"
    selector = "Name / Address"

    def find(self, document: Document, within: Element | None) -> Iterator[Piece]:
        for name in document.labelled(self.selector):
            first = next(name.iterancestors("tr"), None)
            for row in (first, *first.itersiblings("tr")) if first is not None else ():
                cells = list(row.iterchildren("td"))
                if len(cells) < 2 or (row is not first and text_of(cells[0])):
                    return
                yield Piece(cells[1])


OWNER = Field("owner_names", (OwnerLines(), BelowName()), _line)
PARCEL = Field("parcel_id", (Id("ParcelID"), Label("Parcel ID")), _parcel)
SITE = Field("situs_address", (Id("FullAddressUnit"), Label("Site Location"), Label("Site Address")), _words)
LEGAL = Field("legal_description", (Id("Legal"), Label("Legal")), _words)
SUBDIVISION = Field("subdivision", (Id("SCDescription"), Label("Sub./Condo")), _coded)
USE = Field("land_use_code", (Id("UCDescription"), Label("Use Code")), _coded)
ACRES = Field(
    "land_area_acres",
    (
        Id("TotalAcres"),
        XPath(f".//tr[td[starts-with({IN_ONE_LINE}, 'Acres')]]/following-sibling::tr[1]/td[last()]"),
    ),
    _acres,
)
CITY = Field("mailing_city", (Id("OwnerCity"), Label("City")), _words)
STATE = Field("mailing_state", (Id("OwnerState"), Label("State")), _state)
ZIP = Field("mailing_zip", (Id("OwnerZip"), Label("Zip")), _words)


def read(reading: Reading) -> Found:
    document, look = reading.document, reading.look
    parcel_id = look.value(PARCEL)
    if parcel_id is None:
        return _no_record(document)
    names = list(look.values(OWNER))
    roll = look.value(ROLL)
    if not names or roll is None:
        return Retry("the page came only in part: its owner or its values are missing")
    use, subdivision = look.value(USE) or (None, None), look.value(SUBDIVISION) or (None, None)
    record = Record(
        parcel_id=parcel_id,
        legal_description=look.value(LEGAL),
        land_area_acres=look.value(ACRES),
        land_use_code=use[0],
        land_use_desc=use[1],
        subdivision=subdivision[1],
        mailing_city=look.value(CITY),
        mailing_state=look.value(STATE),
        mailing_zip=look.value(ZIP),
        homestead=homestead(document),
        tax_year=roll[0],
        tax_amount=look.value(TAX),
        valuations=[valuation(look, document, *roll)],
        sales=list(_sales(look, roll[0])),
    )
    record.owner_names, record.mailing_lines, _ = owners_and_mailing(names)
    _take_site(record, look.value(SITE))
    _take_country(record, document)
    take_buildings(record, look)
    take_values(record)
    record.valuations += [one for one in history(look) if one.year != roll[0]]
    take_last_sale(record)
    return record


def _take_country(record: Record, document: Document) -> None:
    """Abroad, the country stands where the city does, under another label."""
    named = document.by_id("CityCountry")
    if named is not None and label(text_of(named)) == "country":
        record.mailing_country, record.mailing_city = record.mailing_city, None


def _no_record(document: Document) -> Found:
    if is_said_to_be_none(document):
        return NotFound("the site has no such parcel")
    return Retry("the page holds no parcel: its number is missing")


def _take_site(record: Record, site: str | None) -> None:
    found = _SITE.fullmatch(site or "")
    record.situs_address = values.words(found[1] if found else site)
    if found:
        record.situs_city, record.situs_zip = found[2], found[3]


def _sales(look: Look, roll: int) -> Iterator[Sale]:
    """Years have two digits, and none is after the roll's next."""
    for row in look.rows(SALES) or ():
        sold = values.day(tables.text(row, "date"), newest=date(roll + 1, 12, 31))
        if sold is not None:
            book_page = row["book_page"].element if "book_page" in row else None
            yield Sale(
                date=sold,
                price=amount(row["price"]) if "price" in row else None,
                book_page=_book_page(book_page) if book_page is not None else None,
            )


def _book_page(cell: Element) -> str | None:
    """Of a row the second cell."""
    cells = list(cell.iter("td")) if cell.tag == "tr" else [cell, cell, cell]
    return values.words(text_of(cells[1])) if len(cells) > 2 else None


PLATFORM = CountyPlatform(name="collier_pa", version=4, read=read)
