"""Field maps as people write them: in files, or in the settings. Whatever is wrong with one is said before it is used.

Those that come with the program are in `field_maps/`.
"""

from __future__ import annotations

import difflib
import tomllib
from collections.abc import Iterable, Mapping
from decimal import Decimal
from functools import cache
from importlib.resources import files
from pathlib import Path
from types import NoneType
from typing import Any, get_args, get_type_hints

from parcelpost.errors import InvalidSettings
from parcelpost.scrapers.field_map import WAYS, FieldMap, Source, column_name
from parcelpost.scrapers.record import LIEN, Lien, Record

EXAMPLES = Path(__file__).with_name("field_maps")
_HINT = f"see those in {EXAMPLES}"
_MOST_FILE_BYTES = 1024**2
_KEYS = ("has", "kind", "fields", "lien")
_KINDS = ("parcel", LIEN)
_FILLED_BY_US = frozenset(
    ("parcel_id_norm", "platform", "source_url", "scraped_at", "raw_html_hash", "parser_version", "record_kind")
)


@cache
def shipped() -> tuple[FieldMap, ...]:
    folder = files("parcelpost.scrapers") / "field_maps"
    found = sorted((one for one in folder.iterdir() if one.name.endswith(".toml")), key=lambda one: one.name)
    return tuple(of_text(one.name.removesuffix(".toml"), one.read_text("utf-8"), one.name) for one in found)


def of_folder(folder: Path) -> list[FieldMap]:
    """One map for each `NAME.toml`. Raises InvalidSettings that names the file."""
    try:
        found = sorted(one for one in folder.iterdir() if one.suffix == ".toml")
        return [of_text(one.stem, _text(one), str(one)) for one in found]
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        what = getattr(error, "filename", None) or folder
        raise InvalidSettings(f"the field maps in {what} cannot be read: {reason}", hint=_HINT) from None


def of_text(name: str, text: str, where: str) -> FieldMap:
    """Raises InvalidSettings."""
    try:
        given = tomllib.loads(text)
    except (tomllib.TOMLDecodeError, RecursionError) as error:
        raise InvalidSettings(f"{where}: the field map {name} is no TOML: {error}", hint=_HINT) from None
    return of_document(name, given, where)


def of_document(name: str, given: Mapping[str, Any], where: str) -> FieldMap:
    """`where` it was written. Raises InvalidSettings that names the first thing that is wrong with it."""
    if problem := _problem(given):
        raise InvalidSettings(f"{where}: the field map {name} {problem}", hint=_HINT)
    return FieldMap(
        name=name,
        has=frozenset(column_name(column) for column in given.get("has", ())),
        kind=given.get("kind", "parcel"),
        fields={field: _source(one) for field, one in given["fields"].items()},
        lien={field: _source(one) for field, one in given.get("lien", {}).items()},
    )


def _problem(given: Mapping[str, Any]) -> str:
    """What is wrong, to follow the map's name; '' for nothing."""
    if unknown := sorted(given.keys() - set(_KEYS)):
        return f"says {unknown[0]!r:.60}, and may say {', '.join(_KEYS)}"
    if not _are_columns(given.get("has", ["any"])):
        return 'must write has as a list of columns, as in has = ["PIN", "OWNER"]'
    if given.get("kind", "parcel") not in _KINDS:
        return f"must be of the kind parcel or {LIEN}, not {given['kind']!r:.60}"
    fields, lien = given.get("fields"), given.get("lien", {})
    if not isinstance(fields, Mapping) or not isinstance(lien, Mapping) or "parcel_id" not in fields:
        return "needs [fields] with a parcel_id"
    if bool(lien) != (given.get("kind") == LIEN):
        return f'needs [lien] and kind = "{LIEN}" both, or neither'
    parcel = {name: one for name, one in _types(Record).items() if name not in _FILLED_BY_US}
    problems = [
        *(_field_problem(field, one, {**parcel, "mailing": list[str]}, "a record") for field, one in fields.items()),
        *(_field_problem(field, one, _types(Lien), "a lien") for field, one in lien.items()),
    ]
    return next(filter(None, problems), "")


def _field_problem(field: str, given: Any, types: Mapping[str, Any], whose: str) -> str:
    if field not in types:
        return f"has {field!r:.60}, which is no field of {whose} that can be mapped{_nearest(field, types)}"
    if not isinstance(given, Mapping) or len(given) != 1:
        return f'must write {field} as in {field} = {{ {_ways_to(types[field])[0]} = ["COLUMN"] }}'
    way, columns = next(iter(given.items()))
    ways = _ways_to(types[field])
    if way not in ways:
        known = "" if way in WAYS else ", which is no way to read a column"
        return f"reads {field} by {way!r:.60}{known}: that field is read by {', '.join(ways)}"
    if not _are_columns(columns):
        return f'must name the columns of {field} in a list, as in {field} = {{ {way} = ["COLUMN"] }}'
    needed = WAYS[way].columns
    if needed and len(columns) != needed:
        return f"must name {needed} columns for {field}: {way} needs them"
    return ""


def _are_columns(given: Any) -> bool:
    return isinstance(given, list) and bool(given) and all(isinstance(one, str) and column_name(one) for one in given)


def _source(given: Mapping[str, list[str]]) -> Source:
    way, columns = next(iter(given.items()))
    return Source(way, tuple(column_name(column) for column in columns))


@cache
def _types(kind: type[Record] | type[Lien]) -> dict[str, Any]:
    """The type of each field that some way can fill."""
    found = {name: _without_none(one) for name, one in get_type_hints(kind).items()}
    return {name: one for name, one in found.items() if _ways_to(one)}


def _without_none(hint: Any) -> Any:
    given = [one for one in get_args(hint) if one is not NoneType]
    return given[0] if NoneType in get_args(hint) else hint


def _ways_to(wanted: Any) -> list[str]:
    """The ways whose values a field of that type takes; a whole number is a number, too."""
    return [name for name, way in WAYS.items() if way.gives == wanted or (way.gives is int and wanted is Decimal)]


def _nearest(field: str, types: Iterable[str]) -> str:
    close = difflib.get_close_matches(field, list(types), n=1)
    return f"; the nearest is {close[0]}" if close else ""


def _text(path: Path) -> str:
    with path.open("rb") as file:
        return file.read(_MOST_FILE_BYTES).decode("utf-8")
