"""Options that several commands share."""

from __future__ import annotations

import shlex
from collections.abc import Collection
from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.given import config_given, settled, settled_without_options
from parcelpost.errors import InvalidSettings
from parcelpost.model import Source

DEFAULT_STORE = Path("local_data/parcelpost.db")
_VARIABLE = "PARCELPOST_STORE"


def settled_store() -> Path:
    """The store when no option names one: as the settings say. Raises InvalidSettings."""
    return Path(settled().storage.path)


def _store(context: typer.Context, value: Path) -> Path:
    source = context.get_parameter_source("store")
    return value if source is not None and source.name == "COMMANDLINE" else settled_store()


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
    return f"parcelpost {words}{_named(store)}"


def store_command(words: str, store: Path) -> str:
    return command_line(f"store {words}", store)


OF_AN_UPSTREAM = frozenset({Source.GATEWAY, Source.FIRESTORE})


def has_upstream() -> bool:
    """Whether the settings name one."""
    settings = settled()
    return bool(settings.gateway.url) or settings.worker.upstream == "firestore"


def upstream_name() -> str:
    return "Firestore" if settled().worker.upstream == "firestore" else "the gateway"


def run_command(store: Path, sources: Collection[Source]) -> str:
    """A `parcelpost run` that does what came from there. With no upstream set, its tasks and theirs differ."""
    settings = settled()
    if has_upstream():
        mode = ""
    elif Source.FIRESTORE in sources:
        mode = " --mode ondemand --upstream firestore"
    elif OF_AN_UPSTREAM.intersection(sources):
        mode = " --mode ondemand --gateway URL"
    else:
        mode = "" if settings.worker.mode == "standalone" else " --mode standalone"
    return f"parcelpost run{mode}{_named(store)}"


def _is_understood(store: Path) -> bool:
    try:
        return store == Path(settled_without_options().storage.path)
    except InvalidSettings:  # --config and --set may have led to others
        return False


def _named(store: Path) -> str:
    """The options that lead there: none where a command without any would look at it."""
    if _is_understood(store):
        return ""
    config = config_given()
    if config is not None and store == settled_store():
        return f" --config {shlex.quote(str(config))}"
    return f" --store {shlex.quote(str(store))}"
