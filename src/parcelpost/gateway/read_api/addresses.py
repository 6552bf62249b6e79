"""A parcel's address under /v1/parcels, whatever its number holds.

`/platform/state/county/parcel`, each percent-encoded, slashes too. What is empty is spelled `-`. A `~` in front is not
part of the text: it keeps a real `-`, and the `.` and `..` that clients would resolve.
"""

from __future__ import annotations

from urllib.parse import quote, unquote_to_bytes

from parcelpost.gateway.words import ParcelKey

_ROOT = "/v1/parcels/"
_RAW = "raw"
_RESOLVED_BY_CLIENTS = {".", ".."}
_EMPTY = "-"
_AS_IT_IS = "~"


def address_of(parcel: ParcelKey) -> str:
    parts = (parcel.platform, parcel.state, parcel.county, parcel.parcel_id)
    return _ROOT + "/".join(quote(_spelled(part), safe="") for part in parts)


def raw_address_of(parcel: ParcelKey) -> str:
    return f"{address_of(parcel)}/{_RAW}"


def read_address(path: bytes) -> tuple[ParcelKey, bool] | None:
    """The parcel that a path (as it was sent, still encoded) names, and whether its raw file is meant.

    Slashes that were not encoded belong to the parcel's number. None: it names none.
    """
    parts = path.partition(_ROOT.encode())[2].split(b"/")
    wants_raw = len(parts) > 4 and parts[-1] == _RAW.encode()
    if wants_raw:
        parts.pop()
    if len(parts) < 4:
        return None
    texts = [_unspelled(unquote_to_bytes(part)) for part in (*parts[:3], b"/".join(parts[3:]))]
    known = [text for text in texts if text is not None and "\0" not in text]
    return (ParcelKey(*known), wants_raw) if len(known) == 4 else None


def _spelled(text: str) -> str:
    if not text:
        return _EMPTY
    needs_sign = text == _EMPTY or text in _RESOLVED_BY_CLIENTS or text.startswith(_AS_IT_IS)
    return f"{_AS_IT_IS}{text}" if needs_sign else text


def _unspelled(given: bytes) -> str | None:
    try:
        text = given.decode()
    except UnicodeDecodeError:
        return None
    return "" if text == _EMPTY else text.removeprefix(_AS_IT_IS)
