"""Which formats there are, which one a file's name means, and which tables go into which file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import BinaryIO

from msgspec import Struct

from parcelpost.errors import InvalidInput, ParcelpostError
from parcelpost.export.format_names import Format
from parcelpost.export.sink import Sink
from parcelpost.export.tables import DEFAULT, TABLES, Table

STDOUT = "-"


_BY_SUFFIX = {**{f".{one}": one for one in Format}, ".ndjson": Format.JSONL, ".pq": Format.PARQUET}
_ALL_IN_ONE = (Format.EXCEL, Format.GEOPACKAGE)
_TO_STDOUT = (Format.CSV, Format.JSONL)


class Plan(Struct, frozen=True):
    """What is written where."""

    format: Format
    folder: Path
    files: Mapping[str, tuple[Table, ...]]
    """By name, below the folder; by `-` on stdout."""
    lacks_liens: bool = False
    """Nobody said which tables, and this output holds no second one."""

    @property
    def tables(self) -> tuple[Table, ...]:
        return tuple(table for tables in self.files.values() for table in tables)

    @property
    def is_stdout(self) -> bool:
        return STDOUT in self.files


class Options(Struct, frozen=True, kw_only=True):
    now: datetime
    bom: bool = False
    guard: bool = True


def plan(output: str, form: Format | None, names: Sequence[str] | None) -> Plan:
    """`names`: of tables; None: those that the output can hold. Raises InvalidInput."""
    path = Path(output)
    if output == STDOUT:
        form = form or Format.JSONL
        if form not in _TO_STDOUT:
            raise InvalidInput(f"{form} does not go to stdout", hint="name a file; csv and jsonl go to stdout")
        return Plan(form, Path(), {STDOUT: (_only_table(names, output, form),)}, names is None)
    if path.is_dir() or output.endswith("/") or (form is not None and not path.suffix and not path.exists()):
        form = form or Format.CSV
        tables = _tables(names or DEFAULT, form)
        if form in _ALL_IN_ONE:
            return Plan(form, path, {f"parcelpost.{form}": tables})
        return Plan(form, path, {f"{table.name}.{form}": (table,) for table in tables})
    form = form or _by_name(path)
    tables = _tables(names or DEFAULT, form) if form in _ALL_IN_ONE else (_only_table(names, output, form),)
    return Plan(form, path.parent, {path.name: tables}, names is None and len(tables) == 1)


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
    if form is Format.GEOJSON:
        if names not in (DEFAULT, ["parcels"]):
            raise InvalidInput("GeoJSON holds parcels only", hint="gpkg holds the other tables beside them")
        names = ("parcels",)
    return tuple(table for name, table in TABLES.items() if name in names)


def _only_table(names: Sequence[str] | None, output: str, form: Format) -> Table:
    tables = _tables(names or ("parcels",) if form is not Format.GEOJSON else names or DEFAULT, form)
    if len(tables) > 1:
        where = "stdout" if output == STDOUT else f"a {form} file"
        raise InvalidInput(
            f"{where} holds one table, not {len(tables)}",
            hint=f"name a folder, as in 'parcelpost export handover/ --format {form}', or ask for one table",
        )
    return tables[0]


def open_sink(
    what: Plan, stream: Callable[[str], BinaryIO], path: Callable[[str], Path], folder: Path, options: Options
) -> Sink:
    """`stream` opens a file of the plan, `path` makes it; `folder` is for what is needed on the way.

    Raises ParcelpostError where a package is missing.
    """
    try:
        return _open(what, stream, path, folder, options)
    except ModuleNotFoundError as error:
        raise ParcelpostError(
            f"{what.format} needs the package {error.name}, which is not installed",
            hint="pip install 'parcelpost[export]'; csv, jsonl, gpkg and geojson need no further package",
        ) from error


def _open(
    what: Plan, stream: Callable[[str], BinaryIO], path: Callable[[str], Path], folder: Path, options: Options
) -> Sink:
    # A format's packages are loaded for that format only: they are extras, and take a while.
    by_table = {table.name: name for name, tables in what.files.items() for table in tables}
    (first, *_) = what.files
    match what.format:
        case Format.CSV:
            from parcelpost.export.csv_files import CsvSink

            streams = {table: stream(name) for table, name in by_table.items()}
            return CsvSink(streams, what.tables, bom=options.bom, guard=options.guard)
        case Format.JSONL:
            from parcelpost.export.jsonl import JsonlSink

            return JsonlSink({table: stream(name) for table, name in by_table.items()})
        case Format.PARQUET:
            from parcelpost.export.parquet import ParquetSink

            return ParquetSink({table: stream(name) for table, name in by_table.items()}, what.tables)
        case Format.EXCEL:
            from parcelpost.export.excel import ExcelSink

            return ExcelSink(stream(first), folder, what.tables)
        case Format.GEOPACKAGE:
            from parcelpost.export.geopackage import GeoPackageSink

            return GeoPackageSink(path(first), what.tables, options.now)
        case Format.GEOJSON:
            from parcelpost.export.geojson import GeoJsonSink

            return GeoJsonSink(stream(first))
