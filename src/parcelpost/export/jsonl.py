"""JSONL: one file for each table, whole records as they are stored, one to a line."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Any, BinaryIO

import msgspec
from msgspec import Raw

from parcelpost.export.tables import Parcel, Table, items

_encode_lines = msgspec.json.Encoder(decimal_format="number").encode_lines
_KEY = ("platform", "state", "county", "parcel_id")
_CONTROL = re.compile(rb"\x7f|\xc2[\x80-\x9f]")
"""What JSON lets stand in a text and a terminal takes for an order."""


class JsonlSink:
    def __init__(self, streams: Mapping[str, BinaryIO]) -> None:
        self.notes: list[str] = []
        self._streams = streams

    def write(self, table: Table, parcels: Sequence[Parcel]) -> int:
        if table.name == "parcels":
            lines = [_whole(one) for one in parcels]
        else:
            lines = [line for one in parcels for line in _parts(table, one)]
        text = _encode_lines(lines)
        if b"\x7f" in text or not text.isascii():
            text = _CONTROL.sub(_escaped, text)
        self._streams[table.name].write(text)
        return len(lines)

    def close(self) -> None:
        for stream in self._streams.values():
            stream.flush()

    def abandon(self) -> None:
        pass


def _whole(parcel: Parcel) -> dict[str, Any]:
    entry = parcel.entry
    return {
        **_key(parcel),
        "status": parcel.status,
        "error": entry.error_text,
        "scraped_at": entry.scraped_at,
        "stored_at": entry.created_at,
        "task_id": entry.task_id,
        "record": _record(parcel),
    }


def _record(parcel: Parcel) -> Raw | str | None:
    data = parcel.entry.data
    if data is None:
        return None
    # Between its tokens JSON may have line breaks; inside a text it has none.
    return Raw(data.replace(b"\n", b" ").replace(b"\r", b" ")) if parcel.is_readable else data.decode(errors="replace")


def _parts(table: Table, parcel: Parcel) -> list[dict[str, Any]]:
    name, scraped_at = table.one.replace(" ", "_"), parcel.entry.scraped_at
    return [
        {**_key(parcel), "position": position, "scraped_at": scraped_at, name: item}
        for position, item in enumerate(items(parcel, table.name), start=1)
    ]


def _key(parcel: Parcel) -> dict[str, str]:
    one = parcel.entry
    return dict(zip(_KEY, (one.platform, one.state, one.county, one.parcel_id), strict=True))


def _escaped(found: re.Match[bytes]) -> bytes:
    return rb"\u%04x" % ord(found[0].decode())
