"""Paths of parcels and raw files in the read API.

A parcel's path is `/state/county/parcel`, each part percent-encoded, slashes too; the number may be written in any way
that has the same letters and digits. An empty part is `-`. A leading `~` is not part of the text: it protects a real
`-`, and the `.` and `..` that clients would resolve. A leading `=` names a parcel that has no number.
"""

from __future__ import annotations

from typing import Literal
from urllib.parse import quote, unquote_to_bytes

from parcelpost.gateway.models import ParcelKey
from parcelpost.places import county_slug, parcel_norm, state_or_text

_PARCELS_PATH = "/v1/parcels/"
_RAW_PATH, _PAGE_PATH = "raw", "page"
_FILE_PATHS = (_RAW_PATH.encode(), _PAGE_PATH.encode())
_RESOLVED_BY_CLIENTS = {".", ".."}
_EMPTY = "-"
_LITERAL = "~"
_NO_NUMBER = "="


def parcel_path(parcel: ParcelKey, parcel_id: str) -> str:
    """`parcel_id` is the number as displayed."""
    is_number = parcel_norm(parcel_id) == parcel.norm and not parcel_id.startswith(_NO_NUMBER)
    parts = (parcel.state, parcel.county, parcel_id if is_number else parcel.norm)
    return _PARCELS_PATH + "/".join(quote(_escaped(part), safe="") for part in parts)


def raw_path(path: str, raw_sha256: str) -> str:
    return f"{path}/{_RAW_PATH}?sha256={raw_sha256}"


def page_path(path: str, raw_sha256: str) -> str:
    return f"{path}/{_PAGE_PATH}?sha256={raw_sha256}"


def parse_parcel_path(path: bytes) -> tuple[ParcelKey, Literal["", "raw", "page"]] | None:
    """Returns the parcel that a path (as sent, still encoded) names, and which file of it is asked for: '' is none.

    Slashes that are not encoded belong to the parcel number. None: the path names no parcel.
    """
    parts = path.partition(_PARCELS_PATH.encode())[2].split(b"/")
    wanted: Literal["", "raw", "page"] = ""
    if len(parts) > 3 and parts[-1] in _FILE_PATHS:
        wanted = "raw" if parts.pop() == _FILE_PATHS[0] else "page"
    if len(parts) < 3:
        return None
    texts = [_unescaped(unquote_to_bytes(part)) for part in (*parts[:2], b"/".join(parts[2:]))]
    known = [text for text in texts if text is not None and "\0" not in text]
    if len(known) != 3:
        return None
    state, county, parcel_id = known
    norm = parcel_id if parcel_id.startswith(_NO_NUMBER) else parcel_norm(parcel_id)
    return ParcelKey(state_or_text(state), county_slug(county) or county, norm), wanted


def _escaped(text: str) -> str:
    if not text:
        return _EMPTY
    needs_sign = text == _EMPTY or text in _RESOLVED_BY_CLIENTS or text.startswith(_LITERAL)
    return f"{_LITERAL}{text}" if needs_sign else text


def _unescaped(given: bytes) -> str | None:
    try:
        text = given.decode()
    except UnicodeDecodeError:
        return None
    return "" if text == _EMPTY else text.removeprefix(_LITERAL)
