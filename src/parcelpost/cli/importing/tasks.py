"""From a row, or what somebody typed, to a task."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from typing import Any

import msgspec

from parcelpost.cli.importing.columns import Columns
from parcelpost.cli.importing.readers import Bad, Row
from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Priority, Source, Target, Task
from parcelpost.places import normalized

_PRIORITIES = {str(int(one)): one for one in Priority} | {one.name.lower(): one for one in Priority}
_PRIORITIES["low"] = Priority.BATCH  # as the gateway calls it
_ID_PARCEL_CHARS = 32
_ID_DIGITS = 16
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_ROUNDED = re.compile(r"\d(\.\d+)?E\+\d+", re.IGNORECASE)
_AS_FORMULA = re.compile(r'="(.*)"')

_encode = msgspec.json.Encoder(order="deterministic").encode


def task_or_bad(row: Row | Bad, columns: Columns) -> Task | Bad:
    if isinstance(row, Bad):
        return row
    try:
        return from_row(row.values, columns)
    except InvalidInput as error:
        return Bad(row.number, str(error))


def from_row(values: Mapping[str, Json], columns: Columns) -> Task:
    """Raises InvalidInput that names the field at fault."""
    values = flat(values)
    plan = columns.plan(tuple(values))
    fields = {field: text(field, values[column]) for field, column in plan.fields.items()}
    extra = {name: values[column] for column, name in plan.extra.items() if values[column] not in ("", None)}
    fields |= columns.constants
    if columns.platforms is not None and fields.get("platform"):
        fields["platform"] = columns.platforms.spelled(fields["platform"])
    task = make(fields, extra, Source.LOCAL_FILE)
    if columns.platforms is not None:
        columns.platforms.check(task)
    return task


def make(fields: Mapping[str, str], extra: Mapping[str, Json], source: Source) -> Task:
    """A task of these fields, by their names in `columns.FIELDS`; '' and absent are the same."""
    get = fields.get
    for field in ("platform", "parcel_id"):
        if not get(field):
            raise InvalidInput(f"{field} is empty")
    target = normalized(
        Target(
            parcel_id=_parcel_id(fields["parcel_id"]),
            state=get("state", ""),
            county=get("county", ""),
            url=get("url", ""),
            extra=extra,
        )
    )
    options: dict[str, Any] = {}
    if priority := get("priority"):
        options["priority"] = _priority(priority)
    if retries := get("max_retries"):
        options["max_retries"] = _whole("max_retries", retries)
    platform = fields["platform"]
    task_id = get("task_id") or derived_id(platform, target)
    return Task(task_id=task_id, platform=platform, target=target, source=source, **options)


def derived_id(platform: str, target: Target) -> str:
    """The same for the same parcel of the same platform, however often and from wherever it is added.

    It begins with the parcel: a person recognizes it, and a sorted file goes into the store's index in that order. It
    does not begin with `-`, which a command line takes for an option.
    """
    try:
        content = _encode((*_place(platform, target), target.parcel_id, target.url, target.extra))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"target is not JSON: {error}") from None
    parcel = _NOT_PLAIN.sub("-", target.parcel_id[:_ID_PARCEL_CHARS])
    return f"{parcel}-{hashlib.sha256(content).hexdigest()[:_ID_DIGITS]}".lstrip("-")


def is_same(one: Task, other: Task) -> bool:
    """Whether both order the same parcel of the same platform: a task id means one parcel only."""
    return _parcel(one) == _parcel(other)


def _parcel(task: Task) -> tuple[str, ...]:
    return *_place(task.platform, task.target), task.target.parcel_id


def _place(platform: str, target: Target) -> tuple[str, ...]:
    return platform.lower(), target.state, target.county


def flat(values: Mapping[str, Json]) -> Mapping[str, Json]:
    """An entry may be written as the gateway does, with its `target` inside, and with what else there is in `extra`."""
    for name in ("target", "extra"):
        inner = values.get(name)
        if isinstance(inner, dict):
            values = {column: value for column, value in values.items() if column != name} | inner
    return values


def text(field: str, value: Json) -> str:
    if type(value) is int:
        value = str(value)
    elif value is None:
        return ""
    elif type(value) is not str:
        raise InvalidInput(f"{field} must be text, not {value!r:.60}")
    text: str = value.replace("\N{NO-BREAK SPACE}", " ").strip()
    if not text.isprintable():
        what = "a line break: is a quote missing?" if "\n" in text else "a sign that cannot be printed"
        raise InvalidInput(f"{field} holds {what}")
    return text


def _parcel_id(text: str) -> str:
    if formula := _AS_FORMULA.fullmatch(text):  # how spreadsheets keep zeros at the front
        text = formula[1]
    if _ROUNDED.fullmatch(text):
        raise InvalidInput(f"parcel_id {text} was rounded by a spreadsheet: save that column as text")
    return text


def _priority(text: str) -> Priority:
    found = _PRIORITIES.get(text.lower())
    if found is None:
        raise InvalidInput(f"priority {text!r:.60} is not one of urgent, high, normal, batch or 1 to 4")
    return found


def _whole(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"{field} must be a whole number, not {text!r:.60}")
    return int(text)
