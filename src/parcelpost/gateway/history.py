"""What changed in a parcel: a change of the ledger as it is shown, and the comparison of its scrapes. No I/O."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from decimal import Decimal, DecimalException

import msgspec
from msgspec import Raw, Struct

from parcelpost.changes import VOLATILE
from parcelpost.gateway.models import ChangeRow, RecordVersion
from parcelpost.gateway.parcel_paths import parcel_path
from parcelpost.model import Json
from parcelpost.search_fields import lien_key, lien_keys

_LONG_BYTES = 256 * 1024
_MAX_BYTES = 4 * 1024 * 1024
_MAX_RECORD_BYTES = 64 * 1024 * 1024
_MAX_LIENS = 1_000
"""Liens of one record that are compared one by one."""


class ParcelChange(Struct, frozen=True, kw_only=True):
    """Something that changed in a parcel."""

    number: int
    """Consecutive: requesting changes `since` the last number seen never skips one."""
    found_at: datetime
    kind: str
    state: str
    county: str
    parcel_id: str
    platform: str
    task_id: str
    scraped_at: datetime
    subject: str
    """The certificate or case number of a lien, or the date of a sale."""
    before: Raw
    after: Raw
    address: str


def change_response(row: ChangeRow) -> ParcelChange:
    return ParcelChange(
        number=row.change_no,
        found_at=row.found_at,
        kind=row.kind,
        state=row.parcel.state,
        county=row.parcel.county,
        parcel_id=row.parcel_id,
        platform=row.platform,
        task_id=row.task_id,
        scraped_at=row.scraped_at,
        subject=row.subject,
        before=Raw(row.before),
        after=Raw(row.after),
        address=parcel_path(row.parcel, row.parcel_id),
    )


class Change(Struct, frozen=True, omit_defaults=True):
    """null: not on the page. `field` is a field of the record, or `liens[certificate]` and a field of the lien."""

    field: str
    before: Json
    after: Json
    lien: str = ""
    """Key of the lien in the source's `lien_keys`; empty for a later tax on it, and for a lien without a key."""


class Scrape(Struct, frozen=True, kw_only=True):
    """One scrape compared with the previous one."""

    scraped_at: datetime
    received_at: datetime
    worker_id: str
    task_id: str
    late: bool
    parse_duration_ms: int
    raw_sha256: str | None
    first: bool
    """The oldest known scrape, with nothing to compare it with."""
    changes: Sequence[Change]


