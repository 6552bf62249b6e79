"""A ParcelFilter as conditions on parcels `p` and liens `l`."""

from __future__ import annotations

from typing import Any

from parcelpost.gateway.sql.statements import containing
from parcelpost.gateway.words import ParcelFilter, ParcelKey

KEY = "p.platform, p.state, p.county, p.parcel_id"

_OWNER_PART = "\n{}\n"  # of parcels.search: number, owner and address, a line each


class Conditions:
    """All of them must hold."""

    def __init__(self) -> None:
        self.args: list[Any] = []
        self._parts: list[str] = []

    def add(self, part: str, *args: Any) -> None:
        self._parts.append(part)
        self.args += args

    def __str__(self) -> str:
        return " AND ".join(self._parts) or "1 = 1"


def of_parcels(wanted: ParcelFilter, after: ParcelKey | None = None) -> Conditions:
    found = Conditions()
    _add_parcel(found, wanted)
    liens = Conditions()
    _add_lien(liens, wanted)
    if liens.args:
        exists = "EXISTS (SELECT 1 FROM liens l WHERE l.parcel_no = p.parcel_no AND l.position < p.lien_count AND "
        found.add(f"{exists}{liens})", *liens.args)
    if after is not None:
        found.add(f"({KEY}) > (?, ?, ?, ?)", *parts(after))
    return found


def of_one(key: ParcelKey) -> Conditions:
    found = Conditions()
    found.add(f"({KEY}) = (?, ?, ?, ?)", *parts(key))
    return found


def of_liens(wanted: ParcelFilter, after: tuple[ParcelKey, int] | None) -> Conditions:
    found = Conditions()
    _add_parcel(found, wanted)
    _add_lien(found, wanted)
    if after is not None:
        key, position = after
        found.add(f"({KEY}) >= (?, ?, ?, ?)", *parts(key))
        found.add(f"(({KEY}) > (?, ?, ?, ?) OR l.position > ?)", *parts(key), position)
    return found


def _add_parcel(found: Conditions, wanted: ParcelFilter) -> None:
    for column in ("platform", "state", "county"):
        if value := getattr(wanted, column):
            found.add(f"p.{column} = ?", value)
    if wanted.owner:
        found.add("p.search LIKE ? ESCAPE '!'", f"%{_OWNER_PART.format(containing(wanted.owner))}%")
    if wanted.search:
        found.add("p.search LIKE ? ESCAPE '!'", containing(wanted.search))
    if wanted.delinquent is not None:
        found.add("p.delinquent = ?", wanted.delinquent)
    if wanted.changed_since is not None:
        found.add("p.received_at >= ?", wanted.changed_since)


def _add_lien(found: Conditions, wanted: ParcelFilter) -> None:
    if wanted.lien_status:
        found.add("l.status = ?", wanted.lien_status.lower())
    if wanted.min_lien_cents is not None:
        found.add("l.amount_cents >= ?", wanted.min_lien_cents)
    if wanted.max_lien_cents is not None:
        found.add("l.amount_cents <= ?", wanted.max_lien_cents)


def parts(key: ParcelKey) -> tuple[str, str, str, str]:
    return key.platform, key.state, key.county, key.parcel_id
