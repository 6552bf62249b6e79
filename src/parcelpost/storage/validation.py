"""Validation of values from outside before they are stored."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import msgspec

from parcelpost.errors import InvalidInput

MAX_NAME_CHARS = 512

_MAX_DEPTH = 200

_encode = msgspec.json.Encoder().encode


def text(field: str, value: object, *, max_chars: int = MAX_NAME_CHARS, may_be_empty: bool = False) -> str:
    """Returns the value if it is text that SQLite and file systems can hold. Raises InvalidInput."""
    if type(value) is str and 0 < len(value) <= max_chars and value.isascii() and "\0" not in value:
        return value  # the fast path
    if not isinstance(value, str):
        raise InvalidInput(f"{field} must be text, not {type(value).__name__}")
    if len(value) > max_chars:
        raise InvalidInput(f"{field} has {len(value):,} characters; at most {max_chars:,} are allowed")
    if not value and not may_be_empty:
        raise InvalidInput(f"{field} is empty")
    if "\0" in value:
        raise InvalidInput(f"{field} contains a NUL byte")
    if not value.isascii():
        try:
            value.encode()
        except UnicodeEncodeError:
            raise InvalidInput(f"{field} contains a lone surrogate, which is not valid text") from None
    return value


def whole(field: str, value: object, *, maximum: int = 2**53) -> int:
    """Returns the value if it is a non-negative whole number that SQLite and JSON can hold. Raises InvalidInput."""
    if type(value) is not int or not 0 <= value <= maximum:
        raise InvalidInput(f"{field} must be a whole number from 0 to {maximum:,}, not {value!r:.60}")
    return value


def message(value: str, max_chars: int = 4_000) -> str:
    """Returns an error message that can be stored: shortened, with unusable characters replaced."""
    return value[:max_chars].encode(errors="replace").decode().replace("\0", "\N{REPLACEMENT CHARACTER}")


def json_bytes(field: str, value: Mapping[str, Any], *, max_bytes: int) -> bytes:
    """Encodes as JSON. Raises InvalidInput for NaN, infinity, lone surrogates, and values too large or too deep."""
    try:
        encoded = _encode(value)
        if len(encoded) > max_bytes:
            raise InvalidInput(f"{field} takes {len(encoded):,} bytes as JSON; at most {max_bytes:,} are allowed")
        # The encoder writes NaN as null. Without null and with few brackets, no second check is needed.
        may_be_deep = encoded.count(b"[") + encoded.count(b"{") > _MAX_DEPTH
        if b"null" in encoded or may_be_deep:
            _check_json(field, msgspec.to_builtins(value), _MAX_DEPTH)  # objects of classes, too
    except RecursionError:
        raise InvalidInput(f"{field} is nested too deeply") from None
    except (TypeError, ValueError, OverflowError, msgspec.MsgspecError) as error:
        raise InvalidInput(f"{field} is not JSON: {error}") from None
    return encoded


def _check_json(field: str, value: object, levels: int) -> None:
    if isinstance(value, float) and not math.isfinite(value):
        raise InvalidInput(f"{field} contains NaN or infinity, which JSON cannot represent")
    if isinstance(value, dict):
        value = value.values()
    elif not isinstance(value, list | tuple | set | frozenset):
        return
    if levels == 0:
        raise InvalidInput(f"{field} is nested deeper than {_MAX_DEPTH} levels")
    for inner in value:
        _check_json(field, inner, levels - 1)
