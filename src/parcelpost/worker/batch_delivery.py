"""Delivers one batch: raw files first (I6), then results and reports. Splits a refused batch to find the bad entry."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Sequence
from datetime import datetime
from enum import Enum
from pathlib import Path

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import Clock
from parcelpost.errors import Refused, TooLarge, Unauthorized, Unavailable
from parcelpost.model import OutboxEntry, Task, TaskStatus
from parcelpost.protocol.payloads import Submitted
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.base import Receiver
from parcelpost.worker.artifact_uploads import WantedArtifact, artifact_kinds
from parcelpost.worker.status import SlowUpstream

_BATCHES_BEFORE_LARGER = 20


class BatchSize:
    """Halved after every timeout, down to one, and increased by one after every batch that was answered in time.

    A size that has timed out is tried again only after twenty smaller batches were answered.
    """

    def __init__(self, most: int, clock: Clock) -> None:
        self._most = most
        self._clock = clock
        self._too_large = most + 1
        """The size that timed out last."""
        self._answered = 0
        """Batches answered since then."""
        self.now = most
        self.slow: SlowUpstream | None = None
        """Set while batches are smaller than `sync.batch_size`."""

    def restore(self, slow: SlowUpstream | None) -> None:
        self.slow, self.now = slow, min(slow.batch_size, self._most) if slow else self._most

    def timed_out(self, sent: int) -> None:
        if sent > 1:  # a single entry may be slow for other reasons
            self._too_large, self._answered = sent, 0
        self._resize(max(1, min(self.now, sent) // 2))

    def answered(self) -> None:
        if self.now == self._most:
            return
        self._answered += 1
        if self.now + 1 < self._too_large or self._answered >= _BATCHES_BEFORE_LARGER:
            self._resize(self.now + 1)

    def _resize(self, size: int) -> None:
        self.now = size
        since = self.slow.since if self.slow else self._clock.now()
        self.slow = None if size == self._most else SlowUpstream(since=since, batch_size=size)


def end_of(task: Task, status: TaskStatus, error: str | None, now: datetime) -> OutboxEntry:
    """Returns a report of the end of a task."""
    target = task.target
    return OutboxEntry(
        seq=0,
        result_id="",
        task_id=task.task_id,
        source=task.source,
        status=status,
        success=status is TaskStatus.COMPLETED,
        platform=task.platform,
        state=target.state,
        county=target.county,
        parcel_id=target.parcel_id,
        error=error,
        scraped_at=now,
        created_at=now,
        lease_expires_at=task.lease_expires_at,
        lease_id=task.lease_id,
    )


Parcel = tuple[str, str, str, str]

_MOST_SHARED_PAGES = 256
_PROBES = 8
_PROBES_OF_LATER_BATCHES = 2
_MOST_FAILURES_IN_A_ROW = 20
_MOST_REASON_CHARS = 600
_NO_REASON = "not stored; no reason was given"


def parcel(entry: OutboxEntry) -> Parcel:
    """Returns the key under which the upstream keeps one record."""
    return entry.platform, entry.state, entry.county, entry.parcel_id


class Kind(Enum):
    """What a call sends. One of a gateway's endpoints can fail while the others work."""

    PAGE = "page"
    RECORD = "record"
    REPORT = "report"


class LoneFailure(Struct, frozen=True, kw_only=True):
    """An entry that the upstream did not store although it was sent alone, or rejected with all others of its batch."""

    entry: OutboxEntry
    """Without its data."""
    kind: Kind
    reason: str
    has_receipt: bool
    """Whether a receipt rejected it."""
    stored_before: int
    """`Pass.successes` when it failed."""


