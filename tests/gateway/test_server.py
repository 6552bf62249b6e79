"""The gateway as it is served: the worker's own client against it, and a stop that loses no answer."""

from __future__ import annotations

import asyncio
import gzip
import hashlib
import signal
import socket
import sqlite3
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, closing
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx2
import msgspec
import pytest
from msgspec.structs import replace

from parcelpost.clock import ManualClock, SystemClock
from parcelpost.errors import InvalidSettings, Refused, Unauthorized
from parcelpost.events import Event
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.server import serve
from parcelpost.model import Signal
from parcelpost.settings.schema import GatewaySettings, ServerSettings, Settings
from parcelpost.settings.secrets import without_password
from parcelpost.upstream.gateway import GatewayClient
from tests.gateway.process import a_gateway
from tests.gateway.stage import PAGE, a_result, a_task, add_tasks, kinds, some_context
from tests.upstream.factories import a_beat, an_end, an_entry


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("NO_PROXY", "*")


@asynccontextmanager
async def served(folder: Path, **server: Any) -> AsyncIterator[tuple[str, asyncio.Event, list[Event]]]:
    """Address, the word to stop, and what happened. It must have ended when the block does."""
    events: list[Event] = []
    settings = Settings(
        server=ServerSettings(**{"port": 0, "database": str(folder / "g.db"), "raw": str(folder / "raw"), **server})
    )
    stop, address = asyncio.Event(), asyncio.get_running_loop().create_future()
    clock = SystemClock()
    serving = asyncio.create_task(serve(settings, {}, clock, events.append, stop=stop, ready=address.set_result))
    try:
        await asyncio.wait([serving, address], return_when=asyncio.FIRST_COMPLETED)
        if serving.done():
            await serving
        yield address.result(), stop, events
    finally:
        stop.set()
        await serving


async def test_the_workers_client_is_content(tmp_path: Path) -> None:
    environment = {"PARCELPOST_WORKER_TOKENS": "other, secret"}
    clock = SystemClock()
    raw = tmp_path / "page.gz"
    raw.write_bytes(gzip.compress(PAGE))
    async with open_ledger(str(tmp_path / "gateway.db"), 5, clock) as ledger:
        await ledger.add_tasks([a_task(f"t/{number}", extra={"odd": [1]}) for number in range(3)], clock.now())
        with a_gateway(tmp_path, environment) as address:
            settings = GatewaySettings(url=address)
            async with GatewayClient.open(settings, "secret", "w-1", clock.now) as client:
                work = await client.get_work(10, ["echo"])
                assert (len(work.tasks), work.bad, work.retry_after) == (3, [], 5)
                assert work.tasks[0].lease_expires_at is not None
                entry = an_entry("t/0", page=True, scraped_at=clock.now(), data=b'{"pad": "%s"}' % (b"x" * 2_000))
                entry = replace(entry, raw_sha256=hashlib.sha256(PAGE).hexdigest())
                await client.upload_raw_file(entry, raw)
                for status in (1, 1):
                    submitted = await client.submit_results([entry])
                    assert (submitted.stored, submitted.failed, submitted.receipts["t/0"].is_stored) == (
                        status,
                        0,
                        True,
                    )
                await client.report_end(an_end("t/1"))
                assert (await client.heartbeat(a_beat())).commands == []
                signal = Signal(platform="echo", field="f", selector="#a", selector_type="css", success=True)
                await client.submit_signals([signal], "first")
                assert [found.selector for found in await client.get_selectors("echo")] == ["#a"]
                with pytest.raises(Refused):
                    await client.upload_raw_file(replace(entry, raw_sha256="0" * 64), raw)
            async with GatewayClient.open(settings, "wrong", "w-1", clock.now) as client:
                with pytest.raises(Unauthorized):
                    await client.get_work(1, ["echo"])
        states = [row.state if (row := await ledger.task(f"t/{number}")) else None for number in range(3)]
    assert states == ["done", "failed", "leased"]


async def test_a_request_that_has_begun_is_answered_before_the_end(tmp_path: Path) -> None:
    async with served(tmp_path) as (address, stop, events):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
        head = b"POST /internal/results HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n"
        writer.write(head + b"[")
        await writer.drain()
        async with httpx2.AsyncClient() as client:  # a turn for the server: it has begun with the first request
            assert (await client.get(f"{address}/health")).status_code == 200
        stop.set()
        writer.write(b"]")
        answer = await reader.read()
        writer.close()
    assert answer.startswith(b"HTTP/1.1 200")
    assert kinds(events)[0] == "GatewayStarted"
    assert kinds(events)[-1] == "GatewayStopped"


