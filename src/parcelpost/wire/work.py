"""GET /work: tasks in an answer."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidInput, NotNow
from parcelpost.model import Json, Priority, Source, Target, Task
from parcelpost.wire.reading import Piece, elements, member, members, one_line, value
from parcelpost.wire.waits import bounded

_MOST_TASKS = 10_000  # a hundred are ever asked for
_MOST_NAME_CHARS = 512
_MOST_URL_CHARS = 8_000
_MOST_RETRIES = 1_000
_TARGET_FIELDS = {"parcel_id", "state", "county", "url"}
_PRIORITIES = {int(priority): priority for priority in Priority}


class UnreadTask(Struct, frozen=True, kw_only=True):
    """An element of `tasks` that is none."""

    task_id: str
    """'' where even that cannot be told."""
    problem: str


class WorkAnswer(Struct, frozen=True, kw_only=True):
    tasks: Sequence[Task]
    bad: Sequence[UnreadTask]
    retry_after: float
    """Seconds, 0 where nothing sensible was said."""


def read_work(body: bytes) -> WorkAnswer:
    """Every good task of the answer, whatever stands beside it, in the order given."""
    found = members(body)
    if "tasks" not in found and "retry_after" not in found:
        raise NotNow("it says nothing about tasks")
    given = elements(found["tasks"]) if "tasks" in found else ()
    if given is None:
        if bytes(found["tasks"]).strip() != b"null":
            raise NotNow("its tasks are not a list")
        given = ()  # the Go one's empty list
    if len(given) > _MOST_TASKS:
        raise NotNow(f"it holds {len(given):,} tasks")
    tasks: list[Task] = []
    bad: list[UnreadTask] = []
    for piece in given:
        try:
            tasks.append(read_task(piece))
        except InvalidInput as error:
            bad.append(UnreadTask(task_id=name_of(piece), problem=str(error)))
    return WorkAnswer(tasks=tasks, bad=bad, retry_after=bounded(member(found, "retry_after")))


def read_task(piece: Piece) -> Task:
    """Raises InvalidInput that names the field at fault. Optional fields that make no sense count as not given."""
    given = value(piece)
    if not isinstance(given, dict):
        raise InvalidInput("the task is not a JSON object")
    task_id = _text("task_id", given.get("task_id"))
    if not task_id.strip("."):
        raise InvalidInput("task_id consists of dots, which no address can name")
    target = given.get("target")
    if not isinstance(target, dict):
        raise InvalidInput("target is not an object")
    return Task(
        task_id=task_id,
        platform=_text("platform", given.get("platform")),
        target=_target(target),
        source=Source.GATEWAY,
        type=_text("type", given.get("type") or "scrape"),
        priority=_priority(given.get("priority")),
        lease_expires_at=moment(given.get("lease_expires_at")),
        **_retries(given.get("max_retries")),
    )


def _target(given: Mapping[str, Json]) -> Target:
    url = given.get("url")
    return Target(
        parcel_id=_text("target.parcel_id", _as_text(given.get("parcel_id"))),
        state=_text("target.state", _as_text(given.get("state")), may_be_empty=True),
        county=_text("target.county", _as_text(given.get("county")), may_be_empty=True),
        url="" if url is None else _text("target.url", url, most=_MOST_URL_CHARS, may_be_empty=True),
        extra={name: value for name, value in given.items() if name not in _TARGET_FIELDS},
    )


def _text(field: str, given: Json, *, most: int = _MOST_NAME_CHARS, may_be_empty: bool = False) -> str:
    if not isinstance(given, str):
        raise InvalidInput(f"{field} is missing" if given is None else f"{field} is not text")
    if len(given) > most:
        raise InvalidInput(f"{field} has {len(given):,} characters; at most {most:,} are taken")
    if not given.strip() and (given or not may_be_empty):
        raise InvalidInput(f"{field} is empty")
    if any(sign < " " or sign == "\x7f" for sign in given):
        raise InvalidInput(f"{field} holds control characters")
    return given


def _as_text(given: Json) -> Json:
    """A number written where text belongs; a whole one without its `.0`."""
    if isinstance(given, float) and given.is_integer() and abs(given) < 2**53:
        return str(int(given))
    return str(given) if isinstance(given, int | float) and not isinstance(given, bool) else given


def _priority(given: Json) -> Priority:
    """A task that was handed out is lost upstream if it is not taken: an odd priority is no reason for that."""
    return _PRIORITIES.get(given, Priority.NORMAL) if type(given) is int else Priority.NORMAL


def _retries(given: Json) -> Mapping[str, Any]:
    return {"max_retries": given} if type(given) is int and 0 <= given <= _MOST_RETRIES else {}


def moment(given: Json) -> datetime | None:
    """RFC 3339 with a zone, in UTC."""
    try:
        found = msgspec.convert(given, datetime)
        return found.astimezone(UTC) if found.tzinfo is not None else None
    except (ValueError, OverflowError):
        return None


def name_of(piece: Piece) -> str:
    try:
        name = member(members(piece), "task_id")
    except NotNow:
        return ""
    return one_line(str(name))[:_MOST_NAME_CHARS] if isinstance(name, str | int) else ""
