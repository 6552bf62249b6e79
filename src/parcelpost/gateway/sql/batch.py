"""A batch of arrivals, before any database has seen it."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from msgspec import Struct

from parcelpost.gateway.words import Arrival, ParcelKey


class Entry(Struct, frozen=True, gc=False):
    place: int
    """In the batch."""
    arrival: Arrival
    scraped_at: datetime
    """In whole milliseconds: as the ledger keeps it."""

    @property
    def age(self) -> tuple[datetime, str]:
        """What decides between two scrapes of a parcel, in whatever order they come."""
        return self.scraped_at, self.arrival.task_id

    def takes_the_place_of(self, other: Entry) -> bool:
        """Of two of one task and parcel, this one being the later to come. At the same moment: the same page, read
        again.
        """
        if self.scraped_at == other.scraped_at:
            return self.arrival.idempotency_key != other.arrival.idempotency_key
        return self.scraped_at > other.scraped_at


class Sifted(Struct, frozen=True):
    entries: list[Entry]
    """One for a task and parcel: the newest. By parcel and task; the others are duplicates."""
    newest: dict[ParcelKey, Entry]
    """Of each parcel, in the order of the keys."""

    @property
    def task_ids(self) -> list[str]:
        return sorted({entry.arrival.task_id for entry in self.entries})


def sift(batch: Sequence[Arrival]) -> Sifted:
    kept: dict[tuple[ParcelKey, str], Entry] = {}
    for place, arrival in enumerate(batch):
        entry = Entry(place, arrival, whole_ms(arrival.scraped_at))
        earlier = kept.get(key := (arrival.parcel, arrival.task_id))
        if earlier is None or entry.takes_the_place_of(earlier):
            kept[key] = entry
    entries = [kept[key] for key in sorted(kept)]
    newest: dict[ParcelKey, Entry] = {}
    for entry in entries:
        rival = newest.get(entry.arrival.parcel)
        if rival is None or entry.age > rival.age:
            newest[entry.arrival.parcel] = entry
    return Sifted(entries, newest)


def whole_ms(moment: datetime) -> datetime:
    beyond = moment.microsecond % 1000
    return moment.replace(microsecond=moment.microsecond - beyond) if beyond else moment
