"""GeoJSON (RFC 7946): a feature for each parcel, one to a line; one without coordinates has no geometry."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, BinaryIO

import msgspec

from parcelpost.export.points import Located, point
from parcelpost.export.tables import Parcel, Table

_encode = msgspec.json.Encoder(decimal_format="number").encode


class GeoJsonSink:
    def __init__(self, stream: BinaryIO) -> None:
        self.notes: list[str] = []
        self._stream = stream
        self._located = Located()
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
        self.notes += self._located.notes()
        self._stream.write(b"\n]}\n")
        self._stream.flush()

    def abandon(self) -> None:
        pass


def _feature(where: tuple[Any, Any] | None, properties: dict[str, Any]) -> dict[str, Any]:
    geometry = None if where is None else {"type": "Point", "coordinates": where}
    return {"type": "Feature", "geometry": geometry, "properties": properties}
