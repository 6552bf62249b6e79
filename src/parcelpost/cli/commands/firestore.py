"""The `parcelpost firestore` commands: rules, indexes and layout for a Firestore project."""

from __future__ import annotations

from enum import StrEnum
from importlib.resources import files
from typing import Annotated

import typer

from parcelpost.cli.output import examples

EXAMPLES = examples(
    "parcelpost firestore show layout",
    "parcelpost firestore show rules > firestore.rules",
    "parcelpost firestore show indexes > firestore.indexes.json",
    "parcelpost firestore show project > firebase.json && firebase deploy --only firestore --project my-project",
)

app = typer.Typer(
    help="Print the security rules, indexes and layout for using Firestore as the upstream.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=EXAMPLES,
)


class Shipped(StrEnum):
    RULES = "rules"
    INDEXES = "indexes"
    LAYOUT = "layout"
    PROJECT = "project"


_FILES = {
    Shipped.RULES: "firestore.rules",
    Shipped.INDEXES: "firestore.indexes.json",
    Shipped.LAYOUT: "README.md",
    Shipped.PROJECT: "firebase.json",
}


@app.callback()
def _group() -> None:
    pass


@app.command("show", epilog=EXAMPLES)
def show(what: Annotated[Shipped, typer.Argument(metavar="WHAT", help="rules, indexes, layout or project.")]) -> None:
    """Print a file that a Firestore project needs: security rules, indexes, collection layout or firebase.json.

    Works without a Firestore project or its Python packages.
    """
    text = files("parcelpost").joinpath("upstream", "firestore", "project", _FILES[what]).read_text(encoding="utf-8")
    print(text, end="")
