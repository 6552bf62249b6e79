"""Command-line options that commands share (--config, --set, --store), and the settings and store they select."""

from __future__ import annotations

import os
import re
import shlex
import sys
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer

from parcelpost.errors import InvalidInput, InvalidSettings
from parcelpost.model import Source

if TYPE_CHECKING:
    from parcelpost.settings import Settings


ConfigOption = Annotated[
    Path | None,
    typer.Option("--config", metavar="PATH", help="Settings file. [default: $PARCELPOST_CONFIG, else parcelpost.toml]"),
]
SetOption = Annotated[
    list[str] | None,
    typer.Option("--set", metavar="KEY=VALUE", help="Override one setting, such as sync.batch_size=20. Repeatable."),
]
StoreOption = Annotated[
    Path | None,
    typer.Option(
        "--store",
        metavar="PATH",
        readable=False,  # a store that cannot be read gets an error message of our own
        help="Store file. [default: $PARCELPOST_STORE, else storage.path from the settings]",
    ),
]


class StoreContext(NamedTuple):
    """The store that a command works on, and the settings that the command runs with."""

    path: Path
    settings: Settings
    config: Path | None = None
    """The value of --config."""


def parse_set(options: Iterable[str]) -> dict[str, str]:
    """Parses `--set section.key=value`; for a repeated key, the last one counts. Raises InvalidSettings without `=`."""
    from parcelpost.settings.schema import KEYS

    flags: dict[str, str] = {}
    for option in options:
        name, equals, text = option.partition("=")
        if not equals:
            shown = re.match(r"[\w.]*", option)
            key = f" '{shown[0]}'" if shown and shown[0] in KEYS else ""
            raise InvalidSettings(
                f"--set{key} has no value", hint="write --set section.key=value, as in --set sync.batch_size=50"
            )
        flags[name.strip()] = text
    return flags


def load_settings(
    config: Path | None, set_: Sequence[str] | None, flags: Mapping[str, tuple[str, str | None]] | None = None
) -> Settings:
    """Returns the settings for a command called with these options. Prints warnings. Raises InvalidSettings.

    `flags`: the setting behind each flag of the command, and the text given, as in
    `{"--slots": ("executor.slots", "4")}`. They override --set.
    """
    from parcelpost.settings.sources import load

    texts = parse_set(set_ or ())
    origins = {}
    for flag, (name, text) in (flags or {}).items():
        if text is not None:
            texts[name], origins[name] = text, flag
    loaded = load(config=config, environment=os.environ, flags=texts, named=origins)
    for warning in loaded.warnings:
        print(f"note: {warning}", file=sys.stderr)
    return loaded.settings


def store_context(store: Path | None, config: Path | None, set_: Sequence[str] | None) -> StoreContext:
    """The store that --store names, else storage.path. Raises InvalidSettings."""
    settings = load_settings(config, set_)
    return StoreContext(store or Path(settings.storage.path), settings, config)


_AGE = re.compile(r"(\d{1,9}(?:\.\d{1,3})?) ?(s|min|m|h|d|w)(?:ours?|ays?|eeks?)?", re.IGNORECASE)
_UNIT_SECONDS = {"s": 1, "m": 60, "min": 60, "h": 3_600, "d": 86_400, "w": 604_800}


def parse_moment(text: str, now: datetime) -> datetime:
    """`2026-11-15`, `2026-11-15T19:50`, `2h` (ago), `3d`: UTC unless it has a time zone. Raises InvalidInput."""
    stripped = text.strip()
    try:
        if match := _AGE.fullmatch(stripped):
            return now - timedelta(seconds=float(match[1]) * _UNIT_SECONDS[match[2].lower()])
        parsed = datetime.fromisoformat(stripped)
        return (parsed if parsed.tzinfo else parsed.replace(tzinfo=UTC)).astimezone(UTC)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"not a valid date or time: {text!r:.80}",
            hint="use a date or time such as 2026-11-15 or 2026-11-15T19:50, or an age such as 30min, 2h or 3d",
        ) from None


AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")]
Yes = Annotated[bool, typer.Option("--yes", "-y", help="Do not ask for confirmation.")]
Limit = Annotated[int, typer.Option("--limit", metavar="N", min=1, help="Show at most this many.")]
After = Annotated[
    int,
    typer.Option(
        "--after", metavar="N", min=0, help="Continue after this number, as printed at the end of a truncated list."
    ),
]
Platform = Annotated[str | None, typer.Option("--platform", metavar="NAME", help="Only this platform.")]
AnyPlatform = Annotated[
    bool,
    typer.Option(
        "--any-platform", help="Accept platforms and counties that are unknown here; other workers may know them."
    ),
]


def command_line(words: str, store: StoreContext) -> str:
    """A command to copy and paste: it names the store unless that is the default one."""
    return f"parcelpost {words}{_store_options(store)}"


def store_command(words: str, store: StoreContext) -> str:
    return command_line(f"store {words}", store)


UPSTREAM_SOURCES = frozenset({Source.GATEWAY, Source.FIRESTORE})


def has_upstream(settings: Settings) -> bool:
    return bool(settings.gateway.url) or settings.worker.upstream == "firestore"


def upstream_name(settings: Settings) -> str:
    return "Firestore" if settings.worker.upstream == "firestore" else "the gateway"


def run_command(store: StoreContext, sources: Collection[Source]) -> str:
    """The `parcelpost run` command for tasks from these sources, even if the settings name no upstream."""
    if has_upstream(store.settings):
        mode = ""
    elif Source.FIRESTORE in sources:
        mode = " --mode ondemand --upstream firestore"
    elif UPSTREAM_SOURCES.intersection(sources):
        mode = " --mode ondemand --gateway URL"
    else:
        mode = "" if store.settings.worker.mode == "standalone" else " --mode standalone"
    return f"parcelpost run{mode}{_store_options(store)}"


def _store_options(store: StoreContext) -> str:
    """The options that select the store; empty if it is the default one."""
    from parcelpost.settings.sources import load

    try:
        if store.path == Path(load(config=None, environment=os.environ, flags={}).settings.storage.path):
            return ""
    except InvalidSettings:  # the command may have been called with a --config that is valid
        pass
    if store.config is not None and store.path == Path(store.settings.storage.path):
        return f" --config {shlex.quote(str(store.config))}"
    return f" --store {shlex.quote(str(store.path))}"


Database = Annotated[
    str | None,
    typer.Option(
        "--database", metavar="WHERE", help="Ledger: an SQLite file or postgresql://... [default: server.database]"
    ),
]


def gateway_settings(database: str | None, config: Path | None, set_: Sequence[str] | None) -> Settings:
    """The settings for a command with --database. Raises InvalidSettings."""
    return load_settings(config, set_, {"--database": ("server.database", database)})


def profiles_folder(store: Path) -> Path:
    return store.parent / "browser_profiles"
