"""Maps the columns of a file to task fields and creates a task from each row."""

from __future__ import annotations

import hashlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.cli.importer.readers import BadRow, Row
from parcelpost.cli.platform_names import KnownPlatforms
from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Priority, Source, Target, Task
from parcelpost.places import normalized

NEEDED = ("platform", "parcel_id")
EXPECTED = ("state", "county")

# Clearer names come first: if two columns match, the first name wins.
_COLUMN_NAMES: dict[str, tuple[str, ...]] = {
    "platform": ("platform", "platformname"),
    "parcel_id": (
        "parcelid", "parcel", "parcelnumber", "parcelno", "parcelnum", "parcelnbr", "apn", "assessorparcelnumber",
        "pin", "pinnumber", "ain", "folio", "folionumber", "foliono", "account", "accountnumber", "accountno",
        "acct", "acctno",
    ),
    "state": ("state", "statecode", "stateabbr"),
    "county": ("county", "countyname"),
    "url": ("url", "link", "pageurl", "parcelurl", "propertyurl", "href"),
    "priority": ("priority",),
    "max_retries": ("maxretries",),
    "task_id": ("taskid", "id"),
}  # fmt: skip
FIELDS = tuple(_COLUMN_NAMES)


class ColumnPlan(Struct, frozen=True, kw_only=True):
    """How each column is used."""

    fields: dict[str, str]
    """Field -> its column."""
    extra: dict[str, str]
    """Other column -> its name in target.extra."""
    unused: tuple[str, ...] = ()
    """Columns of fields that an option sets for all rows."""

    def missing(self, constants: Mapping[str, str], of: Sequence[str] = NEEDED) -> list[str]:
        return [field for field in of if field not in self.fields and field not in constants]


class Columns:
    """Plans the columns of rows from --map (`mapped`: field -> column) and from common column names."""

    def __init__(
        self, mapped: Mapping[str, str], constants: Mapping[str, str], platforms: KnownPlatforms | None = None
    ) -> None:
        """`platforms`: the known platforms and their counties; None accepts any."""
        self._mapped = mapped
        self.platforms = platforms
        self.constants = constants
        """Field -> its value for all rows."""
        self._last: tuple[tuple[str, ...], ColumnPlan] = ((), ColumnPlan(fields={}, extra={}))

    def plan(self, columns: tuple[str, ...]) -> ColumnPlan:
        """Cached, because rows nearly always have the same columns as the previous row."""
        if self._last[0] != columns:
            self._last = (columns, self._new_plan(columns))
        return self._last[1]

    def checked_plan(self, columns: tuple[str, ...], where: str) -> ColumnPlan:
        """The plan for the first rows. Raises InvalidInput if a required or mapped column is missing."""
        plan = self.plan(columns)
        listed = ", ".join(map(repr, columns))
        for field, column in self._mapped.items():
            if field not in plan.fields:
                raise InvalidInput(f"{where} has no column {column!r}", hint=f"its columns are {listed}")
        if missing := plan.missing(self.constants):
            words = " ".join(_example(field, plan) for field in missing)
            raise InvalidInput(
                f"{where} has no column recognized as {' or '.join(missing)}; its columns are {listed}",
                hint=f"specify it, for example: {words}",
            )
        return plan

    def _new_plan(self, columns: tuple[str, ...]) -> ColumnPlan:
        plain = {column: _plain_name(column) for column in columns}
        recognized = {field: self._find(field, plain) for field in FIELDS}
        fields = {field: column for field, column in recognized.items() if column and field not in self.constants}
        taken = set(fields.values())
        unused = tuple(c for f, c in recognized.items() if c and f in self.constants and c not in taken)
        rest = [column for column in columns if column not in taken and column not in unused]
        return ColumnPlan(fields=fields, extra={column: _extra_name(column) for column in rest}, unused=unused)

    def _find(self, field: str, plain: Mapping[str, str]) -> str | None:
        """The field's column: an exact match of the mapped name, else a match of its plain name."""
        named = self._mapped.get(field)
        if named is None:
            return _first_match(plain, _COLUMN_NAMES[field])
        return named if named in plain else _first_match(plain, (_plain_name(named),))


def parse_map(pairs: Sequence[str]) -> dict[str, str]:
    """Parses `--map FIELD=COLUMN`. Raises InvalidInput."""
    mapped: dict[str, str] = {}
    for pair in pairs:
        field, sign, column = pair.partition("=")
        if not sign or field not in FIELDS or not column:
            raise InvalidInput(
                f"--map {pair!r} is not FIELD=COLUMN",
                hint=f"for example: --map parcel_id='Tax Key'; the fields are {', '.join(FIELDS)}",
            )
        mapped[field] = column
    return mapped


def _plain_name(name: str) -> str:
    """`Parcel ID`, `PARCEL_ID` and `parcel-id` have the same plain name."""
    return "".join(filter(str.isalnum, name)).lower()


def _first_match(plain: Mapping[str, str], names: Sequence[str]) -> str | None:
    for name in names:
        for column, plain_name in plain.items():
            if plain_name == name:
                return column
    return None


