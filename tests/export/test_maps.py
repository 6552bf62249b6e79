"""GeoPackage and GeoJSON, read back with GDAL."""

from __future__ import annotations

import contextlib
import json
import sqlite3
import struct
from pathlib import Path
from typing import Any

import pyogrio.raw
import pytest

from parcelpost.errors import ParcelpostError
from tests.export.factories import ANN, an_entry, exported

NOWHERE = {name: value for name, value in ANN.items() if name not in ("latitude", "longitude")}


def layer(file: Path, name: str) -> tuple[dict[str, Any], dict[str, list[Any]], Any]:
    """What GDAL makes of it: about the layer, its columns, its geometries."""
    meta, _, geometry, columns = pyogrio.raw.read(file, layer=name)
    return meta, {title: list(cells) for title, cells in zip(meta["fields"], columns, strict=True)}, geometry


def point(wkb: bytes) -> tuple[float, ...]:
    assert struct.unpack("<BI", wkb[:5]) == (1, 1)
    return struct.unpack("<dd", wkb[5:])


async def test_a_geopackage_is_a_layer_of_parcels_with_their_liens_beside(tmp_path: Path) -> None:
    file = tmp_path / "map.gpkg"
    done = await exported(file, an_entry(), an_entry(NOWHERE, "2"))
    assert done.rows == {"parcels": 2, "liens": 4}
    assert done.notes == ["parcels without coordinates, not shown on the map: 1"]
    assert {tuple(one) for one in pyogrio.list_layers(file)} == {("parcels", "Point"), ("liens", None)}
    meta, parcels, geometry = layer(file, "parcels")
    assert (meta["crs"], meta["geometry_type"]) == ("EPSG:4326", "Point")
    assert point(geometry[0]) == (-72.6851, 41.7637)
    assert geometry[1] is None
    assert parcels["parcel_id"] == ["001-02", "2"]
    assert parcels["market_value"][0] == 1234567.89
    assert str(parcels["last_sale_date"][0]) == "1898-03-01"
    assert str(parcels["scraped_at"][0]) == "2026-11-16T12:30:15.250"
    assert parcels["homestead"] == [False, False]
    _, liens, _ = layer(file, "liens")
    assert list(zip(liens["parcel_id"], liens["certificate_number"], strict=True))[:2] == [
        ("001-02", "0042"),
        ("001-02", "0043"),
    ]


async def test_coordinates_of_zero_are_none(tmp_path: Path) -> None:
    """Or every parcel whose place a site does not know lies in the sea off Africa."""
    file = tmp_path / "map.geojson"
    done = await exported(file, an_entry(), an_entry(ANN | {"latitude": 0, "longitude": 0}, "2"))
    assert "parcels without coordinates, not shown on the map: 1" in done.notes
    assert [one["geometry"] is None for one in json.loads(file.read_bytes())["features"]] == [False, True]


async def test_a_geopackage_says_what_it_is(tmp_path: Path) -> None:
    file = tmp_path / "map.gpkg"
    await exported(file, an_entry(), an_entry(ANN | {"latitude": 40, "longitude": -73}, "2"))
    with contextlib.closing(sqlite3.connect(file)) as db:
        assert db.execute("PRAGMA application_id").fetchone() == (0x47504B47,)
        assert db.execute("PRAGMA user_version").fetchone() == (10300,)
        assert db.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert db.execute("PRAGMA foreign_key_check").fetchall() == []
        contents = db.execute(
            "SELECT table_name, data_type, last_change, min_x, min_y, max_x, max_y, srs_id FROM gpkg_contents"
        ).fetchall()
    assert contents == [
        ("parcels", "features", "2026-11-16T12:30:15.250Z", -73.0, 40.0, -72.6851, 41.7637, 4326),
        ("liens", "attributes", "2026-11-16T12:30:15.250Z", None, None, None, None, None),
    ]


async def test_geojson_has_a_feature_for_each_parcel(tmp_path: Path) -> None:
    file = tmp_path / "map.geojson"
    await exported(file, an_entry(), an_entry(NOWHERE, "2"))
    found = json.loads(file.read_bytes())
    assert found["type"] == "FeatureCollection"
    first, second = found["features"]
    assert first["geometry"] == {"type": "Point", "coordinates": [-72.6851, 41.7637]}
    assert (first["properties"]["market_value"], first["properties"]["last_sale_date"]) == (1234567.89, "1898-03-01")
    assert second["geometry"] is None
    meta, parcels, geometry = layer(file, "map")
    assert (meta["crs"], parcels["parcel_id"]) == ("EPSG:4326", ["001-02", "2"])
    assert point(geometry[0]) == (-72.6851, 41.7637)


@pytest.mark.parametrize("name", ["map.gpkg", "map.geojson"])
@pytest.mark.parametrize("where", [{}, {"latitude": 91, "longitude": 0}, {"latitude": "41", "longitude": 1}])
async def test_a_map_without_coordinates_is_refused(tmp_path: Path, name: str, where: dict[str, Any]) -> None:
    with pytest.raises(ParcelpostError, match="none of the 1 parcels has coordinates") as refused:
        await exported(tmp_path / name, an_entry(where))
    assert "parcels.xlsx" in refused.value.hint
    assert list(tmp_path.iterdir()) == []


async def test_tables_without_a_layer_need_no_coordinates(tmp_path: Path) -> None:
    done = await exported(tmp_path / "liens.gpkg", an_entry(NOWHERE), tables=["liens"])
    assert done.rows == {"liens": 2}
    _, liens, _ = layer(tmp_path / "liens.gpkg", "liens")
    assert liens["face_amount"] == [3214.5, 10.0]
