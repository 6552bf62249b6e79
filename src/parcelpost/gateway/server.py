"""Runs the gateway: the server, its limits on what clients send, and start and stop."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
from collections.abc import Callable, Coroutine, Iterator, Mapping
from functools import partial
from typing import Any

import uvicorn
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parcelpost import __version__
from parcelpost.clock import Clock
from parcelpost.errors import AddressNotFree, TooFewFiles
from parcelpost.events import ConnectionsRefused, Emit, GatewayStarted, GatewayStopped
from parcelpost.files_and_sockets import raise_file_limit, stop_listening
from parcelpost.gateway.app import make_app
from parcelpost.gateway.auth import check_tokens, read_tokens
from parcelpost.gateway.context import Context, Counters, Platforms
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.map_layers import read_map_layers
from parcelpost.gateway.webhooks import Sender, Webhooks
from parcelpost.object_store import open_raw_store, remove_leftovers
from parcelpost.private_addresses import Guard
from parcelpost.protocol.payloads import error_body
from parcelpost.settings import Settings
from parcelpost.settings.schema import ServerSettings
from parcelpost.settings.secrets import without_password

_MAX_BACKLOG = 4_096
_MIN_OPEN_FILES = 128
_RESERVED_FILES = 64
"""Files for the ledger, uploads and downloads; the backlog is added."""
GRACE_SECONDS = 30
"""From the first signal to the end, whatever runs."""
SLOW_CLIENT_SECONDS = 10
"""A stopping gateway waits so long for requests that have not arrived, and for clients that do not read responses."""
_REQUESTS_SECONDS = 20
_LOOPS_SECONDS = 10
_LAST_COUNTS_SECONDS = 2
_KEEP_ALIVE_SECONDS = 75

MAX_HEAD_BYTES = 64 * 1024
"""Limit on a request's line and headers, on its trailers, and on the data between two chunks."""
_STEP_BYTES = 16 * 1024
_MAX_HEADERS = 100
_MAX_PIPELINED = 100


def _last_response(status: str, code: str, message: str) -> bytes:
    body = error_body(code, message, "").decode()
    headers = f"content-type: application/json\r\nconnection: close\r\ncontent-length: {len(body)}"
    return f"HTTP/1.1 {status}\r\n{headers}\r\n\r\n{body}".encode()


_HEAD_TOO_LARGE = _last_response(
    "431 Request Header Fields Too Large",
    "HEAD_TOO_LARGE",
    f"request line and headers are limited to {MAX_HEAD_BYTES // 1024} KiB and {_MAX_HEADERS} headers",
)
_TOO_MANY_CONNECTIONS = _last_response(
    "503 Service Unavailable\r\nretry-after: 5", "UNAVAILABLE", "too many open connections"
)


