"""Re-parses stored pages with the current parsers."""

from __future__ import annotations

import asyncio
from collections import defaultdict, deque
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.errors import InvalidInput
from parcelpost.model import Done, Encoded, GiveUp, Json, NotFound, Outcome, Page, PageRecord, Retry, Target, Task
from parcelpost.scrapers.platform import NotReadable, Parse
from parcelpost.scrapers.records.record import COMPLETE
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.reparse import Change, Filters, NewRecord, StoredPage, StoredRecord
from parcelpost.storage.results import child_id, number_of, page_records
from parcelpost.worker.sandbox import Sandbox

Pairs = list[tuple[StoredRecord, PageRecord]]


def matched(stored: StoredPage, records: list[PageRecord]) -> tuple[Pairs, list[PageRecord]]:
    """Returns pairs of a stored record and its new version, and new records without a stored one.

    Matches by task id, by number, by number without punctuation, and finally by position: a new parser may read every
    number of a list differently.
    """
    numbers = {record.result_id: _number(record) for record in stored.records}
    keys: list[tuple[Callable[[StoredRecord], str], Callable[[PageRecord], str]]] = [
        (lambda old: old.task_id, lambda new: child_id(stored.task_id, new.key)),
        (lambda old: numbers[old.result_id], lambda new: new.parcel_id),
        (lambda old: _without_punctuation(numbers[old.result_id]), lambda new: _without_punctuation(new.parcel_id)),
    ]
    pairs: Pairs = []
    before, now = list(stored.records), records
    for of_old, of_new in keys:
        waiting: defaultdict[str, deque[StoredRecord]] = defaultdict(deque)
        for old in before:
            waiting[of_old(old)].append(old)
        unmatched = []
        for new in now:
            if same := waiting.get(of_new(new)):
                pairs.append((same.popleft(), new))
            else:
                unmatched.append(new)
        before, now = [old for same in waiting.values() for old in same], unmatched
    if len(before) == len(now):
        return [*pairs, *zip(before, now, strict=True)], []
    return pairs, now


def _number(record: StoredRecord) -> str:
    return number_of(msgspec.json.decode(record.data)) or record.parcel_id


def _without_punctuation(number: str) -> str:
    return "".join(filter(str.isalnum, number)).casefold()


Parsers = Callable[[str], Parse | NotReadable]
"""Returns a platform's parser. May import foreign code, and raise whatever that raises."""


class PageReader:
    """Parses pages in a sandbox: a parser that raises, exits or hangs affects only one page."""

    def __init__(self, parsers: Parsers, seconds: float) -> None:
        self._parsers = parsers
        self._seconds = seconds
        self._known: dict[str, Parse | NotReadable] = {}
        self._sandbox = Sandbox("reading pages")

    @classmethod
    @asynccontextmanager
    async def open(cls, parsers: Parsers, *, seconds: float = 300.0) -> AsyncIterator[PageReader]:
        """`seconds`: how long a page may take."""
        reader = cls(parsers, seconds)
        try:
            yield reader
        finally:
            await reader._sandbox.close()

    async def unreadable(self, platform: str) -> NotReadable | None:
        """Returns why pages of that platform cannot be read, None if they can."""
        parse = await self._parser(platform)
        return parse if isinstance(parse, NotReadable) else None

    async def read(self, platform: str, page: Page, target: Target) -> Outcome:
        parse = await self._parser(platform)
        if isinstance(parse, NotReadable):
            return GiveUp(parse.reason)
        return await self._in_sandbox(
            lambda task: parse(page, task.target), Task(task_id="", platform=platform, target=target)
        )

    async def _parser(self, platform: str) -> Parse | NotReadable:
        if platform not in self._known:
            self._known[platform] = await self._find(platform)
        return self._known[platform]

    async def _find(self, platform: str) -> Parse | NotReadable:
        parsers: list[Parse | NotReadable] = []

        def find(task: Task) -> Outcome:
            parsers.append(self._parsers(task.platform))
            return NotFound("only the parser is wanted")

        nowhere = Target(parcel_id="", state="", county="")
        outcome = await self._in_sandbox(find, Task(task_id="", platform=platform, target=nowhere))
        return parsers[0] if parsers else NotReadable(f"it cannot be imported: {getattr(outcome, 'reason', '')}")

    async def _in_sandbox(self, call: Callable[[Task], Outcome | Awaitable[Outcome]], task: Task) -> Outcome:
        outcome = await self._sandbox.run(call, task, self._seconds)
        if not self._sandbox.is_free:  # its thread hangs: abandon it
            self._sandbox = Sandbox("reading pages")
        return outcome or Retry("it was interrupted")


