"""`[field_maps.NAME]`: how the columns of a table are read, for the platforms that serve tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from typing import Any

from parcelpost.settings.gathering import Gathering
from parcelpost.settings.keys import FieldMapSettings

SECTION = "field_maps"

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_REMEDY = "write it as [field_maps.mylayer] and [field_maps.mylayer.fields]"


def gather(tables: Any, origin: Callable[[str], str], into: Gathering) -> None:
    """`origin`: where a name stands in the file. What a map says is looked at by who reads tables with it."""
    if not isinstance(tables, Mapping):
        into.problem(f"{origin(SECTION)}: {SECTION} is a section, not a setting", _REMEDY)
        return
    for name, given in tables.items():
        where = f"{SECTION}.{name}"
        if not _NAME.fullmatch(name):
            told = "letters, digits, '_', '-' and '.', at most 100"
            into.problem(f"{origin(SECTION)}: a field map's name must be {told}, not {name!a:.60}", _REMEDY)
        elif not isinstance(given, Mapping):
            into.problem(f"{origin(where)}: {where} must be a section of its own", _REMEDY)
        else:
            into.field_maps[name] = FieldMapSettings(origin=origin(where), given=given)
