"""`parcelpost top`."""

from __future__ import annotations

import os
import sys
from typing import Annotated

import typer

from parcelpost.cli.output import examples, print_json, print_lines
from parcelpost.cli.settings_options import AsJson, ConfigOption, SetOption, StoreContext, StoreOption, store_context
from parcelpost.errors import InvalidInput

EXAMPLES = examples(
    "parcelpost top",
    "parcelpost top --interval 5",
    "parcelpost top --once | less -R",
    "parcelpost top --json | jq .queue.pending",
)


def top(
    interval: Annotated[
        float, typer.Option("--interval", metavar="SECONDS", min=0.2, max=3_600, help="Time between updates.")
    ] = 1.0,
    once: Annotated[bool, typer.Option("--once", help="Print everything once and exit.")] = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a live view of the worker: problems, queue, outbox, sync, rates, slots, platforms, browsers, errors.

    Read-only; works even if no worker is running. Press q or Ctrl-C to quit, ? to list the other keys.
    """
    from parcelpost.cli import context

    store = store_context(store_path, config, set_)
    if once or as_json:
        from parcelpost.cli.top.data import read_once
        from parcelpost.cli.top.terminal import open_console
        from parcelpost.cli.top.view import printed_frame

        data = context.run_async(store, read_once(store))
        if as_json:
            print_json(data)
            return
        console = open_console()
        with console.capture() as captured:
            console.print(printed_frame(data, console))
        print_lines(line.rstrip() for line in captured.get().splitlines())
    elif code := context.run_async(store, _live(store, interval)):
        raise typer.Exit(code)


async def _live(store: StoreContext, interval: float) -> int:
    from parcelpost.cli.top.terminal import LiveScreen, can_draw, open_console

    if not sys.stdout.isatty() or not can_draw(os.environ):
        why = (
            "this terminal does not support moving the cursor"
            if sys.stdout.isatty()
            else "the output is not a terminal"
        )
        raise InvalidInput(
            f"cannot show a live view: {why}",
            hint="use 'parcelpost top --once', or 'parcelpost status --watch' for updates line by line",
        )
    return await LiveScreen(store, open_console(), interval).run()
