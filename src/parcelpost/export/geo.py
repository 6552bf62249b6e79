"""GeoJSON (RFC 7946) and GeoPackage 1.3: parcels as points."""

from __future__ import annotations

import sqlite3
import struct
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from decimal import Decimal
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from parcelpost.clock import iso
from parcelpost.errors import ParcelpostError
from parcelpost.export.columns import CONVERTERS, Kind
from parcelpost.export.tables import Parcel, Row, Table, rows


def point(parcel: Parcel) -> tuple[Decimal, Decimal] | None:
    """Longitude and latitude, in degrees (WGS 84). 0/0 is in the sea, and how sites write that they know none."""
    try:
        x, y = (CONVERTERS[Kind.NUMBER](parcel.fields.get(name)) for name in ("longitude", "latitude"))
    except ValueError:
        return None
    if not isinstance(x, Decimal) or not isinstance(y, Decimal) or abs(x) > 180 or abs(y) > 90:
        return None
    if not x and not y:
        return None
    return x, y


class PointSummary:
    """How many have coordinates, of how many, and the box they lie in."""

    def __init__(self) -> None:
        self.box: tuple[Decimal, ...] = ()
        """West, south, east, north; empty while there are none."""
        self._points = 0
        self._parcels = 0

    def count(self, where: tuple[Decimal, Decimal] | None) -> None:
        self._parcels += 1
        if where is not None:
            self._points += 1
            x, y = where
            west, south, east, north = self.box or (x, y, x, y)
            self.box = min(west, x), min(south, y), max(east, x), max(north, y)

    def notes(self) -> list[str]:
        """Raises ParcelpostError where none has: then a map has nothing to show."""
        if not self._points:
            raise ParcelpostError(
                f"none of the {self._parcels:,} parcels has coordinates: their counties' pages do not show any",
                hint="use a format without a map, such as parcels.xlsx or parcels.csv",
            )
        without = self._parcels - self._points
        return [f"parcels without coordinates, not shown on the map: {without:,}"] if without else []


_encode = msgspec.json.Encoder(decimal_format="number").encode


class GeoJsonSink:
    def __init__(self, stream: BinaryIO, *, may_be_empty: bool = False) -> None:
        """`may_be_empty`: it is no error if no row has coordinates."""
        self.notes: list[str] = []
        self._may_be_empty = may_be_empty
        self._stream = stream
        self._located = PointSummary()
        self._before = b""
        stream.write(b'{"type":"FeatureCollection","features":[\n')

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        names = [column.name for column in table.columns]
        for parcel in parcels:
            (row,) = table.rows(parcel)
            where = point(parcel)
            self._located.count(where)
            properties = dict(zip(names, row, strict=True))
            self._stream.write(self._before + _encode(_feature(where, properties)))
            self._before = b",\n"
        return len(parcels)

    def close(self) -> None:
        if not self._may_be_empty:
            self.notes += self._located.notes()
        self._stream.write(b"\n]}\n")
        self._stream.flush()

    def abandon(self) -> None:
        pass


