"""What a setting's value looks like, and how text becomes one."""

from __future__ import annotations

import re
from typing import Any, get_args

import msgspec
from msgspec import Struct, inspect

from parcelpost.settings.keys import SECTIONS_OF_NAMES, Settings

_UNITS = {
    "": 1,
    "b": 1,
    **{f"{letter}b": 1000**power for power, letter in enumerate("kmgt", 1)},
    **{f"{letter}ib": 1024**power for power, letter in enumerate("kmgt", 1)},
}
_SIZE = re.compile(r"([0-9]{1,30}(?:\.[0-9]{1,30})?) ?([a-z]*)", re.IGNORECASE)
_WHOLE = re.compile(r"[+-]?[0-9]{1,30}")
_BOOLEANS = {"true": True, "yes": True, "on": True, "1": True, "false": False, "no": False, "off": False, "0": False}
_UNPRINTABLE = re.compile(r"[\x00-\x1f\x7f\ud800-\udfff]")
_MOST_SHOWN = 60


class Key(Struct, frozen=True):
    """One thing that can be set."""

    section: str
    field: str
    type: Any
    default: Any

    @property
    def name(self) -> str:
        return f"{self.section}.{self.field}"

    @property
    def variable(self) -> str:
        return f"PARCELPOST_{self.section}_{self.field}".upper()

    @property
    def is_size(self) -> bool:
        return self.field.endswith("_bytes")


def _keys() -> dict[str, Key]:
    keys = [
        Key(section.name, field.name, field.type, field.default)
        for section in msgspec.structs.fields(Settings)
        if section.name not in SECTIONS_OF_NAMES
        for field in msgspec.structs.fields(section.type)
    ]
    return {key.name: key for key in keys}


KEYS = _keys()
"""Every key by its name, `section.key`, in the order of the sections."""


def from_text(key: Key, text: str) -> Any:
    """The value that an environment variable or a flag gives. Raises ValueError."""
    text = text if isinstance(inspect.type_info(key.type), inspect.StrType) else text.strip()
    return from_toml(key, _parsed(key, text))


def from_toml(key: Key, value: Any) -> Any:
    """The value that the file gives; a size may be text with a unit. Raises ValueError."""
    if key.is_size and isinstance(value, str):
        value = _size(value)
    found = msgspec.convert(value, key.type)  # a ValidationError is a ValueError
    for text in found if isinstance(found, tuple) else (found,):
        if isinstance(text, str) and _UNPRINTABLE.search(text):
            raise ValueError
    if isinstance(found, tuple) and not all(found):
        raise ValueError
    return found


def form(key: Key, *, in_file: bool = False) -> str:
    """What a right value is, to follow `must be`."""
    match inspect.type_info(key.type):
        case inspect.IntType() if key.is_size:
            return "a size: bytes, or with a unit as in 512MiB or 2GB"
        case inspect.IntType(ge=least, le=most):
            return f"a whole number from {least} to {most}"
        case inspect.FloatType(gt=above, ge=least, le=most):
            limit = f"more than {above}" if least is None else f"at least {least}"
            return f"{key.field.rpartition('_')[2]}, {limit} and at most {most}"
        case inspect.LiteralType():
            return f"one of {', '.join(get_args(key.type))}"
        case inspect.VarTupleType(item_type=inspect.LiteralType(values=names)):
            return f"a list of {', '.join(sorted(map(str, names)))}, or of none of them"
        case inspect.VarTupleType():
            return 'a list of names, as ["a", "b"]' if in_file else "a list of names, comma separated"
        case inspect.BoolType():
            return "true or false"
        case inspect.StrType(pattern=str()):
            return "a time of day from 00:00 to 23:59"
        case _:
            return "text without control characters"


def shown(key: Key, given: Any) -> str:
    """What was given, for a message, or '' where it might be something to hide: free text may hold anything."""
    if form(key).startswith("text"):
        return ""
    text = ("true" if given else "false") if isinstance(given, bool) else ascii(given)
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


def as_text(key: Key, value: Any) -> str:
    """As a person would write it: what `from_text` reads as the same value."""
    if isinstance(value, tuple):
        return ",".join(value)
    if key.is_size:
        exact = [f"{value // 1024**power}{letter}iB" for power, letter in enumerate("KMGT", 1) if _fits(value, power)]
        return exact[-1] if exact else str(value)
    return str(value).removesuffix(".0")


def _fits(value: int, power: int) -> bool:
    return value > 0 and value % 1024**power == 0


def _parsed(key: Key, text: str) -> Any:
    match inspect.type_info(key.type):
        case inspect.IntType() if key.is_size:
            return text
        case inspect.IntType():
            if not _WHOLE.fullmatch(text):
                raise ValueError
            return int(text)
        case inspect.FloatType():
            return float(text)
        case inspect.BoolType():
            return _BOOLEANS.get(text.lower(), text)
        case inspect.VarTupleType():
            return [name.strip() for name in text.split(",")] if text else []
        case _:
            return text


def _size(text: str) -> int:
    found = _SIZE.fullmatch(text)
    if not found or found[2].lower() not in _UNITS:
        raise ValueError
    number = float(found[1]) if "." in found[1] else int(found[1])
    return int(number * _UNITS[found[2].lower()])
