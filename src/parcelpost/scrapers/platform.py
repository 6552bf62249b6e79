"""CountyPlatform, made of a fetch and a read function, and the types of a loaded platform."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Container, Iterator, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from functools import cached_property
from typing import Protocol

import msgspec
from msgspec import Struct

from parcelpost.model import Blocked, Done, GiveUp, Json, NotFound, Outcome, Page, Retry, Target, Task
from parcelpost.scrapers.counties import County, page_url
from parcelpost.scrapers.fetch.errors import find_challenge
from parcelpost.scrapers.html.document import Document, is_shell
from parcelpost.scrapers.html.extract import DECLARED_ORDER, Extractor, SelectorOrder, SelectorResult, SelectorResults
from parcelpost.scrapers.html.selectors import AtEnd, Selector
from parcelpost.scrapers.html.values import has_key, json_at, json_number, json_text, parcel_norm
from parcelpost.scrapers.records.columns import Column
from parcelpost.scrapers.records.field_maps import FieldMaps, Rows
from parcelpost.scrapers.records.identity import is_other_parcel, is_same_parcel, json_parcel_ids, shown_parcel_ids
from parcelpost.scrapers.records.problems import Problems, drop_repeated, mark_unreadable
from parcelpost.scrapers.records.record import LIEN, MISSING, Record
from parcelpost.scrapers.records.validation import check_shapes, drop_dates, has_dates, is_parcel_number
from parcelpost.scrapers.tabular import standard_json

_SCANNED_BYTES = 4_096
_MAX_REASON_CHARS = 300
_ERRORS = ("error", "errors", "exception")
"""Members of a response that has a part that could not be loaded."""
_YEAR_OF_DATE = re.compile(rb"/(?:19|20)\d\d(?!\d)")
_MONTH_AND_DAY = re.compile(rb"(?<!\d)(\d{1,2})\\?/(\d{1,2})\\?\Z")
_MONTHS = 12
_MEMBER = re.compile("[^a-z]")
_MORE = ("hasmore", "hasmorepages", "hasnext", "hasnextpage", "nextpage", "nextlink")
_TOTALS = ("total", "totalcount", "totalitems", "totalrecords", "totalrows")
_MAX_BYTES = 64 * 1024**2
"""Limit for a table of many parcels; a single page is far smaller."""

FailedRead = Retry | GiveUp | Blocked | NotFound
ReadResult = Record | Sequence[Record] | FailedRead
"""Result of `read`."""


class Unreadable(Exception):
    """The page is not of the expected kind. Raised by `read`; the outcome is a Retry."""


class PageReader:
    """What `read` gets: the page in several forms, and the target. Raises Unreadable if the page has another form."""

    def __init__(self, page: Page, target: Target, order: SelectorOrder, field_maps: FieldMaps, platform: str) -> None:
        self.page = page
        self.target = target
        self.selector_results = SelectorResults()
        self.problems = Problems()
        self._order = order
        self._field_maps = field_maps
        self._platform = platform

    def records_of(self, rows: Rows, columns: Sequence[Column] = ()) -> list[Record] | Retry | GiveUp:
        """Rows of a table -> records, with a field map. `columns`: the table's description of its columns."""
        return self._field_maps.read(self._platform, self.target, rows, columns, self.problems)

    @cached_property
    def document(self) -> Document:
        document = Document.of(self.page)
        if document is None:
            raise Unreadable("the page is not HTML, or too large for a parcel page")
        return document

    @cached_property
    def extractor(self) -> Extractor:
        return Extractor(self.document, self._order, self.selector_results, self.problems)

    @cached_property
    def json(self) -> Json:
        """The page as JSON; numbers with a fraction are Decimals, NaN and Infinity None."""
        try:
            return decode_json(self.page.body)
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError, InvalidOperation) as error:
            raise Unreadable(f"the response is not JSON: {error}"[:200]) from None

    @property
    def trouble(self) -> str | None:
        """What a response with data says of an error beside it."""
        found = self.__dict__.get("json")
        errors = (found.get(name) for name in _ERRORS) if isinstance(found, Mapping) else ()
        message = next((one for one in errors if one), None)
        return f"a part of the response ({json_text(message) or 'error'})"[:100] if message is not None else None

    def objects(self, field: str, *path: str, keys: Sequence[str] = ()) -> list[Mapping[str, Json]]:
        """The objects of a JSON list. If it is missing, or an item lacks one of the keys, the field is unreadable."""
        items = json_at(self.json, *path)
        if not isinstance(items, list):
            self.problems.note(field, f"the response has no list {path[-1]}")
            return []
        objects = [item for item in items if isinstance(item, Mapping)]
        if len(objects) < len(items) or any(key not in item for item in objects for key in keys):
            self.problems.note(field, f"an item of {path[-1]} is incomplete")
        if has_more(json_at(self.json, *path[:-1]), len(items)):
            self.problems.note(field, f"the response has only a part of {path[-1]}")
        return objects

    @property
    def has_dates_with_day_first(self) -> bool:
        """Whether a date on the page has a day before its month, and none has it behind."""
        body = self.page.body
        before = (body[max(0, year.start() - 8) : year.start()] for year in _YEAR_OF_DATE.finditer(body))
        pairs = (match for part in before if (match := _MONTH_AND_DAY.search(part)) is not None)
        numbers = {(int(pair[1]), int(pair[2])) for pair in pairs}
        return any(first > _MONTHS >= second for first, second in numbers) and not any(
            first <= _MONTHS < second for first, second in numbers
        )

    def other_parcel_ids(self) -> Iterator[str]:
        """Other parcel numbers that the page shows."""
        if "json" in self.__dict__:
            yield from json_parcel_ids(self.json)
        elif "document" in self.__dict__:
            yield from shown_parcel_ids(self.document)


