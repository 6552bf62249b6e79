"""What a file holds, and who reads that."""

from __future__ import annotations

from enum import StrEnum
from pathlib import PurePath
from typing import TYPE_CHECKING

from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.importing.readers import Reader
    from parcelpost.cli.importing.source import Source


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


def reader(source: Source, kind: Format) -> Reader:
    """Raises InvalidInput for a file that has not even a beginning."""
    from parcelpost.cli.importing.csv_rows import CsvRows
    from parcelpost.cli.importing.json_array import JsonArray
    from parcelpost.cli.importing.readers import JsonLines
    from parcelpost.cli.importing.source import reading

    with reading(source.name):
        if not source.begins_with():
            raise InvalidInput(f"there is nothing in {source.name}", hint="check the file")
        if kind in (Format.CSV, Format.TSV):
            return CsvRows(source, "\t" if kind is Format.TSV else "")
        if kind is Format.JSON and source.begins_with() == b"[":
            return JsonArray(source)
        return JsonLines(source)
