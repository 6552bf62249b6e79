"""The network between the processes: an HTTP proxy that sees every exchange, and loses, delays or garbles some."""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import random
from collections import deque
from collections.abc import AsyncIterator, Callable

import msgspec
from msgspec import Struct

from parcelpost.clock import Clock
from parcelpost.files_and_sockets import tcp_server

_MOST_HEAD_BYTES = 64 * 1024
_MOST_BODY_BYTES = 64 * 1024**2
_REMEMBERED = 50
_NO_BODY = (204, 304)


class Message(Struct, frozen=True):
    """A request or an answer."""

    first_line: str
    headers: dict[str, str]
    """Names in lower case."""
    raw_head: bytes
    raw_body: bytes
    """As sent, so perhaps in chunks."""
    body: bytes

    @property
    def method(self) -> str:
        return self.first_line.split(" ")[0]

    @property
    def target(self) -> str:
        return self.first_line.split(" ")[1]

    @property
    def status(self) -> int:
        return int(self.first_line.split(" ")[1])

    @property
    def content(self) -> bytes:
        return gzip.decompress(self.body) if self.headers.get("content-encoding") == "gzip" else self.body


class Trouble(Struct, frozen=True, kw_only=True):
    """A fault on a link while it lasts."""

    kind: str
    rate: float = 1.0
    seconds: float = 0.0
    """Of a delay."""
    worker: str = ""
    """'': all of them."""
    chance: random.Random
    """Which requests are hit."""


Observe = Callable[[str, Message, Message | None, str], None]
"""Called before the answer is passed on: with the proxy's name, the request, the real answer (None: not reached) and
the trouble."""


class Proxy:
    """Listens on one port for one server."""

    def __init__(self, name: str, port: int, clock: Clock, observe: Observe) -> None:
        self.name = name
        self.port = 0
        self._server_port = port
        self._clock = clock
        self._observe = observe
        self.troubles: dict[object, Trouble] = {}
        self.poison: set[str] = set()
        """Ids of tasks whose results the server refuses together with all that is sent with them."""
        self.struck = 0
        self._answers: deque[tuple[str, Message]] = deque(maxlen=_REMEMBERED)

    @contextlib.asynccontextmanager
    async def listening(self) -> AsyncIterator[Proxy]:
        async with tcp_server(self._serve, "127.0.0.1", limit=_MOST_HEAD_BYTES) as self.port:
            yield self

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        server: list[asyncio.StreamWriter] = []
        with contextlib.suppress(OSError, EOFError, asyncio.IncompleteReadError, asyncio.LimitOverrunError, ValueError):
            link = _Link(self._server_port, server)
            while request := await _read(reader):
                if not await self._exchange(request, link, writer):
                    break
        for one in server:
            one.transport.abort()
        with contextlib.suppress(OSError):
            writer.close()
            await writer.wait_closed()

    async def _exchange(self, request: Message, link: _Link, writer: asyncio.StreamWriter) -> bool:
        """Returns whether the connection stays open."""
        trouble = self._trouble(request)
        kind = trouble.kind if trouble else ""
        self.struck += bool(kind)
        if kind == "refused":
            self._observe(self.name, request, None, kind)
            return False
        if kind == "busy" or self._is_poisoned(request):
            status = "503 Service Unavailable" if kind == "busy" else "400 Bad Request"
            self._observe(self.name, request, None, kind or "poison")
            await _write(writer, _made(status, b'{"error":{"code":"chaos","message":"not now"}}'))
            return True
        if kind == "misdirected" and request.target.endswith("/results") and (other := self._other(request)):
            self._observe(
                self.name, request, None, kind
            )  # it never arrives, and is answered with what another one was told
            await _write(writer, other.raw_head + other.raw_body)
            return True
        answer = await link.ask(request)
        if kind == "doubled":
            self._observe(self.name, request, answer, "")
            answer = await link.ask(request)
        self._observe(self.name, request, answer, kind)
        other_answer = self._other(request) if kind == "misdirected" else None
        if answer.status == 200:
            self._answers.append((request.target.split("?")[0].rsplit("/", 1)[-1], answer))
        if trouble and kind == "delayed":
            await self._clock.sleep(trouble.seconds)
        if kind == "swallowed":
            return False
        if kind == "garbage":
            await _write(
                writer, _made("200 OK", b"<html><body>Welcome to the guest network</body></html>", "text/html")
            )
            return True
        whole = (other_answer or answer).raw_head + (other_answer or answer).raw_body
        if trouble and kind == "cut":
            await _write(writer, whole[: trouble.chance.randrange(len(whole))])
            return False
        await _write(writer, whole * 2 if kind == "doubled-answer" else whole)
        return answer.headers.get("connection", "").lower() != "close"

    def _trouble(self, request: Message) -> Trouble | None:
        worker = request.headers.get("x-worker-id", "")
        return next(
            (
                one
                for one in list(self.troubles.values())
                if (not one.worker or one.worker == worker) and one.chance.random() < one.rate
            ),
            None,
        )

    def _is_poisoned(self, request: Message) -> bool:
        if not self.poison or not request.target.endswith("/results"):
            return False
        return any(entry.get("task_id") in self.poison for entry in entries(request))

    def _other(self, request: Message) -> Message | None:
        """An answer to another request; of the same kind, if there is one without any of this one's tasks."""
        kind = request.target.split("?")[0].rsplit("/", 1)[-1]
        if kind != "results":
            return next((answer for name, answer in self._answers if name != kind), None)
        own = {entry.get("task_id") for entry in entries(request)}
        for name, answer in reversed(self._answers):
            if name == kind and not own & {one.get("task_id") for one in receipts(answer)}:
                return answer
        return None