class Pass:
    """One pass over the outbox, oldest entry first: what was stored, and what failed alone."""

    def __init__(self, number: int = 0) -> None:
        self.number = number
        """Counts consecutive passes in which nothing was stored: each probes other entries."""
        self.stored: Counter[Kind] = Counter()
        self.failures: dict[str, LoneFailure] = {}
        """Undecided failures, by result id."""
        self.failures_in_a_row = 0
        """Failed records since one was stored."""
        self.batches = 0

    def was_stored(self, kind: Kind, count: int = 1) -> None:
        self.stored[kind] += count
        if kind is Kind.RECORD:
            self.failures_in_a_row = 0

    def has_failed(self, entry: OutboxEntry, kind: Kind, reason: str, *, has_receipt: bool) -> None:
        self.failures[entry.result_id] = LoneFailure(
            entry=replace(entry, data=None),
            kind=kind,
            reason=reason,
            has_receipt=has_receipt,
            stored_before=self.successes(kind),
        )

    def successes(self, kind: Kind) -> int:
        """Returns how many entries of this kind were stored in this pass. For a report, records count too."""
        return self.stored[kind] + (self.stored[Kind.RECORD] if kind is Kind.REPORT else 0)

    @property
    def in_doubt(self) -> bool:
        """Whether records may fail because of the upstream itself."""
        return not self.stored[Kind.RECORD] or self.failures_in_a_row >= _MOST_FAILURES_IN_A_ROW

    def decidable(self) -> list[LoneFailure]:
        """Returns failures after which another entry of the same kind was stored."""
        return [failure for failure in self.failures.values() if self.successes(failure.kind) > failure.stored_before]

    @property
    def is_rejected(self) -> bool:
        """Whether all that failed was rejected by receipts, in a pass of one batch.

        An upstream that rejects several batches alike is at fault itself.
        """
        return self.batches == 1 and bool(self.failures) and all(f.has_receipt for f in self.failures.values())

    def refusal(self) -> Unavailable | None:
        """Returns an error if the upstream stores nothing, so that no entry is at fault."""
        failures = [failure for failure in self.failures.values() if failure.kind is Kind.RECORD and self.in_doubt]
        if not failures and not self.stored.total():
            failures = list(self.failures.values())
        if not failures:
            return None
        sent = f"any of {len(failures):,} results" if len(failures) > 1 else "the only result"
        return Unavailable(f"the gateway did not store {sent}: {failures[-1].reason}", takes_nothing=True)


