"""The worker's HTTP pages: /healthz, /readyz, /metrics."""

from __future__ import annotations

import asyncio
import contextlib
import socket
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AsyncExitStack, asynccontextmanager

import msgspec

from parcelpost.errors import AddressNotFree
from parcelpost.events import Emit, PagesServed
from parcelpost.files_and_sockets import tcp_server
from parcelpost.health_checks import Finding
from parcelpost.settings.schema import HttpSettings

_MOST_HEADER_BYTES = 8_192
_MOST_CONNECTIONS = 64
_PATIENCE_SECONDS = 5.0
_REASONS = {200: "OK", 400: "Bad Request", 404: "Not Found", 405: "Method Not Allowed", 503: "Service Unavailable"}


class Response(msgspec.Struct, frozen=True):
    status: int
    body: bytes
    content_type: str = "application/json"


Page = Callable[[], Response | Awaitable[Response]]


def state(findings: list[Finding]) -> Response:
    """Returns 200 unless a finding blocks work."""
    is_ok = not any(finding.blocks_work for finding in findings)
    body = {"status": "ok" if is_ok else "not ok", "findings": findings}
    return Response(200 if is_ok else 503, msgspec.json.encode(body) + b"\n")


@asynccontextmanager
async def served(
    settings: HttpSettings, pages: dict[str, Page], emit: Emit, listener: socket.socket | None = None
) -> AsyncIterator[None]:
    """Serves pages by path until the block ends, on the `listener` if there is one.

    Does nothing if there is none and the port is 0. Raises AddressNotFree.
    """
    if not settings.port and listener is None:
        yield
        return

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError, asyncio.LimitOverrunError):
            async with asyncio.timeout(_PATIENCE_SECONDS):
                await _answer(reader, writer, pages)

    async with AsyncExitStack() as stack:
        server = tcp_server(
            answer,
            settings.host,
            settings.port,
            listener=listener,
            limit=_MOST_HEADER_BYTES,
            max_connections=_MOST_CONNECTIONS,
        )
        try:
            await stack.enter_async_context(server)
        except OSError as error:
            raise AddressNotFree(
                f"http.port {settings.port} on {settings.host} cannot be used: {error.strerror or error}",
                hint="choose another http.port, or 0 for no health pages",
            ) from error
        if listener is None:
            emit(PagesServed(address=f"http://{settings.host}:{settings.port}"))
        yield


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, pages: dict[str, Page]) -> None:
    request = await reader.readuntil(b"\r\n\r\n")
    writer.write(await _response(request, pages))
    writer.close()
    await writer.wait_closed()


async def _response(request: bytes, pages: dict[str, Page]) -> bytes:
    method, _, rest = request.partition(b"\r\n")[0].partition(b" ")
    path = rest.split(b" ")[0].split(b"?")[0].decode("ascii", "replace")
    if method not in (b"GET", b"HEAD"):
        answer = Response(405, b'{"error": "only GET"}\n')
    elif path in pages:
        made = pages[path]()
        answer = made if isinstance(made, Response) else await made
    else:
        answer = Response(404, msgspec.json.encode({"pages": sorted(pages)}) + b"\n")
    head = (
        f"HTTP/1.1 {answer.status} {_REASONS[answer.status]}\r\nContent-Type: {answer.content_type}\r\n"
        f"Content-Length: {len(answer.body)}\r\nCache-Control: no-store\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + (b"" if method == b"HEAD" else answer.body)