class _Link:
    """A connection to the server, opened for the first request and again when it is gone."""

    def __init__(self, port: int, opened: list[asyncio.StreamWriter]) -> None:
        self._port = port
        self._opened = opened
        self._streams: tuple[asyncio.StreamReader, asyncio.StreamWriter] | None = None

    async def ask(self, request: Message) -> Message:
        if self._streams is None or self._streams[0].at_eof():
            self._streams = await asyncio.open_connection("127.0.0.1", self._port, limit=_MOST_HEAD_BYTES)
            self._opened.append(self._streams[1])
        reader, writer = self._streams
        await _write(writer, request.raw_head + request.raw_body)
        answer = await _read(reader, has_body=request.method != "HEAD")
        if answer is None:
            raise EOFError
        if answer.headers.get("connection", "").lower() == "close":
            self._streams = None
        return answer


def entries(request: Message) -> list[dict[str, object]]:
    """The results in a batch."""
    try:
        found = msgspec.json.decode(request.content)
    except (msgspec.DecodeError, OSError):
        return []
    return [one for one in found if isinstance(one, dict)] if isinstance(found, list) else []


def receipts(answer: Message) -> list[dict[str, str]]:
    try:
        found = msgspec.json.decode(answer.content)
    except (msgspec.DecodeError, OSError):
        return []
    return list(found.get("receipts") or []) if isinstance(found, dict) else []


async def _read(reader: asyncio.StreamReader, *, has_body: bool = True) -> Message | None:
    """Returns None at the end of the connection."""
    try:
        raw_head = await reader.readuntil(b"\r\n\r\n")
    except asyncio.IncompleteReadError as error:
        if not error.partial:
            return None
        raise
    first_line, *lines = raw_head.decode("latin-1").rstrip("\r\n").split("\r\n")
    headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
    raw_body = body = b""
    is_bodyless = first_line.startswith("HTTP/") and int(first_line.split(" ")[1]) in _NO_BODY
    if not has_body or is_bodyless:
        pass
    elif headers.get("transfer-encoding", "").lower() == "chunked":
        raw_body, body = await _read_chunks(reader)
    else:
        length = int(headers.get("content-length", "0"))
        if length > _MOST_BODY_BYTES:
            raise ValueError("too large")
        raw_body = body = await reader.readexactly(length)
    return Message(first_line, headers, raw_head, raw_body, body)


async def _read_chunks(reader: asyncio.StreamReader) -> tuple[bytes, bytes]:
    raw: list[bytes] = []
    body: list[bytes] = []
    while True:
        line = await reader.readuntil(b"\r\n")
        size = int(line.split(b";")[0], 16)
        if sum(map(len, body)) + size > _MOST_BODY_BYTES:
            raise ValueError("too large")
        chunk = await reader.readexactly(size + 2)
        raw += [line, chunk]
        if not size:
            return b"".join(raw), b"".join(body)
        body.append(chunk[:-2])


async def _write(writer: asyncio.StreamWriter, content: bytes) -> None:
    writer.write(content)
    await writer.drain()


def _made(status: str, body: bytes, content_type: str = "application/json") -> bytes:
    head = f"HTTP/1.1 {status}\r\nContent-Type: {content_type}\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body