STATE = "reparse"
"""The name of the worker state that holds the progress of an interrupted run."""

_BATCH = 200
_MOST_NAMED = 1_000
_FROM_FETCHING = ("scraped_at", "raw_html_hash", "source_url", "county_fips")
"""Fields that are set by the fetch, not by the parser."""
_OF_THE_PARSER = "parser_version"

_decode = msgspec.json.Decoder(dict[str, Any]).decode


class Progress(Struct, frozen=True, kw_only=True):
    """Progress of a run. A later run with the same filters resumes here."""

    filter_text: str
    started: datetime
    after: int
    is_over: bool = False


class Unread(Struct, kw_only=True):
    """Pages of a platform whose parser cannot read a stored page on its own."""

    platform: str
    reason: str
    pages: int = 0


class Counts(Struct, kw_only=True):
    pages: int = 0
    changed: int = 0
    """Records."""
    added: int = 0
    unchanged: int = 0
    not_found: int = 0
    """Stored records that are no longer found on their page: kept as they were."""
    unreadable: int = 0
    """Pages that no longer give a record, or are not on disk: their records are kept."""
    skipped: int = 0
    """Pages of platforms in `not_readable`."""
    not_readable: list[Unread] = []
    """Platforms whose parsers cannot read a stored page on its own."""
    problems: list[tuple[str, str]] = []
    """Page and reason of the first unreadable ones."""
    resumed: bool = False


