"""Clients that mean harm or are broken, against a real process: the well-behaved one beside them is served on."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import json
import socket
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

import httpx2
import pytest

from tests.gateway.process import a_gateway, memory_now, most_memory, process_at
from tests.gateway.served import served
from tests.gateway.stage import a_result

TOKEN = "right-token"
ENVIRONMENT = {"PARCELPOST_WORKER_TOKENS": TOKEN}
GOOD = {"X-Worker-Token": TOKEN, "X-Worker-ID": "good"}
HEALTH = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"


MOST_BODY = 8 * 1024 * 1024
pytestmark = pytest.mark.xdist_group("hostile clients")


@pytest.fixture(autouse=True, scope="module")
def no_proxy() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("NO_PROXY", "*")
        yield


@pytest.fixture(scope="module")
def logged(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A gateway and its log."""
    folder = tmp_path_factory.mktemp("logged")
    with a_gateway(folder, ENVIRONMENT, requests_per_second=1_000_000) as address:
        yield address, folder / "log"


@pytest.fixture(scope="module")
def usual(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, int]]:
    """A gateway, and the most memory it had when it had been asked for little."""
    folder = tmp_path_factory.mktemp("usual")
    with a_gateway(folder, ENVIRONMENT, requests_per_second=1_000_000, max_body_bytes=MOST_BODY) as address:
        asyncio.run(_asked_a_little(address))
        yield address, most_memory(process_at(address))


async def _asked_a_little(address: str) -> None:
    async with working(address):
        """It is served."""


class Worker:
    """Sends results one after the other, and must never be turned away."""

    _numbers = count()

    def __init__(self, client: httpx2.AsyncClient) -> None:
        self._client = client
        self._sent = 0
        self._news = asyncio.Condition()
        self._running = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            answer = await self._client.post("/internal/results", json=[a_result(f"t{next(self._numbers)}")])
            assert answer.status_code == 200, answer.text
            assert answer.json()["inserted"] == 1
            async with self._news:
                self._sent += 1
                self._news.notify_all()
            await asyncio.sleep(0.01)  # it has other things to do

    async def goes_on(self, times: int = 5) -> None:
        """Returns when it has been served that often from now on."""
        goal = self._sent + times
        served = asyncio.create_task(self._until(goal))
        await asyncio.wait([served, self._running], return_when=asyncio.FIRST_COMPLETED)
        served.cancel()
        if self._running.done():
            self._running.result()

    async def stop(self) -> None:
        self._running.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await self._running

    async def _until(self, goal: int) -> None:
        async with self._news:
            await self._news.wait_for(lambda: self._sent >= goal)


@asynccontextmanager
async def working(address: str) -> AsyncIterator[Worker]:
    async with httpx2.AsyncClient(base_url=address, headers=GOOD, timeout=60) as client:
        worker = Worker(client)
        try:
            await worker.goes_on()
            yield worker
        finally:
            await worker.stop()


async def exchange(address: str, request: bytes, *, cut: bool = False) -> bytes:
    """What the gateway says to these bytes until it hangs up; with `cut` we do, after sending."""
    reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
    try:
        writer.write(request)
        await writer.drain()
        if cut:
            return b""
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.transport.abort()


def post(path: str, body: bytes, *headers: str, length: int | None = None, token: str = TOKEN) -> bytes:
    lines = [f"POST {path} HTTP/1.1", "Host: localhost", f"X-Worker-Token: {token}", *headers]
    lines += [f"Content-Length: {len(body) if length is None else length}", "Connection: close", "", ""]
    return "\r\n".join(lines).encode() + body


def status(answer: bytes) -> int:
    return int(answer.split(b" ", 2)[1]) if answer else 0


async def test_strange_requests_harm_nobody(logged: tuple[str, Path]) -> None:
    bomb = gzip.compress(b"0" * 100_000_000, 1)
    address, log = logged
    async with working(address) as worker:
        wrong = [exchange(address, post("/internal/results", b"[]", token=f"guess{n}")) for n in range(50)]
        assert {status(answer) for answer in await asyncio.gather(*wrong)} == {401}
        cut = [exchange(address, post("/internal/results", b"[", length=1_000), cut=True) for _ in range(50)]
        await asyncio.gather(*cut)
        for path in ("/internal/results", "/internal/raw-files", "/internal/heartbeat"):
            kind = "Content-Type: multipart/form-data; boundary=x"
            assert status(await exchange(address, post(path, b"", kind, length=1_000_000_000))) == 413
        deep = b"[" * 1_000_000
        assert status(await exchange(address, post("/internal/results", deep))) == 400
        assert status(await exchange(address, post("/internal/heartbeat", b'{"a":' + deep))) == 413
        packed = post("/internal/results", bomb, "Content-Encoding: gzip")
        assert status(await exchange(address, packed)) == 413
        assert status(await exchange(address, b"\x16\x03\x01 not http\r\n\r\n")) == 400
        await exchange(address, b"GET /" + b"a" * 200_000 + b" HTTP/1.1\r\n\r\n")
        await exchange(address, b"GET / HTTP/1.1\r\n" + b"X: y\r\n" * 20_000 + b"\r\n", cut=True)
        await worker.goes_on()
    assert "500" not in log.read_text()


