"""`parcelpost store check`."""

from __future__ import annotations

from typing import Annotated

import typer

from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath, store_command
from parcelpost.cli.output import count, print_json, printable

EXAMPLES = """
Examples:

\b
  parcelpost store check
  parcelpost store check --deep
  parcelpost store check --json | jq '.problems[].remedy'
"""


def check(
    deep: Annotated[
        bool, typer.Option("--deep", help="Also compare every index with its table, and every page with its hash.")
    ] = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Check that the store is whole: the file, its references, and the pages that wait to be delivered.

    Exits with 1 when something is wrong, and says how to mend it. Only looks: nothing is changed.
    """
    from parcelpost.cli import checking, running

    found = running.run(store, checking.check(store, deep=deep))
    if as_json:
        print_json(found)
    else:
        for problem in found.problems:
            print(f"Problem: {printable(problem.what)}. What to do: {printable(problem.remedy)}.")
        print("The store is whole." if found.ok else f"{count(len(found.problems), 'problem')} found.")
        if found.pages:
            how = "compared with its hash" if deep else "looked for"
            print(f"{count(found.pages, 'page')} of undelivered results, each {how}.")
        if found.orphans:
            remove = store_command("clean", store)
            print(f"{count(found.orphans, 'page')} named by no result; '{remove}' removes those older than a day.")
    if not found.ok:
        raise typer.Exit(1)
