"""Limits on open connections: silent or slow clients, also during the TLS handshake, must not keep out others."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any, Protocol

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from parcelpost.protocol.payloads import error_body

MOST_HEAD_BYTES = 64 * 1024
"""Of a request's line and headers. The same holds for its trailers, and for what stands between two chunks."""

_STEP_BYTES = 16 * 1024
_MOST_HEADERS = 100
_MOST_PIPELINED = 100
_MOST_UNFINISHED_BYTES = 64 * 1024 * 1024
_TOO_LONG_BODY = error_body(
    "HEAD_TOO_LARGE", f"line and headers have at most {MOST_HEAD_BYTES // 1024} KiB and {_MOST_HEADERS} headers", ""
)
_TOO_LONG = (
    b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-type: application/json\r\nconnection: close\r\n"
    b"content-length: %d\r\n\r\n%b" % (len(_TOO_LONG_BODY), _TOO_LONG_BODY)
)


class ConnectionTimeouts(Struct, frozen=True, kw_only=True):
    """How long a connection may keep us waiting, in seconds."""

    head: float = 10.0
    """From the connection, or a request's first byte, to the end of its headers."""
    rest: float = 75.0
    """Between two requests."""
    reading: float = 60.0
    """Without taking a byte of the answer."""


class OpenConnection(Protocol):
    """Whoever is connected."""

    transport: asyncio.Transport


