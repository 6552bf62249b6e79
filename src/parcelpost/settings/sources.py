"""Loads settings: defaults < file < environment < flags such as `--set`, each value with its origin."""

from __future__ import annotations

import difflib
import os
import re
import tomllib
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta, Struct
from msgspec.structs import replace

from parcelpost.errors import InvalidInput, InvalidSettings
from parcelpost.health_checks import Finding
from parcelpost.places import county_name, state_code
from parcelpost.schedule import DAY_SECONDS, LIST_SECONDS, longest_interval, make_timing, parse_duration
from parcelpost.settings.schema import (
    KEYS,
    FieldMapSettings,
    Key,
    PlatformSettings,
    ScheduleSettings,
    Settings,
    form,
    from_text,
    from_toml,
    shown,
)
from parcelpost.settings.secrets import (
    ADMIN_TOKENS_VARIABLE,
    PROXY_LOGIN_VARIABLE,
    READ_TOKENS_VARIABLE,
    TOKEN_VARIABLE,
    WEBHOOK_SECRET_VARIABLE,
    WORKER_TOKENS_VARIABLE,
)
from parcelpost.settings.validation import check, fit_defaults

DEFAULT = Path("parcelpost.toml")
VARIABLE = "PARCELPOST_CONFIG"

_MAX_BYTES = 1024**2
_HEADER = re.compile(r"\s*\[\s*([^\[\]]+?)\s*\]\s*(?:#.*)?")
_ENTRY = re.compile(r"\s*([\w\-.\"' ]+?)\s*=")
_LINE = re.compile(r" \(at (?:line (\d+), column \d+|end of document)\)$")


_SECRET = re.compile(r"(token|password|passwd|secret|api_?key|credentials?)$", re.IGNORECASE)
_MAX_NAME_CHARS = 80
_SIMILARITY = 0.8
"""Similarity of names without their section: `batchsize` means `batch_size`, `nosection` does not mean `seconds`."""
_ALL_KEYS_HINT = "'parcelpost init' writes a file that explains every key"


