"""`parcelpost demo`: a gateway and a worker, both killed on the way, and nothing is missing."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import print_lines, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.cli.demo_story import Story

EXAMPLES = """
Examples:

\b
  parcelpost demo
  parcelpost demo --stay
  parcelpost demo --tasks 10000 --dir /tmp/parcelpost-demo
"""


def demo(
    tasks: Annotated[int, typer.Option("--tasks", min=100, max=100_000, help="How many parcels to scrape.")] = 1_200,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work here, and leave the files in place.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the temporary folder in place.")] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the gateway and its dashboard up at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Run a gateway and a worker, kill both on the way, and show that nothing is missing.

    A made-up county's parcels are queued at a gateway and scraped by a worker. The gateway is killed and started again,
    then the worker is. At the end both sides are compared; exits with 1 if anything is missing or differs. Works in a
    temporary folder, which is removed at the end.
    """
    import tempfile

    if folder is not None:
        _show(folder, tasks, stay=stay)
        return
    temporary = Path(tempfile.mkdtemp(prefix="parcelpost-demo-"))
    try:
        _show(temporary, tasks, stay=stay)
    finally:
        if not keep:
            shutil.rmtree(temporary, ignore_errors=True)
            print("The temporary folder is removed; --keep leaves it in place.")


def _show(folder: Path, tasks: int, *, stay: bool) -> None:
    import asyncio

    from parcelpost.cli.demo_files import Files
    from parcelpost.cli.gateway_options import needed_packages

    files = Files(folder)
    if files.store.exists() or files.ledger.exists():
        raise InvalidInput(f"there is a demo in {folder} already", hint="name another folder with --dir")
    files.make()
    with needed_packages():
        from parcelpost.cli.demo_story import Story

        story = Story(files, tasks)
        try:
            asyncio.run(_tell(story, stay=stay))
        except KeyboardInterrupt:
            if not story.is_told:
                raise
    if not story.is_whole:
        raise typer.Exit(1)


async def _tell(story: Story, *, stay: bool) -> None:
    async with story:
        lines = await story.run()
        print()
        print_lines(table(("what", "worker", "gateway", ""), [one.cells for one in lines]))
        print()
        print_lines(story.files.lines())
        print("Nothing is missing." if story.is_whole else "Something is missing.", flush=True)
        if stay:
            await story.stay()