class SharedPages:
    """Remembers pages of multi-record entries that were sent: each is sent once."""

    def __init__(self) -> None:
        self._sent: dict[str, None] = {}

    def __contains__(self, html_path: str | None) -> bool:
        return html_path in self._sent

    def one_of_each(self, pages: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Returns the entries whose pages must be sent: one entry for each shared page."""
        first: dict[str, str] = {}
        for entry in pages:
            if entry.page_shared and entry.html_path not in self:
                first.setdefault(entry.html_path or "", entry.result_id)
        return [
            entry for entry in pages if not entry.page_shared or first.get(entry.html_path or "") == entry.result_id
        ]

    def add(self, sent: Sequence[OutboxEntry]) -> None:
        self._sent |= {entry.html_path: None for entry in sent if entry.page_shared and entry.html_path}
        for path in list(self._sent)[:-_MOST_SHARED_PAGES]:
            del self._sent[path]


class Delivery:
    """Delivers one batch. Each entry ends up in one of the lists, or is left to a later pass."""

    def __init__(
        self, upstream: Receiver, lpm: LocalPersistenceManager, parallel: int, walk: Pass, shared: SharedPages
    ) -> None:
        self._upstream = upstream
        self._lpm = lpm
        self._pass = walk
        self._is_sampling = walk.in_doubt and bool(walk.failures)
        """Nothing of the previous batch was stored: send only a few entries of this one first."""
        self._probes = _PROBES_OF_LATER_BATCHES if self._is_sampling else _PROBES
        self._shared = shared
        self._parallel = asyncio.Semaphore(parallel)
        self.stored: list[OutboxEntry] = []
        self.raw_stored: list[OutboxEntry] = []
        self.refused: list[tuple[OutboxEntry, str]] = []
        """Bad entries, with the reason."""
        self.lost_pages: set[str | None] = set()
        """Pages that are missing or damaged and cannot be restored: retrying does not help."""
        self.undecided: list[tuple[OutboxEntry, str]] = []
        """Entries that failed alone or with their whole batch, with the reason: they or the upstream are at fault."""
        self.waiting: list[OutboxEntry] = []
        """Entries that were not sent, or whose page or report failed temporarily. A later pass sends them."""
        self._failed_at: dict[str, int] = {}
        """`Pass.successes` when an entry first failed, alone or in a batch, by result id."""
        self._deleted: set[str | None] = set()
        """Pages that were deleted with their results by an operator after the entries were read."""
        self.unavailable: Unavailable | None = None
        """Why entries are in `waiting`."""
        self.wanted: list[WantedArtifact] = []
        """What the upstream asked for in its replies to reports."""

    async def send(self, entries: Sequence[OutboxEntry]) -> None:
        """Raises Unavailable or Unauthorized if the upstream cannot be used; the lists say what happened before that.

        Of two entries of one parcel, the later one is sent only once the earlier one is stored.
        """
        ready = await self._send_pages(entries)
        records = [entry for entry in ready if entry.data is not None]
        reports = [entry for entry in ready if entry.data is None]
        for group in _one_of_each_parcel(records, self._unresolved):
            await self._send_records(group)
        await self._each(reports, self._report, Kind.REPORT)
        if self.unavailable is not None and not self.stored and not self.raw_stored:
            raise self.unavailable  # nothing worked, so the entries are not to blame

    async def decide(self) -> None:
        """Resends, alone, entries that failed before another one was stored. One that fails again is at fault."""
        for failure in self._pass.decidable():
            result_id = failure.entry.result_id
            entry = await self._lpm.get_result(failure.entry.task_id)
            if entry and entry.result_id == result_id and not entry.synced_at and not entry.rejected_at:
                await self._send_again(entry, failure)
            self._pass.failures.pop(result_id, None)

    async def _send_again(self, entry: OutboxEntry, failure: LoneFailure) -> None:
        self._failed_at[entry.result_id] = failure.stored_before
        try:
            match failure.kind:
                case Kind.PAGE:
                    await self._upload(entry)
                case Kind.RECORD:
                    await self._submit([entry])
                case Kind.REPORT:
                    await self._report(entry)
        except (Refused, TooLarge) as error:
            self._failed_alone(entry, failure.kind, str(error))

    @property
    def is_fruitless(self) -> bool:
        """Whether entries were sent and none was stored."""
        return bool(self.undecided) and not self.stored and not self.raw_stored

    def _unresolved(self) -> set[Parcel]:
        failed = (entry for entry, _ in (*self.refused, *self.undecided))
        return {parcel(entry) for entry in (*failed, *self.waiting)}

    def _failed_alone(self, entry: OutboxEntry, kind: Kind, reason: str, *, has_receipt: bool = False) -> None:
        successes = self._pass.successes(kind)
        self._pass.failures_in_a_row += kind is Kind.RECORD
        if self._failed_at.get(entry.result_id, successes) < successes:
            self.refused.append((entry, reason))
        else:
            self._pass.has_failed(entry, kind, reason, has_receipt=has_receipt)
            self.undecided.append((entry, reason))

    # Pages and reports: one call each, several at a time

    async def _send_pages(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        pages = [entry for entry in entries if entry.html_path is not None and entry.raw_synced_at is None]
        await self._each(self._shared.one_of_each(pages), self._upload, Kind.PAGE)
        self._settle_shared(pages)
        stuck = self._unresolved()
        return [entry for entry in entries if parcel(entry) not in stuck and entry.html_path not in self._deleted]

    async def _upload(self, entry: OutboxEntry) -> None:
        html_path = entry.html_path or ""
        try:
            problem = await self._lpm.page_problem(entry)
        except ValueError as error:  # a damaged row
            self.refused.append((entry, str(error)))
            return
        if problem:
            top = self._lpm.raw_path(html_path.split("/")[0])
            if not await asyncio.to_thread(top.is_dir):
                raise Unavailable(f"the folder of raw pages {top} is missing")  # perhaps an unmounted volume
            if not await self._is_kept(entry):
                self._deleted.add(html_path)
                return
            if not await self._lpm.restore_page(entry):
                self.refused.append((entry, problem))
                if await asyncio.to_thread(_is_lost, self._lpm.raw_path(html_path)):
                    self.lost_pages.add(html_path)
                return
        await self._upstream.upload_raw_file(entry, self._lpm.raw_path(html_path))
        self.raw_stored.append(entry)
        self._pass.was_stored(Kind.PAGE)

    async def _is_kept(self, entry: OutboxEntry) -> bool:
        """Whether the store still has the entry."""
        now = await self._lpm.get_result(entry.task_id)
        return now is not None and now.result_id == entry.result_id

    def _settle_shared(self, pages: Sequence[OutboxEntry]) -> None:
        """Applies the outcome of a shared page to all its entries."""
        shared = [entry for entry in pages if entry.page_shared]
        if not shared:
            return
        self._shared.add(self.raw_stored)
        refused = {entry.html_path: reason for entry, reason in self.refused}
        failed = (entry for entry, _ in (*self.refused, *self.undecided))
        decided = {entry.result_id for entry in (*self.raw_stored, *self.waiting, *failed)}
        for entry in shared:
            if entry.result_id in decided or entry.html_path in self._deleted:
                continue
            if entry.html_path in self._shared:
                self.raw_stored.append(entry)
            elif entry.html_path in refused:
                self.refused.append((entry, refused[entry.html_path]))
            else:
                self.waiting.append(entry)

    async def _report(self, entry: OutboxEntry) -> None:
        wanted = await self._upstream.report_end(entry, await artifact_kinds(self._lpm, entry))
        self.wanted += [WantedArtifact(entry.task_id, kind) for kind in wanted]
        self.stored.append(entry)
        self._pass.was_stored(Kind.REPORT)

    async def _each(
        self, entries: Sequence[OutboxEntry], send: Callable[[OutboxEntry], Awaitable[None]], kind: Kind
    ) -> None:
        if not entries:
            return
        denied: list[Unauthorized] = []
        failures = 0

        async def send_alone(entry: OutboxEntry) -> None:
            nonlocal failures
            async with self._parallel:
                takes_nothing = failures >= self._probes and not self._pass.successes(kind)
                if denied or takes_nothing or (self.unavailable and self.unavailable.retry_after):
                    self.waiting.append(entry)
                    return
                try:
                    await send(entry)
                except (Refused, TooLarge) as error:
                    failures += 1
                    self._failed_alone(entry, kind, str(error))
                except Unavailable as error:
                    self.waiting.append(entry)
                    self.unavailable = error
                except Unauthorized as error:
                    denied.append(error)
                except OSError as error:
                    self.waiting.append(entry)
                    self.unavailable = Unavailable(f"a page cannot be read: {error}")

        first = self._pass.number * self._probes % len(entries)
        async with asyncio.TaskGroup() as group:
            for entry in (*entries[first:], *entries[:first]):
                group.create_task(send_alone(entry))
        if denied:
            raise denied[0]
        if self.unavailable is not None and self.unavailable.retry_after:
            raise self.unavailable  # the upstream asked for a pause

    # Records: many to a call

    async def _send_records(self, group: Sequence[OutboxEntry]) -> None:
        rest = group if self._is_sampling and self._pass.in_doubt else await self._submit(group)
        if rest and self._pass.in_doubt:
            rest = await self._probe(rest)
        await self._split(rest)

    async def _probe(self, group: Sequence[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Sends a few entries alone to find out whether the upstream stores anything.

        Returns the remaining entries once one was stored. If none was, the remaining entries wait.
        """
        probed: set[str] = set()
        for entry in _spread(group, self._probes, self._pass.number):
            probed.add(entry.result_id)
            await self._submit([entry])
            if not self._pass.in_doubt:
                return [other for other in group if other.result_id not in probed]
        self.waiting += [entry for entry in group if entry.result_id not in probed]
        return []

    async def _split(self, group: Sequence[OutboxEntry]) -> None:
        """Halves the group until each entry has its own answer, or until nothing is stored any more."""
        if not group:
            return
        if self._pass.in_doubt:
            self.waiting += group
        elif len(group) == 1:
            await self._submit(group)
        else:
            for part in _halves(group):
                await self._split(await self._submit(part))

    async def _submit(self, group: Sequence[OutboxEntry]) -> Sequence[OutboxEntry]:
        """Returns entries without an answer of their own; never an entry that was sent alone."""
        try:
            answer = await self._upstream.submit_results(group)
        except (Refused, TooLarge) as error:
            if len(group) > 1:
                self._failed_together(group)
                return group
            self._failed_alone(group[0], Kind.RECORD, str(error))
            return []
        return self._settle(group, answer)

    def _settle(self, group: Sequence[OutboxEntry], answer: Submitted) -> Sequence[OutboxEntry]:
        """Sorts entries by their receipts. Returns those without one."""
        if answer.failed == 0 and answer.stored == len(group) and not answer.receipts:
            self.stored += group
            self._pass.was_stored(Kind.RECORD, len(group))
            return []
        rejections = [receipt for receipt in answer.receipts.values() if not receipt.is_stored]
        stored = max(answer.stored, len(answer.receipts) - len(rejections))
        if stored:
            self._pass.was_stored(Kind.RECORD, stored)
        unsettled: list[OutboxEntry] = []
        for entry in group:
            receipt = answer.receipts.get(entry.task_id)
            if receipt is None:
                unsettled.append(entry)
            elif receipt.is_stored:
                self.stored.append(entry)
            elif stored:
                self.refused.append((entry, receipt.error or _NO_REASON))
            else:  # an upstream that rejects everything may be at fault itself
                self._failed_alone(entry, Kind.RECORD, receipt.error or _NO_REASON, has_receipt=True)
        if len(group) == 1 and unsettled:
            self._failed_alone(group[0], Kind.RECORD, "; ".join(answer.errors)[:_MOST_REASON_CHARS] or _NO_REASON)
            return []
        self._failed_together(unsettled)
        return unsettled

    def _failed_together(self, group: Sequence[OutboxEntry]) -> None:
        for entry in group:
            self._failed_at.setdefault(entry.result_id, self._pass.successes(Kind.RECORD))


def _is_lost(page: Path) -> bool:
    """Whether the page is missing or damaged. An operator can fix permissions or a failing disk: that is not lost."""
    try:
        page.open("rb").close()
    except (FileNotFoundError, NotADirectoryError):
        return True
    except OSError:
        return False
    return True


def _one_of_each_parcel(
    records: Sequence[OutboxEntry], unresolved: Callable[[], set[Parcel]]
) -> Iterable[list[OutboxEntry]]:
    """Yields groups in order, each with at most one entry per parcel, without entries of unresolved parcels."""
    rest = list(records)
    while rest:
        stuck = unresolved()
        group: dict[Parcel, OutboxEntry] = {}
        later: list[OutboxEntry] = []
        for entry in rest:
            place = parcel(entry)
            if place in group:
                later.append(entry)
            elif place not in stuck:
                group[place] = entry
        if group:
            yield list(group.values())
        rest = later


def _spread(group: Sequence[OutboxEntry], count: int, number: int) -> Sequence[OutboxEntry]:
    """Returns about `count` entries spread over the group, different ones in each pass, until all have been probed.

    From the end: an upstream that gives up after too many bad entries has not seen the last ones.
    """
    apart = -(-len(group) // count)
    return group[::-1][number % apart :: apart]


def _halves(group: Sequence[OutboxEntry]) -> tuple[Sequence[OutboxEntry], Sequence[OutboxEntry]]:
    """Returns two non-empty parts of about the same size in bytes."""
    half, size, middle = sum(len(entry.data or b"") for entry in group) // 2, 0, 0
    for middle, entry in enumerate(group):  # noqa: B007 - used after the loop
        size += len(entry.data or b"")
        if size > half:
            break
    middle = min(max(1, middle), len(group) - 1)
    return group[:middle], group[middle:]