class SettingsBuilder:
    """Collects values from all sources with their origins, and every problem."""

    def __init__(self) -> None:
        self.values: dict[str, Any] = {name: key.default for name, key in KEYS.items()}
        self.origins: dict[str, str] = dict.fromkeys(KEYS, "default")
        self.platforms: dict[str, PlatformSettings] = {}
        self.field_maps: dict[str, FieldMapSettings] = {}
        self.schedules: dict[str, ScheduleSettings] = {}
        self.problems: list[Finding] = []
        self.warnings: list[str] = []

    def set_text(self, name: str, text: str, origin: str) -> None:
        """Sets a value from the environment or a flag."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_text(key, text), origin)
        except ValueError:
            self._invalid(key, form(key), shown(key, text), origin)

    def set_toml(self, name: str, value: Any, origin: str) -> None:
        """Sets a value from the file."""
        if (key := KEYS.get(name)) is None:
            self._unknown(name, origin)
            return
        try:
            self._set(key, from_toml(key, value), origin)
        except ValueError:
            self._invalid(key, form(key, in_file=True), shown(key, value), origin)

    def add_problem(self, message: str, fix: str) -> None:
        self.problems.append(Finding.of("settings.invalid", message, fix))

    def _set(self, key: Key, value: Any, origin: str) -> None:
        self.values[key.name] = value
        self.origins[key.name] = origin

    def _invalid(self, key: Key, valid: str, given: str, origin: str) -> None:
        instead = f", not {given}" if given else ""
        self.add_problem(f"{origin}: {key.name} must be {valid}{instead}", _ALL_KEYS_HINT)

    def _unknown(self, name: str, origin: str) -> None:
        short = name if len(name) <= _MAX_NAME_CHARS else f"{name[:_MAX_NAME_CHARS]}..."
        if _SECRET.search(name):
            self.add_problem(
                f"{origin}: {short} looks like a secret, and secrets are not settings",
                "remove it, and put the token into PARCELPOST_GATEWAY_TOKEN or the file that gateway.token_file names; "
                "replace the token if others could read it here",
            )
            return
        close = _nearest(name)
        self.add_problem(
            f"{origin}: unknown setting {short}" + (f" (did you mean {close}?)" if close else ""), _ALL_KEYS_HINT
        )


def _nearest(name: str) -> str:
    """Returns the key that was probably meant, or ''. Prefers the same name in another section."""
    _, _, field = name.rpartition(".")
    same = [key.name for key in KEYS.values() if key.field == field]
    close = difflib.get_close_matches(name, same or KEYS, n=1, cutoff=0.0 if same else 0.6)
    if not close and (
        fields := difflib.get_close_matches(field, [key.field for key in KEYS.values()], n=1, cutoff=_SIMILARITY)
    ):
        close = [key.name for key in KEYS.values() if key.field == fields[0]]
    return close[0] if close else ""


def find_file(config: Path | None, environment: Mapping[str, str]) -> Path | None:
    """Returns `config`, else the file that PARCELPOST_CONFIG names, else ./parcelpost.toml if it exists."""
    if config is not None:
        return config
    if named := environment.get(VARIABLE):
        return Path(named)
    return DEFAULT if os.path.lexists(DEFAULT) else None  # a dangling link is an error


def _read_file(path: Path, into: SettingsBuilder) -> None:
    text = _text(path, into)
    if text is None:
        return
    try:
        document = tomllib.loads(text)
    except RecursionError:
        into.add_problem(f"{path}: not valid TOML: too deeply nested", _SYNTAX_HINT)
    except ValueError as error:
        match = _LINE.search(str(error))
        line = match[1] or len(text.splitlines()) if match else 0
        reason = _LINE.sub("", str(error))
        into.add_problem(
            f"{path}:{line}: not valid TOML: {reason}" if line else f"{path}: not valid TOML: {reason}", _SYNTAX_HINT
        )
    else:
        _set_all(document, path, lines(text), into)


_SYNTAX_HINT = "write a section as [sync], a setting below it as batch_size = 50, and text in quotes"


def _text(path: Path, into: SettingsBuilder) -> str | None:
    try:
        with path.open("rb") as file:
            content = file.read(_MAX_BYTES + 1)
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
        into.add_problem(f"the settings file {path} cannot be read: {reason}", f"check --config and {VARIABLE}")
        return None
    if len(content) > _MAX_BYTES:
        into.add_problem(f"{path} is larger than 1 MiB", "set --config to the settings file")
        return None
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        line = content.count(b"\n", 0, error.start) + 1
        into.add_problem(f"{path}:{line}: not UTF-8", "save the file as UTF-8")
        return None


def _set_all(document: dict[str, Any], path: Path, where: Mapping[str, int], into: SettingsBuilder) -> None:
    def origin(name: str) -> str:
        line = where.get(name) or where.get(name.rpartition(".")[0]) or where.get(name.partition(".")[0])
        return f"{path}:{line}" if line else str(path)

    for section, entries in document.items():
        if section == PLATFORMS:
            _set_platforms(entries, origin, into)
        elif section == FIELD_MAPS:
            _set_field_maps(entries, origin, into)
        elif section == SCHEDULES:
            _set_schedules(entries, origin, into)
        elif isinstance(entries, dict) and (entries or section in Settings.__struct_fields__):
            for field, value in entries.items():
                into.set_toml(f"{section}.{field}", value, origin(f"{section}.{field}"))
        elif section in Settings.__struct_fields__:
            into.add_problem(f"{origin(section)}: {section} is a section, not a setting", _SYNTAX_HINT)
        else:
            into.set_toml(section, entries, origin(section))


def lines(text: str) -> dict[str, int]:
    """Returns the line on which each section and key first appears, found without a TOML parser."""
    numbers: dict[str, int] = {}
    section = ""
    for number, line in enumerate(text.splitlines(), 1):
        if header := _HEADER.fullmatch(line):
            section = _bare(header[1])
            numbers.setdefault(section, number)
        elif entry := _ENTRY.match(line):
            name = _bare(entry[1])
            numbers.setdefault(f"{section}.{name}" if section else name, number)
    return numbers


def _bare(name: str) -> str:
    return ".".join(part.strip(" \t\"'") for part in name.split("."))


PLATFORMS = "platforms"

_KEYS = ("scrape", "parse", "class")
_VALID_NAME = "at most 100 letters, digits, '_', '-' and '.'"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]{0,99}", re.ASCII)
_PLACE = re.compile(r"[^\W\d]\w*(\.[^\W\d]\w*)*:[^\W\d]\w*(\.[^\W\d]\w*)*")
_METHOD = re.compile(r"[^\W\d]\w*")
_PLATFORM_REMEDY = 'write it as scrape = "my_package.my_module:my_function"'


def _named_sections(
    key: str, tables: Any, origin: Callable[[str], str], into: SettingsBuilder
) -> Iterator[tuple[str, str, Mapping[str, Any]]]:
    """Yields name, key and content of each section such as `[platforms.mycounty]`. Adds a problem for each bad one.

    `origin` returns the line of a name in the file.
    """
    kind, remedy = _NAMED_SECTIONS[key]
    if not isinstance(tables, Mapping):
        into.add_problem(f"{origin(key)}: {key} is a section, not a setting", remedy)
        return
    for name, entries in tables.items():
        where = f"{key}.{name}"
        if not _NAME.fullmatch(name):
            into.add_problem(f"{origin(key)}: a {kind}'s name must be {_VALID_NAME}, not {name!a:.60}", remedy)
        elif not isinstance(entries, Mapping):
            into.add_problem(f"{origin(where)}: {where} must be a section of its own", remedy)
        else:
            yield name, where, entries


def _set_platforms(tables: Any, origin: Callable[[str], str], into: SettingsBuilder) -> None:
    for _, where, entries in _named_sections(PLATFORMS, tables, origin, into):
        _set_platform(where, entries, origin, into)


def _set_platform(where: str, entries: Mapping[str, Any], origin: Callable[[str], str], into: SettingsBuilder) -> None:
    valid: dict[str, str] = {}
    for key, value in entries.items():
        at = f"{where}.{key}"
        if key not in _KEYS:
            close = difflib.get_close_matches(key, _KEYS, n=1, cutoff=0.0)
            into.add_problem(
                f"{origin(at)}: unknown setting {at:.120} (did you mean {where}.{close[0]}?)", _ALL_KEYS_HINT
            )
        elif problem := _platform_problem(key, value, of_class="class" in entries):
            into.add_problem(f"{origin(at)}: {at} must be {problem}", _PLATFORM_REMEDY)
        else:
            valid[key] = value
            into.origins[at] = origin(at)
    if not {"scrape", "class"} & entries.keys():
        into.add_problem(f"{origin(where)}: {where} sets neither scrape (a function) nor class", _PLATFORM_REMEDY)
    name = where.removeprefix(f"{PLATFORMS}.")
    into.platforms[name] = PlatformSettings(
        scrape=valid.get("scrape", ""), parse=valid.get("parse", ""), class_=valid.get("class", "")
    )


def _platform_problem(key: str, value: Any, *, of_class: bool) -> str:
    """Returns what a valid value is, '' if this one is valid."""
    if of_class and key != "class":
        return "" if isinstance(value, str) and _METHOD.fullmatch(value) else "the name of a method of the class"
    return (
        ""
        if isinstance(value, str) and _PLACE.fullmatch(value)
        else "an import path such as my_package.my_module:my_name"
    )


FIELD_MAPS = "field_maps"

_FIELD_MAP_REMEDY = "write it as [field_maps.mylayer] and [field_maps.mylayer.fields]"


def _set_field_maps(tables: Any, origin: Callable[[str], str], into: SettingsBuilder) -> None:
    """The scrapers validate the maps."""
    for name, where, given in _named_sections(FIELD_MAPS, tables, origin, into):
        into.field_maps[name] = FieldMapSettings(origin=origin(where), given=given)


SCHEDULES = "schedules"

_SCHEDULE_REMEDY = (
    'write it as [schedules.columbia] with platform, state, county and every = "7d" or cron = "0 2 * * 1"; '
    "at, timezone, window, pace, filter, file, list, url and paused are optional"
)


class _GivenSchedule(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    platform: str
    state: str
    county: str
    every: str = ""
    at: str = ""
    timezone: str = ""
    cron: str = ""
    window: str = ""
    pace: Annotated[float, Meta(ge=0, le=DAY_SECONDS)] = 0.0
    filter: Literal["", "delinquent"] = ""
    file: str = ""
    list: bool = False
    url: str = ""
    paused: bool = False


_NAMED_SECTIONS = {
    PLATFORMS: ("platform", "write it as [platforms.mycounty]"),
    FIELD_MAPS: ("field map", _FIELD_MAP_REMEDY),
    SCHEDULES: ("schedule", _SCHEDULE_REMEDY),
}


def _set_schedules(tables: Any, origin: Callable[[str], str], into: SettingsBuilder) -> None:
    for name, where, entries in _named_sections(SCHEDULES, tables, origin, into):
        try:
            into.schedules[name] = _schedule(msgspec.convert(entries, _GivenSchedule))
            into.origins[where] = origin(where)
        except (InvalidInput, msgspec.ValidationError) as error:
            into.add_problem(f"{origin(where)}: {where}: {error}"[:_MAX_PROBLEM_CHARS], _SCHEDULE_REMEDY)


_MAX_PROBLEM_CHARS = 500


def _schedule(given: _GivenSchedule) -> ScheduleSettings:
    """Raises InvalidInput."""
    if not (given.platform and given.state and given.county):
        raise InvalidInput("platform, state and county must not be empty")
    state_code(given.state)
    county_name(given.county)
    if given.url and not given.list:
        raise InvalidInput("url requires list = true")
    if sum(map(bool, (given.filter, given.file, given.list))) > 1:
        raise InvalidInput("filter, file and list cannot be combined")
    timing = make_timing(given.every, given.at, given.timezone, given.cron)
    interval = longest_interval(timing).total_seconds()
    longest = LIST_SECONDS if given.list else DAY_SECONDS
    window = parse_duration("window", given.window) if given.window else min(interval, longest)
    if window > min(interval, DAY_SECONDS):
        raise InvalidInput("window must not be longer than the interval, nor than a day")
    return ScheduleSettings(
        platform=given.platform,
        state=given.state,
        county=given.county,
        timing=timing,
        window_seconds=window,
        pace_seconds=given.pace,
        delinquent_only=bool(given.filter),
        file=given.file,
        list=given.list,
        url=given.url,
        paused=given.paused,
    )


_PREFIX = "PARCELPOST_"
_VARIABLES = {key.variable: key.name for key in KEYS.values()}
_SHORT_NAMES = {"PARCELPOST_STORE": "storage.path"}
_TOKENS = {TOKEN_VARIABLE, WORKER_TOKENS_VARIABLE, READ_TOKENS_VARIABLE, ADMIN_TOKENS_VARIABLE}
_NOT_SETTINGS = {*_TOKENS, PROXY_LOGIN_VARIABLE, VARIABLE, "PARCELPOST_CORPUS"}


class Loaded(Struct, frozen=True, kw_only=True):
    settings: Settings
    origins: Mapping[str, str]
    """By key: `default`, `parcelpost.toml:12`, `environment PARCELPOST_SYNC_BATCH_SIZE`, `flag --slots`."""
    warnings: tuple[str, ...] = ()
    file: Path | None = None


class Diagnosis(Struct, frozen=True, kw_only=True):
    loaded: Loaded | None
    """None if there is a problem."""
    partly: Settings
    """The valid values, and defaults for the others. For reports only."""
    problems: tuple[Finding, ...]
    warnings: tuple[str, ...]


def load(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    named: Mapping[str, str] | None = None,
) -> Loaded:
    """`flags`: texts by `section.key`; `named`: the flag that set a key, if it was not `--set`.

    Raises InvalidSettings for the first problem.
    """
    diagnosis = diagnose(config=config, environment=environment, flags=flags, named=named)
    if diagnosis.loaded is None:
        first, *others = diagnosis.problems
        more = f" (and {len(others)} more: see 'parcelpost config check')" if others else ""
        raise InvalidSettings(first.message + more, hint=first.fix)
    return diagnosis.loaded


def diagnose(
    *,
    config: Path | None,
    environment: Mapping[str, str],
    flags: Mapping[str, str],
    named: Mapping[str, str] | None = None,
) -> Diagnosis:
    """Like `load`, but returns all problems instead of raising the first."""
    builder = SettingsBuilder()
    file = find_file(config, environment)
    if file is not None:
        _read_file(file, builder)
    _read_environment(environment, builder)
    for name, text in flags.items():
        builder.set_text(name, text, f"flag {(named or {}).get(name, '--set')}")
    if not builder.problems:
        fit_defaults(builder.values, builder.origins)
        builder.problems += check(builder.values, builder.origins)
    warnings = tuple(builder.warnings)
    plain = _settings(builder.values)
    settings = replace(plain, platforms=builder.platforms, field_maps=builder.field_maps, schedules=builder.schedules)
    if builder.problems:
        return Diagnosis(loaded=None, partly=settings, problems=tuple(builder.problems), warnings=warnings)
    loaded = Loaded(settings=settings, origins=builder.origins, warnings=warnings, file=file)
    return Diagnosis(loaded=loaded, partly=settings, problems=(), warnings=warnings)


def _read_environment(environment: Mapping[str, str], into: SettingsBuilder) -> None:
    """Treats an empty variable as unset."""
    given = {name: text for name, text in environment.items() if name.startswith(_PREFIX) and text}
    for name in sorted(given):
        if name in _VARIABLES:
            into.set_text(_VARIABLES[name], given[name], f"environment {name}")
        elif name not in {*_SHORT_NAMES, *_NOT_SETTINGS} and not name.startswith(WEBHOOK_SECRET_VARIABLE):
            into.warnings.append(_unknown(name))
    for name, key in _SHORT_NAMES.items():
        if name in given:
            long = KEYS[key].variable
            if given.get(long, given[name]) != given[name]:
                into.warnings.append(f"{name} and {long} differ: {name} is used")
            into.set_text(key, given[name], f"environment {name}")


def _unknown(variable: str) -> str:
    known = sorted({*_VARIABLES, *_SHORT_NAMES, *_NOT_SETTINGS})
    close = difflib.get_close_matches(variable, known, n=1, cutoff=0.8)
    return f"the environment variable {variable} is not a setting" + (f" (did you mean {close[0]}?)" if close else "")


def _settings(values: Mapping[str, Any]) -> Settings:
    tree: dict[str, dict[str, Any]] = {}
    for name, value in values.items():
        section, _, field = name.partition(".")
        tree.setdefault(section, {})[field] = value
    return msgspec.convert(tree, Settings)
