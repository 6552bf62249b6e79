"""`pioneer_taxdeed`: clerks' lists of tax deed cases, a grid of jqGrid whose cells name their column.

A script of the page loads the rows, page by page, from the address and with the columns that the page gives it. Rows
that are not on the page are fetched in the same way. How the site answers was not seen: the form is that of jqGrid.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any
from urllib.parse import urlencode, urljoin, urlsplit

import msgspec
from lxml import etree

from parcelpost.model import Json, NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, page_url
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, text_of
from parcelpost.scrapers.html.selectors import AtEnd, Css
from parcelpost.scrapers.html.values import json_at, json_objects, json_text
from parcelpost.scrapers.platform import FOOTER, CountyPlatform, Fetcher, PageReader, ReadResult
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
    r"\b(?:sold|redeemed|cancell?ed|withdrawn|active|upcoming|scheduled|pending|(?<!for )sale|bankruptcy|escheat\w*"
    r"|paid|closed|not on)\b"
)
_STATUSES = {"lands available": "lands_available", "lands available for taxes": "lands_available"}


_GRID_URL = re.compile(r"\burl\s*:\s*['\"]([^'\"]{1,500})['\"]")
_GRID_COLUMN = re.compile(r"\bname\s*:\s*['\"](\w{1,60})['\"]", re.ASCII)
_GRID_SIZES = re.compile(r"\browList\s*:\s*\[([\d,\s]{1,100})\]", re.ASCII)
_GRID_SIZE = 25
_MAX_PAGES = 400


def read(reader: PageReader) -> ReadResult:
    """A page is either the site's, or what `fetch` assembled: the columns of the grid, and the responses with rows."""
    if reader.page.body[:64].lstrip().startswith(b"{"):
        return _read_responses(reader)
    document = reader.document
    if next(AtEnd(FOOTER).find(document, None), None) is None:
        reader.problems.lacks("the end of the page")
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
    if is_empty and not reader.problems.missing:
        return NotFound("the list is empty")
    return Retry("the page has no list of cases")


def _read_responses(reader: PageReader) -> ReadResult:
    columns = json_at(reader.json, "columns")
    responses = json_objects(reader.json, "responses")
    if not isinstance(columns, list) or not responses:
        return Retry("the response has no list of cases")
    rows = [row for response in responses for row in json_objects(response, "rows")]
    fields = [_named(_cells(row, columns)) for row in rows]
    records = [record for cells in fields if (record := _record(cells)) is not None]
    total = values.whole_number(json_text(responses[0].get("records")))
    if len(records) != total:
        reader.problems.lacks(f"cases of the list: it has {len(records)} of {total}")
    reader.selector_results.note("liens", CELLS, bool(records))
    if records:
        reader.selector_results.note_columns("liens", _COLUMNS, set().union(*fields))
    elif reader.problems.missing:
        return Retry("the list is incomplete: its rows have no case and no parcel")
    return records or NotFound("the list is empty")


def _cells(row: Mapping[str, Json], columns: Sequence[Json]) -> dict[str, str]:
    """The texts of a row by column: jqGrid takes a list of cells in the order of the columns, or members by name."""
    cells = row.get("cell", row)
    if isinstance(cells, list):
        cells = dict(zip(map(str, columns), cells, strict=True)) if len(cells) == len(columns) else {}
    given = cells if isinstance(cells, Mapping) else {}
    return {name.lower(): json_text(value) or "" for name, value in given.items()}


def _compare_with_total(document: Document, count: int, problems: Problems) -> None:
    """`View 1 - 50 of 112` below the grid."""
    shown = _shown(document)
    if shown is None:
        problems.lacks("the number of cases below the list")
        return
    first, last, total = shown
    if count != last - first + 1:
        problems.lacks(f"the cases of the list: {count} instead of {last - first + 1}")
    if first != 1 or last != total:
        problems.lacks(f"other pages of the list: it shows {first} to {last} of {total}")


def _shown(document: Document) -> tuple[int, int, int] | None:
    match = next((match for text in document.labels() if (match := _TOTAL.fullmatch(text))), None)
    if match is None:
        return None
    first, last, total = (int(number.replace(",", "").replace(" ", "")) for number in match.groups())
    return first, last, total


def _rows(document: Document) -> Iterator[dict[str, str]]:
    """The texts of each row by the grid's column names."""
    for row in document.root.iter("tr"):
        cells = {}
        for cell in row.iterchildren(etree.Element):
            name = (cell.get("aria-describedby") or "").rpartition("_")[2].lower()
            if cell.tag == "td" and name:
                cells[name] = _text(cell)
        fields = _named(cells)
        if "case" in fields or "parcel" in fields:
            yield fields


def _named(cells: Mapping[str, str]) -> dict[str, str]:
    return {name: cells[column] for name, known in _COLUMNS.items() for column in known[::-1] if column in cells}


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
    is_listed = status == "lands_available" or _LANDS_AVAILABLE.search(status) is not None
    if _NOT_AVAILABLE.search(status):
        return None if is_listed else False
    return is_listed or None


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


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """Follows the grid to its last page. Raises RetryLater if a page is missing: a partial list is never returned."""
    page = await fetcher.get(page_url(target, county))
    document = Document.of(page)
    grid = next((script for script in document.scripts if ".jqGrid(" in script), "") if document is not None else ""
    address = _GRID_URL.search(grid)
    if document is None or address is None or _is_whole(document):
        return page
    url = urljoin(page.url, address[1])
    if urlsplit(url).netloc != urlsplit(page.url).netloc:
        raise CannotFetch(f"the list is on another site: {url!r:.200}")
    sizes = _GRID_SIZES.search(grid)
    size = max((int(number) for number in sizes[1].split(",") if number.strip()), default=0) if sizes else _GRID_SIZE
    responses: list[dict[str, Any]] = []
    pages = 0
    while len(responses) < (pages or 1):
        asked = {"_search": "false", "rows": size or _GRID_SIZE, "page": len(responses) + 1, "sidx": "", "sord": "asc"}
        response = await fetcher.get(
            f"{url}{'&' if '?' in url else '?'}{urlencode(asked)}", headers={"X-Requested-With": "XMLHttpRequest"}
        )
        decoded, count = _decoded(response, len(responses) + 1)
        responses.append(decoded)
        pages = pages or count
        if pages > _MAX_PAGES:
            raise CannotFetch(f"the list has {pages:,} pages")
    columns = _GRID_COLUMN.findall(grid.partition("colModel")[2])
    body = msgspec.json.encode({"columns": columns, "responses": responses})
    return Page(body=body, content_type="application/json", url=page.url)


def _is_whole(document: Document) -> bool:
    shown = _shown(document)
    return shown is not None and shown[0] == 1 and shown[1] == shown[2] == len(list(_rows(document)))


def _decoded(page: Page, number: int) -> tuple[dict[str, Any], int]:
    """One page of the grid, and how many pages there are."""
    try:
        response = msgspec.json.decode(page.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RetryLater(f"page {number} of the list is not JSON") from None
    names = ("page", "total", "records")
    shown, pages, records = (values.whole_number(json_text(response.get(name))) for name in names)
    if shown not in (number, 0) or pages is None or records is None or not isinstance(response.get("rows"), list):
        raise RetryLater(f"the site did not return page {number} of the list")
    return response, pages


PLATFORM = CountyPlatform(name="pioneer_taxdeed", version=7, is_list=True, read=read, fetch=fetch)