class Connections:
    """Those that wait for a request, oldest first. Above `most` open ones, the oldest of these are closed at once.

    First go those that never asked for anything or are slow to say what, then those that rest between two requests.
    The former are closed, too, when their unfinished heads together take more than `most_unfinished` bytes.
    """

    def __init__(self, most: int, terms: ConnectionTimeouts, most_unfinished: int = _MOST_UNFINISHED_BYTES) -> None:
        self.most = most
        self.most_unfinished = most_unfinished
        self.terms = terms
        self._open: set[OpenConnection] = set()
        self._silent: dict[OpenConnection, float] = {}
        self._resting: dict[OpenConnection, float] = {}
        self._unfinished: dict[OpenConnection, int] = {}
        self._unfinished_bytes = 0

    def opened(self, connection: OpenConnection, now: float) -> None:
        self._open.add(connection)
        self.silent(connection, now)
        while len(self._open) > self.most and (self._silent or self._resting):
            self._close(self._silent or self._resting)

    def unfinished(self, connection: OpenConnection, size: int) -> None:
        """So many bytes of a request's head are kept, and its end has not come."""
        self._unfinished_bytes += size - self._unfinished.get(connection, 0)
        self._unfinished[connection] = size
        while self._unfinished_bytes > self.most_unfinished:
            self._close(self._unfinished)

    def lost(self, connection: OpenConnection) -> None:
        self._open.discard(connection)
        self.busy(connection)

    def silent(self, connection: OpenConnection, now: float) -> None:
        self.busy(connection)
        self._silent[connection] = now + self.terms.head

    def resting(self, connection: OpenConnection, now: float) -> None:
        self.busy(connection)
        self._resting[connection] = now + self.terms.rest

    def is_resting(self, connection: OpenConnection) -> bool:
        return connection in self._resting

    def busy(self, connection: OpenConnection) -> None:
        self._silent.pop(connection, None)
        self._resting.pop(connection, None)
        self._unfinished_bytes -= self._unfinished.pop(connection, 0)

    def close_overdue(self, now: float) -> None:
        for waiting in (self._silent, self._resting):
            while waiting and next(iter(waiting.values())) <= now:
                self._close(waiting)

    def _close(self, waiting: dict[OpenConnection, float] | dict[OpenConnection, int]) -> None:
        connection = next(iter(waiting))
        self.lost(connection)
        connection.transport.abort()


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, which tells `Connections` when it waits and for what, and keeps no more than it must.

    The parser keeps a header until its last byte, whatever its length, and tells nobody before. So the bytes are
    counted that it is given and that are no body: heads, trailers, and what stands between chunks.
    """

    connections_of: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread: asyncio.TimerHandle | None = None
        self._in_head = True
        self._step_bytes = 0
        self._outside_body = 0
        self.connections_of.opened(self, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections_of.lost(self)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.connections_of.is_resting(self):
            self.connections_of.silent(self, self.loop.time())
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
        if self._outside_body > MOST_HEAD_BYTES:
            self._refuse_head()
        elif self._in_head:
            self.connections_of.unfinished(self, self._outside_body)

    def on_message_begin(self) -> None:
        super().on_message_begin()
        self._in_head = True
        self._outside_body = self._step_bytes  # at most

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._in_head:
            return  # a trailer comes too late to say who asks, and for what
        if len(self.headers) == _MOST_HEADERS:
            self._refuse_head()
            raise ValueError("too many headers")  # ends the parsing
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        self._in_head, self._outside_body = False, 0
        self.connections_of.busy(self)
        super().on_headers_complete()
        if len(self.pipeline) > _MOST_PIPELINED:
            self.transport.abort()
            raise ValueError("too many requests without waiting for an answer")

    def on_body(self, body: bytes) -> None:
        self._outside_body -= len(body) + len(body) // 4  # chunks of a byte or two are nothing but work
        super().on_body(body)

    def send_400_response(self, msg: str) -> None:
        if not self.transport.is_closing():
            super().send_400_response(msg)

    def _refuse_head(self) -> None:
        """Where an answer is still to come for an earlier request, the connection just ends."""
        if self.transport.is_closing():
            return
        is_answering = self.cycle and not self.cycle.response_complete  # type: ignore[truthy-bool]  # None at first
        if is_answering or not self._in_head:
            self.transport.abort()
        else:
            self.transport.write(_TOO_LONG)
            self.transport.close()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `Connections` minds that
        if self.transport.is_closing() or not self.cycle.response_complete:
            return
        if self._in_head:  # of the next request
            self.connections_of.silent(self, self.loop.time())
            self.connections_of.unfinished(self, self._outside_body)
        else:
            self.connections_of.resting(self, self.loop.time())

    def pause_writing(self) -> None:
        super().pause_writing()
        self._stop_waiting()
        self._unread = self.loop.call_later(self.connections_of.terms.reading, self.transport.abort)

    def resume_writing(self) -> None:
        self._stop_waiting()
        super().resume_writing()

    def _stop_waiting(self) -> None:
        if self._unread is not None:
            self._unread.cancel()
            self._unread = None


def connection_class(connections: Connections) -> type[asyncio.Protocol]:
    """The class that uvicorn makes its connections of."""
    return type("OurConnection", (Connection,), {"connections_of": connections})


class TlsHandshake(asyncio.Protocol):
    """A connection until TLS is agreed on; then it is that of the protocol that `make` makes."""

    transport: asyncio.Transport

    def __init__(self, connections: Connections, context: ssl.SSLContext, make: Callable[[], asyncio.Protocol]) -> None:
        self._connections = connections
        self._context = context
        self._make = make
        self._loop = asyncio.get_running_loop()

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        transport.pause_reading()  # what comes is for TLS
        self.transport = transport
        self._connections.opened(self, self._loop.time())
        self._agreeing = self._loop.create_task(self._agree())

    async def _agree(self) -> None:
        early = _EarlyData()
        patience = self._connections.terms.head
        try:
            secured = await self._loop.start_tls(
                self.transport, early, self._context, server_side=True, ssl_handshake_timeout=patience
            )
        except OSError:
            self.transport.abort()
            return
        finally:
            self._connections.lost(self)
        if secured is None or early.is_lost:
            return
        protocol = self._make()
        secured.set_protocol(protocol)
        protocol.connection_made(secured)
        if early.received:
            protocol.data_received(bytes(early.received))


class _EarlyData(asyncio.Protocol):
    """Keeps what comes with the last word of the greeting, for an instant."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def tls_protocol(
    connections: Connections, context: ssl.SSLContext, protocol: type[asyncio.Protocol]
) -> Callable[..., asyncio.Protocol]:
    """What uvicorn makes its connections of, in place of `protocol`."""

    def make(**given: Any) -> asyncio.Protocol:
        return TlsHandshake(connections, context, lambda: protocol(**given))

    return make
