"""`govease`: the rows of an online auction's table, which come without its headings."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from decimal import Decimal

from parcelpost.model import NotFound, Retry
from parcelpost.scrapers import tables, values
from parcelpost.scrapers.county_platform import CountyPlatform, Found, Reading
from parcelpost.scrapers.document import Document, Element, text_of
from parcelpost.scrapers.record import LIEN, Lien, Record

_ITEM = re.compile(r"/([^/]+)/open\w*parcel/(\d+)/([^/?#]+)", re.IGNORECASE)
_USE = re.compile(r"Use Code:\s*([0-9A-Z-]{1,12})\b", re.ASCII)


def read(reading: Reading) -> Found:
    document = reading.document
    found = [record for cells in _rows(document) if (record := _record(cells)) is not None]
    if found:
        return found
    if document.by_id("auctionTable") is not None:
        return NotFound("the auction lists no item")
    return Retry("the page holds no list of an auction's items")


def _rows(document: Document) -> Iterator[Sequence[Element]]:
    for table in document.root.iter("table"):
        yield from tables.rows_of(table)


def _record(cells: Sequence[Element]) -> Record | None:
    """By what a cell holds: a link to the item, an amount, a name that can be hovered over."""
    link = next((one for cell in cells for one in cell.iter("a") if _ITEM.search(one.get("href") or "")), None)
    if link is None:
        return None
    item = _ITEM.search(link.get("href") or "")
    at = next(number for number, cell in enumerate(cells) if link in cell.iter("a"))
    following = cells[at + 1 :]
    parcel = next((text for cell in following[:2] if (text := values.words(text_of(cell)))), None)
    bid = next((amount for cell in following if (amount := _amount(cell)) is not None), None)
    if parcel is None or bid is None or item is None:
        return None
    details = next((text_of(cell) for cell in following if "Use Code:" in text_of(cell)), "")
    use = _USE.search(details)
    lien = Lien(case_number=item[2], opening_bid=bid, status=None)
    return Record(
        parcel_id=parcel,
        record_kind=LIEN,
        owner_names=_owners(following),
        situs_address=_situs(following),
        land_use_code=use[1] if use else None,
        liens=[lien],
    )


def _amount(cell: Element) -> Decimal | None:
    return values.money(text_of(cell)) if "$" in text_of(cell)[:2] else None


def _owners(cells: Sequence[Element]) -> list[str]:
    """A long name is cut; the whole of it is what the page shows when one points at it."""
    for cell in cells[1:2]:
        spans = [one for one in cell.iter("span") if one.get("data-content")]
        name = values.words(spans[0].get("data-content")) if spans else values.words(text_of(cell))
        return [name] if name else []
    return []


def _situs(cells: Sequence[Element]) -> str | None:
    """The cell after the one with the details."""
    for number, cell in enumerate(cells[:-1]):
        if _amount(cell) is not None:
            after = cells[number + 2 : number + 3]
            return values.words(text_of(after[0])) if after else None
    return None


PLATFORM = CountyPlatform(name="govease", version=1, read=read)