CHUNKED = b"POST /internal/results HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n"
ALLOWED = CHUNKED + f"X-Worker-Token: {TOKEN}\r\n\r\n".encode()
ENDLESS = {
    "headers": (b"GET / HTTP/1.1\r\n", b"a: b\r\n"),
    "one header": (b"GET / HTTP/1.1\r\na: ", b"x"),
    "a header's name": (b"GET / HTTP/1.1\r\n", b"x"),
    "a line": (b"GET /", b"x"),
    "lines before a request": (b"", b"\r\n"),
    "requests": (b"", b"GET /health HTTP/1.1\r\n\r\n"),
    "a chunk's extension": (ALLOWED + b"1;", b"x"),
    "chunks of a byte": (ALLOWED, b"1\r\n \r\n"),
    "chunks of a stranger": (CHUNKED + b"\r\n", b"1\r\n \r\n"),
    "trailers": (ALLOWED + b"2\r\n[]\r\n0\r\n", b"a: b\r\n"),
    "one trailer": (ALLOWED + b"2\r\n[]\r\n0\r\na: ", b"x"),
}


def _pour(address: str, start: bytes, piece: bytes) -> bool:
    """Whether the gateway hung up before it took 24 MB."""
    step = piece * (64 * 1024 // len(piece))
    with socket.create_connection(("127.0.0.1", urlsplit(address).port or 0), timeout=60) as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 64 * 1024)
        try:
            connection.sendall(start)
            for _ in range(24_000_000 // len(step)):
                connection.sendall(step)
        except ConnectionError:
            return True
    return False


async def test_what_has_no_end_is_hung_up_on_before_it_is_kept(usual: tuple[str, int]) -> None:
    address, before = usual
    async with working(address) as worker:
        for name, (start, piece) in ENDLESS.items():
            poured = await asyncio.gather(*(asyncio.to_thread(_pour, address, start, piece) for _ in range(2)))
            assert poured == [True, True], name
            await worker.goes_on(1)
        assert most_memory(process_at(address)) - before < 24_000_000


async def test_a_head_that_is_too_long_is_told_so(tmp_path: Path) -> None:
    async with served(tmp_path) as gateway:
        address = gateway.address
        for head in (b"a: " + b"x" * 70_000, b"a: b\r\n" * 102):
            answer = await exchange(address, b"GET /health HTTP/1.1\r\n" + head)
            assert status(answer) == 431
            assert b"HEAD_TOO_LARGE" in answer
        long = b"GET /health HTTP/1.1\r\nConnection: close\r\na: " + b"x" * 60_000 + b"\r\n\r\n"
        assert status(await exchange(address, long)) == 200


def _filled(start: bytes, piece: bytes, end: bytes, most: int = MOST_BODY) -> bytes:
    return start + piece * ((most - len(start) - len(end)) // len(piece)) + end


async def test_no_body_takes_more_than_ten_times_the_memory_that_a_body_may_have(usual: tuple[str, int]) -> None:
    """Some kilobytes of gzip, and lists of millions of values. What one leaves for a moment counts for no other."""
    before_data, after_data = json.dumps([a_result(data={"x": "here"})]).encode().split(b'"here"')
    rows = b"".join(
        b'{"owner":"Ann %d","amount":%d.5,"tags":["a","b"]},' % (number, number) for number in range(60_000)
    )
    bodies = {
        "zeros": ("signals", _filled(b"[", b"0,", b"0]"), 413),
        "figures": ("metrics", _filled(b"[", b"0,", b"0]"), 413),
        "no results": ("results", _filled(b"[", b"0,", b"0]"), 413),
        "empty lists": ("results", _filled(before_data + b"[", b"[],", b"[]]" + after_data), 413),
        "objects": ("results", _filled(before_data + b"[", b'{"":0},', b"{}]" + after_data), 413),
        "names": ("heartbeat", _filled(b'{"platforms":[', b'"a",', b'"a"]}'), 413),
        "cut off": ("signals", _filled(b"[", b"x,", b"x"), 413),
        "zeros that pass": ("signals", _filled(b"[", b"0,", b"0]", MOST_BODY // 6), 400),
        "names that pass": ("results", _filled(before_data + b"[", b'"a",', b"0]" + after_data, MOST_BODY // 3), 200),
        "an honest record": ("results", before_data + b"[" + rows + b"0]" + after_data, 200),
    }
    address, before = usual
    process = process_at(address)
    async with working(address) as worker, httpx2.AsyncClient(base_url=address, headers=GOOD, timeout=60) as client:
        for name, (path, body, code) in bodies.items():
            packed, had = gzip.compress(body, 1), memory_now(process)
            answer = await client.post(f"/internal/{path}", content=packed, headers={"Content-Encoding": "gzip"})
            assert answer.status_code == code, (name, answer.text)
            await worker.goes_on(1)
            assert most_memory(process) - had < 10 * MOST_BODY, name
        assert memory_now(process) - before < 10 * MOST_BODY


async def test_a_trailer_does_not_say_who_asks(tmp_path: Path) -> None:
    trailer = b"2\r\n[]\r\n0\r\nX-Worker-Token: " + TOKEN.encode() + b"\r\n\r\n"
    async with served(tmp_path, ENVIRONMENT) as gateway:
        address, asked = gateway.address, CHUNKED + b"Connection: close\r\n"
        assert status(await exchange(address, asked + b"\r\n" + trailer)) == 401
        assert status(await exchange(address, asked + f"X-Worker-Token: {TOKEN}\r\n\r\n".encode() + trailer)) == 200


async def test_an_answer_that_nobody_reads_ends_with_its_connection(usual: tuple[str, int]) -> None:
    """A client that only ever asks does not fill our memory."""
    address, _ = usual
    async with working(address) as worker:
        reader, writer = await asyncio.open_connection("127.0.0.1", urlsplit(address).port)
        reader._transport.pause_reading()  # type: ignore[attr-defined]
        body = json.dumps([{"task_id": "x" * 500}] * 100).encode()
        request = post("/internal/results", body).replace(b"close", b"keep-alive")
        for _ in range(200):
            writer.write(request)
        await worker.goes_on(20)
        writer.transport.abort()


async def test_idle_connections_leave_files_for_the_gateway_and_are_logged_once(tmp_path: Path) -> None:
    idle: list[socket.socket] = []
    with a_gateway(tmp_path, open_files=(200, 200)) as address:
        host, port = urlsplit(address).hostname, urlsplit(address).port
        try:
            idle.extend(socket.create_connection((host, port), timeout=60) for _ in range(400))
            refused = await exchange(address, b"")
            assert status(refused) == 503
            assert b"too many open connections" in refused
            assert "Traceback" not in (tmp_path / "log").read_text()
        finally:
            for connection in idle:
                connection.close()
        async with asyncio.timeout(60):
            while status(await exchange(address, HEALTH)) != 200:
                await asyncio.sleep(0.1)
    assert (tmp_path / "log").read_text().count("refusing connections: 111 are open") == 1


async def test_histories_of_thousands_of_liens_delay_nobody_and_do_not_outlast_a_stop(tmp_path: Path) -> None:
    """Each takes minutes if liens with the same case number are compared in quadratic time."""
    path = "/v1/parcels/CT/hartford/P1"
    with a_gateway(tmp_path, requests_per_second=1_000_000, max_body_bytes=MOST_BODY) as address:
        async with httpx2.AsyncClient(base_url=address, timeout=60) as client, working(address) as worker:
            for day, lien_status in ((1, "open"), (2, "sold")):
                liens = [{"case_number": "C1", "status": lien_status}] * 50_000
                times = {"scraped_at": f"2026-01-0{day}T00:00:00Z"}
                result = a_result(f"day-{day}", parcel_id="P1", data={"liens": liens}, **times)
                assert (await client.post("/internal/results", json=[result])).json()["failed"] == 0
            reading = [asyncio.create_task(client.get(path)) for _ in range(8)]
            await worker.goes_on(10)
            for response in await asyncio.gather(*reading):
                assert len(response.json()["sources"][0]["history"][0]["changes"]) == 1_001
        request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode()
        unfinished = [asyncio.create_task(exchange(address, request)) for _ in range(8)]
        await asyncio.sleep(0.1)
    await asyncio.gather(*unfinished)
