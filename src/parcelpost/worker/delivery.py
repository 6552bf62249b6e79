"""One round of delivery: pages first, then records and reports, until every entry has its own answer.

PROTOCOL's traps live here: an answer that says "stored" may mean a part of the batch, and one that says "failed" may
mean that the upstream itself is ill. An entry is at fault only if it fails alone while another one is stored.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Sequence
from pathlib import Path

from parcelpost.client.upstream import Receipt, Submitted, Upstream
from parcelpost.errors import NotAllowed, NotNow, Refused, TooLarge
from parcelpost.model import OutboxEntry

Parcel = tuple[str, str, str, str]

_MOST_PROBES = 50
_MOST_SHARED_PAGES = 256


def parcel(entry: OutboxEntry) -> Parcel:
    """What the upstream keeps one record of."""
    return entry.platform, entry.state, entry.county, entry.parcel_id


class SharedPages:
    """Pages that several entries name: each is sent once, and its later entries know that it was."""

    def __init__(self) -> None:
        self._sent: dict[str, None] = {}

    def __contains__(self, html_path: str | None) -> bool:
        return html_path in self._sent

    def one_of_each(self, pages: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        """Those to send."""
        first: dict[str, str] = {}
        for entry in pages:
            if entry.page_shared and entry.html_path not in self:
                first.setdefault(entry.html_path or "", entry.result_id)
        return [one for one in pages if not one.page_shared or first.get(one.html_path or "") == one.result_id]

    def add(self, sent: Sequence[OutboxEntry]) -> None:
        self._sent |= {entry.html_path: None for entry in sent if entry.page_shared and entry.html_path}
        for path in list(self._sent)[:-_MOST_SHARED_PAGES]:
            del self._sent[path]


class Delivery:
    """What became of the entries of one round. Each ends in one of the lists, or is left for a later round."""

    def __init__(
        self,
        upstream: Upstream,
        raw_path: Callable[[str], Path],
        is_kept: Callable[[OutboxEntry], Awaitable[bool]],
        parallel: int,
        witness: Callable[[], OutboxEntry | None] = lambda: None,
        shared: SharedPages | None = None,
    ) -> None:
        self._upstream = upstream
        self._raw_path = raw_path
        self._is_kept = is_kept
        """Whether the store has the entry still."""
        self._witness = witness
        """A record that was stored a short while ago: sent again, it tells an ill upstream from a bad entry."""
        self._shared = SharedPages() if shared is None else shared
        self._parallel = asyncio.Semaphore(parallel)
        self.stored: list[OutboxEntry] = []
        self.raw_stored: list[OutboxEntry] = []
        self.refused: list[tuple[OutboxEntry, str]] = []
        """The upstream says that these are bad."""
        self.waiting: list[OutboxEntry] = []
        """Neither: their page or report met a fault that others did not. Another round tries them again."""
        self._forgotten: set[str | None] = set()
        """Pages that a person has removed with their results, since the entries were read."""
        self._is_ill: bool | None = None
        self.not_now: NotNow | None = None
        """Why the waiting ones wait."""

    async def send(self, entries: Sequence[OutboxEntry]) -> None:
        """Raises NotNow or NotAllowed where the upstream as a whole cannot be used; what was learned until then stands.

        Of several entries of one parcel, a later one is sent only when the earlier one is stored.
        """
        ready = await self._send_pages(entries)
        records = [entry for entry in ready if entry.data is not None]
        reports = [entry for entry in ready if entry.data is None]
        for group in _one_of_each_parcel(records, self._unresolved):
            await self._send_records(group)
        await self._each(reports, self._report)
        if self.not_now is not None and not self.stored and not self.raw_stored:
            raise self.not_now  # nothing worked: it is not these entries

    def _unresolved(self) -> set[Parcel]:
        return {parcel(entry) for entry in (*(entry for entry, _ in self.refused), *self.waiting)}

    # Pages and reports: one call each, several at a time

    async def _send_pages(self, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        pages = [entry for entry in entries if entry.html_path is not None and entry.raw_synced_at is None]
        await self._each(self._shared.one_of_each(pages), self._upload)
        self._take_down_shared(pages)
        stuck = self._unresolved()
        return [entry for entry in entries if parcel(entry) not in stuck and entry.html_path not in self._forgotten]

    async def _upload(self, entry: OutboxEntry) -> None:
        html_path = entry.html_path or ""
        try:
            path = self._raw_path(html_path)
        except ValueError as error:  # a damaged row
            raise Refused(str(error)) from error
        if not await asyncio.to_thread(path.is_file):
            top = self._raw_path(html_path.split("/")[0])
            if not await asyncio.to_thread(top.is_dir):
                raise NotNow(f"the folder of pages {top} is not there")  # a volume that is not mounted?
            if await self._is_kept(entry):
                raise Refused(f"its page {html_path} is gone from the disk")
            self._forgotten.add(html_path)
            return
        await self._upstream.upload_raw_file(entry, path)
        self.raw_stored.append(entry)

    def _take_down_shared(self, pages: Sequence[OutboxEntry]) -> None:
        """What became of a page that several entries name holds for all of them."""
        shared = [entry for entry in pages if entry.page_shared]
        if not shared:
            return
        self._shared.add(self.raw_stored)
        refused = {entry.html_path: reason for entry, reason in self.refused}
        told = {entry.result_id for entry in (*self.raw_stored, *self.waiting, *(one for one, _ in self.refused))}
        for entry in shared:
            if entry.result_id in told or entry.html_path in self._forgotten:
                continue
            if entry.html_path in self._shared:
                self.raw_stored.append(entry)
            elif entry.html_path in refused:
                self.refused.append((entry, refused[entry.html_path]))
            else:
                self.waiting.append(entry)

    async def _report(self, entry: OutboxEntry) -> None:
        await self._upstream.report_end(entry)
        self.stored.append(entry)

    async def _each(self, entries: Sequence[OutboxEntry], send: Callable[[OutboxEntry], Awaitable[None]]) -> None:
        if not entries:
            return
        denied: list[NotAllowed] = []

        async def one(entry: OutboxEntry) -> None:
            async with self._parallel:
                if denied or (self.not_now and self.not_now.retry_after):
                    self.waiting.append(entry)
                    return
                try:
                    await send(entry)
                except (Refused, TooLarge) as error:
                    self.refused.append((entry, str(error)))
                except NotNow as error:
                    self.waiting.append(entry)
                    self.not_now = error
                except NotAllowed as error:
                    denied.append(error)
                except OSError as error:
                    self.waiting.append(entry)
                    self.not_now = NotNow(f"a page cannot be read: {error}")

        async with asyncio.TaskGroup() as group:
            for entry in entries:
                group.create_task(one(entry))
        if denied:
            raise denied[0]
        if self.not_now is not None and self.not_now.retry_after:
            raise self.not_now  # it asked for no more calls

    # Records: many to a call

    async def _send_records(self, group: Sequence[OutboxEntry]) -> None:
        failed: list[tuple[OutboxEntry, str]] = []
        before = len(self.stored)
        await self._split(group, failed, proven=False)
        if not failed:
            return
        stored_beside = self.stored[before:]
        witness = stored_beside[-1] if stored_beside else self._witness()
        if witness is None or not await self._is_stored(witness):
            raise NotNow(f"the gateway stored none of {len(failed)} results: {failed[0][1]}")
        self.refused += failed

    async def _split(
        self, group: Sequence[OutboxEntry], failed: list[tuple[OutboxEntry, str]], *, proven: bool
    ) -> bool:
        """Sends the group, and its parts where the answer leaves open which of them were stored.

        Lone failures go into `failed`. Answers whether anything was stored, now or before (`proven`).
        """
        if not group:
            return proven
        try:
            answer = await self._upstream.submit_results(group)
        except (Refused, TooLarge) as error:
            if len(group) == 1:
                if not proven and await self._refuses_all():
                    raise NotNow(f"the gateway refuses even what it has stored before: {error}") from error
                self.refused.append((group[0], str(error)))
                return proven
            left, right = _halves(group, by_bytes=isinstance(error, TooLarge))
        else:
            open_ones = self._settle(group, answer, failed)
            proven = proven or answer.stored > 0
            if not open_ones:
                return proven
            if not proven:
                return await self._probe(open_ones, failed)
            left, right = _halves(open_ones, by_bytes=False) if len(open_ones) > 1 else (open_ones, [])
        proven = await self._split(left, failed, proven=proven)
        return await self._split(right, failed, proven=proven)

    def _settle(
        self, group: Sequence[OutboxEntry], answer: Submitted, failed: list[tuple[OutboxEntry, str]]
    ) -> Sequence[OutboxEntry]:
        """Takes down what the answer says for certain. Answers the entries it leaves open."""
        if answer.failed == 0 and answer.stored == len(group) and not answer.receipts:
            self.stored += group
            return []
        open_ones: list[OutboxEntry] = []
        for entry in group:
            receipt = answer.receipts.get(entry.task_id)
            if receipt is None:
                open_ones.append(entry)
            else:
                self._take_down(entry, receipt)
        if len(group) == 1 and open_ones:
            failed.append((group[0], "; ".join(answer.errors) or "not stored, for no reason given"))
            return []
        return open_ones

    def _take_down(self, entry: OutboxEntry, receipt: Receipt) -> None:
        if receipt.stored:
            self.stored.append(entry)
        else:
            self.refused.append((entry, receipt.error or "rejected, for no reason given"))

    async def _refuses_all(self) -> bool:
        """Asked once a round. Without a witness the upstream's word about an entry is taken."""
        if self._is_ill is None:
            witness = self._witness()
            self._is_ill = witness is not None and not await self._is_stored(witness)
        return self._is_ill

    async def _probe(self, group: Sequence[OutboxEntry], failed: list[tuple[OutboxEntry, str]]) -> bool:
        """Nothing was stored: is it the upstream, or are there only bad ones before the good? Asks for each alone.

        From the end, since an upstream that stops at too many bad ones has not even looked at the last.
        """
        apart = max(1, len(group) // _MOST_PROBES)
        for index in range(len(group) - 1, -1, -apart):
            if await self._is_stored(group[index], failed):
                self.stored.append(group[index])
                settled = {entry.task_id for entry, _ in self.refused} | {group[index].task_id}
                failed.clear()  # it may have been ill when those failed: they are asked for again
                return await self._split(
                    [entry for entry in group if entry.task_id not in settled], failed, proven=True
                )
        return False

    async def _is_stored(self, entry: OutboxEntry, failed: list[tuple[OutboxEntry, str]] | None = None) -> bool:
        try:
            answer = await self._upstream.submit_results([entry])
        except (Refused, TooLarge) as error:
            if failed is not None:
                self.refused.append((entry, str(error)))
            return False
        receipt = answer.receipts.get(entry.task_id)
        if receipt.stored if receipt else (answer.failed == 0 and answer.stored == 1):
            return True
        if failed is not None:
            failed.append((entry, "; ".join(answer.errors) or "not stored, for no reason given"))
        return False


def _one_of_each_parcel(
    records: Sequence[OutboxEntry], unresolved: Callable[[], set[Parcel]]
) -> Iterable[list[OutboxEntry]]:
    """Groups in which no parcel comes twice, in order; what waits for an unresolved earlier one is left out."""
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


def _halves(group: Sequence[OutboxEntry], *, by_bytes: bool) -> tuple[Sequence[OutboxEntry], Sequence[OutboxEntry]]:
    """Two parts, neither empty, of about as many entries or as many bytes."""
    middle = len(group) // 2
    if by_bytes:
        half, size = sum(len(entry.data or b"") for entry in group) // 2, 0
        for middle, entry in enumerate(group):  # noqa: B007 - where it stops is the answer
            size += len(entry.data or b"")
            if size > half:
                break
    middle = min(max(1, middle), len(group) - 1)
    return group[:middle], group[middle:]
