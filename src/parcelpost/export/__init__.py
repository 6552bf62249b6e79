"""Exports stored records as tables: their columns, and one writer for each file format."""

from __future__ import annotations

from enum import StrEnum


class Format(StrEnum):
    CSV = "csv"
    JSONL = "jsonl"
    PARQUET = "parquet"
    EXCEL = "xlsx"
    GEOPACKAGE = "gpkg"
    GEOJSON = "geojson"