def has_more(around: Json, count: int) -> bool:
    """Whether the object with a list of so many items says that there are more."""
    if not isinstance(around, Mapping):
        return False
    members = {_MEMBER.sub("", name.lower()): value for name, value in around.items()}
    total = next((json_number(members[name]) for name in _TOTALS if members.get(name) is not None), None)
    return any(members.get(name) for name in _MORE) or (total is not None and total > count)


class Parsed(Struct, frozen=True):
    outcome: Outcome
    selector_results: Sequence[SelectorResult]
    absent_sections: Sequence[str] = ()
    """The platform's sections that a page with records lacks."""
    also_missing: Sequence[str] = ()
    """Descriptions of other missing parts."""


class Fill(Struct, frozen=True, tag=True):
    """Types text into a field. Like the other steps, it is taken on a rendered page before that is read."""

    selector: str
    text: str


class Click(Struct, frozen=True, tag=True):
    selector: str


class Choose(Struct, frozen=True, tag=True):
    """Selects an entry of a list by its value or text."""

    selector: str
    value: str


class WaitFor(Struct, frozen=True, tag=True):
    """Waits until an element is there."""

    selector: str


Step = Fill | Click | Choose | WaitFor


class Fetcher(Protocol):
    """Fetches pages politely, for one attempt, with its own cookies. Raises FetchFailed."""

    async def get(self, url: str, *, headers: Mapping[str, str] = {}, cached: bool = True) -> Page:
        """`cached=False` bypasses the page cache, for responses that are only valid now."""

    async def post(self, url: str, form: Mapping[str, str]) -> Page: ...

    async def rendered(
        self, url: str, *, until: str = "", steps: Sequence[Step] = (), keep_cookies: bool = False, cached: bool = True
    ) -> Page:
        """Returns the page as a browser shows it once `until` (a CSS selector) matches in it.

        If it matches in a frame of the same site, that frame is returned; if it never matches, the page as it is.
        `steps` are performed first. `keep_cookies`: the next task of the site starts with the cookies of this one.
        """

    async def cached_page(self, key: str) -> Page | None:
        """Returns a page that an earlier attempt cached under this key, if it is fresh."""

    def cache_as(self, key: str, page: Page) -> None:
        """Caches a page that took several requests, if it leads to a record."""


