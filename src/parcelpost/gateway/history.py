"""What changed between the scrapes of a parcel, and when. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, DecimalException

import msgspec
from msgspec import Raw, Struct

from parcelpost.gateway.models import RecordVersion
from parcelpost.model import Json

VOLATILE = frozenset({"scraped_at", "raw_html_hash", "parser_version"})
"""Differ between two scrapes of the same facts."""

_LONG_BYTES = 256 * 1024
_MOST_BYTES = 4 * 1024 * 1024
_MOST_RECORD_BYTES = 64 * 1024 * 1024
_MOST_LIENS = 1_000
"""Of one record; what lies beyond is compared as a whole."""


class Change(Struct, frozen=True):
    """null: the page did not say. `field` is a name of the record, or `liens[certificate]` and a name of the lien."""

    field: str
    before: Json
    after: Json


class Scrape(Struct, frozen=True, kw_only=True):
    """One scrape beside the one before it."""

    scraped_at: datetime
    received_at: datetime
    worker_id: str
    task_id: str
    late: bool
    parse_duration_ms: int
    raw_sha256: str | None
    first: bool
    """Nothing older is known: there is nothing to compare it with."""
    changes: Sequence[Change]


class History:
    """The scrapes of a parcel, each beside the one before it, told from the newest on. Holds two records at a time.

    Full after `most` scrapes, once what changed in them is a few megabytes together, or once the records that were
    compared are some more.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._record_bytes = 0
        self._last: tuple[RecordVersion, Mapping[str, Json]] | None = None
        self.scrapes: list[Scrape] = []
        self.is_whole = False
        """Nothing older is known than what it tells."""

    @property
    def is_full(self) -> bool:
        too_large = self._bytes > _MOST_BYTES or self._record_bytes > _MOST_RECORD_BYTES
        return too_large or len(self.scrapes) >= self._most

    @property
    def room(self) -> int:
        """How many versions more it can use: one beyond the last that it tells shows what that one changed."""
        return self._most + 1 - len(self.scrapes) - (self._last is not None)

    @property
    def oldest(self) -> tuple[datetime, str] | None:
        """Of those that were added."""
        return (self._last[0].scraped_at, self._last[0].task_id) if self._last else None

    def add(self, versions: Iterable[RecordVersion]) -> None:
        """Older than all before, the newest first."""
        for version in versions:
            if self.is_full:
                return
            self._record_bytes += len(version.data)
            older = record(version.data)
            if self._last:
                newer, newer_record = self._last
                self._tell(newer, changes(older, newer_record))
            self._last = version, older

    def end(self) -> None:
        """There are no others."""
        if self.is_full:
            return
        if self._last:
            self._tell(self._last[0], [], first=True)
        self.is_whole = True

    def _tell(self, version: RecordVersion, changed: Sequence[Change], *, first: bool = False) -> None:
        self._bytes += len(msgspec.json.encode(changed))
        self.scrapes.append(
            Scrape(
                scraped_at=version.scraped_at,
                received_at=version.received_at,
                worker_id=version.worker_id,
                task_id=version.task_id,
                late=version.late,
                parse_duration_ms=version.parse_duration_ms,
                raw_sha256=version.raw_sha256,
                first=first,
                changes=changed,
            )
        )


def record(data: bytes) -> Mapping[str, Json]:
    """What was sent, its numbers exact."""
    try:
        return {name: _value(raw) for name, raw in _decode_fields(data).items()}
    except (ValueError, RecursionError):
        return {}


def _value(raw: Raw) -> Json:
    """A long list is decoded one by one: a single call would hold up all other threads meanwhile."""
    if len(memoryview(raw)) > _LONG_BYTES and bytes(memoryview(raw)[:1]) == b"[":
        return [_decode(one) for one in _decode_items(raw)]
    found: Json = _decode(raw)
    return found


def changes(older: Mapping[str, Json], newer: Mapping[str, Json]) -> list[Change]:
    """Field by field, in the order of the newer record; liens by their certificates."""
    names = [*newer, *(name for name in older if name not in newer)]
    found: list[Change] = []
    for name in names:
        before, after = older.get(name), newer.get(name)
        if name in VOLATILE or _same(before, after):
            continue
        if name == "liens" and _are_objects(before) and _are_objects(after):
            found += _lien_changes(before or [], after or [])
        else:
            found.append(Change(name, before, after))
    return found


def _lien_changes(older: Sequence[Mapping[str, Json]], newer: Sequence[Mapping[str, Json]]) -> Iterator[Change]:
    before, after = _by_certificate(older[:_MOST_LIENS]), _by_certificate(newer[:_MOST_LIENS])
    for name in [*after, *(name for name in before if name not in after)]:
        if name not in before or name not in after:
            yield Change(f"liens[{name}]", before.get(name), after.get(name))
            continue
        for change in changes(before[name], after[name]):
            yield Change(f"liens[{name}].{change.field}", change.before, change.after)
    if older[_MOST_LIENS:] != newer[_MOST_LIENS:]:
        yield Change(f"liens beyond {_MOST_LIENS:,}", len(older[_MOST_LIENS:]), len(newer[_MOST_LIENS:]))


def _by_certificate(liens: Sequence[Mapping[str, Json]]) -> dict[str, Mapping[str, Json]]:
    """One without a certificate goes by its case, else by its place; a name that comes again is numbered."""
    found: dict[str, Mapping[str, Json]] = {}
    times: Counter[str] = Counter()
    for place, lien in enumerate(liens, 1):
        name = str(lien.get("certificate_number") or lien.get("case_number") or f"no. {place}")
        unique = name
        while unique in found:
            times[name] += 1
            unique = f"{name} ({times[name] + 1})"
        found[unique] = lien
    return found


def _are_objects(given: Json) -> bool:
    return given is None or (isinstance(given, list) and all(isinstance(one, dict) for one in given))


def _same(before: Json, after: Json) -> bool:
    """Python holds that True is 1; a page does not. None and an empty list both say nothing."""
    if _says_nothing(before) or _says_nothing(after):
        return _says_nothing(before) and _says_nothing(after)
    return isinstance(before, bool) is isinstance(after, bool) and bool(before == after)


def _says_nothing(given: Json) -> bool:
    return given is None or given == []


def _exact(digits: str) -> Decimal | float:
    try:
        return Decimal(digits)
    except DecimalException:
        return float(digits)


_decode = msgspec.json.Decoder(float_hook=_exact).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
