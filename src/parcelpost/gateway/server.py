"""Runs the gateway: from settings to a server that takes requests until it is stopped."""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
import socket
import ssl
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import uvicorn

from parcelpost import __version__
from parcelpost.clock import Clock
from parcelpost.errors import AddressNotFree, InvalidSettings, TooFewFiles
from parcelpost.events import Emit, GatewayStarted, GatewayStopped
from parcelpost.gateway.app import make_app
from parcelpost.gateway.auth import check_tokens, read_tokens
from parcelpost.gateway.connections import Connections, ConnectionTimeouts, connection_class, tls_protocol
from parcelpost.gateway.context import Context, Counters, Platforms
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.maintenance import Maintenance
from parcelpost.gateway.uploads import BodyTimeout
from parcelpost.raw_store import open_raw_store, remove_leftovers
from parcelpost.settings import Settings
from parcelpost.settings.schema import ServerSettings
from parcelpost.settings.secrets import without_password
from parcelpost.system import raise_file_limit, stop_listening

_MOST_WAITING = 4_096
_FEWEST_FILES = 128
GRACE_SECONDS = 30
_CHECK_SECONDS = 0.5


async def serve(
    settings: Settings,
    environment: Mapping[str, str],
    clock: Clock,
    emit: Emit,
    *,
    stop: asyncio.Event,
    ready: Callable[[str], None],
    watch: Callable[[Maintenance], None] = lambda _: None,
    terms: ConnectionTimeouts = ConnectionTimeouts(),
    patience: BodyTimeout = BodyTimeout(),
    platforms: Platforms | None = None,
) -> None:
    """Serves until `stop` is set, then answers what it has begun. `ready` is given the address once it listens,
    and `watch`, before that, what works beside the requests. Without `platforms` tasks of any are queued.

    Raises InvalidSettings, LedgerError.
    """
    server = settings.server
    tokens = read_tokens(server, environment, clock, emit)
    check_tokens(server, tokens)
    tls = _tls(server)
    files = raise_file_limit()
    if files < _FEWEST_FILES:
        raise TooFewFiles.of("a gateway", _FEWEST_FILES, files)
    with _listener(server) as listener:  # before anything is made: a port that is taken leaves no empty ledger behind
        raw_store = open_raw_store(server.raw, environment)
        remove_leftovers(server.raw, clock.now())
        async with open_ledger(server.database, server.max_attempts, clock) as ledger:
            parts = Context(
                ledger=ledger,
                raw_store=raw_store,
                settings=server,
                tokens=tokens,
                clock=clock,
                emit=emit,
                tally=Counters(clock),
                version=__version__,
                patience=patience,
                stopping=stop,
                platforms=platforms,
            )
            connections = Connections(files * 3 // 4, terms)  # the ledger and raw files need some, too
            waiting = min(files // 8, _MOST_WAITING)  # taken all at once: there must be room for them
            address = _address(server, listener)
            emit(GatewayStarted(address=address, database=without_password(server.database), raw=server.raw))
            sweeper = Maintenance(parts)
            watch(sweeper)
            async with asyncio.TaskGroup() as group:
                group.create_task(sweeper.run(stop))
                group.create_task(_close_overdue(connections, clock, stop))
                group.create_task(
                    _serve(_server(parts, connections, tls, waiting), listener, stop, lambda: ready(address))
                )
            await sweeper.finish()
    emit(GatewayStopped())


def new_loop(server: ServerSettings) -> asyncio.AbstractEventLoop:
    """The fastest event loop that is installed; with TLS Python's own: uvloop 0.23 stops for good when a connection is
    closed in the middle of its greeting.
    """
    if server.tls_certificate:
        return asyncio.new_event_loop()
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


class _Server(uvicorn.Server):
    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """Signals are the command's business."""
        yield

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        for server in self.servers:
            await stop_listening(server)
        await super().shutdown(sockets)


def _server(parts: Context, connections: Connections, tls: ssl.SSLContext | None, waiting: int) -> _Server:
    for name in ("uvicorn", "python_multipart"):
        logging.getLogger(name).setLevel(logging.CRITICAL)  # events and answers say what there is to say
    plain = connection_class(connections)
    config = uvicorn.Config(
        make_app(parts),
        http=tls_protocol(connections, tls, plain) if tls else plain,  # type: ignore[arg-type]  # it is only called
        ws="none",
        lifespan="off",
        interface="asgi3",
        log_config=None,
        access_log=False,
        proxy_headers=False,
        server_header=False,
        backlog=waiting,
        timeout_keep_alive=int(connections.terms.rest) + 1,
        timeout_graceful_shutdown=GRACE_SECONDS,
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


async def _close_overdue(connections: Connections, clock: Clock, stop: asyncio.Event) -> None:
    loop = asyncio.get_running_loop()
    while not await clock.wait(stop, _CHECK_SECONDS):
        connections.close_overdue(loop.time())


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
            f"server.port {settings.port} on {settings.host} cannot be used: {error.strerror or error}",
            hint="choose another server.port or server.host, or stop what listens there",
        ) from None
    with listener:
        yield listener


def _address(settings: ServerSettings, listener: socket.socket) -> str:
    """One that can be opened: where it listens on all addresses, that by which this machine reaches others."""
    scheme = "https" if settings.tls_certificate else "http"
    name, port = listener.getsockname()[:2]
    host = _outward(listener.family) if ipaddress.ip_address(name).is_unspecified else settings.host
    return f"{scheme}://{f'[{host}]' if ':' in host else host}:{port}"


def _outward(family: int) -> str:
    places = ((socket.AF_INET, "192.0.2.1", "127.0.0.1"), (socket.AF_INET6, "2001:db8::1", "::1"))
    _, elsewhere, here = next(place for place in places if place[0] == family)
    with socket.socket(family, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((elsewhere, 9))  # of a datagram socket: nothing is sent
        except OSError:
            return here
        return str(probe.getsockname()[0])


def _tls(settings: ServerSettings) -> ssl.SSLContext | None:
    """None where no certificate is set. Raises InvalidSettings."""
    if not settings.tls_certificate and not settings.tls_key:
        return None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    if not settings.tls_certificate or not settings.tls_key:
        raise InvalidSettings("TLS needs both server.tls_certificate and server.tls_key")
    for name in ("tls_certificate", "tls_key"):
        _check_readable(f"server.{name}", getattr(settings, name))
    try:
        context.load_cert_chain(Path(settings.tls_certificate), Path(settings.tls_key))
    except (OSError, ssl.SSLError) as error:
        raise InvalidSettings(
            f"server.tls_certificate and server.tls_key cannot be used: {error}",
            hint="both are PEM files, the key without a password and of this certificate",
        ) from None
    return context


def _check_readable(key: str, file: str) -> None:
    try:
        Path(file).open("rb").close()
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else error
        raise InvalidSettings(f"{key} {file} cannot be read: {reason}", hint="check the path and its owner") from None
