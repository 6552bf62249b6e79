"""Draws `parcelpost top` as it looks beside a real worker: python docs/images/draw_top.py [SECONDS].

The worker scrapes invented counties on this machine for that long (default: 150 s) and delivers to a gateway.
"""

from __future__ import annotations

import asyncio
import contextlib
import io
import os
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from draw import HERE, save
from rich.console import Console

from parcelpost.cli.settings_options import StoreContext
from parcelpost.cli.top.data import read_once
from parcelpost.cli.top.view import frame
from parcelpost.settings import Settings

COLUMNS, LINES = 120, 34
COUNTY, GATEWAY = "18191", "18192"
SETTINGS = (
    "worker.id=worker-1",
    "fetch.allow_private=127.0.0.1",
    "fetch.counties_file=counties.toml",
    "fetch.pace_seconds=0.25",
    "fetch.concurrency_per_host=4",
    "executor.retry_min_seconds=5",
)
COUNTY_OPTIONS = """--platform vgsi --platform qpublic --platform grizzly_gis --parcels 900
    --fault 500=0.25 --fault slow=0.1 --counties-file counties.toml --tasks-file tasks.csv"""
ENVIRONMENT = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[None]:
    with (folder / f"{words[0]}.log").open("w") as log:
        child = subprocess.Popen(["parcelpost", *words], cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            yield
        finally:
            child.terminate()
            child.wait()


def shuffle(tasks: Path) -> None:
    """So that all sites are visited at once."""
    header, *rows = tasks.read_text().splitlines()
    random.Random(1).shuffle(rows)
    tasks.write_text("\n".join([header, *rows, ""]))


def main(seconds: float) -> None:
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(running(folder, "simulate", "county", "--port", COUNTY, *COUNTY_OPTIONS.split()))
        stack.enter_context(running(folder, "gateway", "serve", "--port", GATEWAY))
        while not (folder / "tasks.csv").exists():
            time.sleep(0.1)
        time.sleep(5)
        shuffle(folder / "tasks.csv")
        add = ["parcelpost", "gateway", "add", "tasks.csv", "--any-platform"]
        subprocess.run(add, cwd=folder, env=ENVIRONMENT, check=True)
        settings = [word for setting in SETTINGS for word in ("--set", setting)]
        worker = ["run", "--gateway", f"http://127.0.0.1:{GATEWAY}", "--slots", "8", "--store", "worker.db", *settings]
        stack.enter_context(running(folder, *worker))
        time.sleep(seconds)
        data = asyncio.run(read_once(StoreContext(folder / "worker.db", Settings())))
    console = Console(record=True, width=COLUMNS, height=LINES, file=io.StringIO(), force_terminal=True)
    console.print(frame(data, console))
    save(console, "parcelpost top", HERE / "top.svg")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 150)
