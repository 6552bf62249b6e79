"""Which format a file's name means, and which tables go into which file."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path

from msgspec import Struct

from parcelpost.errors import InvalidInput
from parcelpost.export.format_names import Format
from parcelpost.export.tables import TABLES, Table

STDOUT = "-"

_BY_SUFFIX = {**{f".{one}": one for one in Format}, ".ndjson": Format.JSONL, ".pq": Format.PARQUET}
_ALL_IN_ONE = (Format.EXCEL, Format.GEOPACKAGE)
_TO_STDOUT = (Format.CSV, Format.JSONL)
_ONE, _BOTH = ("parcels",), ("parcels", "liens")
"""What is written unless told: into a file that holds one table, and into all else."""


class Plan(Struct, frozen=True):
    """What is written where."""

    format: Format
    folder: Path
    files: Mapping[str, tuple[Table, ...]]
    """By name, below the folder; by `-` on stdout."""
    lacks_liens: bool
    """Nobody said which tables, and this output holds no second one."""

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(table for tables in self.files.values() for table in tables)

    @property
    def is_stdout(self) -> bool:
        return STDOUT in self.files


def plan(output: str, form: Format | None, names: Sequence[str] | None) -> Plan:
    """`names`: of tables; None: those that the output can hold. Raises InvalidInput."""
    path = Path(output)
    if output == STDOUT:
        form = form or Format.JSONL
        if form not in _TO_STDOUT:
            raise InvalidInput(f"{form} does not go to stdout", hint="name a file; csv and jsonl go to stdout")
        return Plan(form, Path(), {STDOUT: _only_one(names or _ONE, "stdout", form)}, names is None)
    if path.is_dir() or output.endswith("/") or (form is not None and not path.suffix and not path.exists()):
        form = form or Format.CSV
        tables = _tables(names or (_ONE if form is Format.GEOJSON else _BOTH), form)
        each = {f"{table.name}.{form}": (table,) for table in tables}
        files = {f"parcelpost.{form}": tables} if form in _ALL_IN_ONE else each
        return Plan(form, path, files, names is None and len(tables) == 1)
    form = form or _by_name(path)
    is_one = form not in _ALL_IN_ONE
    tables = _only_one(names or _ONE, f"a {form} file", form) if is_one else _tables(names or _BOTH, form)
    return Plan(form, path.parent, {path.name: tables}, names is None and is_one)


def _by_name(path: Path) -> Format:
    form = _BY_SUFFIX.get(path.suffix.lower())
    if form is None:
        raise InvalidInput(
            f"{path.name or path} does not say which format it is to have",
            hint=f"end it with {', '.join(f'.{one}' for one in Format)}, or add --format; a folder ends with /",
        )
    return form


def _tables(names: Sequence[str], form: Format) -> tuple[Table, ...]:
    """In the order of TABLES, each once."""
    unknown = [name for name in names if name not in TABLES]
    if unknown:
        raise InvalidInput(f"there is no table {unknown[0]!r}", hint=f"there are {', '.join(TABLES)}")
    if form is Format.GEOJSON and set(names) != set(_ONE):
        raise InvalidInput("GeoJSON holds parcels only", hint="gpkg holds the other tables beside them")
    return tuple(table for name, table in TABLES.items() if name in names)


def _only_one(names: Sequence[str], where: str, form: Format) -> tuple[Table, ...]:
    tables = _tables(names, form)
    if len(tables) > 1:
        raise InvalidInput(
            f"{where} holds one table, not {len(tables)}",
            hint=f"name a folder, as in 'parcelpost export handover/ --format {form}', or ask for one table",
        )
    return tables
