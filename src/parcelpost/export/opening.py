"""The writer for a format."""

from __future__ import annotations

from datetime import datetime
from typing import BinaryIO

from msgspec import Struct

from parcelpost.errors import ParcelpostError, extra_hint
from parcelpost.export.format_names import Format
from parcelpost.export.places import Place
from parcelpost.export.planning import Plan
from parcelpost.export.sink import Sink


class Options(Struct, frozen=True, kw_only=True):
    now: datetime
    bom: bool = False
    guard: bool = True
    """CSV: texts that a spreadsheet would take for a formula get a `'` in front."""


def open_sink(what: Plan, place: Place, options: Options) -> Sink:
    """Raises ParcelpostError where a package is missing."""
    try:
        return _open(what, place, options)
    except ModuleNotFoundError as error:
        raise ParcelpostError(
            f"{what.format} needs the package {error.name}, which is not installed",
            hint=f"{extra_hint('export')}; csv, jsonl, gpkg and geojson need no further package",
        ) from error


def _open(what: Plan, place: Place, options: Options) -> Sink:
    """A format's packages are loaded for that format only: they are extras, and take a while."""
    match what.format:
        case Format.CSV:
            from parcelpost.export.csv_files import CsvSink

            return CsvSink(_streams(what, place), what.tables, bom=options.bom, guard=options.guard)
        case Format.JSONL:
            from parcelpost.export.jsonl import JsonlSink

            return JsonlSink(_streams(what, place))
        case Format.PARQUET:
            from parcelpost.export.parquet import ParquetSink

            return ParquetSink(_streams(what, place), what.tables)
        case Format.EXCEL:
            from parcelpost.export.excel import ExcelSink

            return ExcelSink(place.stream(*what.files), place.folder, what.tables)
        case Format.GEOPACKAGE:
            from parcelpost.export.geopackage import GeoPackageSink

            return GeoPackageSink(place.path(*what.files), what.tables, options.now)
        case Format.GEOJSON:
            from parcelpost.export.geojson import GeoJsonSink

            return GeoJsonSink(place.stream(*what.files))


def _streams(what: Plan, place: Place) -> dict[str, BinaryIO]:
    """One for each table."""
    return {table.name: place.stream(name) for name, (table,) in what.files.items()}