class History:
    """The scrapes of a parcel, newest first, each compared with the previous one. Holds two records at a time.

    Full after `most` scrapes, a few megabytes of changes, or 64 MiB of compared records.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._bytes = 0
        self._record_bytes = 0
        self._last: tuple[RecordVersion, Mapping[str, Json], Sequence[str]] | None = None
        self.scrapes: list[Scrape] = []
        self.is_whole = False
        """No older scrapes exist."""

    @property
    def is_full(self) -> bool:
        too_large = self._bytes > _MAX_BYTES or self._record_bytes > _MAX_RECORD_BYTES
        return too_large or len(self.scrapes) >= self._most

    @property
    def room(self) -> int:
        """How many more versions it can use, including one more to compare the last scrape with."""
        return self._most + 1 - len(self.scrapes) - (self._last is not None)

    @property
    def oldest(self) -> tuple[datetime, str] | None:
        """The oldest version added."""
        return (self._last[0].scraped_at, self._last[0].task_id) if self._last else None

    def add(self, versions: Iterable[RecordVersion]) -> None:
        """Adds older versions, newest first."""
        for version in versions:
            if self.is_full:
                return
            self._record_bytes += len(version.data)
            older = record(version.data)
            older_keys = lien_keys(older, version.data)
            if self._last:
                newer, newer_record, newer_keys = self._last
                self._append(newer, changes(older, newer_record, older_keys, newer_keys))
            self._last = version, older, older_keys

    def end(self) -> None:
        """Must be called after the last version."""
        if self.is_full:
            return
        if self._last:
            self._append(self._last[0], [], first=True)
        self.is_whole = True

    def _append(self, version: RecordVersion, changed: Sequence[Change], *, first: bool = False) -> None:
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
    """Decodes a record with exact numbers."""
    try:
        return {name: _value(raw) for name, raw in _decode_fields(data).items()}
    except (ValueError, RecursionError):
        return {}


def _value(raw: Raw) -> Json:
    """Decodes a long list item by item: a single call would block all other threads."""
    if len(memoryview(raw)) > _LONG_BYTES and bytes(memoryview(raw)[:1]) == b"[":
        return [_decode(item) for item in _decode_items(raw)]
    value: Json = _decode(raw)
    return value


def changes(
    older: Mapping[str, Json], newer: Mapping[str, Json], older_keys: Sequence[str], newer_keys: Sequence[str]
) -> list[Change]:
    """Compares field by field, in the order of the newer record; liens by their keys, from `lien_keys`."""
    changed: list[Change] = []
    for change in _field_changes(older, newer):
        before, after = change.before, change.after
        if change.field == "liens" and _are_objects(before) and _are_objects(after):
            changed += _lien_changes(before or [], after or [], older_keys, newer_keys)
        else:
            changed.append(change)
    return changed


def _field_changes(older: Mapping[str, Json], newer: Mapping[str, Json]) -> Iterator[Change]:
    for name in [*newer, *(name for name in older if name not in newer)]:
        before, after = older.get(name), newer.get(name)
        if name not in VOLATILE and not _same(before, after):
            yield Change(name, before, after)


class _NamedLien(Struct, frozen=True):
    name: str
    key: str
    fields: Mapping[str, Json]


def _lien_changes(
    older: Sequence[Mapping[str, Json]],
    newer: Sequence[Mapping[str, Json]],
    older_keys: Sequence[str],
    newer_keys: Sequence[str],
) -> Iterator[Change]:
    before, after = _by_key(older[:_MAX_LIENS], older_keys), _by_key(newer[:_MAX_LIENS], newer_keys)
    for key in [*after, *(key for key in before if key not in after)]:
        lien = after.get(key) or before[key]
        if key not in before or key not in after:
            gone, new = (lien.fields, None) if key in before else (None, lien.fields)
            yield Change(f"liens[{lien.name}]", gone, new, lien.key)
            continue
        for change in _field_changes(before[key].fields, lien.fields):
            yield Change(f"liens[{lien.name}].{change.field}", change.before, change.after, lien.key)
    if older[_MAX_LIENS:] != newer[_MAX_LIENS:]:
        yield Change(f"liens beyond {_MAX_LIENS:,}", len(older[_MAX_LIENS:]), len(newer[_MAX_LIENS:]))


def _by_key(liens: Sequence[Mapping[str, Json]], keys: Sequence[str]) -> dict[str, _NamedLien]:
    """The liens by their keys, or by their numbers if they have none, or else by their positions.

    The name is the certificate, else the case; with the year if others have the same. It is numbered as the key is.
    """
    numbers = [lien.get("certificate_number") or lien.get("case_number") for lien in liens]
    is_later = [lien.get("subsequent_tax") is True for lien in liens]
    times_named = Counter(str(number) for number, later in zip(numbers, is_later, strict=True) if not later)
    times = Counter[str]()
    found: dict[str, _NamedLien] = {}
    for place, (lien, key, number, later) in enumerate(zip(liens, keys, numbers, is_later, strict=False), 1):
        base, name = lien_key(lien), str(number or "")
        year = lien.get("certificate_year") or lien.get("tax_year")
        if year and times_named[name] > 1:
            name = f"{name} of {year}"
        if base and later:
            base, name = (f"{text}, later tax of {lien.get('sale_date') or year}" for text in (base, name))
        base, name = base or f"no. {place}", name or f"no. {place}"
        times[base] += 1
        known = "" if later else key
        nth = known.removeprefix(base) if known else f" ({times[base]})" if times[base] > 1 else ""
        found[base + nth] = _NamedLien(name + nth, known, lien)
    return found


def _are_objects(given: Json) -> bool:
    return given is None or (isinstance(given, list) and all(isinstance(item, dict) for item in given))


def _same(before: Json, after: Json) -> bool:
    """Unlike in Python, True is not 1 here; None and an empty list are the same."""
    if _is_empty(before) or _is_empty(after):
        return _is_empty(before) and _is_empty(after)
    return isinstance(before, bool) is isinstance(after, bool) and bool(before == after)


def _is_empty(given: Json) -> bool:
    return given is None or given == []


def _exact(digits: str) -> Decimal | float:
    try:
        return Decimal(digits)
    except DecimalException:
        return float(digits)


_decode = msgspec.json.Decoder(float_hook=_exact).decode
_decode_fields = msgspec.json.Decoder(dict[str, Raw]).decode
_decode_items = msgspec.json.Decoder(list[Raw]).decode