Fetch = Callable[[Target, County | None, Fetcher], Awaitable[Page]]
"""Fetches the page of a target. The county is None if it has no entry."""


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
    """Fetches a page without a browser and, if it is only a shell that scripts fill, renders it.

    `county`: if its entry names a browser profile, the page is rendered at once, with that profile.
    `plain`: fetches the page without a browser, if that takes more than its URL.
    """
    if county is not None and county.profile:
        return await fetcher.rendered(url, until=until, keep_cookies=True)
    page = await (plain() if plain is not None else fetcher.get(url))
    return await fetcher.rendered(url, until=until) if is_shell(page) else page


class PageSection(Struct, frozen=True):
    """A part of a page, which is shown if one of the selectors finds something."""

    name: str
    selectors: tuple[Selector, ...] = ()
    keys: tuple[str, ...] = ()
    """The path of keys to a part of a JSON response."""

    def is_shown(self, reader: PageReader) -> bool:
        if self.keys:
            return has_key(reader.json, *self.keys)
        return any(next(iter(selector.find(reader.document, None)), None) for selector in self.selectors)


FOOTER = (
    *("\u00a9", "(c)", "copyright", "all rights reserved", "privacy", "disclaimer", "terms of use", "terms of service"),
    "contact us",
)


def page_end(*texts: str) -> PageSection:
    """The footer: a page that was cut off, and closed by a browser, lacks it."""
    return PageSection("the end of the page", (AtEnd((*texts, *FOOTER)),))


class CountyPlatform(Struct, frozen=True, kw_only=True):
    name: str
    version: int
    """The parser's version, raised when it reads the same page differently."""
    read: Callable[[PageReader], ReadResult]
    fetch: Fetch = fetch_by_url
    sparse: bool = False
    """Whether records may be nearly empty, as rows of a table with few columns are."""
    is_list: bool = False
    """Whether its pages are lists of records. Other platforms return a list only for a target with a `where`."""
    field_maps: FieldMaps = FieldMaps()
    """Field maps for the rows of tables."""
    sections: tuple[PageSection, ...] = ()
    """Sections on every page of this platform, with or without data. A page that lacks one is incomplete."""

    def has_list(self, target: Target) -> bool:
        """Whether the target's page is a list of records."""
        return self.is_list or "where" in target.extra

    def parse(
        self,
        page: Page,
        target: Target,
        order: SelectorOrder = DECLARED_ORDER,
        unshown: Container[str] = frozenset(),
    ) -> Parsed:
        """Pure: the same page gives the same outcome. Never raises, whatever the page contains.

        `unshown`: sections that this site does not have.
        """
        reader = PageReader(page, target, order, self.field_maps, self.name)
        records = _too_large(page) or _cut_off(page) or self._records(reader)
        if not isinstance(records, list):
            return Parsed(
                find_challenge(page) or records, reader.selector_results
            )  # a page with a record is not a robot check
        is_list = self.has_list(target)
        if not is_list and len(records) > 1:
            asked = [record for record in records if not is_other_parcel(target.parcel_id, _numbers_of(record))]
            records = asked or records
        if not is_list and len(records) == 1 and (another := _other_parcel(records[0], reader)) is not None:
            return Parsed(another, reader.selector_results)
        for record in records:
            self._identify(record, page, target)
        absent = self._absent_sections(reader)
        missing = [name for name in absent if name not in unshown]
        outcome = self._outcome(records, reader, missing, is_list=is_list)
        return Parsed(outcome, reader.selector_results, absent, reader.problems.missing)

    def _outcome(
        self, records: list[Record], reader: PageReader, sections: list[str], *, is_list: bool
    ) -> Done | Retry:
        """A Retry with the records as far as they go, if the page lacks a section or rows of its list."""
        problems = reader.problems
        missing = [*problems.missing, *sections]
        if is_list:
            missing += [f"{field} ({why})" for field, why in problems.unreadable.items()]
        has_other_dates = any(map(has_dates, records)) and reader.has_dates_with_day_first
        if has_other_dates:
            missing.append("dates (the page writes the day before the month)")
        for record in records:
            check_shapes(record)
            if not is_list:
                drop_repeated(record, problems)
                mark_unreadable(record, problems.unreadable)
            if has_other_dates:
                drop_dates(record)
            if missing:
                record.completeness = f"{MISSING}{', '.join(missing)}"
        if not self.sparse and any(_is_half_empty(record) for record in records):
            return Retry(f"the page cannot be read: {problems}"[:_MAX_REASON_CHARS])
        first, *additional = [record.as_json() for record in records]
        done = Done(data=first, page=reader.page, additional_records=tuple(additional), is_list=is_list)
        if not missing:
            return done
        return Retry(f"the page is incomplete: {', '.join(missing)} missing"[:_MAX_REASON_CHARS], partial=done)

    def _absent_sections(self, reader: PageReader) -> list[str]:
        return [section.name for section in self.sections if not section.is_shown(reader)]

    def _records(self, reader: PageReader) -> list[Record] | FailedRead:
        """Returns one or more records, or why there are none."""
        result = self._read(reader)
        if self.is_list and isinstance(result, NotFound) and (missing := self._absent_sections(reader)):
            return Retry(f"the list is empty, but the page is incomplete: {', '.join(missing)} missing")
        if isinstance(result, Retry | GiveUp | Blocked | NotFound):
            return result
        if (trouble := reader.trouble) is not None:
            reader.problems.lacks(trouble)
        records = [result] if isinstance(result, Record) else list(result)
        if not records:
            return NotFound("the list is empty")
        unnumbered = [one for one in records if one.parcel_id is not None and not is_parcel_number(one.parcel_id)]
        if unnumbered and not self.is_list:
            return Retry(f"the page shows no parcel number: {unnumbered[0].parcel_id!r:.60}")
        for record in unnumbered:
            record.parcel_id = None
            reader.problems.note("parcel_id", "it is not a number")
        if not self.sparse and any(_is_half_empty(record) for record in records):
            return Retry("the page is incomplete: it has neither an owner nor a value")
        return records

    def _read(self, reader: PageReader) -> ReadResult:
        try:
            return self.read(reader)
        except Unreadable as error:
            return Retry(str(error))

    def _identify(self, record: Record, page: Page, target: Target) -> None:
        record.platform = self.name
        record.parser_version = f"{self.name}/{self.version}"
        record.parcel_id_norm = parcel_norm(record.parcel_id)
        record.state = record.state or target.state
        record.county = record.county or target.county
        record.source_url = page.url or target.url or None


