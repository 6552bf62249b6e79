"""Where settings come from: defaults, then parcelpost.toml, then the environment, then flags; the last one wins."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import InvalidSettings
from parcelpost.settings import toml_file
from parcelpost.settings.checks import check, check_runnable, fit_defaults
from parcelpost.settings.forms import KEYS
from parcelpost.settings.gathering import Gathering, Problem
from parcelpost.settings.keys import Settings
from parcelpost.settings.secrets import (
    ADMIN_TOKENS_VARIABLE,
    PROXY_LOGIN_VARIABLE,
    READ_TOKENS_VARIABLE,
    TOKEN_VARIABLE,
    WORKER_TOKENS_VARIABLE,
)

__all__ = ["Found", "Loaded", "Problem", "check_runnable", "load", "look", "pairs"]

_PREFIX = "PARCELPOST_"
_VARIABLES = {key.variable: key.name for key in KEYS.values()}
_SHORT_NAMES = {"PARCELPOST_STORE": "storage.path"}
_TOKENS = {TOKEN_VARIABLE, WORKER_TOKENS_VARIABLE, READ_TOKENS_VARIABLE, ADMIN_TOKENS_VARIABLE}
_NO_SETTINGS = {*_TOKENS, PROXY_LOGIN_VARIABLE, toml_file.VARIABLE, "PARCELPOST_CORPUS"}


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
    file = toml_file.find(config, environment)
    if file is not None:
        toml_file.gather(file, gathering)
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