class Reparse:
    def __init__(
        self,
        lpm: LocalPersistenceManager,
        parsers: Parsers,
        filters: Filters,
        clock: Clock,
        *,
        dry: bool = False,
        seconds: float = 300.0,
    ) -> None:
        """`seconds`: how long a page may take."""
        self._lpm = lpm
        self._parsers = parsers
        self._seconds = seconds
        self._filters = filters
        self._clock = clock
        self._dry = dry
        self.counts = Counts()

    async def run(self, filter_text: str, report: Callable[[Counts], None] = lambda _: None) -> Counts:
        """May be stopped at any time: the next run with the same `filter_text` resumes."""
        progress = await self._begin(filter_text)
        async with PageReader.open(self._parsers, seconds=self._seconds) as reader:
            while pages := await self._lpm.reparse.pages(self._filters, progress.started, progress.after, _BATCH):
                changes = [change for page in pages if (change := await self._again(reader, page)) is not None]
                await self._store(changes)
                progress = msgspec.structs.replace(progress, after=pages[-1].seq)
                await self._keep(progress)
                report(self.counts)
        await self._keep(msgspec.structs.replace(progress, is_over=True))
        return self.counts

    async def _begin(self, filter_text: str) -> Progress:
        earlier = await self._lpm.state.get(STATE, Progress)
        if self._dry or earlier is None or earlier.is_over or earlier.filter_text != filter_text:
            return Progress(filter_text=filter_text, started=self._clock.now(), after=0)
        self.counts.resumed = True
        return earlier

    async def _keep(self, progress: Progress) -> None:
        if not self._dry:
            await self._lpm.state.put(STATE, progress)

    async def _again(self, reader: PageReader, stored: StoredPage) -> Change | None:
        unreadable = await reader.unreadable(stored.platform)
        if unreadable is not None:
            self._skip(stored.platform, unreadable)
            return None
        self.counts.pages += 1
        outcome = await self._read(reader, stored)
        if isinstance(outcome, Retry) and outcome.partial is not None and not _is_complete(stored):
            outcome = outcome.partial
        if not isinstance(outcome, Done):
            self._note_unreadable(stored, outcome.reason)
            return None
        try:
            records = page_records([_plain(outcome.data), *outcome.additional_records])
            return stored, self._new_records(stored, records, is_list=outcome.is_list)
        except InvalidInput as error:
            self._note_unreadable(stored, str(error))
            return None

    async def _store(self, changes: Sequence[Change]) -> None:
        changes = [change for change in changes if change[1]]
        stored = [True] * len(changes)
        if changes and not self._dry:
            stored = await self._lpm.reparse.replace(changes)
        for (_, new), is_stored in zip(changes, stored, strict=True):
            if is_stored:
                added = sum(record.replaces is None for record in new)
                self.counts.added += added
                self.counts.changed += len(new) - added

    async def _read(self, reader: PageReader, stored: StoredPage) -> Outcome:
        page = await asyncio.to_thread(self._lpm.reparse.page, stored)
        if page is None:
            return GiveUp("its page is not on disk")
        return await reader.read(stored.platform, page, stored.target)

    def _skip(self, platform: str, unreadable: NotReadable) -> None:
        self.counts.skipped += 1
        known = next((entry for entry in self.counts.not_readable if entry.platform == platform), None)
        if known is None:
            known = Unread(platform=platform, reason=unreadable.reason)
            self.counts.not_readable.append(known)
        known.pages += 1

    def _new_records(self, stored: StoredPage, records: list[PageRecord], *, is_list: bool) -> list[NewRecord]:
        pairs, added = matched(stored, records)
        new = [changed for old, record in pairs if (changed := self._changed(old, record)) is not None]
        self.counts.unchanged += len(pairs) - len(new)
        self.counts.not_found += len(stored.records) - len(pairs)
        new += [self._new(None, record, _plain(record.data)) for record in added]
        has_own_numbers = len(records) > 1 or is_list or not stored.target.parcel_id
        return [_as_stored(stored, record, has_own_number=has_own_numbers) for record in new]

    def _changed(self, old: StoredRecord, record: PageRecord) -> NewRecord | None:
        before, now = _decode(old.data), dict(_plain(record.data))
        for name in _FROM_FETCHING:
            if name in before and now.get(name) in (None, ""):
                now[name] = before[name]
        new = self._new(old, record, now)
        is_same = {**before, _OF_THE_PARSER: None} == {**_decode(new.data), _OF_THE_PARSER: None}
        return None if is_same else new

    def _new(self, old: StoredRecord | None, record: PageRecord, data: Mapping[str, Json]) -> NewRecord:
        encoded = self._lpm.encode(data).json
        return NewRecord(replaces=old, key=record.key, parcel_id=record.parcel_id, county=record.county, data=encoded)

    def _note_unreadable(self, stored: StoredPage, reason: str) -> None:
        self.counts.unreadable += 1
        if len(self.counts.problems) < _MOST_NAMED:
            self.counts.problems.append((stored.html_path, reason))


def _is_complete(stored: StoredPage) -> bool:
    """Whether it has a complete record. If so, an incomplete page replaces none of its records."""
    return any(_decode(record.data).get("completeness", COMPLETE) == COMPLETE for record in stored.records)


def _as_stored(stored: StoredPage, new: NewRecord, *, has_own_number: bool) -> NewRecord:
    """Returns the record with the county and parcel number that a scrape would store now."""
    county = stored.target.county or new.county or (new.replaces.county if new.replaces else "")
    number = new.parcel_id if has_own_number or new.replaces is None else new.replaces.parcel_id
    return msgspec.structs.replace(new, county=county, parcel_id=number)


def _plain(data: Mapping[str, Json] | Encoded) -> Mapping[str, Json]:
    return _decode(data.json) if isinstance(data, Encoded) else data
