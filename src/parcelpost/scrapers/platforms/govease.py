"""`govease`: the rows of an online auction, which have no headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal
from urllib.parse import unquote

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers.html import tables, values
from parcelpost.scrapers.html.document import Document, Element, text_of
from parcelpost.scrapers.html.extract import shown_fields
from parcelpost.scrapers.html.selectors import Css
from parcelpost.scrapers.html.values import parcel_norm
from parcelpost.scrapers.platform import CountyPlatform, PageReader, ReadResult
from parcelpost.scrapers.records.record import LIEN, Lien, Record

_ITEM = re.compile(r"/([^/]+)/open\w*parcel/(\d+)/([^/?#]+)", re.IGNORECASE)
ITEM = Css("td a[href*='parcel/']")
_SHOWN = {
    "opening_bid": ("$",),
    "owner_names": ("the cell behind the parcel",),
    "situs_address": ("the last cell before the auction's name",),
    "land_use_code": ("Use Code:",),
}
_USE = re.compile(r"Use Code:\s*([0-9A-Z-]{1,12})\b", re.ASCII)


def read(reader: PageReader) -> ReadResult:
    document = reader.document
    found = [record for cells in _rows(document) if (record := _record(cells)) is not None]
    reader.selector_results.note("liens", ITEM, bool(found))
    if found:
        reader.selector_results.note_columns("liens", _SHOWN, _shown(found))
        return found
    if any(_amount(cell) is not None or _links(cell) for cells in _rows(document) for cell in cells):
        return Retry("the list is incomplete: its rows have no item or no amount")
    if document.by_id("auctionTable") is not None:
        return NotFound("the auction has no items")
    return Retry("the page has no list of auction items")


def _shown(found: Sequence[Record]) -> set[str]:
    bids = shown_fields((record.liens[0] for record in found), ("opening_bid",))
    return (
        bids
        | shown_fields(found, ("land_use_code", "situs_address"))
        | {"owner_names" for one in found if one.owner_names}
    )


def _rows(document: Document) -> Iterator[Sequence[Element]]:
    for table in document.root.iter("table"):
        yield from tables.rows_of(table)


def _record(cells: Sequence[Element]) -> Record | None:
    """Recognizes cells by content: a link to the item with its parcel, the parcel, an amount, the auction's name.

    If there are several amounts, the opening bid is unknown.
    """
    link = next((one for cell in cells for one in _links(cell)), None)
    item = _ITEM.search(link.get("href") or "") if link is not None else None
    if link is None or item is None:
        return None
    at = next(number for number, cell in enumerate(cells) if link in cell.iter("a"))
    following = cells[at + 1 :]
    amounts = {amount for cell in following[: _auction_name(following)] if (amount := _amount(cell)) is not None}
    if not amounts:
        return None
    named = unquote(item[3])
    parcels = [number for number, cell in enumerate(following) if parcel_norm(text_of(cell)) == parcel_norm(named)]
    details = next((text_of(cell) for cell in following if "Use Code:" in text_of(cell)), "")
    use = _USE.search(details)
    lien = Lien(case_number=item[2], opening_bid=amounts.pop() if len(amounts) == 1 else None, status=None)
    return Record(
        parcel_id=values.text_or_none(text_of(following[parcels[0]])) if parcels else values.text_or_none(named),
        record_kind=LIEN,
        owner_names=_owners(following[parcels[0] + 1 :]) if parcels else [],
        situs_address=_situs(following),
        land_use_code=use[1] if use else None,
        liens=[lien],
    )


def _links(cell: Element) -> list[Element]:
    return [one for one in cell.iter("a") if _ITEM.search(one.get("href") or "")]


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
        spans = [one for one in cell.iter("span") if one.get("data-content")]
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


PLATFORM = CountyPlatform(name="govease", version=4, is_list=True, read=read)
