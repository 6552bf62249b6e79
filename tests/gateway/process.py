"""A gateway in a process of its own."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from urllib.parse import urlsplit

import psutil

from parcelpost.clock import SystemClock
from parcelpost.gateway.connections import ConnectionTimeouts
from parcelpost.gateway.server import new_loop, serve
from parcelpost.gateway.uploads import BodyTimeout
from parcelpost.log import make_log
from parcelpost.settings import Settings
from parcelpost.settings.sources import load
from tests.acceptance.forked import Forked

ROOT = Path(__file__).parents[2]


def a_certificate(folder: Path) -> tuple[Path, Path]:
    """For 127.0.0.1, signed by itself; and its key."""
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    command = (
        "openssl req -x509 -newkey rsa:2048 -nodes -days 1 -subj /CN=localhost -addext subjectAltName=IP:127.0.0.1"
    )
    files = ["-out", str(certificate), "-keyout", str(key)]
    subprocess.run([*command.split(), *files], check=True, capture_output=True)
    return certificate, key


@contextmanager
def a_gateway(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    patience: float = 10.0,
    files: int = 0,
    **server: object,
) -> Iterator[str]:
    """Its address. It is told to stop at the end, and must have ended well. `files`: how many it may have open."""
    chosen = {"port": 0, "database": folder / "gateway.db", "raw": folder / "raw", **server}
    options = [f"server.{name}={value}" for name, value in chosen.items()]
    ours, theirs = os.pipe()
    with (folder / "log").open("ab") as log:
        process = Forked(
            str(patience),
            *options,
            folder=ROOT,
            environment={**os.environ, **(environment or {})},
            stdout=theirs,
            stderr=log.fileno(),
            open_files=(files, files) if files else None,
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


def _settings(options: list[str]) -> Settings:
    flags = dict(option.split("=", 1) for option in options)
    return load(config=None, environment={}, flags=flags).settings


async def _main(patience: float, settings: Settings) -> None:
    stop = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stop.set)
    await serve(
        settings,
        os.environ,
        SystemClock(),
        make_log("info", "human", sys.stderr),
        stop=stop,
        ready=lambda address: print(address, flush=True),  # noqa: T201 - for the test that started it
        terms=ConnectionTimeouts(head=patience),
        patience=BodyTimeout(seconds=patience),
    )


def _serve(patience: str, *options: str) -> None:
    chosen = _settings(list(options))
    with asyncio.Runner(loop_factory=lambda: new_loop(chosen.server)) as runner:
        runner.run(_main(float(patience), chosen))
