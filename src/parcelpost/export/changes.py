"""What changed between the stored scrapes of each parcel, as entries to export: one for each scrape with changes."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable, Sequence
from datetime import datetime

import msgspec
from msgspec import Struct, structs

from parcelpost.changes import Change, KnownFacts, Scraped, compare
from parcelpost.model import OutboxEntry
from parcelpost.places import parcel_norm

_encode = msgspec.json.Encoder(decimal_format="number").encode


class ChangesFilter(Struct, frozen=True, kw_only=True):
    """All conditions must hold; empty ones match all. The scrapes that are not wanted are still compared."""

    kinds: tuple[str, ...] = ()
    """Any of these: `lien.new`, or `lien` for all that begin so."""
    platforms: tuple[str, ...] = ()
    norms: tuple[str, ...] = ()
    """Of parcels."""
    scraped_since: datetime | None = None
    scraped_before: datetime | None = None

    def matches(self, entry: OutboxEntry) -> bool:
        return (
            (not self.platforms or entry.platform in self.platforms)
            and (not self.norms or parcel_norm(entry.parcel_id) in self.norms)
            and (self.scraped_since is None or entry.scraped_at >= self.scraped_since)
            and (self.scraped_before is None or entry.scraped_at < self.scraped_before)
        )

    def wants(self, change: Change) -> bool:
        return not self.kinds or any(kind in (change.kind, change.kind.partition(".")[0]) for kind in self.kinds)


class _Parcel:
    """What is known of a parcel, by source."""

    def __init__(self) -> None:
        self._known: dict[int, KnownFacts] = {}
        self._sources: dict[str, int] = {}

    def changes(self, entry: OutboxEntry) -> list[Change]:
        source_no = self._sources.setdefault(entry.platform, len(self._sources))
        data = entry.data or b"{}"
        scrape = Scraped(0, source_no, entry.task_id, entry.scraped_at, data, entry.raw_sha256)
        known, changed = compare([scrape], self._known.values())
        self._known |= {facts.source_no: facts for facts in known}
        return [found.change for found in changed]

    def is_known(self) -> bool:
        return bool(self._known)


async def changed_entries(
    pages: AsyncIterator[Sequence[OutboxEntry]],
    wanted: ChangesFilter,
    *,
    has_first: bool,
    progress: Callable[[int], None] = lambda _: None,
) -> AsyncIterator[list[OutboxEntry]]:
    """`pages`: all records ordered by parcel (state, county, number), then by when they were stored.

    `has_first`: whether the first stored scrape of a parcel is its first one. If not, it counts as known.
    """
    group: tuple[str, ...] = ()
    parcels: dict[str, _Parcel] = {}
    done = 0
    async for page in pages:
        changed: list[OutboxEntry] = []
        for entry in page:
            key = (entry.state, entry.county, parcel_norm(entry.parcel_id))
            if key != group:
                group, parcels = key, {}
            # Without a place, the same number on another platform may be another parcel.
            parcel = parcels.setdefault("" if entry.state and entry.county else entry.platform, _Parcel())
            was_known = parcel.is_known()
            changes = [change for change in parcel.changes(entry) if wanted.wants(change)]
            if changes and (was_known or has_first) and wanted.matches(entry):
                changed.append(structs.replace(entry, data=_encode({"changes": changes})))
        done += len(page)
        progress(done)
        yield changed
