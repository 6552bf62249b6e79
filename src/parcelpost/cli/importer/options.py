"""Options and file formats of the commands that import tasks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path, PurePath
from typing import TYPE_CHECKING, Annotated

import typer
from msgspec import Struct

from parcelpost.cli.platform_names import KnownPlatforms
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.importer.readers import Reader
    from parcelpost.cli.importer.source import Source


class Format(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    JSONL = "jsonl"


def format_of(file: str, named: Format | None) -> Format:
    """As named, else by the file's ending. Raises InvalidInput where neither says."""
    if named is not None:
        return named
    name = PurePath(file.lower().removesuffix(".gz"))
    endings = {
        ".csv": Format.CSV, ".txt": Format.CSV, ".tsv": Format.TSV, ".tab": Format.TSV, ".json": Format.JSON,
        ".jsonl": Format.JSONL, ".ndjson": Format.JSONL,
    }  # fmt: skip
    if found := endings.get(name.suffix):
        return found
    what = "standard input has no name" if file == "-" else f"the name {file} does not say what it holds"
    raise InvalidInput(what, hint=f"add --format {'|'.join(Format)}")


def open_reader(source: Source, kind: Format) -> Reader:
    """Raises InvalidInput for a file that has not even a beginning."""
    from parcelpost.cli.importer.readers import CsvRows, JsonArray, JsonLines
    from parcelpost.cli.importer.source import read_errors

    with read_errors(source.name):
        if not source.begins_with():
            raise InvalidInput(f"there is nothing in {source.name}", hint="check the file")
        if kind in (Format.CSV, Format.TSV):
            return CsvRows(source, "\t" if kind is Format.TSV else "")
        if kind is Format.JSON and source.begins_with() == b"[":
            return JsonArray(source)
        return JsonLines(source)


File = Annotated[
    str, typer.Argument(help="CSV, TSV, JSON or JSON lines, gzipped or not; - reads standard input.", metavar="FILE")
]
Maps = Annotated[
    list[str] | None,
    typer.Option("--map", metavar="FIELD=COLUMN", help="Which column it is, as in parcel_id='Tax Key'. Repeatable."),
]
PlatformOfAll = Annotated[str, typer.Option("--platform", help="The platform of all rows, whatever a column says.")]
StateOfAll = Annotated[str, typer.Option("--state", help="The state of all rows, such as CT.")]
CountyOfAll = Annotated[str, typer.Option("--county", help="The county of all rows.")]
Kind = Annotated[Format | None, typer.Option("--format", help="What the file holds, where its name does not say.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show how columns are read, and the first rows; store nothing.")
]
Errors = Annotated[
    Path | None,
    typer.Option("--errors", metavar="PATH", help="Write all bad rows into this CSV file; else 20 are shown."),
]
AllowBad = Annotated[bool, typer.Option("--allow-bad", help="Exit with 0 even if rows were bad.")]


class ImportOptions(Struct, frozen=True, kw_only=True):
    """What was asked for, as typed."""

    file: str
    maps: list[str]
    same: dict[str, str]
    """Field -> its value in all rows; '' where there is none."""
    kind: Format | None
    dry_run: bool
    errors: Path | None
    allow_bad: bool
    platforms: KnownPlatforms | None
    """Those that are known, with their counties; None: any will do."""
    as_json: bool
