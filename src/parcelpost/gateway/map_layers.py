"""What the dashboard's map shows besides parcels, if the operator names it: an outline and a tile server."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
from msgspec import Struct

from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import ServerSettings

_MAX_OUTLINE_BYTES = 16 * 1024 * 1024
_DIGITS = 5  # about a metre
_PLACEHOLDERS = ("{z}", "{x}", "{y}")
_HOST = re.compile(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?|\[[0-9A-Fa-f:.]+\](:[0-9]{1,5})?", re.ASCII)
_LEVELS = {"LineString": 1, "MultiLineString": 2, "Polygon": 2, "MultiPolygon": 3}
"""How deep the lists of positions are nested; points have no outline."""

Line = list[tuple[float, float]]
"""Longitude and latitude of each corner."""


class MapOutline(Struct, frozen=True):
    lines: list[Line]
    """Longitude and latitude of the corners of each line."""


class MapLayers(Struct, frozen=True, kw_only=True):
    tiles: str | None = None
    """Address of a tile, with {z}, {x} and {y}."""
    outline: bytes | None = None
    """JSON of MapOutline."""

    @property
    def tile_origin(self) -> str:
        """What browsers must be allowed to load images from; '' without tiles."""
        if self.tiles is None:
            return ""
        parts = urlsplit(self.tiles)
        return f"{parts.scheme}://{parts.netloc}"


def read_map_layers(settings: ServerSettings) -> MapLayers:
    """Raises InvalidSettings."""
    return MapLayers(
        tiles=_checked_tiles(settings.map_tiles) if settings.map_tiles else None,
        outline=msgspec.json.encode(_read_outline(Path(settings.map_outline))) if settings.map_outline else None,
    )


def _checked_tiles(address: str) -> str:
    try:
        parts = urlsplit(address)
    except ValueError:
        parts = urlsplit("")
    is_complete = all(name in parts.path + parts.query for name in _PLACEHOLDERS)
    if parts.scheme not in ("http", "https") or not _HOST.fullmatch(parts.netloc) or not is_complete:
        raise InvalidSettings(
            f"server.map_tiles {address[:200]} is not the address of a tile server",
            hint="write it as https://tiles.example.org/{z}/{x}/{y}.png",
        )
    return address


def _read_outline(file: Path) -> MapOutline:
    name = f"server.map_outline {file}"
    try:
        with file.open("rb") as opened:
            content = opened.read(_MAX_OUTLINE_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        raise InvalidSettings(f"{name} cannot be read: {reason}", hint="check the path and its owner") from None
    if len(content) > _MAX_OUTLINE_BYTES:
        raise InvalidSettings(f"{name} is larger than 16 MiB", hint="simplify its lines, for example with mapshaper")
    try:
        lines = list(_lines(msgspec.json.decode(content)))
    except (ValueError, TypeError, LookupError, ArithmeticError, AttributeError, RecursionError):
        lines = []
    if not lines:
        raise InvalidSettings(
            f"{name} is not GeoJSON with lines or polygons in longitude and latitude",
            hint="convert it to GeoJSON with coordinates in WGS 84",
        )
    return MapOutline(lines)


def _lines(given: Any) -> Iterator[Line]:
    """Raises an error of Python's own if this is not GeoJSON."""
    kind = given["type"]
    if kind == "FeatureCollection":
        for feature in given["features"]:
            yield from _lines(feature)
    elif kind == "Feature":
        if given["geometry"] is not None:
            yield from _lines(given["geometry"])
    elif kind == "GeometryCollection":
        for geometry in given["geometries"]:
            yield from _lines(geometry)
    elif kind in _LEVELS:
        yield from _lines_of(given["coordinates"], _LEVELS[kind])


def _lines_of(coordinates: Any, levels: int) -> Iterator[Line]:
    if levels > 1:
        for part in coordinates:
            yield from _lines_of(part, levels - 1)
        return
    line = [(round(float(position[0]), _DIGITS), round(float(position[1]), _DIGITS)) for position in coordinates]
    if not all(_is_on_earth(*position) for position in line):
        raise ValueError
    if len(line) > 1:
        yield line


def _is_on_earth(longitude: float, latitude: float) -> bool:
    return math.isfinite(longitude) and abs(longitude) <= 180 and abs(latitude) <= 90
