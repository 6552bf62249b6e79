"""Query parameters and list cursors of the read API."""

from __future__ import annotations

import base64
from collections.abc import Callable, Sequence
from datetime import UTC, datetime
from decimal import Decimal
from typing import Annotated, Literal, NamedTuple, TypeVar

import msgspec
from msgspec import Meta, Struct

from parcelpost.changes import checked_field, checked_kinds
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import ChangeFilter, ParcelFilter, ParcelKey, TaskFilter, TaskState, Text
from parcelpost.places import county_slug, state_or_text

T = TypeVar("T")

_Moment = Annotated[datetime, Meta(tz=True)]
TaskId = Annotated[str, Meta(max_length=500, pattern=r"^[^\x00]*$")]
_Number = Annotated[int, Meta(ge=0, le=2**63 - 1)]
_MAX_DOLLARS = 10**12

Dollars = Annotated[
    Decimal | None,
    Meta(extra_json_schema={"minimum": 0, "maximum": _MAX_DOLLARS, "multipleOf": 0.01}),
]
Cursor = Annotated[str, Meta(max_length=10_000, description="`next` from the previous page")]


class FilterParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All conditions must match."""

    platform: Annotated[
        Text,
        Meta(description="Only parcels with a source on this platform; `owner` and `q` then search that source"),
    ] = ""
    state: Text = ""
    county: Text = ""
    owner: Annotated[Text, Meta(description="Part of an owner's name")] = ""
    q: Annotated[Text, Meta(description="Part of the parcel number, an owner's name or the address")] = ""
    delinquent: bool | None = None
    lien_status: Text = ""
    min_amount: Dollars = None
    max_amount: Dollars = None
    changed_since: Annotated[str, Meta(extra_json_schema={"format": "date-time"})] = ""

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
            min_lien_cents=dollars_to_cents("min_amount", self.min_amount),
            max_lien_cents=dollars_to_cents("max_amount", self.max_amount),
            changed_since=utc_time("changed_since", self.changed_since) if self.changed_since else None,
        )


class LatestParams(FilterParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100
    cursor: Cursor = ""


class ListParams(LatestParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    records: Annotated[bool, Meta(description="Include the full record of each matching source or lien")] = False


class ChangeFilterParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    kind: Annotated[Text, Meta(description="Comma-separated kinds, such as `lien.new`; `lien` selects them all")] = ""
    platform: Text = ""
    state: Text = ""
    county: Text = ""
    field: Annotated[Text, Meta(description="Only changes to this field, such as `market_value`")] = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 100

    def filter(self) -> ChangeFilter:
        return ChangeFilter(
            kinds=checked_kinds(filter(None, self.kind.replace(" ", "").split(","))),
            platform=self.platform,
            state=state_or_text(self.state),
            county=county_slug(self.county) or self.county,
            field=checked_field(self.field),
        )


class ChangesParams(ChangeFilterParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    since: Annotated[_Number, Meta(description="`next` from the previous response; 0 starts at the first change")] = 0


class LatestChangesParams(ChangeFilterParams, frozen=True, kw_only=True, forbid_unknown_fields=True):
    before: Annotated[_Number, Meta(description="`next` from the previous response; 0 starts at the last change")] = 0


SiteName = Annotated[Text, Meta(description="State and county, such as FL/columbia")]
Reason = Annotated[Text | None, Meta(description="Reason of a failure, as in /v1/failures")]


class TaskListParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    state: Annotated[
        Literal["queued", "leased", "done", "not_found", "failed", "dead"], Meta(description="State of the tasks")
    ]
    platform: Text = ""
    site: SiteName = ""
    reason: Reason = None
    limit: Annotated[int, Meta(ge=1, le=200)] = 50
    cursor: Cursor = ""

    def filter(self) -> TaskFilter:
        return TaskFilter(
            states=[TaskState(self.state)], platform=self.platform, site=read_site(self.site), reason=self.reason
        )


class FailuresParams(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    outcome: Annotated[
        list[Literal["not_found", "failed", "dead"]], Meta(description="By default, failed and dead")
    ] = msgspec.field(default_factory=list)
    platform: Text = ""
    site: SiteName = ""
    limit: Annotated[int, Meta(ge=1, le=1_000)] = 500

    def filter(self) -> TaskFilter:
        states = [TaskState(name) for name in self.outcome or ("failed", "dead")]
        return TaskFilter(states=states, platform=self.platform, site=read_site(self.site))


def checked_text(field: str, given: str) -> str:
    """Raises ApiError (422)."""
    if "\0" in given:
        raise ApiError(422, f"{field}: contains a NUL character")
    return given


def read_site(text: str) -> str:
    """Returns it as sites are stored: the state's code and the county's slug."""
    state, slash, county = text.partition("/")
    return f"{state_or_text(state)}/{county_slug(county) or county}" if slash else text


class OverviewParams(Struct, frozen=True, forbid_unknown_fields=True):
    hours: Annotated[
        Literal["auto", "1", "3", "6", "24"],
        Meta(description="Hours of activity to include; `auto`: since the first activity of the last 24 hours"),
    ] = "3"


class AddTasksParams(Struct, frozen=True, forbid_unknown_fields=True):
    any_platform: Annotated[bool, Meta(description="Accept unknown platforms and counties")] = False


class ArtifactParams(Struct, frozen=True, forbid_unknown_fields=True):
    task_id: Annotated[TaskId, Meta(description="ID of the task")]


class RawParams(Struct, frozen=True, forbid_unknown_fields=True):
    platform: Annotated[Text, Meta(description="Platform of the page; by default, the newest page of any platform")] = (
        ""
    )
    sha256: Annotated[str, Meta(description="SHA-256 of an earlier scrape's page; by default, the newest page")] = ""


class AfterLien(NamedTuple):
    """Where a list of liens ordered by parcel continues."""

    parcel: ParcelKey
    key: str


class BeforeRow(NamedTuple):
    """Where a list of parcels ordered by time continues."""

    at: _Moment
    number: _Number


class BeforeTask(NamedTuple):
    """Where a list of tasks continues. Without `at`: of tasks that have not ended."""

    at: _Moment | None
    number: _Number


class BeforeLien(NamedTuple):
    """Where a list of liens ordered by time continues."""

    received_at: _Moment
    parcel_no: _Number
    key: str


def first_page(rows: Sequence[T], limit: int, position: Callable[[T], object]) -> tuple[Sequence[T], str | None]:
    """Returns up to `limit` rows and, if there are more, the cursor of the next page: the last row's position."""
    page = rows[:limit]
    return page, make_cursor(position(page[-1])) if len(rows) > limit else None


def make_cursor(position: object) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode(position)).decode().rstrip("=")


def read_cursor(cursor: str, kind: type[T]) -> T | None:
    """Returns None without a cursor. Raises ApiError (422)."""
    if not cursor:
        return None
    try:
        text = base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True)
        if b"\\u0000" in text:
            raise ValueError
        return msgspec.json.decode(text, type=kind)
    except ValueError:
        raise ApiError(422, "cursor: not valid; omit it to start from the beginning") from None


def dollars_to_cents(name: str, amount: Decimal | None) -> int | None:
    if amount is None:
        return None
    if not amount.is_finite() or not 0 <= amount <= _MAX_DOLLARS or amount * 100 % 1:
        raise ApiError(422, f"{name}: must be from 0 to {_MAX_DOLLARS:,} dollars, with at most two decimal places")
    return int(amount * 100)


def utc_time(name: str, text: str) -> datetime:
    try:
        return msgspec.convert(text, _Moment).astimezone(UTC)
    except (ValueError, OverflowError):
        raise ApiError(422, f"{name}: must be RFC 3339 with a time zone, for example 2026-11-17T00:00:00Z") from None
