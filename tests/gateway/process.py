"""A gateway in a process of its own."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from parcelpost.clock import SystemClock
from parcelpost.files_and_sockets import run_on_fast_loop
from parcelpost.gateway.server import serve
from parcelpost.log_lines import make_log
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from tests.acceptance.forked import Forked

ROOT = Path(__file__).parents[2]


@contextmanager
def a_gateway(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    open_files: tuple[int, int] | None = None,
    **server: object,
) -> Iterator[str]:
    """Its address. It is told to stop at the end, and must have ended well."""
    chosen = {"port": 0, "database": folder / "gateway.db", "raw": folder / "raw", **server}
    options = [f"server.{name}={value}" for name, value in chosen.items()]
    ours, theirs = os.pipe()
    with (folder / "log").open("ab") as log:
        process = Forked(
            *options,
            folder=ROOT,
            environment={**os.environ, **(environment or {})},
            stdout=theirs,
            stderr=log.fileno(),
            open_files=open_files,
            run=_serve,
        )
    os.close(theirs)
    with process, os.fdopen(ours) as told:
        address = told.readline().strip()
        assert address, (folder / "log").read_text()
        yield address
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0, (folder / "log").read_text()


def process_at(address: str) -> psutil.Process:
    """That of a gateway which this process started."""
    port = urlsplit(address).port
    for child in psutil.Process().children(recursive=True):
        if any(one.status == psutil.CONN_LISTEN and one.laddr.port == port for one in child.net_connections("tcp")):
            return child
    raise LookupError(address)


def most_memory(process: psutil.Process) -> int:
    """The bytes it ever had in memory at once; where the system does not tell, those it has now."""
    try:
        lines = Path(f"/proc/{process.pid}/status").read_text().splitlines()
    except OSError:
        return int(process.memory_info().rss)
    return next(int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:"))


def memory_now(process: psutil.Process) -> int:
    """Its bytes in memory; `most_memory` begins anew with them where the system can do that."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/clear_refs").write_text("5")
    return int(process.memory_info().rss)


def _settings(options: list[str]) -> Settings:
    flags = dict(option.split("=", 1) for option in options)
    return load(config=None, environment={}, flags=flags).settings


async def _main(settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve(
        settings,
        os.environ,
        SystemClock(),
        make_log("info", "human", sys.stderr),
        stop=stop,
        ready=lambda address: print(address, flush=True),  # noqa: T201 - for the test that started it
    )


def _serve(*options: str) -> None:
    chosen = _settings(list(options))
    run_on_fast_loop(_main(chosen))
