"""The pages for machines that watch, over real sockets, and clients that do not behave."""

from __future__ import annotations

import asyncio
import gc
import socket
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import msgspec
import pytest

from parcelpost.errors import InvalidSettings
from parcelpost.events import Event, PagesServed
from parcelpost.health_checks import Finding
from parcelpost.settings.schema import HttpSettings
from parcelpost.worker import health_pages as pages_module
from parcelpost.worker.health_pages import Page, Response, served, state

HOST = "127.0.0.1"
METRICS = b"parcelpost_tasks 7\n"
PAUSED = Finding.of("worker.paused", "the gateway has paused worker w1", "resume it")
SLOWED = Finding.of("worker.tight_memory", "76% of the memory is used", "add memory")
PAGES: dict[str, Page] = {
    "/healthz": lambda: state([]),
    "/readyz": lambda: state([PAUSED, SLOWED]),
    "/metrics": lambda: Response(200, METRICS, "text/plain; version=0.0.4; charset=utf-8"),
}


class Reply(msgspec.Struct, frozen=True):
    status: int
    headers: Mapping[str, str]
    body: bytes


class Site:
    def __init__(self, port: int) -> None:
        self.port = port

    async def connect(self) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        return await asyncio.open_connection(HOST, self.port)

    async def send(self, data: bytes) -> bytes:
        """All that comes back until the connection ends; a reset is an end too."""
        reader, writer = await self.connect()
        try:
            async with asyncio.timeout(60):
                writer.write(data)
                return await reader.read()
        except ConnectionError:
            return b""
        finally:
            writer.close()

    async def ask(self, path: str, method: str = "GET") -> Reply:
        answer = await self.send(f"{method} {path} HTTP/1.1\r\nHost: {HOST}\r\nAccept: */*\r\n\r\n".encode())
        head, _, body = answer.partition(b"\r\n\r\n")
        status, *lines = head.decode().split("\r\n")
        assert status.startswith("HTTP/1.1 ")
        headers = dict(line.split(": ", 1) for line in lines)
        return Reply(int(status.split()[1]), headers, body)


def free_port() -> int:
    with socket.socket() as found:
        found.bind((HOST, 0))
        port: int = found.getsockname()[1]
        return port


@asynccontextmanager
async def opened(pages: dict[str, Page], events: list[Event] | None = None) -> AsyncIterator[Site]:
    """When it has closed, nothing of it may be left running."""
    port = free_port()
    before = asyncio.all_tasks()
    async with served(HttpSettings(host=HOST, port=port), pages, (events if events is not None else []).append):
        yield Site(port)
    assert asyncio.all_tasks() - before <= {asyncio.current_task()}
    with pytest.raises(ConnectionRefusedError):
        await asyncio.open_connection(HOST, port)


@pytest.fixture
async def site() -> AsyncIterator[Site]:
    async with opened(PAGES) as found:
        yield found


@pytest.fixture
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pages_module, "_PATIENCE_SECONDS", 0.1)


