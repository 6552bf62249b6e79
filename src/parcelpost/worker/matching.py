"""Which stored record of a page is which of those that it gives now."""

from __future__ import annotations

from collections import defaultdict, deque
from collections.abc import Callable

import msgspec

from parcelpost.model import Listed
from parcelpost.storage.listing import child_id, number_of
from parcelpost.storage.reparsing import StoredPage, StoredRecord

Pairs = list[tuple[StoredRecord, Listed]]


def matched(stored: StoredPage, found: list[Listed]) -> tuple[Pairs, list[Listed]]:
    """What the page said before beside what it says now, and what it did not say before.

    By its task's name, by its number, by its number without signs, and last by its place: a parser that reads all
    numbers of a list differently still reads the same list.
    """
    numbers = {one.result_id: _number(one) for one in stored.records}
    ways: list[tuple[Callable[[StoredRecord], str], Callable[[Listed], str]]] = [
        (lambda old: old.task_id, lambda new: child_id(stored.task_id, new.key)),
        (lambda old: numbers[old.result_id], lambda new: new.parcel_id),
        (lambda old: _without_signs(numbers[old.result_id]), lambda new: _without_signs(new.parcel_id)),
    ]
    pairs: Pairs = []
    before, now = list(stored.records), found
    for of_old, of_new in ways:
        waiting: defaultdict[str, deque[StoredRecord]] = defaultdict(deque)
        for old in before:
            waiting[of_old(old)].append(old)
        left = []
        for new in now:
            if same := waiting.get(of_new(new)):
                pairs.append((same.popleft(), new))
            else:
                left.append(new)
        before, now = [old for same in waiting.values() for old in same], left
    if len(before) == len(now):
        return [*pairs, *zip(before, now, strict=True)], []
    return pairs, now


def _number(record: StoredRecord) -> str:
    return number_of(msgspec.json.decode(record.data)) or record.parcel_id


def _without_signs(number: str) -> str:
    return "".join(filter(str.isalnum, number)).casefold()
