"""Options and file formats of the commands that import tasks."""

from __future__ import annotations

from enum import StrEnum
from pathlib import Path, PurePath
from typing import Annotated, NamedTuple

import typer

from parcelpost.errors import InvalidInput


class Format(StrEnum):
    CSV = "csv"
    TSV = "tsv"
    JSON = "json"
    JSONL = "jsonl"


def format_of(file: str, named: Format | None) -> Format:
    """The named format, else the one of the file extension. Raises InvalidInput if there is neither."""
    if named is not None:
        return named
    name = PurePath(file.lower().removesuffix(".gz"))
    endings = {
        ".csv": Format.CSV, ".txt": Format.CSV, ".tsv": Format.TSV, ".tab": Format.TSV, ".json": Format.JSON,
        ".jsonl": Format.JSONL, ".ndjson": Format.JSONL,
    }  # fmt: skip
    if form := endings.get(name.suffix):
        return form
    problem = "standard input has no file name" if file == "-" else f"cannot tell the format of {file} from its name"
    raise InvalidInput(problem, hint=f"add --format {'|'.join(Format)}")


File = Annotated[
    str,
    typer.Argument(help="CSV, TSV, JSON or JSON Lines, optionally gzipped; or - for standard input.", metavar="FILE"),
]
Maps = Annotated[
    list[str] | None,
    typer.Option(
        "--map", metavar="FIELD=COLUMN", help="Column to use for a field, such as parcel_id='Tax Key'. Repeatable."
    ),
]
PlatformOfAll = Annotated[str, typer.Option("--platform", help="Platform for all rows; overrides any column.")]
StateOfAll = Annotated[str, typer.Option("--state", help="State for all rows, such as CT.")]
CountyOfAll = Annotated[str, typer.Option("--county", help="County for all rows.")]
Kind = Annotated[Format | None, typer.Option("--format", help="File format. By default, taken from the file name.")]
DryRun = Annotated[
    bool, typer.Option("--dry-run", help="Show how columns are mapped and the first rows, without storing anything.")
]
Errors = Annotated[
    Path | None,
    typer.Option("--errors", metavar="PATH", help="Write all invalid rows to this CSV file. By default, 20 are shown."),
]
AllowBad = Annotated[bool, typer.Option("--allow-bad", help="Exit with 0 even if there are invalid rows.")]


class ImportOptions(NamedTuple):
    """Options of an import, as given on the command line."""

    file: str
    maps: list[str] | None
    platform: str
    """For all rows, as state and county; '' if not given."""
    state: str
    county: str
    kind: Format | None
    dry_run: bool
    errors: Path | None
    allow_bad: bool
    any_platform: bool
    as_json: bool