@pytest.fixture
def patient(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a client, for longer than any test takes."""
    monkeypatch.setattr(pages_module, "_PATIENCE_SECONDS", 600.0)


async def test_a_worker_without_problems_is_ok(site: Site) -> None:
    reply = await site.ask("/healthz")
    assert reply.status == 200
    assert reply.body == b'{"status":"ok","findings":[]}\n'
    assert reply.headers["Content-Type"] == "application/json"
    assert reply.headers["Content-Length"] == str(len(reply.body))
    assert reply.headers["Connection"] == "close"
    assert reply.headers["Cache-Control"] == "no-store"


async def test_a_worker_with_problems_names_them(site: Site) -> None:
    reply = await site.ask("/readyz")
    assert reply.status == 503
    assert msgspec.json.decode(reply.body) == {
        "status": "not ok",
        "findings": [
            {
                "id": "worker.paused",
                "severity": "warning",
                "message": "the gateway has paused worker w1",
                "fix": "resume it",
                "command": "",
            },
            {
                "id": "worker.tight_memory",
                "severity": "note",
                "message": "76% of the memory is used",
                "fix": "add memory",
                "command": "",
            },
        ],
    }


async def test_the_metrics_are_plain_text(site: Site) -> None:
    reply = await site.ask("/metrics")
    assert (reply.status, reply.body) == (200, METRICS)
    assert reply.headers["Content-Type"].startswith("text/plain; version=0.0.4")


async def test_a_page_is_made_anew_for_every_request() -> None:
    findings = [SLOWED]
    async with opened({"/readyz": lambda: state(findings)}) as site:
        assert (await site.ask("/readyz")).status == 200, "it works, if more slowly"
        findings.append(Finding.of("worker.draining", "draining: SIGTERM", "no action needed"))
        assert (await site.ask("/readyz")).status == 503


async def test_a_query_changes_nothing(site: Site) -> None:
    assert (await site.ask("/healthz?verbose=1")).status == 200


@pytest.mark.parametrize("path", ["/", "/healthz/", "/../healthz", "/%68ealthz", "healthz", "/\u00fc", "*"])
async def test_another_path_is_not_found_and_the_answer_names_those_there_are(site: Site, path: str) -> None:
    reply = await site.ask(path)
    assert reply.status == 404
    assert msgspec.json.decode(reply.body) == {"pages": ["/healthz", "/metrics", "/readyz"]}


@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "get"])
async def test_another_method_is_not_allowed(site: Site, method: str) -> None:
    assert (await site.ask("/healthz", method)).status == 405


@pytest.mark.parametrize(("path", "status"), [("/healthz", 200), ("/readyz", 503), ("/metrics", 200), ("/no", 404)])
async def test_head_gives_the_head_alone(site: Site, path: str, status: int) -> None:
    full, head = await site.ask(path), await site.ask(path, "HEAD")
    assert (full.status, head.status) == (status, status)
    assert head.headers == full.headers
    assert head.body == b""


async def test_many_may_ask_at_the_same_time(site: Site) -> None:
    replies = await asyncio.gather(*(site.ask("/metrics") for _ in range(50)))
    assert {reply.status for reply in replies} == {200}


async def test_a_request_in_small_pieces_is_understood(site: Site) -> None:
    reader, writer = await site.connect()
    for piece in (b"GE", b"T /hea", b"lthz HTTP/1.0\r", b"\n", b"\r\n"):
        writer.write(piece)
        await writer.drain()
        await asyncio.sleep(0)
    assert (await reader.read()).startswith(b"HTTP/1.1 200 OK\r\n")
    writer.close()


@pytest.mark.usefixtures("impatient")
@pytest.mark.parametrize("sent", [b"", b"GET /healthz HTTP/1.1\r\nHost:"])
async def test_a_client_that_does_not_finish_its_request_is_sent_away(site: Site, sent: bytes) -> None:
    assert await site.send(sent) == b""
    assert (await site.ask("/healthz")).status == 200


async def test_a_client_that_hangs_up_in_the_middle_harms_nobody(site: Site) -> None:
    for _ in range(10):
        _, writer = await site.connect()
        writer.write(b"GET /hea")
        writer.transport.abort()
    assert (await site.ask("/healthz")).status == 200


@pytest.mark.parametrize(
    "garbage",
    [
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03\r\n\r\n",  # as if it were TLS
        b"\r\n\r\n",
        b" \r\n\r\n",
        b"GET\r\n\r\n",
        b"GET  \r\n\r\n",
        b"\xff\xfe\x00 \xff /\r\n\r\n",
        b"GET \xff\xfe HTTP/1.1\r\n\r\n",
    ],
)
async def test_garbage_is_refused_and_the_next_request_is_answered(site: Site, garbage: bytes) -> None:
    answer = await site.send(garbage)
    assert answer.startswith((b"HTTP/1.1 404 ", b"HTTP/1.1 405 "))
    assert (await site.ask("/healthz")).status == 200


async def test_a_header_of_100_kb_is_not_listened_to(site: Site) -> None:
    request = b"GET /healthz HTTP/1.1\r\nX-Long: " + b"x" * 100_000 + b"\r\n\r\n"
    assert await site.send(request) == b""
    assert (await site.ask("/healthz")).status == 200


async def test_a_page_that_fails_is_told_of_and_harms_no_other() -> None:
    def broken() -> Response:
        raise ValueError("a mistake")

    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: told.append(str(context["exception"])))
    async with opened({**PAGES, "/broken": broken}) as other:
        assert await other.send(b"GET /broken HTTP/1.1\r\n\r\n") == b""
        assert (await other.ask("/healthz")).status == 200
    gc.collect()
    assert told == ["a mistake"]


async def test_port_0_means_no_pages() -> None:
    events: list[Event] = []
    async with served(HttpSettings(port=0), PAGES, events.append):
        pass
    assert events == []


async def test_the_address_is_told() -> None:
    events: list[Event] = []
    async with opened(PAGES, events) as site:
        assert events == [PagesServed(address=f"http://{HOST}:{site.port}")]


async def test_a_port_that_is_taken_is_a_bad_setting() -> None:
    with socket.socket() as taken:
        taken.bind((HOST, 0))
        taken.listen()
        port = taken.getsockname()[1]
        with pytest.raises(InvalidSettings, match=rf"http\.port {port} on {HOST} cannot be used.*in use") as refused:
            async with served(HttpSettings(host=HOST, port=port), PAGES, lambda _: None):
                pass
    assert "http.port" in refused.value.hint


async def test_an_address_of_another_machine_is_a_bad_setting() -> None:
    with pytest.raises(InvalidSettings, match=r"192\.0\.2\.1 cannot be used"):
        async with served(HttpSettings(host="192.0.2.1", port=free_port()), PAGES, lambda _: None):
            pass


@pytest.mark.usefixtures("patient")
async def test_a_client_that_is_connected_does_not_hold_up_the_end() -> None:
    async with asyncio.timeout(60):
        async with opened(PAGES) as site:
            reader, writer = await site.connect()
            assert (await site.ask("/healthz")).status == 200
        assert await _rest(reader) == b""
    writer.close()


@pytest.mark.usefixtures("patient")
async def test_a_client_that_does_not_read_its_answer_does_not_hold_up_the_end() -> None:
    began = asyncio.Event()

    def huge() -> Response:
        began.set()
        return Response(200, b"x" * 50_000_000, "text/plain")

    with socket.socket() as client:
        async with asyncio.timeout(60):
            async with opened({"/metrics": huge}) as site:
                client.connect((HOST, site.port))
                client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
                await began.wait()


@pytest.mark.usefixtures("impatient")
async def test_a_client_that_does_not_read_its_answer_is_sent_away() -> None:
    serving: list[asyncio.Task[object]] = []

    def huge() -> Response:
        task = asyncio.current_task()
        assert task is not None
        serving.append(task)
        return Response(200, b"x" * 50_000_000, "text/plain")

    async with opened({"/metrics": huge}) as site:
        with socket.create_connection((HOST, site.port)) as client:
            client.sendall(b"GET /metrics HTTP/1.1\r\n\r\n")
            client.setblocking(False)
            loop = asyncio.get_running_loop()
            async with asyncio.timeout(60):
                while not serving:
                    await asyncio.sleep(0)
                await asyncio.wait(serving)
            received = 0
            while chunk := await loop.sock_recv(client, 1_000_000):
                received += len(chunk)
            assert received < 50_000_000, "what the system had taken over until then, and no more"


async def test_the_pages_go_when_the_worker_ends_with_an_error() -> None:
    with pytest.raises(ValueError, match="the worker's own"):
        async with opened(PAGES):
            raise ValueError("the worker's own")


async def _rest(reader: asyncio.StreamReader) -> bytes:
    try:
        return await reader.read()
    except ConnectionError:
        return b""
