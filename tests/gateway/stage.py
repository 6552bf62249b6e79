"""A gateway's context on a real ledger, and clients of its application."""

from __future__ import annotations

import asyncio
import hashlib
import json
import zlib
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import httpx2

from parcelpost.clock import Clock, ManualClock
from parcelpost.events import Event
from parcelpost.gateway.app import make_app
from parcelpost.gateway.auth import read_tokens
from parcelpost.gateway.context import Context, Counters
from parcelpost.gateway.ledger.factory import open_ledger
from parcelpost.model import Target, Task
from parcelpost.object_store import open_raw_store
from parcelpost.settings.schema import ServerSettings

PAGE = b"<html>" + b"a page " * 200 + b"</html>"
WORKER = {"X-Worker-ID": "w-1"}


@asynccontextmanager
async def some_context(
    folder: Path,
    environment: Mapping[str, str] | None = None,
    clock: Clock | None = None,
    events: list[Event] | None = None,
    **settings: Any,
) -> AsyncIterator[Context]:
    """Everything but a server."""
    chosen = ServerSettings(**{"database": str(folder / "gateway.db"), "raw": str(folder / "raw"), **settings})
    time = clock or ManualClock()
    emit = (events if events is not None else []).append
    async with open_ledger(chosen.database, chosen.max_attempts, time) as ledger:
        yield Context(
            ledger=ledger,
            raw_store=open_raw_store(chosen.raw, environment or {}),
            settings=chosen,
            tokens=read_tokens(chosen, environment or {}, time, emit),
            clock=time,
            emit=emit,
            counters=Counters(time),
            version="1.2.3",
            stopping=asyncio.Event(),
        )


def a_client(
    context: Context, *, host: str = "127.0.0.1:8700", client: str = "127.0.0.1", headers: Mapping[str, str] = WORKER
) -> httpx2.AsyncClient:
    """Calls the application itself. An error of ours is its 500, not the test's."""
    transport = httpx2.ASGITransport(app=make_app(context), raise_app_exceptions=False, client=(client, 4_711))
    return httpx2.AsyncClient(transport=transport, base_url=f"http://{host}", headers=dict(headers))


def a_task(task_id: str = "t1", platform: str = "echo", **target: Any) -> Task:
    where = {"parcel_id": f"parcel-{task_id}", "state": "CT", "county": "hartford", **target}
    return Task(task_id=task_id, platform=platform, target=Target(**where))


async def add_tasks(context: Context, *tasks: Task) -> None:
    await context.ledger.add_tasks(tasks, context.clock.now())


def a_result(task_id: str = "t1", **changes: Any) -> dict[str, Any]:
    result = {
        "task_id": task_id,
        "parcel_id": f"parcel-{task_id}",
        "platform": "echo",
        "state": "CT",
        "county": "hartford",
        "data": {"owner_names": ["Ann"]},
        "scraped_at": "2026-01-01T00:00:00Z",
        "parse_duration_ms": 12,
    }
    return {name: value for name, value in {**result, **changes}.items() if value is not ...}


def a_form(page: bytes = PAGE, *, name: str = "p.html.gz", packed: bool = True, **metadata: Any) -> dict[str, Any]:
    """Arguments for a post of a raw file."""
    told = {
        "task_id": "t1",
        "parcel_id": "parcel-t1",
        "platform": "echo",
        "state": "CT",
        "county": "hartford",
        "sha256": hashlib.sha256(page).hexdigest(),
        "content_type": "text/html",
        "scraped_at": "2026-01-01T00:00:00Z",
        **({"content_encoding": "gzip"} if packed else {}),
        **metadata,
    }
    body = zlib.compress(page, wbits=31) if packed else page
    return {"data": {"metadata": json.dumps(told)}, "files": {"file": (name, body, "application/gzip")}}


def kinds(events: Sequence[Event]) -> list[str]:
    return [type(event).__name__ for event in events]
