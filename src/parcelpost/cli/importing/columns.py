"""Which column is which field of a task."""

from __future__ import annotations

import shlex
from collections.abc import Mapping, Sequence

from msgspec import Struct

from parcelpost.cli.platform_names import KnownPlatforms
from parcelpost.errors import InvalidInput

NEEDED = ("platform", "parcel_id")
EXPECTED = ("state", "county")

# The clearer name goes first: of two columns that could be meant, it wins.
_NAMES: dict[str, tuple[str, ...]] = {
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
FIELDS = tuple(_NAMES)


class Plan(Struct, frozen=True, kw_only=True):
    """What becomes of every column."""

    fields: dict[str, str]
    """Field -> its column."""
    extra: dict[str, str]
    """Other column -> its name in target.extra."""
    unused: tuple[str, ...] = ()
    """Columns of fields that an option gives for all rows."""

    def missing(self, constants: Mapping[str, str], of: Sequence[str] = NEEDED) -> list[str]:
        return [field for field in of if field not in self.fields and field not in constants]


class Columns:
    """Plans for rows, by what the operator said (`mapped`: field -> column) and by clear names."""

    def __init__(
        self, mapped: Mapping[str, str], constants: Mapping[str, str], platforms: KnownPlatforms | None = None
    ) -> None:
        """`platforms`: those that are known, with their counties; None: any will do."""
        self._mapped = mapped
        self.platforms = platforms
        self.constants = constants
        """Field -> its value in all rows."""
        self._last: tuple[tuple[str, ...], Plan] = ((), Plan(fields={}, extra={}))

    def plan(self, columns: tuple[str, ...]) -> Plan:
        """Rows nearly always have the columns of the row before."""
        if self._last[0] != columns:
            self._last = (columns, self._new_plan(columns))
        return self._last[1]

    def checked_plan(self, columns: tuple[str, ...], where: str) -> Plan:
        """For the first rows. Raises InvalidInput where a needed column, or one that was named, is not there."""
        plan = self.plan(columns)
        found = ", ".join(map(repr, columns))
        for field, column in self._mapped.items():
            if field not in plan.fields:
                raise InvalidInput(f"{where} has no column {column!r}", hint=f"its columns are {found}")
        if missing := plan.missing(self.constants):
            words = " ".join(_example(field, plan) for field in missing)
            raise InvalidInput(
                f"{where} has no column that is clearly the {' or the '.join(missing)}; its columns are {found}",
                hint=f"say which it is, such as: {words}",
            )
        return plan

    def _new_plan(self, columns: tuple[str, ...]) -> Plan:
        plain = {column: _plain(column) for column in columns}
        found = {field: self._find(field, plain) for field in FIELDS}
        fields = {field: column for field, column in found.items() if column and field not in self.constants}
        taken = set(fields.values())
        unused = tuple(c for f, c in found.items() if c and f in self.constants and c not in taken)
        rest = [column for column in columns if column not in taken and column not in unused]
        return Plan(fields=fields, extra={column: _extra_name(column) for column in rest}, unused=unused)

    def _find(self, field: str, plain: Mapping[str, str]) -> str | None:
        """The field's column: as the operator wrote it, or one whose plain name is that."""
        named = self._mapped.get(field)
        if named is None:
            return _first(plain, _NAMES[field])
        return named if named in plain else _first(plain, (_plain(named),))


def parse_map(pairs: Sequence[str]) -> dict[str, str]:
    """`--map FIELD=COLUMN` as given. Raises InvalidInput."""
    found: dict[str, str] = {}
    for pair in pairs:
        field, sign, column = pair.partition("=")
        if not sign or field not in FIELDS or not column:
            raise InvalidInput(
                f"--map {pair!r} is not FIELD=COLUMN",
                hint=f"such as --map parcel_id='Tax Key'; the fields are {', '.join(FIELDS)}",
            )
        found[field] = column
    return found


def _plain(name: str) -> str:
    """`Parcel ID`, `PARCEL_ID` and `parcel-id` are one name."""
    return "".join(filter(str.isalnum, name)).lower()


def _first(plain: Mapping[str, str], names: Sequence[str]) -> str | None:
    for name in names:
        for column, found in plain.items():
            if found == name:
                return column
    return None


def _extra_name(column: str) -> str:
    """Names of the target's own fields are not free: such a column, passed over for another, says what it is."""
    return f"column {column}" if column in FIELDS else column


def _example(field: str, plan: Plan) -> str:
    if field == "platform":
        return "--platform NAME"
    column = next(iter(plan.extra), "COLUMN")
    return f"--map {field}={shlex.quote(column)}"
