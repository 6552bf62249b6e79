"""Query parameters, list cursors and parcel paths of the read API.

A parcel's path is `/platform/state/county/parcel`, each part percent-encoded, slashes too. An empty part is `-`. A
leading `~` is not part of the text: it protects a real `-`, and the `.` and `..` that clients would resolve.
"""

from __future__ import annotations

import base64
import re
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Any, Literal, TypeVar
from urllib.parse import quote, unquote_to_bytes

import msgspec
from pydantic import AfterValidator, AwareDatetime, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints

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
    """The parcel that a path (as it was sent, still encoded) names, and whether its raw file is meant.

    Slashes that were not encoded belong to the parcel's number. None: it names none.
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

NO_NUL = r"^[^\x00]*$"
_MOMENT = re.compile(r"\d{4}-\d\d-\d\d[Tt ]", re.ASCII)


def _in_utc(at: datetime) -> datetime:
    try:
        return at.astimezone(UTC)
    except OverflowError:
        raise ValueError("is out of range") from None


def _require_rfc3339(given: object) -> object:
    """A plain number would be read as seconds since 1970."""
    if isinstance(given, str) and not _MOMENT.match(given):
        raise ValueError("must be RFC 3339 with a zone, such as 2026-11-17T00:00:00Z")
    return given


_Moment = Annotated[datetime, msgspec.Meta(tz=True)]
_Number = Annotated[int, msgspec.Meta(ge=0, le=2**63 - 1)]
_Position = Annotated[int, msgspec.Meta(ge=0, lt=2**31)]

Text = Annotated[str, StringConstraints(max_length=200, pattern=NO_NUL)]
Dollars = Annotated[Decimal, Field(ge=0, le=10**12, decimal_places=2)]


class FilterParams(BaseModel):
    """Every condition that is set must hold."""

    model_config = ConfigDict(extra="forbid")

    platform: Text = ""
    state: Text = ""
    county: Text = ""
    owner: Annotated[Text, Field(description="somewhere in the owner's names")] = ""
    q: Annotated[Text, Field(description="somewhere in the parcel's number, owner or address")] = ""
    delinquent: bool | None = None
    lien_status: Text = ""
    min_amount: Annotated[Dollars | None, Field(description="of a lien, in dollars")] = None
    max_amount: Annotated[Dollars | None, Field(description="of a lien, in dollars")] = None
    changed_since: Annotated[
        Annotated[AwareDatetime, BeforeValidator(_require_rfc3339), AfterValidator(_in_utc)] | None,
        Field(description="RFC 3339 with a zone"),
    ] = None

    def wanted(self) -> ParcelFilter:
        return ParcelFilter(
            platform=self.platform,
            state=state_or_text(self.state),
            county=county_slug(self.county) or self.county,
            owner=self.owner,
            search=self.q,
            delinquent=self.delinquent,
            lien_status=self.lien_status,
            min_lien_cents=_cents(self.min_amount),
            max_lien_cents=_cents(self.max_amount),
            changed_since=self.changed_since,
        )


class LatestParams(FilterParams):
    limit: Annotated[int, Field(ge=1, le=1_000)] = 100
    cursor: Annotated[str, Field(max_length=10_000, description="`next` of the answer before")] = ""


class ListParams(LatestParams):
    records: Annotated[bool, Field(description="the whole record with each")] = False


class TaskListParams(BaseModel):
    model_config = ConfigDict(extra="forbid")

    state: Literal["not_found", "failed", "dead"]
    platform: Text = ""
    limit: Annotated[int, Field(ge=1, le=200)] = 50
    cursor: Annotated[str, Field(max_length=10_000, description="`next` of the answer before")] = ""


def task_cursor(task: EndedTask) -> str:
    return _make_cursor([task.row.ended_at, task.seq])


def parcel_cursor(key: ParcelKey) -> str:
    return _make_cursor([key.platform, key.state, key.county, key.parcel_id])


def lien_cursor(key: ParcelKey, position: int) -> str:
    return _make_cursor([key.platform, key.state, key.county, key.parcel_id, position])


def after_parcel(cursor: str) -> ParcelKey | None:
    """Raises ApiError for one that was not made here."""
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
    """Of a parcel or a task. Raises ApiError for one that was not made here."""
    return _read_cursor(cursor, tuple[_Moment, _Number]) if cursor else None


def before_lien(cursor: str) -> tuple[datetime, int, int] | None:
    return _read_cursor(cursor, tuple[_Moment, _Number, _Position]) if cursor else None


def _cents(amount: Decimal | None) -> int | None:
    return None if amount is None else int(amount * 100)


def _make_cursor(place: list[Any]) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _read_cursor(cursor: str, kind: type[T]) -> T:
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if b"\\u0000" in text:
            raise ValueError
        return msgspec.json.decode(text, type=kind)
    except ValueError:
        raise ApiError(422, "cursor: it was not made here; leave it out to start anew") from None