def _extra_name(column: str) -> str:
    """Names of task fields are reserved, so an unused column with such a name gets a prefix."""
    return f"column {column}" if column in FIELDS else column


def _example(field: str, plan: ColumnPlan) -> str:
    if field == "platform":
        return "--platform NAME"
    column = next(iter(plan.extra), "COLUMN")
    return f"--map {field}={shlex.quote(column)}"


_PRIORITIES = {str(int(level)): level for level in Priority} | {level.name.lower(): level for level in Priority}
_PRIORITIES["low"] = Priority.BATCH  # as the gateway calls it
_ID_PARCEL_CHARS = 32
_ID_DIGITS = 16
_NOT_PLAIN = re.compile(r"[^A-Za-z0-9._-]")
_ROUNDED = re.compile(r"\d(\.\d+)?E\+\d+", re.IGNORECASE)
_AS_FORMULA = re.compile(r'="(.*)"')

_encode = msgspec.json.Encoder(order="deterministic").encode


def task_or_bad(row: Row | BadRow, columns: Columns) -> Task | BadRow:
    if isinstance(row, BadRow):
        return row
    try:
        return task_from_row(row.values, columns)
    except InvalidInput as error:
        return BadRow(row.number, str(error))


def task_from_row(values: Mapping[str, Json], columns: Columns) -> Task:
    """Raises InvalidInput that names the invalid field."""
    values = flatten(values)
    plan = columns.plan(tuple(values))
    fields = {field: field_text(field, values[column]) for field, column in plan.fields.items()}
    extra = {name: values[column] for column, name in plan.extra.items() if values[column] not in ("", None)}
    fields |= columns.constants
    if columns.platforms is not None and fields.get("platform"):
        fields["platform"] = columns.platforms.spelled(fields["platform"])
    task = make_task(fields, extra, Source.LOCAL_FILE)
    if columns.platforms is not None:
        columns.platforms.check(task)
    return task


def make_task(fields: Mapping[str, str], extra: Mapping[str, Json], source: Source) -> Task:
    """Creates a task from fields named as in FIELDS; '' is the same as absent. Raises InvalidInput."""
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
        options["max_retries"] = _whole_number("max_retries", retries)
    platform = fields["platform"]
    task_id = get("task_id") or derived_id(platform, target)
    return Task(task_id=task_id, platform=platform, target=target, source=source, **options)


def derived_id(platform: str, target: Target) -> str:
    """A stable ID: the same parcel on the same platform always gets the same ID.

    It starts with the parcel ID, so people recognize it and a sorted file is inserted in index order. It never starts
    with `-`, which a command line would read as an option.
    """
    try:
        content = _encode((*_id_key(platform, target), target.parcel_id, target.url, target.extra))
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"target is not valid JSON: {error}") from None
    parcel = _NOT_PLAIN.sub("-", target.parcel_id[:_ID_PARCEL_CHARS])
    return f"{parcel}-{hashlib.sha256(content).hexdigest()[:_ID_DIGITS]}".lstrip("-")


def is_same_parcel(task: Task, other: Task) -> bool:
    """Whether both tasks are for the same parcel on the same platform: a task ID belongs to one parcel."""
    return _parcel_key(task) == _parcel_key(other)


def _parcel_key(task: Task) -> tuple[str, ...]:
    return *_id_key(task.platform, task.target), task.target.parcel_id


def _id_key(platform: str, target: Target) -> tuple[str, ...]:
    return platform.lower(), target.state, target.county


def flatten(values: Mapping[str, Json]) -> Mapping[str, Json]:
    """Merges nested `target` and `extra` objects, as the gateway writes them, into the row."""
    for name in ("target", "extra"):
        inner = values.get(name)
        if isinstance(inner, dict):
            values = {column: value for column, value in values.items() if column != name} | inner
    return values


def field_text(field: str, value: Json) -> str:
    if type(value) is int:
        value = str(value)
    elif value is None:
        return ""
    elif type(value) is not str:
        raise InvalidInput(f"{field} must be text, not {value!r:.60}")
    text: str = value.replace("\N{NO-BREAK SPACE}", " ").strip()
    if not text.isprintable():
        problem = "a line break: is a quote missing?" if "\n" in text else "a non-printable character"
        raise InvalidInput(f"{field} contains {problem}")
    return text


def _parcel_id(text: str) -> str:
    if formula := _AS_FORMULA.fullmatch(text):  # how spreadsheets keep leading zeros
        text = formula[1]
    if _ROUNDED.fullmatch(text):
        raise InvalidInput(f"parcel_id {text} was rounded by a spreadsheet: save that column as text")
    return text


def _priority(text: str) -> Priority:
    priority = _PRIORITIES.get(text.lower())
    if priority is None:
        raise InvalidInput(f"priority {text!r:.60} is not one of urgent, high, normal, batch or 1 to 4")
    return priority


def _whole_number(field: str, text: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 10):
        raise InvalidInput(f"{field} must be a whole number, not {text!r:.60}")
    return int(text)
