"""The formats' names, each also the end of a file's name."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    EXCEL = "xlsx"
    GEOPACKAGE = "gpkg"
    GEOJSON = "geojson"
