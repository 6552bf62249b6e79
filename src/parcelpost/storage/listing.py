"""The records of one page -> one for each parcel, each with a name that a second reading gives it again."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256

from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Listed
from parcelpost.places import county_slug

MOST_RECORDS = 50_000

_NUMBERS = ("parcel_id", "case_number", "certificate_number", "tax_account")
_MOST_PARENT_CHARS = 400


def listed(records: Sequence[Mapping[str, Json]]) -> list[Listed]:
    """In the page's order. Lines about liens of one parcel become one record with all its liens: an upstream keeps one
    record of a parcel, and each would take the place of the one before. Raises InvalidInput for too many.
    """
    if len(records) > MOST_RECORDS:
        raise InvalidInput(f"the page has {len(records):,} records; at most {MOST_RECORDS:,} are kept of one task")
    found: dict[str, Listed] = {}
    for position, record in enumerate(records, start=1):
        number = number_of(record) or f"line {position}"
        county = county_slug(_text(record.get("county")))
        key = f"{county}/{number}"
        while (earlier := found.get(key)) is not None and not _are_liens(earlier.data, record):
            key += " again"
        data = record if earlier is None else _with_liens(earlier.data, record)
        found[key] = Listed(key=key, parcel_id=number, county=county, data=data)
    return list(found.values())


def number_of(record: Mapping[str, Json]) -> str:
    """The parcel's, or what the list names instead of one; '' if it names nothing."""
    return next((text for name in _NUMBERS if (text := _text(record.get(name)))), "")


def child_id(parent_id: str, key: str) -> str:
    """The id of the task under which a further record of the parent's page is kept: the same at every reading."""
    digest = sha256(f"{parent_id}\0{key}".encode(errors="backslashreplace")).hexdigest()
    return f"{parent_id[:_MOST_PARENT_CHARS]}~{digest[:20]}"


def _text(value: Json) -> str:
    return value if isinstance(value, str) else ""


def _are_liens(one: object, other: Mapping[str, Json]) -> bool:
    return (
        isinstance(one, Mapping)
        and one.get("record_kind") == other.get("record_kind") == "lien"
        and isinstance(one.get("liens"), list)
        and isinstance(other.get("liens"), list)
    )


def _with_liens(earlier: object, record: Mapping[str, Json]) -> Mapping[str, Json]:
    if not isinstance(earlier, Mapping):
        return record
    return {**earlier, "liens": [*earlier["liens"], *record["liens"]]}