async def test_an_address_in_use_is_a_matter_of_settings(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
        with pytest.raises(InvalidSettings, match=str(port)):
            async with served(tmp_path, port=port):
                pass


@pytest.mark.parametrize(
    "server",
    [
        {"host": "0.0.0.0"},
        {"raw": "s3://"},
        {"worker_tokens_file": "nowhere"},
        {"host": "no.such.host.invalid", "worker_tokens_file": "nowhere"},
    ],
)
async def test_settings_that_cannot_be_served_are_refused(tmp_path: Path, server: dict[str, Any]) -> None:
    with pytest.raises(InvalidSettings):
        async with served(tmp_path, **server):
            pass


async def test_a_form_that_makes_no_sense_is_answered_and_nothing_else_is_said(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async with served(tmp_path) as (address, _, _), httpx2.AsyncClient() as client:
        headers = {"Content-Type": "multipart/form-data; boundary=x"}
        answer = await client.post(f"{address}/internal/raw-files", content=b"no form at all", headers=headers)
    assert answer.status_code == 400
    assert [record.name for record in caplog.records if "multipart" in record.name] == []


@pytest.mark.parametrize(
    ("database", "said"),
    [
        ("postgresql://ann:secret@db.example/ledger?password=x", "postgresql://ann:***@db.example/ledger?***"),
        ("gateway_data/gateway.db", "gateway_data/gateway.db"),
    ],
)
def test_no_password_is_shown(database: str, said: str) -> None:
    assert without_password(database) == said


STUCK = """
import sys, time
from parcelpost.cli.commands import gateway_serve
from parcelpost.gateway import server, uploads
gateway_serve._LAST_SECONDS, server.GRACE_SECONDS = 0.5, 0.5
uploads._THREADS.submit(time.sleep, 3_600)
from parcelpost.cli.main import main
sys.argv = ["parcelpost", "gateway", "serve", "--port", "0"]
main()
"""


def test_it_ends_when_told_to_even_if_a_thread_does_not(tmp_path: Path) -> None:
    with subprocess.Popen([sys.executable, "-c", STUCK], cwd=tmp_path, stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline().startswith(b"gateway")
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 1
        finally:
            process.kill()


# What it does by itself


async def test_leases_that_are_over_come_back(tmp_path: Path) -> None:
    events: list[Event] = []
    clock = ManualClock()
    async with some_context(tmp_path, clock=clock, events=events, max_attempts=1) as context:
        await add_tasks(context, a_task())
        await context.ledger.grant("w-1", ["echo"], 1, clock.now(), clock.now() + timedelta(seconds=10))
        maintenance = Maintenance(context)
        await maintenance.step()
        clock.advance(11)
        await maintenance.step()
        row = await context.ledger.task("t1")
        assert row is not None and row.state == "dead"
        counted = {(row.platform, row.outcome): row.count for row in await context.ledger.activity(clock.now() - DAY)}
    assert counted == {("echo", "dead"): 1}
    assert kinds(events) == ["LeasesEnded"]


DAY = timedelta(days=1)


async def test_what_was_counted_while_the_ledger_is_away_is_not_lost(tmp_path: Path) -> None:
    events: list[Event] = []
    clock = ManualClock()
    disk = tmp_path / "disk"
    async with some_context(tmp_path, clock=clock, events=events, database=str(disk / "gateway.db")) as context:
        maintenance = Maintenance(context)
        disk.rename(tmp_path / "unplugged")
        context.counters.count("echo", "stored", 3)
        await maintenance.step()
        clock.advance(70)
        context.counters.count("echo", "stored", 4)
        await maintenance.step()
        (tmp_path / "unplugged").rename(disk)
        await maintenance.step()
        rows = await context.ledger.activity(clock.now() - DAY)
    assert [row.count for row in rows] == [3, 4]
    assert kinds(events) == ["LedgerLost", "LedgerFound"]


async def test_a_sweep_that_fails_is_told_and_tried_again_and_keeps_no_other_from_its_turn(tmp_path: Path) -> None:
    """A table that is not there for a while: no error that the ledger knows as its own."""
    events: list[Event] = []
    async with some_context(tmp_path, events=events) as context:
        rename(tmp_path / "gateway.db", "leases", "elsewhere")
        context.counters.count("echo", "stored", 3)
        maintenance = Maintenance(context)
        assert [await maintenance.step() for _ in range(7)] == [2, 4, 6, 8, 10, 10, 10]
        assert [row.count for row in await context.ledger.activity(context.clock.now() - DAY)] == [3]
        rename(tmp_path / "gateway.db", "elsewhere", "leases")
        assert await maintenance.step() == 2
    assert kinds(events) == ["LoopFailed"] * 7
    assert "no such table: leases" in str(events[0])


def rename(file: Path, table: str, name: str) -> None:
    with closing(sqlite3.connect(file)) as db:
        db.execute("PRAGMA foreign_keys = OFF")
        db.execute(f"ALTER TABLE {table} RENAME TO {name}")


async def test_what_is_counted_after_the_word_to_stop_is_kept_too(tmp_path: Path) -> None:
    async with served(tmp_path) as (address, stop, _):
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
        body = msgspec.json.encode([a_result()])
        head = f"POST /internal/results HTTP/1.1\r\nHost: localhost\r\nContent-Length: {len(body)}\r\n\r\n"
        writer.write(head.encode() + body[:-1])
        await writer.drain()
        async with httpx2.AsyncClient() as client:  # a turn for the server: it has begun with the first request
            await client.get(f"{address}/health")
        stop.set()
        await asyncio.sleep(0)
        writer.write(body[-1:])
        assert (await reader.read()).startswith(b"HTTP/1.1 200")
        writer.close()
    async with open_ledger(str(tmp_path / "g.db"), 1, SystemClock()) as ledger:
        counted = await ledger.activity(SystemClock().now() - DAY)
    assert [(row.outcome, row.count) for row in counted] == [("done", 1), ("stored", 1)]


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
async def test_the_address_it_names_can_be_opened(tmp_path: Path, host: str) -> None:
    if host == "::" and not socket.has_dualstack_ipv6():
        pytest.skip("there is no IPv6 here")
    for name in ("worker", "admin"):
        (tmp_path / name).write_text(f"{name}-token-of-many-characters\n")
    tokens = {"worker_tokens_file": str(tmp_path / "worker"), "admin_tokens_file": str(tmp_path / "admin")}
    async with served(tmp_path, host=host, **tokens) as (address, _, _), httpx2.AsyncClient() as client:
        assert f"//{host}:" not in address.replace("[", "").replace("]", "")
        assert (await client.get(f"{address}/health")).status_code == 200
