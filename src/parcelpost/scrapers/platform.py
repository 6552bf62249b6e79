"""What a platform is: the protocols the executor expects, and CountyPlatform, made of a fetch and a read function."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property, partial
from typing import Protocol

import msgspec
from msgspec import Struct

from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.browser.base import Step
from parcelpost.scrapers.counties import County, page_url
from parcelpost.scrapers.fetch.errors import find_challenge
from parcelpost.scrapers.html.document import Document, is_shell
from parcelpost.scrapers.html.extract import DECLARED_ORDER, Extractor, SelectorOrder, SelectorResult, SelectorResults
from parcelpost.scrapers.html.values import parcel_norm
from parcelpost.scrapers.records.field_maps import FieldMaps, Rows
from parcelpost.scrapers.records.identity import is_other_parcel, is_same_parcel, json_parcel_ids, shown_parcel_ids
from parcelpost.scrapers.records.record import LIEN, Record

_LOOK_BYTES = 4_096
_MOST_BYTES = 64 * 1024**2
"""Of a table of many parcels; a single page is far smaller."""

FailedRead = Retry | GiveUp | Blocked | NotFound
ReadResult = Record | Sequence[Record] | FailedRead
"""What reading a page came to."""


RecordsOf = Callable[[Rows], list[Record] | Retry | GiveUp]
"""The records of a table's rows, by a field map."""


class Unreadable(Exception):
    """The page is not what this platform serves; raised while it is read, told as a Retry."""


class PageReader:
    """A page being read for a target. Raises Unreadable where the page is not of the kind asked for."""

    def __init__(self, page: Page, target: Target, order: SelectorOrder, records_of: RecordsOf) -> None:
        self.page = page
        self.target = target
        self.records_of = records_of
        self.tries = SelectorResults()
        self._order = order

    @cached_property
    def document(self) -> Document:
        document = Document.of(self.page)
        if document is None:
            raise Unreadable("the page is no HTML, or too large to be a parcel's")
        return document

    @cached_property
    def look(self) -> Extractor:
        return Extractor(self.document, self._order, self.tries)

    @cached_property
    def json(self) -> Json:
        """The page as JSON; numbers with a fraction are Decimal."""
        try:
            return _decode_json(self.page.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidOperation) as error:
            raise Unreadable(f"the answer is no JSON: {error}"[:200]) from None

    def other_numbers(self) -> Iterator[str]:
        """What else the page shows as a number of the parcel."""
        if "json" in self.__dict__:
            yield from json_parcel_ids(self.json)
        elif "document" in self.__dict__:
            yield from shown_parcel_ids(self.document)


class Parsed(Struct, frozen=True):
    outcome: Outcome
    tries: Sequence[SelectorResult]


class Fetcher(Protocol):
    """Gets pages with manners, for one attempt, whose cookies it keeps. Raises a FetchFailed."""

    async def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        """`cached=False`: from the site in any case, because the answer is of use only now."""

    async def post(self, url: str, form: Mapping[str, str]) -> Page: ...

    async def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        """As a browser shows it, when `until` (CSS) is there: in the page or in a frame of the same site, which is then
        what is answered. One where it does not come is answered as it is. `steps` are taken before. `keep_cookies`: the
        next task of the site begins with the cookies that this one has got.
        """

    async def cached_page(self, key: str) -> Page | None:
        """A page that an attempt kept as this, and that is fresh."""

    def cache_as(self, key: str, page: Page) -> None:
        """For a page that took several requests. It is kept if it gives a record."""


Fetch = Callable[[Target, County | None, Fetcher], Awaitable[Page]]
"""How a platform gets a target's page. None: nobody has written an entry for its county."""


async def fetch_by_url(target: Target, county: County | None, fetcher: Fetcher) -> Page:
    return await fetcher.get(page_url(target, county))


async def fetch_or_render(
    fetcher: Fetcher,
    url: str,
    is_shell: Callable[[Page], bool] = is_shell,
    *,
    county: County | None = None,
    until: str = "",
    plain: Callable[[], Awaitable[Page]] | None = None,
) -> Page:
    """As the site sends it, or, where that is only the shell of a page, as a browser shows it.

    `county`: where its entry names a profile, a browser is asked at once, as the person whose profile it is.
    `plain`: how it is asked for without a browser, if that takes more than its address.
    """
    if county is not None and county.profile:
        return await fetcher.rendered(url, until=until, keep_cookies=True)
    page = await (plain() if plain is not None else fetcher.get(url))
    return await fetcher.rendered(url, until=until) if is_shell(page) else page


