"""`parcelpost init`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.options import AsJson
from parcelpost.cli.output import fitted, print_json, print_lines, printable, terminal_width

EXAMPLES = """
Examples:

\b
  parcelpost init
  parcelpost init --yes
  parcelpost init --mode ondemand --gateway https://gateway.example.org --slots 8 --yes
  parcelpost init --dir /srv/parcelpost --platforms vgsi,qpublic --yes
"""


def init(
    mode: Annotated[str | None, typer.Option("--mode", metavar="MODE", help="ondemand, legacy or standalone.")] = None,
    gateway: Annotated[str | None, typer.Option("--gateway", metavar="URL", help="The gateway's address.")] = None,
    folder: Annotated[
        Path, typer.Option("--dir", metavar="FOLDER", help="Where the settings file goes, and the store below it.")
    ] = Path(),
    slots: Annotated[str | None, typer.Option("--slots", metavar="N", help="How many tasks run at a time.")] = None,
    platforms: Annotated[
        str | None, typer.Option("--platforms", metavar="A,B", help="Take tasks of these platforms only.")
    ] = None,
    yes: Annotated[bool, typer.Option("--yes", "-y", help="Ask nothing: defaults for what is not given.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Replace a settings file that is there.")] = False,
    as_json: AsJson = False,
) -> None:
    """Write a settings file, parcelpost.toml, with every key in it; ask for what matters first.

    On a terminal it asks for what was not given. Nothing secret is written: it says where the token goes. A file that
    is there stays, without --force.
    """
    from parcelpost.cli import init_asking, init_writing

    init_writing.check_folder(folder, force=force)
    given = init_asking.Wishes(mode=mode, gateway=gateway, slots=slots, platforms=platforms)
    if not yes and sys.stdin.isatty():
        given = init_asking.ask(given)
    chosen = init_asking.chosen(given)
    written = init_writing.write(folder, chosen, force=force)
    if as_json:
        print_json(written)
        return
    print(f"Written: {printable(written.file)} ({written.mode}).")
    print_lines(fitted((f"Note: {printable(note)}." for note in written.notes), terminal_width()))
    print("\nNext:")
    for step in written.next:
        print(f"  {printable(step)}")
