"""`realauction`: a county's tax deed auction of one day. Experimental: written from descriptions, without a real page.

The list comes in responses that require the session of the day's page. Without it they are empty, which does not mean
that there is no auction.
"""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Iterator
from datetime import date
from typing import Any

import msgspec

from parcelpost.model import NotFound, Page, Retry, Target
from parcelpost.scrapers.counties import County, require_county, target_url
from parcelpost.scrapers.fetch.errors import CannotFetch, RetryLater
from parcelpost.scrapers.html import values
from parcelpost.scrapers.html.document import Document, Element, label, text_of
from parcelpost.scrapers.html.selectors import Css
from parcelpost.scrapers.html.values import json_at, json_objects, json_text
from parcelpost.scrapers.platform import CountyPlatform, Fetcher, PageReader, ReadResult
from parcelpost.scrapers.records.problems import Problems
from parcelpost.scrapers.records.record import LIEN, Lien, Record

_MOST_PAGES = 100
_MOST_PLACE_CHARS = 100
_MACROS = {
    "@A": '<div class="',
    "@B": "</div>",
    "@C": 'class="',
    "@D": "<div>",
    "@E": "AUCTION",
    "@F": "</td><td",
    "@G": "</td></tr>",
    "@H": "<tr><td ",
    "@I": "table",
    "@J": 'p_back="NextCheck=',
    "@K": 'style="Display:none"',
    "@L": "/index.cfm?zaction=auction&zmethod=details&AID=",
}
_LABELS = {
    "case": ("Case #", "Case Number"),
    "parcel": ("Parcel ID", "Parcel #"),
    "certificate": ("Certificate #", "Certificate Number"),
    "opening_bid": ("Opening Bid",),
    "assessed_value": ("Assessed Value",),
    "situs": ("Property Address",),
}
ITEM = Css("div[id^='AITEM_']")
_MACRO = re.compile("@[A-L]")
Fields = dict[str, list[str]]
"""The values of an item by label."""
_PLACE = re.compile(r"(\D*?)(?:[,\s]+[A-Z]{2})?(?:[,\s-]+(\d{5}(?:-\d{4})?))?[,\s-]*", re.ASCII)


def read(reader: PageReader) -> ReadResult:
    """A page is either what `fetch` assembled, the responses of one day and the date, or a single response."""
    answers = json_objects(reader.json, "answers")
    if not answers and json_at(reader.json, "retHTML") is not None:
        answers = [reader.json]
    day = json_text(json_at(reader.json, "auction_date"))
    if not answers:
        return Retry("the page has no auction response")
    texts = [text if isinstance(text := answer.get("retHTML"), str) else "" for answer in answers]
    if not any(texts):
        return Retry("the responses are empty: the session was not accepted")
    items: list[Fields] = []
    for answer, text in zip(answers, texts, strict=True):
        shown = list(_items(text))
        items += shown
        listed = [number for number in (json_text(answer.get("rlist")) or "").split(",") if number.strip()]
        if not text or (listed and len(listed) != len(shown)):
            reader.problems.lacks(f"items of the list: a response has {len(shown)} of {len(listed)}")
    records = [record for item in items if (record := _record(item, day, reader.problems)) is not None]
    reader.selector_results.note("liens", ITEM, bool(records))
    if records:
        reader.selector_results.note_columns(
            "liens", _LABELS, {name for item in items for name in _LABELS if _lines(item, name)}
        )
    return records or NotFound("there is no auction on that day")


def _items(text: str) -> Iterator[Fields]:
    document = Document.of(Page(body=f"<html><body>{expanded(text)}</body></html>".encode(errors="replace")))
    for item in document.root.iter("div") if document is not None else ():
        if (item.get("id") or "").startswith("AITEM_"):
            yield _fields(item)


def expanded(text: str) -> str:
    """Expands the page's own abbreviations."""
    return _MACRO.sub(lambda match: _MACROS[match[0]], text)


def _fields(item: Element) -> Fields:
    """The value of each label; a line without a label belongs to the one above."""
    fields: Fields = {}
    name = ""
    for cell in item.iter("td", "th", "div"):
        kinds = (cell.get("class") or "").split()
        if "AD_LBL" in kinds:
            name = label(text_of(cell)) or name
        elif "AD_DTA" in kinds and name and (text := values.text_or_none(text_of(cell))):
            fields.setdefault(name, []).append(text)
    return fields


