"""The settings of one command: --config and --set of its command line, the environment, the settings file."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from parcelpost.settings import Settings
    from parcelpost.settings.sources import Diagnosis

_config: ContextVar[Path | None] = ContextVar("config", default=None)
_pairs: ContextVar[tuple[str, ...]] = ContextVar("pairs", default=())
_used: ContextVar[Settings | None] = ContextVar("used", default=None)


def _take_config(value: Path | None) -> Path | None:
    _config.set(value)
    return value


def _take_pairs(value: list[str] | None) -> list[str] | None:
    _pairs.set(tuple(value or ()))
    return value


# Eager: they are taken before --store, whose default depends on them.
_OPTIONS = {
    "config": Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="PATH",
            is_eager=True,
            callback=_take_config,
            help="The settings file. Else $PARCELPOST_CONFIG, else parcelpost.toml.",
        ),
    ],
    "set_": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            is_eager=True,
            callback=_take_pairs,
            help="Set one setting, as in storage.max_bytes=2000000000. May be repeated.",
        ),
    ],
}


def with_settings(command: Callable[..., None]) -> Callable[..., None]:
    """The command takes --config and --set, as `run` does. `settled` knows them; the command need not."""

    @wraps(command)
    def taking(*, config: object = None, set_: object = None, **others: Any) -> None:
        command(**others)

    own = signature(command, eval_str=True)
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _OPTIONS.items()]
    taking.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    taking.__annotations__ = {name: one.annotation for name, one in own.parameters.items()} | _OPTIONS
    return taking


def settled() -> Settings:
    """Raises InvalidSettings."""
    from parcelpost.settings.sources import load, parse_set

    if (used := _used.get()) is not None:
        return used
    return load(config=_config.get(), environment=os.environ, flags=parse_set(_pairs.get())).settings


def settled_without_options() -> Settings:
    """As a command finds them that is given no option. Raises InvalidSettings."""
    from parcelpost.settings.sources import load

    return load(config=None, environment=os.environ, flags={}).settings


def looked_at() -> Diagnosis:
    """The settings with all that is wrong with them. Raises InvalidSettings for a --set that is none."""
    from parcelpost.settings.sources import diagnose, parse_set

    return diagnose(config=_config.get(), environment=os.environ, flags=parse_set(_pairs.get()))


@contextmanager
def using(settings: Settings) -> Iterator[None]:
    """Within it these are the settings, whatever the sources say: for a look around where some cannot be used."""
    before = _used.set(settings)
    try:
        yield
    finally:
        _used.reset(before)


def config_given() -> Path | None:
    return _config.get()
