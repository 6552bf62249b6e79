"""`parcelpost simulate`: simulated county sites on this machine."""

from __future__ import annotations

import csv
import shlex
import signal
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import examples, print_lines, table
from parcelpost.errors import InvalidInput

if TYPE_CHECKING:
    from parcelpost.simulator.faults import Faults
    from parcelpost.simulator.parcels import World


EXAMPLES = examples(
    "parcelpost simulate county --platform grizzly_gis --parcels 1000",
    "parcelpost simulate county --platform vgsi --platform qpublic --fault 500=0.05 --fault slow=0.1",
    "parcelpost simulate county --counties-file counties.toml --tasks-file tasks.csv",
)

app = typer.Typer(help="Simulate county websites on this machine.", no_args_is_help=True, epilog=EXAMPLES)


@app.command("county", epilog=EXAMPLES)
def county(
    platforms: Annotated[
        list[str] | None,
        typer.Option("--platform", metavar="NAME", help="Platform to serve. Repeatable. [default: all]"),
    ] = None,
    parcels: Annotated[int, typer.Option("--parcels", min=0, max=10**9, help="Number of parcels per county.")] = 1_000,
    seed: Annotated[int, typer.Option("--seed", help="Random seed: the same seed generates the same parcels.")] = 1,
    port: Annotated[
        int, typer.Option("--port", min=0, max=65535, help="Port to listen on; 0 picks a free one.")
    ] = 8090,
    name: Annotated[str, typer.Option("--county", help="Name of the county.")] = "invented",
    given: Annotated[
        list[str] | None,
        typer.Option("--fault", metavar="NAME=RATE", help="Fault to inject, and how often (0 to 1). Repeatable."),
    ] = None,
    counties_file: Annotated[
        Path | None, typer.Option("--counties-file", metavar="FILE", help="Write the county entries to this file.")
    ] = None,
    tasks_file: Annotated[
        Path | None,
        typer.Option("--tasks-file", metavar="FILE", help="Write tasks to this CSV file, for 'parcelpost import'."),
    ] = None,
) -> None:
    """Serve simulated county websites until Ctrl-C.

    Nothing leaves this machine. To change faults while it runs, POST to /_control/faults.
    """
    import asyncio

    from parcelpost.simulator.parcels import World
    from parcelpost.simulator.sites import SITES

    wanted = platforms or sorted(SITES)
    for platform in wanted:
        if platform not in SITES:
            raise InvalidInput(f"no simulator for platform {platform!r}", hint=f"available: {', '.join(sorted(SITES))}")
    worlds = {platform: World(seed=seed, county=name, size=parcels) for platform in wanted}
    asyncio.run(_serve(worlds, _faults(given or [], seed), port, counties_file, tasks_file))


def _faults(given: list[str], seed: int) -> Faults:
    from parcelpost.simulator.faults import Faults

    faults = Faults(seed)
    for option in given:
        name, _, rate = option.partition("=")
        try:
            faults.set(name, float(rate))
        except ValueError:
            raise InvalidInput(f"not a valid fault: {option!r}", hint="use NAME=RATE, such as 500=0.05") from None
    return faults


async def _serve(
    worlds: Mapping[str, World], faults: Faults, port: int, counties_file: Path | None, tasks_file: Path | None
) -> None:
    import asyncio

    from parcelpost.simulator import sites
    from parcelpost.simulator.server import CountyServer, serving

    stop = asyncio.Event()
    for number in (signal.SIGINT, signal.SIGTERM):
        asyncio.get_running_loop().add_signal_handler(number, stop.set)
    try:
        async with serving(CountyServer(worlds=worlds, faults=faults), port) as address:
            if counties_file is not None:
                counties_file.write_text(sites.counties_toml(address, worlds), "utf-8")
            if tasks_file is not None:
                _write_tasks(tasks_file, address, worlds)
            rows = [(name, f"{address}/{name}", sites.sample_parcel_id(name, world)) for name, world in worlds.items()]
            print_lines(table(("platform", "address", "sample parcel"), rows))
            if counties_file is not None and tasks_file is not None:
                print_lines(_how_to_scrape(counties_file, tasks_file))
            print(f"Faults: {address}/_control/faults. Press Ctrl-C to stop.", flush=True)
            await stop.wait()
    except OSError as error:
        raise InvalidInput(
            f"cannot serve on port {port}: {error.strerror or error}" if error.filename is None else str(error),
            hint="choose another port with --port, or another file",
        ) from None


def _how_to_scrape(counties_file: Path, tasks_file: Path) -> list[str]:
    """Workers do not connect to their own machine unless fetch.allow_private permits it."""
    known = f"--set fetch.counties_file={shlex.quote(str(counties_file))}"
    allowed = f"{known} --set fetch.allow_private=127.0.0.1"
    return [
        "To scrape these sites:",
        f"  parcelpost import {shlex.quote(str(tasks_file))} {known}",
        f"  parcelpost run --mode standalone --until-empty {allowed} --set fetch.pace_seconds=0.05",
    ]


def _write_tasks(file: Path, address: str, worlds: Mapping[str, World]) -> None:
    from parcelpost.simulator import sites

    with file.open("w", encoding="utf-8", newline="") as opened:
        writer = csv.writer(opened)
        writer.writerow(sites.TASK_COLUMNS)
        writer.writerows(sites.task_rows(address, worlds))
