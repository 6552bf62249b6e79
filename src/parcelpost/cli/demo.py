"""`parcelpost demo`: a worker is killed half-way, and nothing is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Annotated

import typer

from parcelpost.cli.output import print_lines, table
from parcelpost.errors import InvalidInput

EXAMPLES = """
Examples:

\b
  parcelpost demo
  parcelpost demo --tasks 20000
  parcelpost demo --dir /tmp/parcelpost-demo
"""


def demo(
    tasks: Annotated[int, typer.Option("--tasks", min=200, max=100_000, help="How many tasks to store.")] = 3_000,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work here, and leave the files in place.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the temporary folder in place.")] = False,
) -> None:
    """Kill a worker half-way and show that nothing is missing.

    A worker stores tasks and works through them, is killed with SIGKILL half-way, and is started again. Works in a
    temporary folder, which is removed at the end. Exits with 1 if anything is missing.
    """
    import tempfile

    if folder is not None:
        _show(folder, tasks)
        return
    temporary = Path(tempfile.mkdtemp(prefix="parcelpost-demo-"))
    try:
        _show(temporary, tasks)
    finally:
        if not keep:
            shutil.rmtree(temporary, ignore_errors=True)
            print("The temporary folder is removed; --keep leaves it in place.")


def _show(folder: Path, tasks: int) -> None:
    from parcelpost.cli import demo_run, running

    store = folder / "parcelpost.db"
    if store.exists():
        raise InvalidInput(f"there is a store in {folder} already", hint="name another folder with --dir")
    proofs = running.run(store, demo_run.run(store, tasks))
    print()
    print_lines(table(("what", "expected", "found"), [(one.what, one.expected, one.found) for one in proofs]))
    print()
    print(f"The files: {store}, pages in {folder / 'data'}")
    if any(one.expected != one.found for one in proofs):
        print("Something is missing.")
        raise typer.Exit(1)
    print("Nothing is missing.")
