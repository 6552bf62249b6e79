"""Command-line options that several commands share, and the settings that a command runs with."""

from __future__ import annotations

import os
import re
import shlex
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from datetime import UTC, datetime, timedelta
from functools import wraps
from inspect import Parameter, signature
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.errors import InvalidInput, InvalidSettings
from parcelpost.model import Source

if TYPE_CHECKING:
    from parcelpost.settings import Settings
    from parcelpost.settings.sources import Diagnosis


_config: ContextVar[Path | None] = ContextVar("config", default=None)
_pairs: ContextVar[tuple[str, ...]] = ContextVar("pairs", default=())
_override: ContextVar[Settings | None] = ContextVar("used", default=None)


def _store_config(value: Path | None) -> Path | None:
    _config.set(value)
    return value


def _store_pairs(value: list[str] | None) -> list[str] | None:
    _pairs.set(tuple(value or ()))
    return value


# Eager: they are taken before --store, whose default depends on them.
_SETTINGS_OPTIONS = {
    "config": Annotated[
        Path | None,
        typer.Option(
            "--config",
            metavar="PATH",
            is_eager=True,
            callback=_store_config,
            help="The settings file. Else $PARCELPOST_CONFIG, else parcelpost.toml.",
        ),
    ],
    "set_": Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="KEY=VALUE",
            is_eager=True,
            callback=_store_pairs,
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
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind)
        for name, kind in _SETTINGS_OPTIONS.items()
    ]
    taking.__signature__ = own.replace(parameters=[*own.parameters.values(), *added])  # type: ignore[attr-defined]
    taking.__annotations__ = {name: one.annotation for name, one in own.parameters.items()} | _SETTINGS_OPTIONS
    return taking


def current_settings() -> Settings:
    """Raises InvalidSettings."""
    from parcelpost.settings.sources import load, parse_set

    if (used := _override.get()) is not None:
        return used
    return load(config=_config.get(), environment=os.environ, flags=parse_set(_pairs.get())).settings


def default_settings() -> Settings:
    """As a command finds them that is given no option. Raises InvalidSettings."""
    from parcelpost.settings.sources import load

    return load(config=None, environment=os.environ, flags={}).settings


def diagnose_settings() -> Diagnosis:
    """The settings with all that is wrong with them. Raises InvalidSettings for a --set that is none."""
    from parcelpost.settings.sources import diagnose, parse_set

    return diagnose(config=_config.get(), environment=os.environ, flags=parse_set(_pairs.get()))


@contextmanager
def override_settings(settings: Settings) -> Iterator[None]:
    """Within it these are the settings, whatever the sources say: for a look around where some cannot be used."""
    before = _override.set(settings)
    try:
        yield
    finally:
        _override.reset(before)


def config_option() -> Path | None:
    return _config.get()


_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(s|min|m|h|d|w)(?:ours?|ays?|eeks?)?", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-15`, `2026-11-15T19:50`, `2h` (ago), `3d`: UTC unless a zone is said. Raises InvalidInput."""
    words = text.strip()
    try:
        if found := _AGE.fullmatch(words):
            return now - timedelta(seconds=float(found[1]) * _UNIT_SECONDS[found[2].lower()])
        read = datetime.fromisoformat(words)
        return (read if read.tzinfo else read.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"{text!r:.80} is no moment", hint="such as 2026-11-15, 2026-11-15T19:50, 30min, 2h or 3d (that long ago)"
        ) from None


DEFAULT_STORE = Path("local_data/parcelpost.db")
_VARIABLE = "PARCELPOST_STORE"


def default_store() -> Path:
    """The store when no option names one: as the settings say. Raises InvalidSettings."""
    return Path(current_settings().storage.path)


def _store(context: typer.Context, value: Path) -> Path:
    source = context.get_parameter_source("store")
    return value if source is not None and source.name == "COMMANDLINE" else default_store()


StorePath = Annotated[
    Path,
    typer.Option(
        "--store",
        envvar=_VARIABLE,
        metavar="PATH",
        callback=_store,
        readable=False,  # a store that cannot be read is told of in our words
        help="The store's file; else storage.path.",
    ),
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many.")]
After = Annotated[
    int, typer.Option("--after", metavar="N", min=0, help="Go on after this one: the number a full list ends with.")
]
Platform = Annotated[str | None, typer.Option("--platform", metavar="NAME", help="Only of this platform.")]
Parcel = Annotated[str | None, typer.Option("--parcel", metavar="ID", help="Only of this parcel id.")]
AnyPlatform = Annotated[
    bool, typer.Option("--any-platform", help="Take a platform or a county that is not known here: other workers may.")
]
ConfigPath = Annotated[
    Path | None,
    typer.Option("--config", metavar="PATH", help="The settings file. Else $PARCELPOST_CONFIG, else parcelpost.toml."),
]
SetOptions = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Set one setting, as in sync.batch_size=20. May be repeated."),
]


def command_line(words: str, store: Path) -> str:
    """A command that can be pasted as it is: it names the store unless that is understood."""
    return f"parcelpost {words}{_store_options(store)}"


def store_command(words: str, store: Path) -> str:
    return command_line(f"store {words}", store)


UPSTREAM_SOURCES = frozenset({Source.GATEWAY, Source.FIRESTORE})


def has_upstream() -> bool:
    """Whether the settings name one."""
    settings = current_settings()
    return bool(settings.gateway.url) or settings.worker.upstream == "firestore"


def upstream_name() -> str:
    return "Firestore" if current_settings().worker.upstream == "firestore" else "the gateway"


def run_command(store: Path, sources: Collection[Source]) -> str:
    """A `parcelpost run` that does what came from there. With no upstream set, its tasks and theirs differ."""
    settings = current_settings()
    if has_upstream():
        mode = ""
    elif Source.FIRESTORE in sources:
        mode = " --mode ondemand --upstream firestore"
    elif UPSTREAM_SOURCES.intersection(sources):
        mode = " --mode ondemand --gateway URL"
    else:
        mode = "" if settings.worker.mode == "standalone" else " --mode standalone"
    return f"parcelpost run{mode}{_store_options(store)}"


def _is_default_store(store: Path) -> bool:
    try:
        return store == Path(default_settings().storage.path)
    except InvalidSettings:  # --config and --set may have led to others
        return False


def _store_options(store: Path) -> str:
    """The options that lead there: none where a command without any would look at it."""
    if _is_default_store(store):
        return ""
    config = config_option()
    if config is not None and store == default_store():
        return f" --config {shlex.quote(str(config))}"
    return f" --store {shlex.quote(str(store))}"


Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="WHERE", help="The ledger: an SQLite file or postgresql://...; else server.database."
    ),
]


def profiles_folder(store: Path) -> Path:
    return store.parent / "browser_profiles"
