"""`govease`: the rows of an online auction, which have no headings."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Sequence
from decimal import Decimal
from urllib.parse import unquote

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Document, Element, text_of
from parcelpost.scrapers.html.extract import shown_fields
from parcelpost.scrapers.html.selectors import Css
from parcelpost.scrapers.html.values import parcel_norm
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult, page_end
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import LIEN, Lien, Record

_ITEM = re.compile(r"/([^/]+)/open\w*parcel/(\d+)/([^/?#]+)", re.IGNORECASE)
ITEM = Css("td a[href*='parcel/']")
_SHOWN = {
    "opening_bid": ("$",),
    "owner_names": ("the cell behind the parcel",),
    "situs_address": ("the last cell before the auction's name",),
    "land_use_code": ("Use Code:",),
    "tax_district": ("Tax Rate Area:",),
}
_TAX_AREA = re.compile(r"Tax Rate Area:\s*([0-9A-Z-]{1,12})(?=\s|$)", re.ASCII)
_TOTAL = re.compile(r"showing (\d+) to (\d+) of (\d+) (?:entries|items|parcels)", re.ASCII)
_NO_ITEMS = re.compile(r"\bno (?:data|matching|items|parcels|records)\b", re.IGNORECASE)
_ACRES = re.compile(r"\bAcres:\s*(\d{1,5}(?:\.\d{1,4})?)(?=\s|$)", re.ASCII)
_USE = re.compile(r"Use Code:\s*([0-9A-Z-]{1,12})\b", re.ASCII)


def read(reader: PageReader) -> ReadResult:
    document = reader.document
    rows = [cells for cells in _rows(document) if any(_links(cell) for cell in cells)]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    even = [cells for cells in rows if len(cells) == width]
    records = [record for cells in even if (record := _record(cells)) is not None]
    reader.selector_results.note("liens", ITEM, bool(records))
    if records:
        _check_rows(document, len(records), reader.problems)
        reader.selector_results.note_columns("liens", _SHOWN, _shown(records))
        return records
    if any(_amount(cell) is not None or _links(cell) for cells in _rows(document) for cell in cells):
        return Retry("the list is incomplete: its rows have no item or no amount")
    if (table := document.by_id("auctionTable")) is not None and _NO_ITEMS.search(text_of(table)):
        return NotFound("the auction has no items")
    return Retry("the page has no list of auction items")


def _check_rows(document: Document, count: int, problems: Problems) -> None:
    """Every row with two values or more must be an item, and the page must say how many there are."""
    shown = sum(1 for cells in _rows(document) if sum(1 for cell in cells if text_of(cell)) > 1)
    headings = sum(1 for row in document.root.iter("tr") if next(row.iterchildren("th"), None) is not None)
    widths = {len(cells) for cells in _rows(document) if len(cells) > 1}
    if count < shown - headings or len(widths) > 1:
        problems.note("liens", "some rows of the list have unexpected cells or cannot be read")
    total = next((match for text in document.labels() if (match := _TOTAL.fullmatch(text))), None)
    if total is None:
        problems.lacks("the number of items below the list")
    elif (count, total[3]) != (int(total[2]) - int(total[1]) + 1, total[2]):
        problems.lacks(f"items of the list: it has {count} of {total[3]}")


def _shown(records: Sequence[Record]) -> set[str]:
    bids = shown_fields((record.liens[0] for record in records), ("opening_bid",))
    return (
        bids
        | shown_fields(records, ("land_use_code", "tax_district", "situs_address"))
        | {"owner_names" for item in records if item.owner_names}
    )


def _rows(document: Document) -> Iterator[Sequence[Element]]:
    for table in document.root.iter("table"):
        yield from tables.rows_of(table)


def _record(cells: Sequence[Element]) -> Record | None:
    """Recognizes cells by content: a link to the item with its parcel, the parcel, an amount, the auction's name.

    If there are several amounts, the opening bid is unknown.
    """
    link = next((anchor for cell in cells for anchor in _links(cell)), None)
    item = _ITEM.search(link.get("href") or "") if link is not None else None
    if link is None or item is None:
        return None
    marks = {mark for cell in cells for element in cell.iter("span") if (mark := element.get("data-auction-id"))}
    if marks - {item[2]}:
        return None  # the row ends with cells of another item
    at = next(number for number, cell in enumerate(cells) if link in cell.iter("a"))
    following = cells[at + 1 :]
    amounts = {amount for cell in following[: _auction_name(following)] if (amount := _amount(cell)) is not None}
    if not amounts:
        return None
    named = unquote(item[3])
    parcels = [number for number, cell in enumerate(following) if parcel_norm(text_of(cell)) == parcel_norm(named)]
    texts = map(text_of, following)
    details = next((text for text in texts if "Use Code:" in text or "Tax Rate Area:" in text), "")
    use, area, acres = _USE.search(details), _TAX_AREA.search(details), _ACRES.search(details)
    bids = (element for cell in cells for element in cell.iter() if element.get("data-control-id") == "current-bid")
    lien = Lien(
        case_number=item[2],
        opening_bid=amounts.pop() if len(amounts) == 1 else None,
        high_bid=next((values.money(text_of(element)) for element in bids), None),
    )
    return Record(
        parcel_id=values.text_or_none(text_of(following[parcels[0]])) if parcels else values.text_or_none(named),
        record_kind=LIEN,
        owner_names=_owners(following[parcels[0] + 1 :]) if parcels else [],
        situs_address=_situs(following),
        land_use_code=use[1] if use else None,
        land_area_acres=values.number(acres[1]) if acres else None,
        tax_district=area[1] if area else None,
        liens=[lien],
    )


def _links(cell: Element) -> list[Element]:
    return [anchor for anchor in cell.iter("a") if _ITEM.search(anchor.get("href") or "")]


def _amount(cell: Element) -> Decimal | None:
    return values.money(text_of(cell)) if "$" in text_of(cell)[:2] else None


def _auction_name(cells: Sequence[Element]) -> int | None:
    """The index of its cell; the current bid and the remaining time follow it."""
    return next((number for number, cell in enumerate(cells) if "auctionname" in (cell.get("class") or "")), None)


def _owners(after: Sequence[Element]) -> list[str]:
    """In the next cell. A long name is shortened; its tooltip has all of it."""
    for cell in after[:1]:
        if _amount(cell) is not None:
            return []
        spans = [element for element in cell.iter() if element.get("data-content")]
        name = values.text_or_none(spans[0].get("data-content")) if spans else values.text_or_none(text_of(cell))
        return [name] if name else []
    return []


def _situs(cells: Sequence[Element]) -> str | None:
    """The last cell between the amount and the auction's name that is not a list of details."""
    amount = next((number for number, cell in enumerate(cells) if _amount(cell) is not None), None)
    name = _auction_name(cells)
    if amount is None or name is None:
        return None
    between = [cell for cell in cells[amount + 1 : name] if next(cell.iter("p"), None) is None]
    return values.text_or_none(text_of(between[-1])) if between else None


PLATFORM = CountyPlatform(name="govease", version=8, is_list=True, read=read, sections=(page_end(),))