def _numbers_of(record: Record) -> tuple[str | None, ...]:
    return record.parcel_id, record.tax_account


def _other_parcel(record: Record, reader: PageReader) -> Retry | None:
    asked = reader.target.parcel_id
    if not is_other_parcel(asked, _numbers_of(record)):
        return None
    if any(is_same_parcel(asked, other) for other in reader.other_parcel_ids()):
        return None
    return Retry(f"the page shows another parcel: {record.parcel_id!r:.60} instead of {asked!r:.60}")


def _is_half_empty(record: Record) -> bool:
    has_content = record.owner_names or record.tax_bills or record.market_value is not None
    return record.record_kind != LIEN and not has_content


def _too_large(page: Page) -> Retry | None:
    return Retry(f"the page is too large: {len(page.body):,} bytes") if len(page.body) > _MAX_BYTES else None


def _cut_off(page: Page) -> Retry | None:
    """An HTML page without its end is incomplete, however much of it can be read."""
    start = page.body[:_SCANNED_BYTES].lower()
    if b"</html" in page.body[-_SCANNED_BYTES:].lower():
        is_started = any(tag in start for tag in (b"<html", b"<body", b"<!doctype"))
        return None if is_started else Retry("the page is incomplete: its start is missing")
    if b"<html" not in start and (not start.lstrip().startswith(b"<") or _ends_its_table(page.body.lower())):
        return None
    return Retry("the page is incomplete: its end is missing")


def _ends_its_table(piece: bytes) -> bool:
    """For a fragment of a page that scripts insert into another."""
    return piece.rfind(b"</table") >= piece.rfind(b"<table")


_decode_json = msgspec.json.Decoder(float_hook=Decimal).decode


def decode_json(body: bytes) -> Json:
    """Raises as msgspec does, InvalidOperation and RecursionError."""
    try:
        value: Json = _decode_json(body)
    except msgspec.DecodeError:
        standard = standard_json(body)
        if standard == body:
            raise
        value = _decode_json(standard)
    return value


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