def _feature(where: tuple[Any, Any] | None, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = None if where is None else {"type": "Point", "coordinates": where}
    return {"type": "Feature", "geometry": geometry, "properties": properties}


_LAYER = "parcels"
_WGS_84 = 4326
_BLOB = struct.Struct("<2sBBiBIdd")
_BLOB_HEAD = (b"GP", 0, 1, _WGS_84, 1, 1)
"""Header of a point: version 1, little-endian, no envelope, the reference system; then well-known binary."""
_FID = "fid INTEGER PRIMARY KEY AUTOINCREMENT NOT NULL"
_BOX = "min_x = ?, min_y = ?, max_x = ?, max_y = ?"
_DEFINITION = (
    'GEOGCS["WGS 84",DATUM["WGS_1984",SPHEROID["WGS 84",6378137,298.257223563,AUTHORITY["EPSG","7030"]],'
    'AUTHORITY["EPSG","6326"]],PRIMEM["Greenwich",0,AUTHORITY["EPSG","8901"]],UNIT["degree",0.0174532925199433,'
    'AUTHORITY["EPSG","9122"]],AXIS["Latitude",NORTH],AXIS["Longitude",EAST],AUTHORITY["EPSG","4326"]]'
)
_SYSTEMS = (
    ("WGS 84", _WGS_84, "EPSG", _WGS_84, _DEFINITION, "longitude and latitude in degrees"),
    ("Undefined cartesian", -1, "NONE", -1, "undefined", None),
    ("Undefined geographic", 0, "NONE", 0, "undefined", None),
)
_SCHEMA = """
PRAGMA application_id = 1196444487;  -- GPKG
PRAGMA user_version = 10300;
CREATE TABLE gpkg_spatial_ref_sys (
    srs_name TEXT NOT NULL, srs_id INTEGER NOT NULL PRIMARY KEY, organization TEXT NOT NULL,
    organization_coordsys_id INTEGER NOT NULL, definition TEXT NOT NULL, description TEXT);
CREATE TABLE gpkg_contents (
    table_name TEXT NOT NULL PRIMARY KEY, data_type TEXT NOT NULL, identifier TEXT UNIQUE, description TEXT DEFAULT '',
    last_change DATETIME NOT NULL DEFAULT (strftime('%Y-%m-%dT%H:%M:%fZ', 'now')),
    min_x DOUBLE, min_y DOUBLE, max_x DOUBLE, max_y DOUBLE, srs_id INTEGER,
    CONSTRAINT fk_gc_r_srs_id FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id));
CREATE TABLE gpkg_geometry_columns (
    table_name TEXT NOT NULL, column_name TEXT NOT NULL, geometry_type_name TEXT NOT NULL, srs_id INTEGER NOT NULL,
    z TINYINT NOT NULL, m TINYINT NOT NULL,
    CONSTRAINT pk_geom_cols PRIMARY KEY (table_name, column_name),
    CONSTRAINT uk_gc_table_name UNIQUE (table_name),
    CONSTRAINT fk_gc_tn FOREIGN KEY (table_name) REFERENCES gpkg_contents (table_name),
    CONSTRAINT fk_gc_srs FOREIGN KEY (srs_id) REFERENCES gpkg_spatial_ref_sys (srs_id));
"""
_PRAGMAS = (
    "PRAGMA journal_mode = OFF",  # a file that is not whole is thrown away
    "PRAGMA synchronous = OFF",  # it is synced once, at the end
    "PRAGMA cache_size = -8000",  # 8 MB
)
_TYPES: Mapping[Kind, str] = {
    Kind.TEXT: "TEXT",
    Kind.TEXTS: "TEXT",
    Kind.WHOLE: "INTEGER",
    Kind.NUMBER: "DOUBLE",
    Kind.MONEY: "DOUBLE",
    Kind.FLAG: "BOOLEAN",
    Kind.DATE: "DATE",
    Kind.MOMENT: "DATETIME",
}


class GeoPackageSink:
    def __init__(self, path: Path, tables: Sequence[Table], now: datetime) -> None:
        """`path`: an empty file."""
        self.notes: list[str] = []
        self._located = PointSummary() if any(table.name == _LAYER for table in tables) else None
        self._db = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
        with _sqlite_errors():
            for pragma in _PRAGMAS:
                self._db.execute(pragma)
            self._db.executescript(_SCHEMA)
            self._db.executemany("INSERT INTO gpkg_spatial_ref_sys VALUES (?, ?, ?, ?, ?, ?)", _SYSTEMS)
            for table in tables:
                _add(self._db, table, iso(now))
            self._db.execute("BEGIN")

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        cell_of = [_CELL_OF.get(column.kind) for column in table.columns]
        if table.name == _LAYER:
            made = [
                (self._geometry(parcel), *_gpkg_cells(row, cell_of)) for parcel in parcels for row in table.rows(parcel)
            ]
        else:
            made = [_gpkg_cells(row, cell_of) for row in rows(table, parcels)]
        if made:
            places = ", ".join(["NULL", *"?" * len(made[0])])
            with _sqlite_errors():
                self._db.executemany(f"INSERT INTO {table.name} VALUES ({places})", made)
        return len(made)

    def close(self) -> None:
        with _sqlite_errors():
            if self._located is not None:
                self.notes += self._located.notes()
                box = tuple(map(float, self._located.box))
                self._db.execute(f"UPDATE gpkg_contents SET {_BOX} WHERE table_name = '{_LAYER}'", box)
            self._db.execute("COMMIT")
            self._db.close()

    def abandon(self) -> None:
        self._db.close()

    def _geometry(self, parcel: Parcel) -> bytes | None:
        where = point(parcel)
        if self._located is not None:
            self._located.count(where)
        return None if where is None else _BLOB.pack(*_BLOB_HEAD, float(where[0]), float(where[1]))


def _add(db: sqlite3.Connection, table: Table, now: str) -> None:
    is_layer = table.name == _LAYER
    own = [f'"{column.name}" {_TYPES[column.kind]}' for column in table.columns]
    all_columns = ", ".join([_FID, *(["geom POINT"] if is_layer else []), *own])
    db.execute(f"CREATE TABLE {table.name} ({all_columns})")
    kind, system = ("features", _WGS_84) if is_layer else ("attributes", None)
    contents = (
        "INSERT INTO gpkg_contents (table_name, data_type, identifier, last_change, srs_id) VALUES (?, ?, ?, ?, ?)"
    )
    db.execute(contents, (table.name, kind, table.name, now, system))
    if is_layer:
        db.execute("INSERT INTO gpkg_geometry_columns VALUES (?, 'geom', 'POINT', ?, 0, 0)", (_LAYER, _WGS_84))


_CELL_OF: Mapping[Kind, Callable[[Any], Any]] = {
    Kind.NUMBER: float,
    Kind.MONEY: float,
    Kind.DATE: str,
    Kind.MOMENT: iso,
}


def _gpkg_cells(row: Row, cell_of: Sequence[Callable[[Any], Any] | None]) -> tuple[Any, ...]:
    return tuple(
        value if value is None or cell is None else cell(value) for cell, value in zip(cell_of, row, strict=True)
    )


@contextmanager
def _sqlite_errors() -> Iterator[None]:
    try:
        yield
    except sqlite3.OperationalError as error:
        raise ParcelpostError(
            f"cannot write the GeoPackage: {error}", hint="check the free space on its disk; nothing was replaced"
        ) from error
