"""What is asked of the operating system: private folders, enough open files, a TCP server that closes cleanly."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from parcelpost.clock import SystemClock


def make_private(folder: Path) -> None:
    """With mode 700, as all that have to be made above it; what is there stays as it is. Raises OSError."""
    for one in (*reversed(folder.parents), folder):
        if not one.is_dir():
            one.mkdir(mode=0o700, exist_ok=True)


def raise_file_limit() -> int:
    """Raises the limit as far as the system allows. Returns how many files may be open."""
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


Serve = Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]]
"""One connection, which is cut when it ends: whoever has written waits until that is sent."""

_LIMIT_BYTES = 64 * 1024
_BACKLOG = 100
_TURNS = 3
"""Of the loop, from the system's connection to one that we serve: its task, its transport, our own task."""


@asynccontextmanager
async def tcp_server(
    serve: Serve, host: str, port: int = 0, *, limit: int = _LIMIT_BYTES, most: int | None = None
) -> AsyncIterator[int]:
    """Its port; 0 takes any. At the end all that serve are cancelled and waited for. Raises OSError.

    Of more than `most` connections the oldest is cut, so that nobody can take all files that the process may open.
    """
    serving: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.get_running_loop().create_task(serve(reader, writer))
        serving[task] = writer
        task.add_done_callback(lambda done: _abort(serving.pop(done)))  # one that never began has no end of its own
        if most is not None and len(serving) > most:
            next(one for one in serving if not one.cancelling()).cancel()

    backlog = _BACKLOG if most is None else min(most, _BACKLOG)  # asyncio accepts so many before it serves the first
    server = await asyncio.start_server(accept, host, port, limit=limit, backlog=backlog)
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        await stop_listening(server)
        left = dict(serving)
        for task in left:
            task.cancel()
        if left:
            await asyncio.wait(left)
        await asyncio.gather(*(writer.wait_closed() for writer in left.values()), return_exceptions=True)


async def stop_listening(server: asyncio.Server) -> None:
    """Closes it. By itself that would forget a connection just accepted, and leave it open (python/cpython#109564)."""
    loop = asyncio.get_running_loop()
    for listener in server.sockets:
        loop.remove_reader(listener.fileno())
    for _ in range(_TURNS):
        await SystemClock().sleep(0)
    server.close()


def _abort(writer: asyncio.StreamWriter) -> None:
    transport = writer.transport
    if not transport.is_closing() or transport.get_write_buffer_size():  # one that has closed cannot be aborted
        transport.abort()
