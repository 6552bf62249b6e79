"""`deedauction`: a county's tax deed auction. Its pages list cases, without their parcels."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from urllib.parse import urljoin, urlsplit

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, page_url
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Document, Element, Piece, text_of
from parcelpost.scrapers.html.extract import Extractor, section
from parcelpost.scrapers.html.selectors import AtEnd, Id, Label
from parcelpost.scrapers.html.tables import Columns, Headed, Row
from parcelpost.scrapers.platform import FOOTER, CountyPlatform, Fetcher, PageReader, ReadResult
from parcelpost.scrapers.records.problems import Problems
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
_KINDS = {"opening_bid": values.money, "best_bid": values.money}
ITEMS = section("liens", _COLUMNS, Id("results"), Headed(_COLUMNS), kinds=_KINDS)
_DETAILS: Mapping[str, tuple[str, ...]] = {
    "parcel": ("Parcel ID", "Parcel Number", "Parcel #", "Folio", "Folio Number", "Property ID", "Parcel"),
    "certificate": ("Certificate Number", "Certificate #", "Certificate"),
    "owner": ("Owner", "Owner Name", "Owners", "Titleholder"),
    "situs": ("Property Address", "Situs Address", "Site Address", "Situs"),
}
_DATE = re.compile(r"(\d{1,2}/\d{1,2}/\d{4})", re.ASCII)
_STARTS = re.compile(r"(?:bidding|auction|sale) starts (?:at|on):?\s*(\d{1,2}/\d{1,2}/\d{4})", re.ASCII | re.IGNORECASE)
_STATUS = re.compile(r"[A-Za-z][A-Za-z /-]{2,30}")
_PAGE_BREAK = b"\n<!-- next page of the list -->\n"
"""Separates the pages of a list, which are fetched separately."""
_MAX_PAGES = 200


def read(reader: PageReader) -> ReadResult:
    documents = list(_documents(reader))
    records: list[Record] = []
    for document in documents:
        extractor = Extractor(document, selector_results=reader.selector_results, problems=reader.problems)
        rows = (reader.extractor if document is documents[0] else extractor).rows(ITEMS)
        if rows is None:
            return Retry("the page has no list of auction items")
        records += _records(document, rows, _auction_date(documents[0]), reader.problems)
        if next(AtEnd(FOOTER).find(document, None), None) is None:
            reader.problems.lacks("the end of the page")
    _compare_with_total(documents, records, reader.problems)
    if not records and (reader.problems.missing or reader.problems.unreadable):
        return Retry("the list is incomplete: its rows cannot be read")
    return records or NotFound("the auction has no items")


def _documents(reader: PageReader) -> Iterator[Document]:
    first, *others = reader.page.body.split(_PAGE_BREAK)
    if not others:
        yield reader.document
        return
    for body in (first, *others):
        if (document := Document.of(Page(body=body, content_type=reader.page.content_type))) is not None:
            yield document


def _compare_with_total(documents: list[Document], records: list[Record], problems: Problems) -> None:
    """The form of each page says which of how many it is; the first page also how many items are advertised."""
    forms = [_fields(form) for document in documents[:1] if (form := _list_form(document)) is not None]
    pages = values.whole_number(forms[0].get("last_page")) if forms else _pages_below(documents[0])
    advertised = (values.whole_number(piece.text) for piece in Label("Advertised").find(documents[0], None))
    total = next(advertised, None)
    if pages is not None and len(documents) != pages:
        problems.lacks(f"pages of the list: it has {len(documents)} of {pages}")
    elif total is not None and len(records) != total:
        problems.lacks(f"items of the list: it has {len(records)} of {total}")
    size = values.whole_number(forms[0].get("rows")) if forms else None
    if len(documents) == 1 and pages is not None and pages > 1 and size is not None and len(records) != size:
        problems.lacks(f"items of the first page: it has {len(records)} of {size}")
    cases = [record.liens[0].case_number for record in records]
    if len(set(cases)) < len(cases):
        problems.lacks("distinct cases: some are listed twice")


def _list_form(document: Document) -> Element | None:
    """The form that requests another page of the list."""
    for form in document.root.iter("form"):
        names = {field.get("name") for field in form.iter("input")}
        if {"page", "last_page"} <= names:
            return form
    return None


def _fields(form: Element) -> dict[str, str]:
    return {name: field.get("value") or "" for field in form.iter("input") if (name := field.get("name"))}


def _pages_below(document: Document) -> int | None:
    """`Page [1] of 2`, below the list."""
    count = document.by_id("page-bottom_count")
    return values.whole_number(text_of(count)) if count is not None else None


def _auction_date(document: Document) -> str | None:
    blocks = document.root.iter("span", "h1", "h2", "div")
    titles = (block for block in blocks if "title" in (block.get("class") or block.get("id") or ""))
    for element in titles:
        match = _DATE.search(text_of(element)[:200])
        if match:
            return values.iso_date(match[1])
    starts = _STARTS.search(text_of(document.root))
    return values.iso_date(starts[1]) if starts else None


def _records(document: Document, rows: Iterable[Row], auction_date: str | None, problems: Problems) -> Iterator[Record]:
    for row in rows:
        case, opening_bid = values.text_or_none(tables.text(row, "case")), values.money(tables.text(row, "opening_bid"))
        status = values.text_or_none(tables.text(row, "status"))
        if case is None or not any(sign.isdigit() for sign in case) or (opening_bid is None and status is None):
            if tables.is_row_of_values(row):
                problems.note("liens", "a row has no case, or no bid and status")
            continue
        more = _details(document, row["case"])
        owner = more.get("owner")
        lien = Lien(
            case_number=case,
            certificate_number=values.text_or_none(tables.text(row, "certificate")) or more.get("certificate"),
            auction_date=auction_date,
            opening_bid=opening_bid,
            high_bid=values.money(tables.text(row, "best_bid")),
            status=status.lower() if status and _STATUS.fullmatch(status) else None,
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
    texts = {}
    for name, labels in _DETAILS.items():
        pieces = (piece for text_label in labels for piece in Label(text_label).find(document, block))
        if text := next((text for piece in pieces if (text := values.text_or_none(piece.text))), None):
            texts[name] = text
    return texts


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """Follows the list to its last page. Raises RetryLater if a page is missing: a partial list is never returned."""
    first = await fetcher.get(page_url(target, county))
    document = Document.of(first)
    form = _list_form(document) if document is not None else None
    pages = values.whole_number(_fields(form).get("last_page")) if form is not None else None
    if form is None or pages is None or pages < 2:
        return first
    if pages > _MAX_PAGES:
        raise CannotFetch(f"the list has {pages} pages")
    action = urljoin(first.url, form.get("action") or first.url)
    if urlsplit(action).netloc != urlsplit(first.url).netloc:
        raise CannotFetch(f"the list's form submits to another site: {action!r:.200}")
    bodies = [first.body]
    for number in range(2, pages + 1):
        page = await fetcher.post(action, _fields(form) | {"page": str(number)})
        following = Document.of(page)
        own = _list_form(following) if following is not None else None
        if own is None or _fields(own).get("page") != str(number):
            raise RetryLater(f"the site did not return page {number} of {pages} of the list")
        bodies.append(page.body)
    return Page(body=_PAGE_BREAK.join(bodies), content_type=first.content_type, url=first.url)


PLATFORM = CountyPlatform(name="deedauction", version=7, is_list=True, read=read, fetch=fetch)
