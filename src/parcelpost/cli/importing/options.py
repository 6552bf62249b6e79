"""The options of every command that takes tasks from a file."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer
from msgspec import Struct

from parcelpost.cli.importing.formats import Format
from parcelpost.cli.platform_names import KnownPlatforms

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


class Wishes(Struct, frozen=True, kw_only=True):
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
