"""`parcelpost top`."""

from __future__ import annotations

import os
import shutil
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import print_json, print_lines
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from collections.abc import Mapping

    from parcelpost.cli.top.data import ScreenData


EXAMPLES = """
Examples:

\b
  parcelpost top
  parcelpost top --interval 5
  parcelpost top --once | less -R
  parcelpost top --json | jq .queue.pending
"""

_PRINTED_LINES = 60


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3_600, help="How often it looks.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print one frame and end.")] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Show a live screen of the worker: queue, slots, outbox, sync, rates, platforms, browsers, errors.

    Only looks: nothing is created or changed, and no worker need run. q or Ctrl-C ends it, ? tells of the other keys.
    """
    from parcelpost.cli import context

    if once or as_json:
        from parcelpost.cli.top.data import gather_once as look

        seen = context.run_async(store, look(store))
        print_json(seen) if as_json else _print_frame(seen)
        return
    if code := context.run_async(store, _live(store, interval)):
        raise typer.Exit(code)


def _print_frame(seen: ScreenData) -> None:
    from parcelpost.cli.top.frame import frame
    from parcelpost.cli.top.text import ansi, plain
    from parcelpost.cli.top.view import ViewState

    size = shutil.get_terminal_size()
    lines = _PRINTED_LINES if not sys.stdout.isatty() else max(size.lines - 1, 10)
    how = ViewState(is_live=False, ascii_only=not has_utf8(os.environ, sys.stdout.encoding or ""))
    found = frame(seen, size.columns, lines, how)
    styled = sys.stdout.isatty() and can_draw(os.environ)
    print_lines(ansi(line, color=has_color(os.environ)).rstrip() if styled else plain(line) for line in found)


async def _live(store: Path, interval: float) -> int:
    from parcelpost.cli.top.screen import LiveScreen, Screen
    from parcelpost.cli.top.view import ViewState

    if not sys.stdout.isatty() or not can_draw(os.environ):
        why = "its terminal cannot move a cursor" if sys.stdout.isatty() else "its output is not a terminal"
        raise InvalidInput(
            f"'parcelpost top' cannot show a live screen: {why}",
            hint="'parcelpost top --once' prints one frame, 'parcelpost status --watch' goes on line by line",
        )
    keys = sys.stdin.fileno() if sys.stdin.isatty() else None
    screen = Screen(sys.stdout.fileno(), keys, color=has_color(os.environ))
    how = ViewState(ascii_only=not has_utf8(os.environ, sys.stdout.encoding or ""), interval=interval)
    return await LiveScreen(store, screen, keys, how).run()


def can_draw(environment: Mapping[str, str]) -> bool:
    return environment.get("TERM", "") not in ("", "dumb", "unknown")


def has_color(environment: Mapping[str, str]) -> bool:
    """https://no-color.org"""
    return not environment.get("NO_COLOR")


def has_utf8(environment: Mapping[str, str], encoding: str) -> bool:
    """As the locale says, and not as Python makes it where there is none: it then sets LC_CTYPE itself."""
    if encoding.lower().replace("-", "") != "utf8":
        return False
    chosen = environment.get("LC_ALL") or environment.get("LC_CTYPE") or environment.get("LANG") or ""
    made_up = (
        chosen == "C.UTF-8" and not environment.get("LC_ALL") and environment.get("LANG", "") in ("", "C", "POSIX")
    )
    return "utf8" in chosen.lower().replace("-", "") and not made_up
