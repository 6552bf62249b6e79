"""Draws `parcelpost top` as it looks beside a real worker: python docs/images/draw_top.py [SECONDS].

The worker scrapes invented counties on this machine for so long (150 s unless told), and delivers to a gateway.
"""

from __future__ import annotations

import contextlib
import fcntl
import io
import os
import pty
import random
import struct
import subprocess
import sys
import tempfile
import termios
import time
from collections.abc import Iterator
from pathlib import Path

from draw import HERE, save
from rich.console import Console
from rich.text import Text

COLUMNS, LINES = 120, 34
COUNTY, GATEWAY = "18191", "18192"
SETTINGS = (
    "fetch.allow_private=127.0.0.1",
    "fetch.counties_file=counties.toml",
    "fetch.pace_seconds=0.25",
    "fetch.concurrency_per_host=4",
    "executor.retry_min_seconds=5",
)
PLATFORMS = ("vgsi", "qpublic", "grizzly_gis")
ENVIRONMENT = {
    **os.environ,
    "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}",
    "TERM": "xterm-256color",
    "LC_ALL": "C.UTF-8",
}


@contextlib.contextmanager
def running(folder: Path, *words: str) -> Iterator[None]:
    with (folder / f"{words[0]}.log").open("w") as log:
        child = subprocess.Popen(["parcelpost", *words], cwd=folder, env=ENVIRONMENT, stdout=log, stderr=log)
        try:
            yield
        finally:
            child.terminate()
            child.wait()


def one_frame(folder: Path) -> str:
    """As it is printed on a terminal of that size."""
    ours, its = pty.openpty()
    fcntl.ioctl(its, termios.TIOCSWINSZ, struct.pack("HHHH", LINES, COLUMNS, 0, 0))
    words = ["parcelpost", "top", "--once", "--store", "worker.db"]
    with subprocess.Popen(words, cwd=folder, env=ENVIRONMENT, stdin=its, stdout=its) as child:
        os.close(its)
        shown = b""
        with contextlib.suppress(OSError):  # its end has closed
            while part := os.read(ours, 65_536):
                shown += part
        os.close(ours)
        child.wait()
    return shown.decode()


def mix(tasks: Path) -> None:
    """So that all sites are visited at once."""
    header, *rows = tasks.read_text().splitlines()
    random.Random(1).shuffle(rows)
    tasks.write_text("\n".join([header, *rows, ""]))


def main(seconds: float) -> None:
    served = [word for name in PLATFORMS for word in ("--platform", name)]
    files = ["--counties-file", "counties.toml", "--tasks-file", "tasks.csv"]
    county = [
        "simulate",
        "county",
        *served,
        "--parcels",
        "900",
        "--port",
        COUNTY,
        "--fault",
        "500=0.25",
        "--fault",
        "slow=0.1",
        *files,
    ]
    wanted = [word for setting in SETTINGS for word in ("--set", setting)]
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        stack.enter_context(running(folder, *county))
        stack.enter_context(running(folder, "gateway", "serve", "--port", GATEWAY))
        while not (folder / "tasks.csv").exists():
            time.sleep(0.1)
        time.sleep(5)
        mix(folder / "tasks.csv")
        subprocess.run(["parcelpost", "gateway", "add", "tasks.csv"], cwd=folder, env=ENVIRONMENT, check=True)
        address = f"http://127.0.0.1:{GATEWAY}"
        started = ["run", "--gateway", address, "--slots", "8", "--store", "worker.db", "--set", "worker.id=worker-1"]
        stack.enter_context(running(folder, *started, *wanted))
        time.sleep(seconds)
        frame = one_frame(folder)
    console = Console(record=True, width=COLUMNS, file=io.StringIO(), force_terminal=True)
    console.print(Text.from_ansi(frame.replace("\r\n", "\n").rstrip()))
    save(console, "parcelpost top", HERE / "top.svg")


if __name__ == "__main__":
    main(float(sys.argv[1]) if len(sys.argv) > 1 else 150)
