"""`parcelpost demo`: scrapes four simulated counties while gateway and worker are killed on the way."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import fitted, print_lines, table, terminal_width

if TYPE_CHECKING:
    from parcelpost.cli.demo.output_files import DemoFiles
    from parcelpost.cli.demo.story import Story


EXAMPLES = """
Examples:

\b
  parcelpost demo
  parcelpost demo --stay
  parcelpost demo --parcels 1000 --dir /tmp/parcelpost-demo
"""


def demo(
    parcels: Annotated[
        int, typer.Option("--parcels", min=50, max=10_000, help="How many parcels each county has.")
    ] = 250,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work here, and leave the files in place.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Leave everything in the temporary folder in place.")] = False,
    stay: Annotated[
        bool, typer.Option("--stay", help="Keep the gateway and its dashboard up at the end, until Ctrl-C.")
    ] = False,
) -> None:
    """Scrape four invented counties, with kill -9 on the way, into a spreadsheet of parcels and one of liens.

    Their websites, a gateway and a worker run on this machine. The gateway is killed, then the worker; both are started
    again, and at the end both sides are compared: exits with 1 if anything is missing or differs. Works in a temporary
    folder, where only the spreadsheets stay.
    """
    import tempfile

    from parcelpost.cli.demo.output_files import DemoFiles

    if folder is not None:
        _show_results(DemoFiles(folder), parcels, all_stay=True, stay=stay)
        return
    files = DemoFiles(Path(tempfile.mkdtemp(prefix="parcelpost-demo-")))
    try:
        _show_results(files, parcels, all_stay=keep, stay=stay)
    finally:
        if not keep:
            files.keep_spreadsheets_only()
            what = "The rest of the temporary folder" if files.folder.exists() else "The temporary folder"
            print_lines(fitted([f"{what} is removed; --keep leaves it in place."], terminal_width()))


def _show_results(files: DemoFiles, parcels: int, *, all_stay: bool, stay: bool) -> None:
    import asyncio

    from parcelpost.cli.context import needed_packages

    files.make()
    with needed_packages():
        from parcelpost.cli.demo.story import Story

        story = Story(files, parcels)
        try:
            asyncio.run(_run_story(story, all_stay=all_stay, stay=stay))
        except KeyboardInterrupt:
            if not story.is_told:
                raise
    if not story.is_whole:
        raise typer.Exit(1)


async def _run_story(story: Story, *, all_stay: bool, stay: bool) -> None:
    from parcelpost.cli.demo.output_files import LIENS, PARCELS, preview_sheet

    files = story.files
    async with story:
        lines = await story.run()
        print()
        print_lines(table(("what", "worker", "gateway", ""), [one.cells for one in lines]))
        for sheet, file in ((PARCELS, files.parcels), (LIENS, files.liens)):
            print()
            print_lines(_fit_terminal(preview_sheet(sheet, file)))
        print()
        print_lines(fitted(files.lines(all_stay=all_stay), terminal_width()))
        print("Nothing is missing." if story.is_whole else "Something is missing.", flush=True)
        if stay:
            await story.stay()
        else:
            print(f"The dashboard was at {story.url}/; --stay keeps it up.")


def _fit_terminal(lines: list[str]) -> Iterator[str]:
    """A row that is wider than the terminal would break in two; the spreadsheet has all of it."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        yield f"{line[: width - 1]}…" if width and len(line) > width else line
