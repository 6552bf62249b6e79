"""Where settings come from: defaults < file < environment < flags, each value with its origin."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import InvalidSettings
from parcelpost.settings.schema import KEYS, SEE_PAGE, FieldMapSettings, Gathering, PlatformSettings, Problem, Settings
from parcelpost.settings.secrets import (
    ADMIN_TOKENS_VARIABLE,
    PROXY_LOGIN_VARIABLE,
    READ_TOKENS_VARIABLE,
    TOKEN_VARIABLE,
    WORKER_TOKENS_VARIABLE,
)
from parcelpost.settings.validation import check, check_runnable, fit_defaults

DEFAULT = Path("parcelpost.toml")
VARIABLE = "PARCELPOST_CONFIG"

_MAX_BYTES = 1024**2
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([\w\-.\"' ]+?)\s*=")
_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


def find(config: Path | None, environment: Mapping[str, str]) -> Path | None:
    """`config`, else what PARCELPOST_CONFIG names, else ./parcelpost.toml if it is there."""
    if config is not None:
        return config
    if named := environment.get(VARIABLE):
        return Path(named)
    return DEFAULT if os.path.lexists(DEFAULT) else None  # a link to nowhere is an error, not an absence


def gather(path: Path, into: Gathering) -> None:
    text = _text(path, into)
    if text is None:
        return
    try:
        document = tomllib.loads(text)
    except RecursionError:
        into.problem(f"{path}: not TOML: too deeply nested", _HOW_IT_LOOKS)
    except ValueError as error:
        found = _LINE.search(str(error))
        line = found[1] or len(text.splitlines()) if found else 0
        what = _LINE.sub("", str(error))
        into.problem(f"{path}:{line}: not TOML: {what}" if line else f"{path}: not TOML: {what}", _HOW_IT_LOOKS)
    else:
        _take(document, path, lines(text), into)


_HOW_IT_LOOKS = "a section is written [sync], a line below it batch_size = 50, text in quotes"


def _text(path: Path, into: Gathering) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        into.problem(f"the settings file {path} cannot be read: {reason}", f"check --config and {VARIABLE}")
        return None
    if len(content) > _MAX_BYTES:
        into.problem(f"{path} is larger than 1 MiB", "name the settings file with --config")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        into.problem(f"{path}:{line}: not UTF-8", "save the file as UTF-8")
        return None


def _take(document: dict[str, Any], path: Path, where: Mapping[str, int], into: Gathering) -> None:
    def origin(name: str) -> str:
        line = where.get(name) or where.get(name.rpartition(".")[0]) or where.get(name.partition(".")[0])
        return f"{path}:{line}" if line else str(path)

    for section, entries in document.items():
        if section == PLATFORMS:
            gather_platforms(entries, origin, into)
        elif section == FIELD_MAPS:
            gather_field_maps(entries, origin, into)
        elif isinstance(entries, dict) and (entries or section in Settings.__struct_fields__):
            for field, value in entries.items():
                into.toml(f"{section}.{field}", value, origin(f"{section}.{field}"))
        elif section in Settings.__struct_fields__:
            into.problem(f"{origin(section)}: {section} is a section, not a setting", _HOW_IT_LOOKS)
        else:
            into.toml(section, entries, origin(section))


def lines(text: str) -> dict[str, int]:
    """The line on which each section and key stands first, as far as the lines alone tell."""
    found: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section = _bare(header[1])
            found.setdefault(section, number)
        elif entry := _ENTRY.match(line):
            name = _bare(entry[1])
            found.setdefault(f"{section}.{name}" if section else name, number)
    return found


def _bare(name: str) -> str:
    return ".".join(part.strip(" \t\"'") for part in name.split("."))


PLATFORMS = "platforms"

_KEYS = ("scrape", "parse", "class")
_PLATFORM_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_METHOD = re.compile(r"[^\W\d]\w*")
_PLATFORM_REMEDY = 'write it as scrape = "my_package.my_module:my_function"'


def gather_platforms(tables: Any, origin: Callable[[str], str], into: Gathering) -> None:
    """`origin`: where a name stands in the file."""
    if not isinstance(tables, Mapping):
        into.problem(
            f"{origin(PLATFORMS)}: {PLATFORMS} is a section, not a setting", "write it as [platforms.mycounty]"
        )
        return
    for name, entries in tables.items():
        where = f"{PLATFORMS}.{name}"
        if not _PLATFORM_NAME.fullmatch(name):
            into.problem(
                f"{origin(PLATFORMS)}: a platform's name must be letters, digits, '_', '-' and '.', at most 100, "
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
        elif problem := _platform_problem(key, value, of_class="class" in entries):
            into.problem(f"{origin(at)}: {at} must be {problem}", _PLATFORM_REMEDY)
        else:
            found[key] = value
            into.origins[at] = origin(at)
    if not {"scrape", "class"} & entries.keys():
        into.problem(f"{origin(where)}: {where} names neither a function (scrape) nor a class", _PLATFORM_REMEDY)
    name = where.removeprefix(f"{PLATFORMS}.")
    into.platforms[name] = PlatformSettings(
        scrape=found.get("scrape", ""), parse=found.get("parse", ""), class_=found.get("class", "")
    )


def _platform_problem(key: str, value: Any, *, of_class: bool) -> str:
    """What a right value is, or ''."""
    if of_class and key != "class":
        return "" if isinstance(value, str) and _METHOD.fullmatch(value) else "the name of a method of the class"
    return "" if isinstance(value, str) and _PLACE.fullmatch(value) else "a place, as my_package.my_module:my_name"


FIELD_MAPS = "field_maps"

_FIELD_MAP_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_FIELD_MAP_REMEDY = "write it as [field_maps.mylayer] and [field_maps.mylayer.fields]"


def gather_field_maps(tables: Any, origin: Callable[[str], str], into: Gathering) -> None:
    """`origin`: where a name stands in the file. What a map says is looked at by who reads tables with it."""
    if not isinstance(tables, Mapping):
        into.problem(f"{origin(FIELD_MAPS)}: {FIELD_MAPS} is a section, not a setting", _FIELD_MAP_REMEDY)
        return
    for name, given in tables.items():
        where = f"{FIELD_MAPS}.{name}"
        if not _FIELD_MAP_NAME.fullmatch(name):
            told = "letters, digits, '_', '-' and '.', at most 100"
            into.problem(
                f"{origin(FIELD_MAPS)}: a field map's name must be {told}, not {name!a:.60}", _FIELD_MAP_REMEDY
            )
        elif not isinstance(given, Mapping):
            into.problem(f"{origin(where)}: {where} must be a section of its own", _FIELD_MAP_REMEDY)
        else:
            into.field_maps[name] = FieldMapSettings(origin=origin(where), given=given)


__all__ = ["Found", "Loaded", "Problem", "check_runnable", "load", "look", "pairs"]

_PREFIX = "PARCELPOST_"
_VARIABLES = {key.variable: key.name for key in KEYS.values()}
_SHORT_NAMES = {"PARCELPOST_STORE": "storage.path"}
_TOKENS = {TOKEN_VARIABLE, WORKER_TOKENS_VARIABLE, READ_TOKENS_VARIABLE, ADMIN_TOKENS_VARIABLE}
_NO_SETTINGS = {*_TOKENS, PROXY_LOGIN_VARIABLE, VARIABLE, "PARCELPOST_CORPUS"}


class Loaded(Struct, frozen=True, kw_only=True):
    settings: Settings
    origins: Mapping[str, str]
    """Of every key: `default`, `parcelpost.toml:12`, `environment PARCELPOST_SYNC_BATCH_SIZE`, `flag --slots`."""
    warnings: tuple[str, ...] = ()
    file: Path | None = None


class Found(Struct, frozen=True, kw_only=True):
    """`loaded` is there only where there is no problem."""

    loaded: Loaded | None
    partly: Settings
    """With what could be understood, and defaults for the rest: to look around with, not to work with."""
    problems: tuple[Problem, ...]
    warnings: tuple[str, ...]


def load(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    named: Mapping[str, str] | None = None,
) -> Loaded:
    """`flags`: text by `section.key`; `named`: the flag that gave it, where it was another than `--set`.

    Raises InvalidSettings for the first problem.
    """
    found = look(config=config, environment=environment, flags=flags, named=named)
    if found.loaded is None:
        first, *others = found.problems
        more = f" (and {len(others)} more: see 'parcelpost config check')" if others else ""
        raise InvalidSettings(first.what + more, hint=first.remedy)
    return found.loaded


def look(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    named: Mapping[str, str] | None = None,
) -> Found:
    """As `load`, with every problem instead of the first."""
    gathering = Gathering()
    file = find(config, environment)
    if file is not None:
        gather(file, gathering)
    _gather_environment(environment, gathering)
    for name, text in flags.items():
        gathering.text(name, text, f"flag {(named or {}).get(name, '--set')}")
    if not gathering.problems:
        fit_defaults(gathering.values, gathering.origins)
        gathering.problems += check(gathering.values, gathering.origins)
    warnings = tuple(gathering.warnings)
    plain = _settings(gathering.values)
    settings = replace(plain, platforms=gathering.platforms, field_maps=gathering.field_maps)
    if gathering.problems:
        return Found(loaded=None, partly=settings, problems=tuple(gathering.problems), warnings=warnings)
    loaded = Loaded(settings=settings, origins=gathering.origins, warnings=warnings, file=file)
    return Found(loaded=loaded, partly=settings, problems=(), warnings=warnings)


def pairs(options: Iterable[str]) -> dict[str, str]:
    """`section.key=value` of each `--set`; of one key the last counts. Raises InvalidSettings where `=` is missing."""
    found: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            shown = re.match(r"[\w.]*", option)
            key = f" '{shown[0]}'" if shown and shown[0] in KEYS else ""
            raise InvalidSettings(
                f"--set{key} has no value", hint="write --set section.key=value, as in --set sync.batch_size=50"
            )
        found[name.strip()] = text
    return found


def _gather_environment(environment: Mapping[str, str], into: Gathering) -> None:
    """An empty variable counts as not set."""
    given = {name: text for name, text in environment.items() if name.startswith(_PREFIX) and text}
    for name in sorted(given):
        if name in _VARIABLES:
            into.text(_VARIABLES[name], given[name], f"environment {name}")
        elif name not in _SHORT_NAMES and name not in _NO_SETTINGS:
            into.warnings.append(_unknown(name))
    for name, key in _SHORT_NAMES.items():
        if name in given:
            long = KEYS[key].variable
            if given.get(long, given[name]) != given[name]:
                into.warnings.append(f"{name} and {long} differ: {name} counts")
            into.text(key, given[name], f"environment {name}")


def _unknown(variable: str) -> str:
    known = sorted({*_VARIABLES, *_SHORT_NAMES, *_NO_SETTINGS})
    close = difflib.get_close_matches(variable, known, n=1, cutoff=0.8)
    return f"the environment variable {variable} is no setting" + (f"; the nearest is {close[0]}" if close else "")


def _settings(values: Mapping[str, Any]) -> Settings:
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        tree.setdefault(section, {})[field] = value
    return msgspec.convert(tree, Settings)