def _lines(fields: Fields, name: str) -> list[str]:
    """The value of the first matching label."""
    return next((fields[label(name_)] for name_ in _LABELS[name] if label(name_) in fields), [])


def _record(fields: Fields, day: str | None, problems: Problems) -> Record | None:
    def first(name: str) -> str | None:
        return next(iter(_lines(fields, name)), None)

    case, parcel = first("case"), first("parcel")
    if parcel is not None and not any(sign.isdigit() for sign in parcel):
        parcel = None  # the text of the link, if there is no number
    if case is None and parcel is None:
        problems.note("liens", "an item has no case and no parcel")
        return None
    lines = _lines(fields, "situs")
    lien = Lien(
        case_number=case,
        certificate_number=first("certificate"),
        opening_bid=values.money(first("opening_bid")),
        auction_date=values.iso_date(day),
    )
    record = Record(parcel_id=parcel, record_kind=LIEN, liens=[lien], situs_address=lines[0] if lines else None)
    record.assessed_value = values.money(first("assessed_value"))
    if lien.opening_bid is None and _has_unknown_amount(fields):
        problems.note("liens.opening_bid", "an item has an amount under an unknown label")
    if len(lines) > 1 and (place := _PLACE.fullmatch(lines[1][:_MOST_PLACE_CHARS].upper())):
        city = (values.text_or_none(place[1]) or "").strip(" ,-")
        record.situs_city, record.situs_zip = city if len(city) > 2 else None, place[2]
    return record


def _has_unknown_amount(fields: Fields) -> bool:
    """Whether an item has an amount that no known label names, or text in the place of its bid."""
    known = {label(name) for names in _LABELS.values() for name in names}
    return bool(_lines(fields, "opening_bid")) or any(
        "$" in text for name, texts in fields.items() if name not in known for text in texts
    )


async def fetch(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    """Fetches the auction of `auction_date` (YYYY-MM-DD) in the target's extra fields."""
    base = (target_url(target, county) or require_county(county, target).base).rstrip("/")
    day = _day(target)
    key = f"{base}/index.cfm?zaction=AUCTION&Zmethod=PREVIEW&AUCTIONDATE={day:%m/%d/%Y}"
    if kept := await fetcher.cached_page(key):
        return kept
    await fetcher.get(f"{base}/index.cfm?zaction=USER&zmethod=CALENDAR", cached=False)
    await fetcher.get(key, cached=False)
    answers = [answer async for answer in _answers(base, key, fetcher)]
    body = msgspec.json.encode({"auction_date": day.isoformat(), "answers": answers})
    page = Page(body=body, content_type="application/json", url=key)
    fetcher.cache_as(key, page)
    return page


async def _answers(base: str, preview: str, fetcher: Fetcher) -> AsyncIterator[dict[str, Any]]:
    """Fetches pages until one repeats: after the last page the site returns it again."""
    load = f"{base}/index.cfm?zaction=AUCTION&Zmethod=UPDATE&FNC=LOAD&AREA=W&PageDir=0&doR=1"
    headers = {"Referer": preview, "X-Requested-With": "XMLHttpRequest"}
    listed = ""
    for number in range(1, _MOST_PAGES + 1):
        page = await fetcher.get(f"{load}&bypassPage={number}", headers=headers, cached=False)
        answer = _decoded(page)
        if not answer.get("retHTML"):
            raise RetryLater("the response is empty: the session was not accepted, or has expired")
        if (now := str(answer.get("rlist") or answer["retHTML"])) == listed:
            return
        listed = now
        yield {name: answer[name] for name in ("retHTML", "rlist") if name in answer}
    raise CannotFetch(f"the list has more than {_MOST_PAGES} pages")


def _decoded(page: Page) -> dict[str, Any]:
    if not page.body.strip():
        return {}
    try:
        return msgspec.json.decode(page.body, type=dict[str, Any])
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        raise RetryLater("the response is not JSON") from None


def _day(target: Target) -> date:
    try:
        return date.fromisoformat(str(target.extra.get("auction_date", "")))
    except ValueError:
        raise CannotFetch("the task needs a date: set auction_date=YYYY-MM-DD in its extra fields") from None


PLATFORM = CountyPlatform(name="realauction", version=4, is_list=True, read=read, fetch=fetch)
