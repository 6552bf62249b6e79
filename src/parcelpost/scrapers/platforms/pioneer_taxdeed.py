"""`pioneer_taxdeed`: clerks' lists of tax deed cases, a grid whose cells name their column."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lxml import etree

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, text_of
from parcelpost.scrapers.html.selectors import Css
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult, page_end
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import LIEN, Lien, Record

_CERTIFICATE = re.compile(r"([0-9A-Z]+)[-/]([0-9A-Z]+)", re.ASCII | re.IGNORECASE)
_FIRST_YEAR = 1970
CELLS = Css("td[aria-describedby]")
# What counties' grids call their columns, in small letters.
_COLUMNS = {
    "parcel": ("parcelid", "parcelnumber", "parcelno", "parcel", "propertyid"),
    "case": ("casenumber", "caseno", "case", "taxdeednumber", "taxdeedno", "filenumber"),
    "certificate": ("certificatenumber", "certificateno", "certificate"),
    "sale_date": ("saledate", "auctiondate"),
    "opening_bid": ("openingbid", "minimumbid", "basebid"),
    "high_bid": ("highbid", "winningbid"),
    "surplus": ("surplus", "surplusamount"),
    "status": ("status", "casestatus"),
    "applicant": ("applicant", "applicantname", "certificateholder"),
    "owners": ("propertyowners", "propertyowner", "owners", "owner"),
}
_TOTAL = re.compile(r"view\s+([\d, ]+?)\s*-\s*([\d, ]+?)\s+of\s+([\d, ]+)", re.ASCII)
_EMPTY = re.compile(r"no (?:records|cases|results|rows|data)\b")
_LANDS_AVAILABLE = re.compile(r"\blands? avail|\blaft\b|list of lands")
_NOT_AVAILABLE = re.compile(
    r"\b(?:sold|redeemed|cancell?ed|withdrawn|active|upcoming|scheduled|pending|sale|bankruptcy|escheat\w*|paid|closed)\b"
)
_STATUSES = {"lands available": "lands_available", "lands available for taxes": "lands_available"}


def read(reader: PageReader) -> ReadResult:
    document = reader.document
    rows = list(_rows(document))
    records = [_record(cells) for cells in rows]
    complete = [record for record in records if record is not None]
    reader.selector_results.note("liens", CELLS, bool(complete))
    if any(cell.get("colspan", "1") != "1" for cell in document.root.iter("td") if "aria-describedby" in cell.attrib):
        reader.problems.note("liens", "a cell spans several columns")
    if complete:
        reader.selector_results.note_columns("liens", _COLUMNS, set().union(*rows))
        _compare_with_total(document, len(complete), reader.problems)
        return complete
    if any("aria-describedby" in element.attrib for element in document.root.iter("td")) or records:
        return Retry("the list is incomplete: its rows have no case and no parcel")
    is_empty = any(_EMPTY.search(text) for text in document.labels())
    return NotFound("the list is empty") if is_empty else Retry("the page has no list of cases")


def _compare_with_total(document: Document, count: int, problems: Problems) -> None:
    """`View 1 - 50 of 112` below the grid."""
    shown = next((match for text in document.labels() if (match := _TOTAL.fullmatch(text))), None)
    if shown is None:
        problems.lacks("the number of cases below the list")
        return
    first, last, total = (int(number.replace(",", "").replace(" ", "")) for number in shown.groups())
    if count != last - first + 1:
        problems.lacks(f"the cases of the list: {count} instead of {last - first + 1}")
    if first != 1 or last != total:
        problems.lacks(f"other pages of the list: it shows {first} to {last} of {total}")


def _rows(document: Document) -> Iterator[dict[str, str]]:
    """The texts of each row by the grid's column names."""
    for row in document.root.iter("tr"):
        cells = {}
        for cell in row.iterchildren(etree.Element):
            name = (cell.get("aria-describedby") or "").rpartition("_")[2].lower()
            if cell.tag == "td" and name:
                cells[name] = _text(cell)
        fields = {name: cells[column] for name, known in _COLUMNS.items() for column in known[::-1] if column in cells}
        if "case" in fields or "parcel" in fields:
            yield fields


def _text(cell: Element) -> str:
    """The text may be shortened; the title attribute has all of it."""
    return values.clean(cell.get("title")) or text_of(cell)


def _record(cells: dict[str, str]) -> Record | None:
    parcel, case = values.text_or_none(cells.get("parcel")), values.text_or_none(cells.get("case"))
    if parcel is None and case is None:
        return None
    number, year = _certificate(cells.get("certificate"))
    status = values.text_or_none(cells.get("status"))
    status = _STATUSES.get(status.lower(), status.lower()) if status else None
    lien = Lien(
        certificate_number=number,
        certificate_year=year,
        case_number=case,
        auction_date=values.iso_date(cells.get("sale_date")),
        opening_bid=values.money(cells.get("opening_bid")),
        high_bid=values.money(cells.get("high_bid")),
        surplus=values.money(cells.get("surplus")),
        status=status,
        is_otc=_is_available(status or ""),
        holder_name=values.text_or_none(cells.get("applicant")),
    )
    return Record(parcel_id=parcel, record_kind=LIEN, owner_names=_owners(cells.get("owners")), liens=[lien])


def _is_available(status: str) -> bool | None:
    """Whether it can be bought without an auction; None for a status that does not tell."""
    if status == "lands_available" or _LANDS_AVAILABLE.search(status):
        return True
    return False if _NOT_AVAILABLE.search(status) else None


def _certificate(text: str | None) -> tuple[str | None, int | None]:
    """`07174-2016` or `2016-07174`: number, with its zeros, and year. Otherwise the text as it is, without a year."""
    cleaned = values.text_or_none(text)
    match = _CERTIFICATE.fullmatch(cleaned or "")
    for number, year in ((match[1], match[2]), (match[2], match[1])) if match else ():
        if len(year) == 4 and (of_year := values.year(year)) is not None and of_year >= _FIRST_YEAR:
            return number, of_year
    return cleaned, None


def _owners(text: str | None) -> list[str]:
    """Names are joined with tildes and repeated for each notice that was sent."""
    names = (values.text_or_none(name) for name in (text or "").split("~"))
    return list(dict.fromkeys(name for name in names if name))


PLATFORM = CountyPlatform(name="pioneer_taxdeed", version=7, is_list=True, read=read, sections=(page_end(),))
