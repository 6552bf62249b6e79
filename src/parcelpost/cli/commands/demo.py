"""`parcelpost demo`: scrapes four simulated counties, and kills gateway and worker on the way."""

from __future__ import annotations

import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, fitted, print_lines, table, terminal_width

if TYPE_CHECKING:
    from parcelpost.cli.demo.results import DemoFiles
    from parcelpost.cli.demo.scenario import Scenario


EXAMPLES = examples(
    "parcelpost demo", "parcelpost demo --stay", "parcelpost demo --parcels 1000 --dir /tmp/parcelpost-demo"
)


def demo(
    parcels: Annotated[int, typer.Option("--parcels", min=50, max=10_000, help="Parcels per county.")] = 250,
    folder: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Work in this folder and keep all files.")
    ] = None,
    keep: Annotated[bool, typer.Option("--keep", help="Keep the temporary folder.")] = False,
    stay: Annotated[
        bool,
        typer.Option(
            "--stay",
            help="Add schedules, and keep websites, worker, gateway and dashboard running until Ctrl-C.",
        ),
    ] = False,
) -> None:
    """Scrape four simulated counties into two spreadsheets, parcels and liens, while processes are killed.

    The websites, a gateway and a worker run on this machine. The gateway is killed, then the worker; both are
    restarted, and at the end both sides are compared: exits with 1 if anything is missing or differs. Works in a
    temporary folder and keeps only the spreadsheets.
    """
    import tempfile

    from parcelpost.cli.demo.results import DemoFiles

    if folder is not None:
        _show_results(DemoFiles(folder), parcels, keeps_all=True, stay=stay)
        return
    files = DemoFiles(Path(tempfile.mkdtemp(prefix="parcelpost-demo-")))
    try:
        _show_results(files, parcels, keeps_all=keep, stay=stay)
    finally:
        if not keep:
            files.keep_spreadsheets_only()
            removed = "the other files in the temporary folder" if files.folder.exists() else "the temporary folder"
            print_lines(fitted([f"Removed {removed}. Use --keep to keep everything."], terminal_width()))


def _show_results(files: DemoFiles, parcels: int, *, keeps_all: bool, stay: bool) -> None:
    import asyncio

    from parcelpost.cli.context import needed_packages

    files.make()
    with needed_packages():
        from parcelpost.cli.demo.scenario import Scenario

        scenario = Scenario(files, parcels)
        try:
            asyncio.run(_run_scenario(scenario, keeps_all=keeps_all, stay=stay))
        except KeyboardInterrupt:
            if not scenario.is_over:
                raise
    if not scenario.is_complete:
        raise typer.Exit(1)


async def _run_scenario(scenario: Scenario, *, keeps_all: bool, stay: bool) -> None:
    from parcelpost.cli.demo.results import LIENS, PARCELS, preview_sheet

    files = scenario.files
    async with scenario:
        rows = await scenario.run()
        print()
        print_lines(table(("what", "worker", "gateway", ""), [row.cells for row in rows]))
        for sheet, file in ((PARCELS, files.parcels), (LIENS, files.liens)):
            print()
            print_lines(_fit_terminal(preview_sheet(sheet, file)))
        print()
        print_lines(fitted(files.summary(keeps_all=keeps_all), terminal_width()))
        print(
            "Nothing was lost." if scenario.is_complete else "Something was lost: see the rows that differ.", flush=True
        )
        if stay:
            await scenario.stay()
        else:
            print("The dashboard has stopped. Use --stay to keep it running.")


def _fit_terminal(lines: list[str]) -> Iterator[str]:
    """Cuts rows that are wider than the terminal."""
    width = shutil.get_terminal_size().columns if sys.stdout.isatty() else 0
    for line in lines:
        yield f"{line[: width - 1]}…" if width and len(line) > width else line
