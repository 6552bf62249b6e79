"""`[platforms.NAME]`: parsers that people have already, each named by where it is."""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from typing import Any

from parcelpost.settings.gathering import SEE_PAGE, Gathering
from parcelpost.settings.keys import PlatformSettings

SECTION = "platforms"

_KEYS = ("scrape", "parse", "class")
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_METHOD = re.compile(r"[^\W\d]\w*")
_REMEDY = 'write it as scrape = "my_package.my_module:my_function"'


def gather(tables: Any, origin: Callable[[str], str], into: Gathering) -> None:
    """`origin`: where a name stands in the file."""
    if not isinstance(tables, Mapping):
        into.problem(f"{origin(SECTION)}: {SECTION} is a section, not a setting", "write it as [platforms.mycounty]")
        return
    for name, entries in tables.items():
        where = f"{SECTION}.{name}"
        if not _NAME.fullmatch(name):
            into.problem(
                f"{origin(SECTION)}: a platform's name must be letters, digits, '_', '-' and '.', at most 100, "
                f"not {name!a:.60}",
                "write it as [platforms.mycounty]",
            )
        elif not isinstance(entries, Mapping):
            into.problem(f"{origin(where)}: {where} must be a section of its own", f"write [{where}] above its keys")
        else:
            _gather_one(where, entries, origin, into)


def _gather_one(where: str, entries: Mapping[str, Any], origin: Callable[[str], str], into: Gathering) -> None:
    found: dict[str, str] = {}
    for key, value in entries.items():
        at = f"{where}.{key}"
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
            into.problem(f"{origin(at)}: there is no setting {at:.120}; the nearest is {where}.{close[0]}", SEE_PAGE)
        elif problem := _problem(key, value, of_class="class" in entries):
            into.problem(f"{origin(at)}: {at} must be {problem}", _REMEDY)
        else:
            found[key] = value
            into.origins[at] = origin(at)
    if not {"scrape", "class"} & entries.keys():
        into.problem(f"{origin(where)}: {where} names neither a function (scrape) nor a class", _REMEDY)
    name = where.removeprefix(f"{SECTION}.")
    into.platforms[name] = PlatformSettings(
        scrape=found.get("scrape", ""), parse=found.get("parse", ""), class_=found.get("class", "")
    )


def _problem(key: str, value: Any, *, of_class: bool) -> str:
    """What a right value is, or ''."""
    if of_class and key != "class":
        return "" if isinstance(value, str) and _METHOD.fullmatch(value) else "the name of a method of the class"
    return "" if isinstance(value, str) and _PLACE.fullmatch(value) else "a place, as my_package.my_module:my_name"
