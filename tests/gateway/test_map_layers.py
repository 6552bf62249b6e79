"""The outline and the tiles that an operator names for the dashboard's map."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.gateway.context import Context
from parcelpost.gateway.map_layers import MapLayers, read_map_layers
from parcelpost.settings.schema import ServerSettings
from tests.gateway.stage import a_client, some_context

SQUARE = [[-82.0, 28.0], [-81.0, 28.0], [-81.0, 29.0], [-82.0, 28.0]]
POLYGON = {"type": "Polygon", "coordinates": [SQUARE]}
FEATURE = {"type": "Feature", "properties": {"name": "<b>"}, "geometry": POLYGON}
TILES = "https://tiles.example.org:8443/v2/{z}/{x}/{y}.png?key=k"


def outline(folder: Path, content: str) -> list[Any]:
    file = folder / "outline.geojson"
    file.write_text(content)
    layers = read_map_layers(ServerSettings(map_outline=str(file)))
    assert layers.outline is not None
    lines: list[Any] = json.loads(layers.outline)["lines"]
    return lines


@pytest.mark.parametrize(
    ("given", "lines"),
    [
        (POLYGON, 1),
        (FEATURE, 1),
        ({"type": "FeatureCollection", "features": [FEATURE, {"type": "Feature", "geometry": None}]}, 1),
        ({"type": "MultiPolygon", "coordinates": [[SQUARE], [SQUARE, SQUARE]]}, 3),
        ({"type": "GeometryCollection", "geometries": [POLYGON, {"type": "LineString", "coordinates": SQUARE}]}, 2),
        ({"type": "LineString", "coordinates": [[*place, 12.5] for place in SQUARE]}, 1),
    ],
)
def test_an_outline_is_every_line_of_the_geojson(tmp_path: Path, given: dict[str, Any], lines: int) -> None:
    assert outline(tmp_path, json.dumps(given)) == [SQUARE] * lines


@pytest.mark.parametrize(
    "content",
    [
        "",
        "[]",
        "{}",
        "null",
        '{"type": "Point", "coordinates": [1, 2]}',
        '{"type": "Polygon"}',
        '{"type": "LineString", "coordinates": [[1, 2], ["x", 3]]}',
        '{"type": "LineString", "coordinates": [[612000, 3100000], [612100, 3100000]]}',
        '{"type": "LineString", "coordinates": [[1], [2]]}',
        '{"type": "LineString", "coordinates": [[1e999, 2], [' + "9" * 400 + ", 2]]}",
        '{"type": "GeometryCollection", "geometries": [' * 50_000,
        "[" * 200_000,
    ],
)
def test_what_is_no_outline_is_refused_with_a_hint(tmp_path: Path, content: str) -> None:
    with pytest.raises(InvalidSettings, match="not GeoJSON") as refusal:
        outline(tmp_path, content)
    assert "WGS 84" in refusal.value.hint


def test_an_outline_that_is_missing_or_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidSettings, match=r"map_outline .* cannot be read: No such file"):
        read_map_layers(ServerSettings(map_outline=str(tmp_path / "none")))
    with pytest.raises(InvalidSettings, match="larger than 16 MiB"):
        outline(tmp_path, " " * (16 * 1024**2 + 1))


@pytest.mark.parametrize(
    "address",
    [
        "tiles.example.org/{z}/{x}/{y}.png",
        "ftp://tiles.example.org/{z}/{x}/{y}",
        "https://tiles.example.org/{z}/{x}.png",
        "https://{z}.example.org/{x}/{y}/{z}",
        "https://tiles.example.org; script-src */{z}/{x}/{y}",
        "https://user:password@tiles.example.org/{z}/{x}/{y}",
        "https://[/{z}/{x}/{y}",
        "javascript:alert(1)//{z}{x}{y}",
    ],
)
def test_what_is_no_tile_server_is_refused(address: str) -> None:
    with pytest.raises(InvalidSettings, match="not the address of a tile server"):
        read_map_layers(ServerSettings(map_tiles=address))


async def policy(context: Context) -> str:
    async with a_client(context) as client:
        header = (await client.get("/")).headers["content-security-policy"]
        assert (await client.get("/dashboard/main.js")).headers["content-security-policy"] == header
        assert "tiles" not in (await client.get("/dashboard/page.html")).headers["content-security-policy"]
        return str(header)


async def test_without_both_the_map_loads_nothing_from_elsewhere(tmp_path: Path) -> None:
    async with some_context(tmp_path) as context:
        assert "http" not in await policy(context)
        async with a_client(context) as client:
            assert (await client.get("/v1/map")).json() == {"tiles": None, "outline": None}
            assert (await client.get("/v1/map/outline")).status_code == 404


async def test_tiles_are_the_only_thing_that_the_policy_allows_from_elsewhere(tmp_path: Path) -> None:
    (tmp_path / "outline.geojson").write_text(json.dumps(FEATURE))
    layers = read_map_layers(ServerSettings(map_tiles=TILES, map_outline=str(tmp_path / "outline.geojson")))
    async with some_context(tmp_path) as plain:
        without = await policy(plain)
        context = msgspec.structs.replace(plain, map_layers=layers)
        assert await policy(context) == f"{without} https://tiles.example.org:8443"
        async with a_client(context) as client:
            reply = (await client.get("/v1/map")).json()
            assert reply == {"tiles": TILES, "outline": "/v1/map/outline"}
            assert (await client.get(reply["outline"])).json() == {"lines": [SQUARE]}
    assert MapLayers().tile_origin == ""