class CountyPlatform(Struct, frozen=True, kw_only=True):
    name: str
    version: int
    """Of the parser: raised when the same page is read differently."""
    read: Callable[[PageReader], ReadResult]
    fetch: Fetch = fetch_by_url
    sparse: bool = False
    """Its records may say next to nothing of a parcel: rows of a table with hardly a column."""
    lists: bool = False
    """Its pages are lists. Others give one for a target that names a `where` instead of a parcel."""
    field_maps: FieldMaps = FieldMaps()
    """By which the rows of tables are read."""

    def parse(self, page: Page, target: Target, order: SelectorOrder = DECLARED_ORDER) -> Parsed:
        """Pure: the same page gives the same. Never raises for a page, whatever it holds."""
        reading = PageReader(page, target, order, partial(self.field_maps.read, self.name, target))
        found = _too_large(page) or _cut_off(page) or self._records(reading)
        if not isinstance(found, list):
            return Parsed(find_challenge(page) or found, reading.tries)  # a page that gives a record is none
        lists = self.lists or "where" in target.extra
        if not lists and len(found) == 1 and (another := _other_parcel(found[0], reading)) is not None:
            return Parsed(another, reading.tries)
        for record in found:
            self._identify(record, page, target)
        first, *more = [record.as_json() for record in found]
        return Parsed(Done(data=first, page=page, more=tuple(more), lists=lists), reading.tries)

    def _records(self, reading: PageReader) -> list[Record] | FailedRead:
        """One or more."""
        found = self._read(reading)
        if isinstance(found, Retry | GiveUp | Blocked | NotFound):
            return found
        records = [found] if isinstance(found, Record) else list(found)
        if not records:
            return NotFound("the page lists nothing")
        if not self.sparse and any(_is_half_empty(record) for record in records):
            return Retry("the page came only in part: it names neither an owner nor a value")
        return records

    def _read(self, reading: PageReader) -> ReadResult:
        try:
            return self.read(reading)
        except Unreadable as error:
            return Retry(str(error))

    def _identify(self, record: Record, page: Page, target: Target) -> None:
        record.platform = self.name
        record.parser_version = f"{self.name}/{self.version}"
        record.parcel_id_norm = parcel_norm(record.parcel_id)
        record.state = record.state or target.state
        record.county = record.county or target.county
        record.source_url = page.url or target.url or None


def _other_parcel(record: Record, reading: PageReader) -> Retry | None:
    asked = reading.target.parcel_id
    if not is_other_parcel(asked, (record.parcel_id, record.tax_account)):
        return None
    if any(is_same_parcel(asked, one) for one in reading.other_numbers()):
        return None
    return Retry(f"the page is of another parcel: it shows {record.parcel_id!r:.60}, and {asked!r:.60} was asked for")


def _is_half_empty(record: Record) -> bool:
    said = record.owner_names or record.tax_bills or record.market_value is not None
    return record.record_kind != LIEN and not said


def _too_large(page: Page) -> Retry | None:
    return Retry(f"the page has {len(page.body):,} bytes") if len(page.body) > _MOST_BYTES else None


def _cut_off(page: Page) -> Retry | None:
    """A page that begins as one and does not end as one has come only in part, however much of it can be read."""
    if b"</html" in page.body[-_LOOK_BYTES:].lower():
        return None
    start = page.body[:_LOOK_BYTES].lower()
    if b"<html" not in start and (not start.lstrip().startswith(b"<") or _ends_its_table(page.body.lower())):
        return None
    return Retry("the page was cut off: it has no end")


def _ends_its_table(piece: bytes) -> bool:
    """Of a piece of a page, as sites put it into one that is there already."""
    return piece.rfind(b"</table") >= piece.rfind(b"<table")


_decode_json = msgspec.json.Decoder(float_hook=Decimal).decode


Scrape = Callable[[Task], Outcome | Awaitable[Outcome]]
"""Makes one attempt at a task, as an `async def` or a plain function.

Called from the threads of several slots at a time: an `async def` on the slot's own event loop, where it is cancelled
when its time is up, and a plain function outside any loop. It may block or raise; that affects its own task only.
"""

Parse = Callable[[Page, Target], Outcome | Awaitable[Outcome]]
"""Parses a stored page, without any other input: the same page gives the same outcome."""


class NotReadable(Struct, frozen=True):
    """Why a platform's pages cannot be parsed again."""

    reason: str


class LoadedPlatform(Struct, frozen=True):
    scrape: Scrape
    parse: Parse | NotReadable
