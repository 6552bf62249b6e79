"""Connections that say nothing must not keep out those that do."""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

from msgspec import Struct
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol


class Terms(Struct, frozen=True, kw_only=True):
    """How long a connection may keep us waiting, in seconds."""

    head: float = 10.0
    """From the connection, or a request's first byte, to the end of its headers."""
    rest: float = 75.0
    """Between two requests."""
    reading: float = 60.0
    """Without taking a byte of the answer."""


class Guest(Protocol):
    """Whoever is connected."""

    transport: asyncio.Transport


class Connections:
    """Those that wait for a request, oldest first. Above `most` open ones, the oldest of these are closed at once.

    First go those that never asked for anything or are slow to say what, then those that rest between two requests.
    """

    def __init__(self, most: int, terms: Terms) -> None:
        self.most = most
        self.terms = terms
        self._open: set[Guest] = set()
        self._silent: dict[Guest, float] = {}
        self._resting: dict[Guest, float] = {}

    def opened(self, connection: Guest, now: float) -> None:
        self._open.add(connection)
        self.silent(connection, now)
        while len(self._open) > self.most and (self._silent or self._resting):
            self._close(self._silent or self._resting)

    def lost(self, connection: Guest) -> None:
        self._open.discard(connection)
        self.busy(connection)

    def silent(self, connection: Guest, now: float) -> None:
        self.busy(connection)
        self._silent[connection] = now + self.terms.head

    def resting(self, connection: Guest, now: float) -> None:
        self.busy(connection)
        self._resting[connection] = now + self.terms.rest

    def is_resting(self, connection: Guest) -> bool:
        return connection in self._resting

    def busy(self, connection: Guest) -> None:
        self._silent.pop(connection, None)
        self._resting.pop(connection, None)

    def close_overdue(self, now: float) -> None:
        for waiting in (self._silent, self._resting):
            while waiting and next(iter(waiting.values())) <= now:
                self._close(waiting)

    def _close(self, waiting: dict[Guest, float]) -> None:
        connection = next(iter(waiting))
        self.lost(connection)
        connection.transport.abort()


class Connection(HttpToolsProtocol):
    """Uvicorn's protocol, which tells `Connections` when it waits and for what."""

    connections_of: Connections

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        super().connection_made(transport)
        self._unread: asyncio.TimerHandle | None = None
        self.connections_of.opened(self, self.loop.time())

    def connection_lost(self, exc: Exception | None) -> None:
        self.connections_of.lost(self)
        self._stop_waiting()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        if self.connections_of.is_resting(self):
            self.connections_of.silent(self, self.loop.time())
        super().data_received(data)

    def on_headers_complete(self) -> None:
        self.connections_of.busy(self)
        super().on_headers_complete()

    def on_response_complete(self) -> None:
        super().on_response_complete()
        self._unset_keepalive_if_required()  # `Connections` minds that
        if not self.transport.is_closing() and self.cycle.response_complete:
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


def protocol(connections: Connections) -> type[asyncio.Protocol]:
    """The class that uvicorn makes its connections of."""
    return type("OurConnection", (Connection,), {"connections_of": connections})


def raise_file_limit() -> int:
    """To what the system allows; answers how many files may be open."""
    try:
        import resource  # noqa: PLC0415 - not on every system
    except ImportError:
        return 512
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    unlimited: Any = resource.RLIM_INFINITY
    wanted = 1_048_576 if hard == unlimited else hard
    if soft != unlimited and soft < wanted:
        try:
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
        except (OSError, ValueError):
            return int(soft)
    return int(wanted if soft != unlimited else 1_048_576)
