"""Query parameters, list cursors and parcel paths of the read API.

A parcel's path is `/platform/state/county/parcel`, each part percent-encoded, slashes too. An empty part is `-`. A
leading `~` is not part of the text: it protects a real `-`, and the `.` and `..` that clients would resolve.
"""

from __future__ import annotations

import base64
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote, unquote_to_bytes

import msgspec
from msgspec import Meta, Struct

from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import EndedTask, LienRow, ParcelFilter, ParcelKey, ParcelRow
from parcelpost.places import county_slug, state_or_text

_PARCELS_PATH = "/v1/parcels/"
_RAW_PATH = "raw"
_RESOLVED_BY_CLIENTS = {".", ".."}
_EMPTY = "-"
_LITERAL = "~"


def parcel_path(parcel: ParcelKey) -> str:
    parts = (parcel.platform, parcel.state, parcel.county, parcel.parcel_id)
    return _PARCELS_PATH + "/".join(quote(_escaped(part), safe="") for part in parts)


def raw_path(parcel: ParcelKey) -> str:
    return f"{parcel_path(parcel)}/{_RAW_PATH}"


def parse_parcel_path(path: bytes) -> tuple[ParcelKey, bool] | None:
    """Returns the parcel that a path (as sent, still encoded) names, and whether it asks for the raw file.

    Slashes that are not encoded belong to the parcel number. None: the path names no parcel.
    """
    parts = path.partition(_PARCELS_PATH.encode())[2].split(b"/")
    wants_raw = len(parts) > 4 and parts[-1] == _RAW_PATH.encode()
    if wants_raw:
        parts.pop()
    if len(parts) < 4:
        return None
    texts = [_unescaped(unquote_to_bytes(part)) for part in (*parts[:3], b"/".join(parts[3:]))]
    known = [text for text in texts if text is not None and "\0" not in text]
    return (ParcelKey(*known), wants_raw) if len(known) == 4 else None


def _escaped(text: str) -> str:
    if not text:
        return _EMPTY
    needs_sign = text == _EMPTY or text in _RESOLVED_BY_CLIENTS or text.startswith(_LITERAL)
    return f"{_LITERAL}{text}" if needs_sign else text


def _unescaped(given: bytes) -> str | None:
    try:
        text = given.decode()
    except UnicodeDecodeError:
        return None
    return "" if text == _EMPTY else text.removeprefix(_LITERAL)


T = TypeVar("T")

_Moment = Annotated[datetime, Meta(tz=True)]
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_Position = Annotated[int, Meta(ge=0, lt=2**31)]
_MAX_DOLLARS = 10**12

Text = Annotated[str, Meta(max_length=200, pattern=r"^[^\x00]*$")]
Dollars = Annotated[
    Decimal | None,
    Meta(
        description="Of a lien, in dollars",
        extra_json_schema={"minimum": 0, "maximum": _MAX_DOLLARS, "multipleOf": 0.01},
    ),
]
Cursor = Annotated[str, Meta(max_length=10_000, description="`next` from the previous page")]


class FilterParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All conditions must hold."""

    platform: Text = ""
    state: Text = ""
    county: Text = ""
    owner: Annotated[Text, Meta(description="Part of an owner's name")] = ""
    q: Annotated[Text, Meta(description="Part of the parcel number, an owner's name or the address")] = ""
    delinquent: bool | None = None
    lien_status: Text = ""
    min_amount: Dollars = None
    max_amount: Dollars = None
    changed_since: Annotated[
        str, Meta(description="RFC 3339 with a time zone", extra_json_schema={"format": "date-time"})
    ] = ""

    def filter(self) -> ParcelFilter:
        """Raises ApiError (422)."""
        return ParcelFilter(
            platform=self.platform,
            state=state_or_text(self.state),
            county=county_slug(self.county) or self.county,
            owner=self.owner,
            search=self.q,
            delinquent=self.delinquent,
            lien_status=self.lien_status,
            min_lien_cents=_cents("min_amount", self.min_amount),
            max_lien_cents=_cents("max_amount", self.max_amount),
            changed_since=_utc_time("changed_since", self.changed_since) if self.changed_since else None,
        )


class LatestParams(FilterParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    cursor: Cursor = ""


class ListParams(LatestParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[bool, Meta(description="Include each full record")] = False


class TaskListParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Literal["not_found", "failed", "dead"]
    platform: Text = ""
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Cursor = ""


class OverviewParams(Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[Literal["1", "3", "6", "24"], Meta(description="How far back the activity goes")] = "3"


class AddTasksParams(Struct, frozen=True, forbid_unknown_fields=True):
    any_platform: Annotated[bool, Meta(description="Accept platforms and counties that are not known")] = False


class RawParams(Struct, frozen=True, forbid_unknown_fields=True):
    sha256: Annotated[str, Meta(description="Of an earlier scrape; by default the newest page")] = ""


def task_cursor(task: EndedTask) -> str:
    return _make_cursor([task.row.ended_at, task.seq])


def parcel_cursor(key: ParcelKey) -> str:
    return _make_cursor([key.platform, key.state, key.county, key.parcel_id])


def lien_cursor(key: ParcelKey, position: int) -> str:
    return _make_cursor([key.platform, key.state, key.county, key.parcel_id, position])


def after_parcel(cursor: str) -> ParcelKey | None:
    """Raises ApiError for an invalid cursor."""
    return ParcelKey(*_read_cursor(cursor, tuple[str, str, str, str])) if cursor else None


def after_lien(cursor: str) -> tuple[ParcelKey, int] | None:
    if not cursor:
        return None
    *key, position = _read_cursor(cursor, tuple[str, str, str, str, _Position])
    return ParcelKey(*key), position


def latest_parcel_cursor(row: ParcelRow) -> str:
    return _make_cursor([row.received_at, row.parcel_no])


def latest_lien_cursor(row: LienRow) -> str:
    return _make_cursor([row.received_at, row.parcel_no, row.position])


def before_row(cursor: str) -> tuple[datetime, int] | None:
    """For parcels and tasks. Raises ApiError for an invalid cursor."""
    return _read_cursor(cursor, tuple[_Moment, _Number]) if cursor else None


def before_lien(cursor: str) -> tuple[datetime, int, int] | None:
    return _read_cursor(cursor, tuple[_Moment, _Number, _Position]) if cursor else None


def _cents(name: str, amount: Decimal | None) -> int | None:
    if amount is None:
        return None
    if not amount.is_finite() or not 0 <= amount <= _MAX_DOLLARS or amount * 100 % 1:
        raise ApiError(422, f"{name}: must be from 0 to {_MAX_DOLLARS:,} dollars, with at most two decimal places")
    return int(amount * 100)


def _utc_time(name: str, text: str) -> datetime:
    try:
        return msgspec.convert(text, _Moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ApiError(422, f"{name}: must be RFC 3339 with a time zone, for example 2026-11-17T00:00:00Z") from None


def _make_cursor(place: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read_cursor(cursor: str, kind: type[T]) -> T:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if b"\\u0000" in text:
            raise ValueError
        return msgspec.json.decode(text, type=kind)
    except ValueError:
        raise ApiError(422, "cursor: not valid; leave it out to start from the beginning") from None
