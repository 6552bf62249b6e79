"""Operating system helpers: private folders, limit of open files, event loop, a TCP server that closes cleanly."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parcelpost.clock import SystemClock


def make_private(folder: Path) -> None:
    """Creates the folder and its missing parents with mode 700; existing ones keep their mode. Raises OSError."""
    for path in (*reversed(folder.parents), folder):
        if not path.is_dir():
            path.mkdir(mode=0o700, exist_ok=True)


def raise_file_limit() -> int:
    """Raises this process's limit of open files as far as the system allows, and returns it."""
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


def free_port() -> int:
    """Returns a port of this machine that nobody uses at the moment."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def run_on_fast_loop(work: Coroutine[Any, Any, None]) -> None:
    """Runs the work on the fastest event loop that is installed."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        with asyncio.Runner(loop_factory=_new_loop) as runner:
            runner.run(work)
    finally:
        for number, handler in handlers.items():  # uvloop leaves its own behind, which ignore Ctrl-C
            signal.signal(number, handler)


def _new_loop() -> asyncio.AbstractEventLoop:
    try:
        import uvloop  # noqa: PLC0415 - not on every system
    except ImportError:
        return asyncio.new_event_loop()
    return uvloop.new_event_loop()


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""Serves one connection, which is closed when it returns: it must wait until its writes are sent."""

_LIMIT_BYTES = 64 * 1024
_BACKLOG = 100
_LOOP_ITERATIONS = 3
"""Iterations between accepting and serving a connection: its task, its transport, our own task."""


@asynccontextmanager
async def tcp_server(
    serve: Serve,
    host: str = "",
    port: int = 0,
    *,
    listener: socket.socket | None = None,
    limit: int = _LIMIT_BYTES,
    max_connections: int | None = None,
) -> AsyncIterator[int]:
    """Yields its port; 0 uses any free one, a `listener` has its own. Raises OSError.

    At the end, connections are cancelled and waited for.
    Beyond `max_connections` the oldest is closed, so that clients cannot exhaust the process's open files.
    """
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        serving[task] = writer
        task.add_done_callback(lambda done: _abort(serving.pop(done)))  # even if cancelled before it started
        if max_connections is not None and len(serving) > max_connections:
            next(task for task in serving if not task.cancelling()).cancel()

    # asyncio accepts as many connections as the backlog allows before it serves the first.
    backlog = _BACKLOG if max_connections is None else min(max_connections, _BACKLOG)
    if listener is not None:
        server = await asyncio.start_server(accept, sock=listener, limit=limit, backlog=backlog)
    else:
        server = await asyncio.start_server(accept, host, port, limit=limit, backlog=backlog)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
        remaining = dict(serving)
        for task in remaining:
            task.cancel()
        if remaining:
            await asyncio.wait(remaining)
        await asyncio.gather(*(writer.wait_closed() for writer in remaining.values()), return_exceptions=True)


async def stop_listening(server: asyncio.Server) -> None:
    """Closes the server without leaking a connection that was just accepted (python/cpython#109564)."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_LOOP_ITERATIONS):
        await SystemClock().sleep(0)
    server.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    transport = writer.transport
    if not transport.is_closing() or transport.get_write_buffer_size():  # a closed one cannot be aborted
        transport.abort()
