"""`pioneer_taxdeed`: clerks' lists of tax deed cases, a grid whose cells say what they are."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers import values
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.document import Document, Element, text_of
from parcelpost.scrapers.record import LIEN, Lien, Record

_CERTIFICATE = re.compile(r"(\S+?)[-/](\d{4})", re.ASCII)
_STATUSES = {"lands available": "lands_available", "lands available for taxes": "lands_available"}


def read(reading: Reading) -> Found:
    document = reading.document
    records = [_record(cells) for cells in _rows(document)]
    found = [record for record in records if record is not None]
    if found:
        return found
    if any("aria-describedby" in element.attrib for element in document.root.iter("td")) or records:
        return Retry("the list came only in part: its rows have no case and no parcel")
    is_grid = document.by_id_end("CaseNumber") or document.by_id_end("ParcelID")
    return NotFound("the list is empty") if is_grid else Retry("the page holds no list of cases")


def _rows(document: Document) -> Iterator[dict[str, str]]:
    """Each row's texts by the names that the grid gives to its columns."""
    for row in document.root.iter("tr"):
        cells = {}
        for cell in row.iterchildren(etree.Element):
            name = (cell.get("aria-describedby") or "").rpartition("_")[2].lower()
            if cell.tag == "td" and name:
                cells[name] = _text(cell)
        if "casenumber" in cells or "parcelid" in cells:
            yield cells


def _text(cell: Element) -> str:
    """What the cell shows may be cut; its title is whole."""
    return values.clean(cell.get("title")) or text_of(cell)


def _record(cells: dict[str, str]) -> Record | None:
    parcel, case = values.words(cells.get("parcelid")), values.words(cells.get("casenumber"))
    if parcel is None and case is None:
        return None
    number, year = _certificate(cells.get("certificatenumber"))
    status = values.words(cells.get("status"))
    status = _STATUSES.get(status.lower(), status.lower()) if status else None
    lien = Lien(
        certificate_number=number,
        certificate_year=year,
        case_number=case,
        auction_date=values.day(cells.get("saledate")),
        opening_bid=values.money(cells.get("openingbid")),
        status=status,
        is_otc=status == "lands_available" if status else None,
        holder_name=values.words(cells.get("applicant")),
    )
    return Record(parcel_id=parcel, record_kind=LIEN, owner_names=_owners(cells.get("propertyowners")), liens=[lien])


def _certificate(text: str | None) -> tuple[str | None, int | None]:
    """`07174-2016`: its number, zeros kept, and its year."""
    cleaned = values.words(text)
    found = _CERTIFICATE.fullmatch(cleaned or "")
    return (found[1], values.year(found[2])) if found else (cleaned, None)


def _owners(text: str | None) -> list[str]:
    """Joined with tildes, each as often as a notice was sent."""
    names = (values.words(name) for name in (text or "").split("~"))
    return list(dict.fromkeys(name for name in names if name))


PLATFORM = CountyPlatform(name="pioneer_taxdeed", version=1, read=read)
