"""The real gateway on a port of its own, in this process."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct

from parcelpost.clock import Clock, SystemClock
from parcelpost.events import Event
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.gateway.server import serve
from parcelpost.object_store import RawStore, open_raw_store
from parcelpost.settings import Settings
from parcelpost.settings.schema import ServerSettings


class Served(Struct, frozen=True, kw_only=True):
    address: str
    ledger: Ledger
    """On the same file, as another process's would be."""
    raw_store: RawStore
    events: list[Event]
    folder: Path
    stop: asyncio.Event


@asynccontextmanager
async def served(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    *,
    port: int = 0,
    clock: Clock = SystemClock(),
    database: str = "",
    **chosen: Any,
) -> AsyncIterator[Served]:
    """Until the block ends or `stop` is set; with `port`, at an address it had before. `chosen`: further settings."""
    server = ServerSettings(
        port=port, database=database or str(folder / "gateway.db"), raw=str(folder / "raw"), **chosen
    )
    settings = msgspec.structs.replace(Settings(), server=server)
    address: asyncio.Future[str] = asyncio.get_running_loop().create_future()
    stop = asyncio.Event()
    events: list[Event] = []
    running = asyncio.create_task(
        serve(settings, environment or {}, clock, events.append, stop=stop, ready=address.set_result)
    )
    try:
        waiting: set[asyncio.Future[None] | asyncio.Future[str]] = {running, address}
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            await running
        async with open_ledger(server.database, server.max_attempts, clock) as ledger:
            yield Served(
                address=address.result(),
                ledger=ledger,
                raw_store=open_raw_store(server.raw, {}),
                events=events,
                folder=folder,
                stop=stop,
            )
    finally:
        stop.set()
        await running