async def serve(
    settings: Settings,
    environment: Mapping[str, str],
    clock: Clock,
    emit: Emit,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    watch: Callable[[Maintenance], None] = lambda _: None,
    platforms: Platforms | None = None,
) -> None:
    """Serves until `stop` is set, then finishes running requests. `ready` receives the address once it listens, and
    `watch`, before that, the maintenance loop. Without `platforms`, tasks for any platform are accepted.

    Raises InvalidSettings, LedgerError.
    """
    server = settings.server
    tokens = read_tokens(server, environment, clock, emit)
    check_tokens(server, tokens)
    map_layers = read_map_layers(server)
    files = raise_file_limit()
    if files < _MIN_OPEN_FILES:
        raise TooFewFiles.of("a gateway", _MIN_OPEN_FILES, files)
    with _listener(server) as listener:  # first: a port in use must not leave an empty ledger behind
        raw_store = open_raw_store(server.raw, environment)
        remove_leftovers(server.raw, clock.now())
        async with open_ledger(server.database, server.max_attempts, clock) as ledger:
            context = Context(
                ledger=ledger,
                raw_store=raw_store,
                settings=server,
                tokens=tokens,
                clock=clock,
                emit=emit,
                counters=Counters(clock),
                version=__version__,
                stopping=stop,
                map_layers=map_layers,
                platforms=platforms,
            )
            backlog = min(files // 8, _MAX_BACKLOG)  # accepted all at once: there must be room for them
            address = _address(server, listener)
            emit(GatewayStarted(address=address, database=without_password(server.database), raw=server.raw))
            maintenance = Maintenance(context)
            watch(maintenance)
            webhooks = Webhooks(context, environment, Sender(Guard(server.allow_private), __version__))
            async with asyncio.TaskGroup() as group:
                group.create_task(_until_stopped(maintenance.run(stop), stop))
                group.create_task(_until_stopped(webhooks.run(stop), stop))
                limit = ConnectionLimit(files - backlog - _RESERVED_FILES, files, emit)
                group.create_task(_serve(_server(context, backlog, limit), listener, stop, lambda: ready(address)))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(_LAST_COUNTS_SECONDS):
                    await maintenance.finish()
    emit(GatewayStopped())


async def _until_stopped(loop: Coroutine[Any, Any, None], stop: asyncio.Event) -> None:
    """Cancels the loop if it waits for the ledger long after it was told to stop. Its changes are whole or not made."""
    running, stopping = asyncio.ensure_future(loop), asyncio.ensure_future(stop.wait())
    try:
        await asyncio.wait({running, stopping}, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.wait({running}, timeout=_LOOPS_SECONDS)
    finally:
        running.cancel()
        stopping.cancel()
        await asyncio.wait({running}, timeout=_LOOPS_SECONDS)
    if running.done() and not running.cancelled():
        running.result()


class ConnectionLimit:
    """How many connections may be open, so that files remain for the ledger and for uploads."""

    def __init__(self, max_connections: int, max_files: int, emit: Emit) -> None:
        self._max_connections = max_connections
        self._max_files = max_files
        self._emit = emit
        self._is_reported = False

    def is_exceeded(self, connections: int) -> bool:
        if connections <= self._max_connections // 2:
            self._is_reported = False
        if connections <= self._max_connections:
            return False
        if not self._is_reported:
            self._is_reported = True
            self._emit(ConnectionsRefused(connections=self._max_connections, max_files=self._max_files))
        return True


class LimitedConnection(HttpToolsProtocol):
    """Uvicorn's HTTP protocol, with limits on everything that is not a body: request line, headers, trailers and the
    bytes between two chunks. It also limits how many requests a client may send without waiting for the responses, and
    how many connections may be open.

    The parser buffers a header until its last byte, whatever its length, so the bytes are counted as they arrive.
    Slow and silent clients are left to the reverse proxy.
    """

    def __init__(self, *args: Any, limit: ConnectionLimit, **more: Any) -> None:
        super().__init__(*args, **more)
        self._limit = limit

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        if self._limit.is_exceeded(len(self.connections)):
            transport.write(_TOO_MANY_CONNECTIONS)
            transport.close()
        self._in_head = True
        self._step_bytes = 0
        self._outside_body = 0

    def data_received(self, data: bytes) -> None:
        if len(data) <= _STEP_BYTES:
            self._parse(data)
            return
        rest = memoryview(data)
        while rest and not self.transport.is_closing():
            self._parse(rest[:_STEP_BYTES])
            rest = rest[_STEP_BYTES:]

    def _parse(self, data: bytes | memoryview) -> None:
        self._step_bytes = len(data)
        self._outside_body = max(self._outside_body, 0) + len(data)
        super().data_received(data)  # type: ignore[arg-type]  # the parser takes both
        if self._outside_body > MAX_HEAD_BYTES:
            self._reject_head()

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._outside_body = self._step_bytes  # at most

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer: too late to carry a token
        if len(self.headers) == _MAX_HEADERS:
            self._reject_head()
            raise ValueError("too many headers")  # ends the parsing
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._outside_body = False, 0
        super().on_headers_complete()
        if len(self.pipeline) > _MAX_PIPELINED:
            self.transport.abort()
            raise ValueError("too many pipelined requests")

    def on_body(self, body: bytes) -> None:
        self._outside_body -= len(body) + len(body) // 4  # chunks of a byte or two are nothing but overhead
        super().on_body(body)

    def shutdown(self) -> None:
        super().shutdown()
        self.loop.call_later(SLOW_CLIENT_SECONDS, self._drop_slow_client)

    def _drop_slow_client(self) -> None:
        is_sending = self.cycle and self.cycle.more_body  # type: ignore[truthy-bool]  # None at first
        if is_sending or self.transport.get_write_buffer_size():
            self.transport.abort()

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _reject_head(self) -> None:
        """Responds 431; just closes the connection while an earlier request still waits for its response."""
        if self.transport.is_closing():
            return
        is_responding = self.cycle and not self.cycle.response_complete  # type: ignore[truthy-bool]  # None at first
        if is_responding or not self._in_head:
            self.transport.abort()
        else:
            self.transport.write(_HEAD_TOO_LARGE)
            self.transport.close()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """The command handles signals."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await stop_listening(server)
        await super().shutdown(sockets)


def _server(context: Context, backlog: int, limit: ConnectionLimit) -> _Server:
    for name in ("uvicorn", "python_multipart"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # events and responses say it all
    config = uvicorn.Config(
        make_app(context),
        http=partial(LimitedConnection, limit=limit),  # type: ignore[arg-type]  # it is only called
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=backlog,
        timeout_keep_alive=_KEEP_ALIVE_SECONDS,
        timeout_graceful_shutdown=_REQUESTS_SECONDS,
    )
    return _Server(config)


async def _serve(server: _Server, listener: socket.socket, stop: asyncio.Event, ready: Callable[[], None]) -> None:
    async def stopping() -> None:
        await stop.wait()
        server.should_exit = True

    async with asyncio.TaskGroup() as group:
        waiting = group.create_task(stopping())
        listener.listen(server.config.backlog)
        ready()
        await server.serve(sockets=[listener])
        waiting.cancel()
    stop.set()


@contextlib.contextmanager
def _listener(settings: ServerSettings) -> Iterator[socket.socket]:
    """Raises InvalidSettings."""
    listener = None
    try:
        family, kind, protocol_number, _, place = socket.getaddrinfo(
            settings.host, settings.port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol_number)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(place)
    except OSError as error:
        if listener is not None:
            listener.close()
        raise AddressNotFree(
            f"server.port {settings.port} on {settings.host} is not available: {error.strerror or error}",
            hint="choose another server.port or server.host, or stop the process that uses it",
        ) from None
    with listener:
        yield listener


def _address(settings: ServerSettings, listener: socket.socket) -> str:
    """Returns an address that can be opened; if it listens on all interfaces, that of the outgoing one."""
    name, port = listener.getsockname()[:2]
    host = _outgoing_address(listener.family) if ipaddress.ip_address(name).is_unspecified else settings.host
    return f"http://{f'[{host}]' if ':' in host else host}:{port}"


def _outgoing_address(family: int) -> str:
    places = ((socket.AF_INET, "192.0.2.1", "127.0.0.1"), (socket.AF_INET6, "2001:db8::1", "::1"))
    _, elsewhere, here = next(place for place in places if place[0] == family)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))  # a datagram socket: nothing is sent
        except OSError:
            return here
        return str(probe.getsockname()[0])
