"""TLS that is agreed on before our eyes: who connects and does not agree is silent, and closed as such."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from parcelpost.gateway.connections import Connections


class Greeting(asyncio.Protocol):
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
        early = _Early()
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


class _Early(asyncio.Protocol):
    """Keeps what comes with the last word of the greeting, for an instant."""

    def __init__(self) -> None:
        self.received = bytearray()
        self.is_lost = False

    def data_received(self, data: bytes) -> None:
        self.received += data

    def connection_lost(self, exc: Exception | None) -> None:
        self.is_lost = True


def greeted(
    connections: Connections, context: ssl.SSLContext, protocol: type[asyncio.Protocol]
) -> Callable[..., asyncio.Protocol]:
    """What uvicorn makes its connections of, in place of `protocol`."""

    def make(**given: Any) -> asyncio.Protocol:
        return Greeting(connections, context, lambda: protocol(**given))

    return make
