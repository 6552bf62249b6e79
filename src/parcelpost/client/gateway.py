"""The Gateway as an upstream, over HTTP."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO
from urllib.parse import quote, urlencode

from parcelpost import wire
from parcelpost.client.http import Exchange, Upload, open_client
from parcelpost.client.upstream import (
    MOST_TASKS,
    BadTask,
    Beat,
    MetricsSample,
    RankedSelector,
    Receipt,
    Submitted,
    Work,
)
from parcelpost.errors import NotAllowed, NotNow, NotOffered, Refused, TooLarge
from parcelpost.model import OutboxEntry, Signal, TaskStatus
from parcelpost.settings.keys import GatewaySettings

_SAFE_IN_A_SEGMENT = ":@!$&'()*+,;="  # RFC 3986: who escapes them is not understood by the public Go gateway


class GatewayClient:
    """Keeps the Upstream protocol. Made by `open`; may be used by many tasks of one event loop at a time."""

    def __init__(self, exchange: Exchange, now: Callable[[], datetime]) -> None:
        self._exchange = exchange
        self._now = now

    @classmethod
    @asynccontextmanager
    async def open(
        cls, settings: GatewaySettings, token: str, worker_id: str, now: Callable[[], datetime]
    ) -> AsyncIterator[GatewayClient]:
        """Connects on the first call. Raises InvalidSettings for an address, token or id that cannot be used."""
        async with open_client(token, worker_id) as client:
            yield cls(Exchange(client, settings, token, now), now)

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        asked = [("capacity", str(min(max(capacity, 1), MOST_TASKS))), *(("platforms", name) for name in platforms)]
        answer = await self._exchange.call("GET", f"/work?{urlencode(asked)}")
        found = await self._exchange.read(answer, wire.read_work)
        return Work(
            tasks=found.tasks,
            bad=[BadTask(task_id=task.task_id, problem=task.problem) for task in found.bad],
            retry_after=found.retry_after,
            rest=wire.rest_seconds(answer.headers, self._now()),
        )

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        body = wire.results_body(entries, self._now())
        answer = await self._exchange.call("POST", "/results", json=body, may=(Refused, TooLarge))
        task_ids = [entry.task_id for entry in entries]
        found = await self._exchange.read(answer, partial(wire.read_results, task_ids=task_ids))
        hide = self._exchange.without_token
        receipts = {
            task_id: Receipt(stored=receipt.stored, error=hide(receipt.error))
            for task_id, receipt in found.receipts.items()
        }
        errors = [hide(error) for error in found.errors]
        return Submitted(stored=found.stored, failed=found.failed, errors=errors, receipts=receipts)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        """The file's own bytes. A file that is gone is Refused: no later try can send it."""
        name, metadata = wire.raw_file_name(entry), wire.raw_file_metadata(entry)
        with await asyncio.to_thread(_opened, path) as file:
            upload = Upload(metadata, name, file)
            try:
                answer = await self._exchange.call("POST", "/raw-files", upload=upload, may=(Refused, TooLarge))
            except OSError as error:
                raise NotNow(f"the raw file {path} cannot be read: {error.strerror}") from error
        await self._exchange.read(answer, wire.read_raw_file)

    async def report_end(self, entry: OutboxEntry) -> None:
        """An id that cannot be named in an address, or only in a way that this gateway does not take, is Refused."""
        task_id = quote(entry.task_id, safe=_SAFE_IN_A_SEGMENT)
        if not task_id.strip("."):
            raise Refused(f"the task id {entry.task_id!r} cannot be named in an address")
        failed = entry.status is TaskStatus.FAILED
        body = wire.expiry_body(entry.error) if entry.status is TaskStatus.EXPIRED else b""
        answer = await self._exchange.call(
            "POST",
            f"/tasks/{task_id}/{'fail' if failed else 'complete'}",
            json=wire.failure_body(entry.error, entry.retries + 1) if failed else body,
            may=(Refused,),
            absent=NotAllowed if task_id == entry.task_id else Refused,
        )
        await self._exchange.read(answer, wire.read_end)

    async def heartbeat(self, beat: Beat) -> wire.Heard:
        body = wire.heartbeat_body(
            active_tasks=beat.active_tasks,
            completed_last_minute=beat.completed_last_minute,
            failed_last_minute=beat.failed_last_minute,
            platforms=beat.platforms,
            cpu_percent=beat.cpu_percent,
            memory_percent=beat.memory_percent,
            queue=beat.queue,
            version=beat.version,
            paused=beat.paused,
            disk_free_bytes=beat.disk_free_bytes,
            blocked=beat.blocked,
            broken=beat.broken,
            leaving=beat.leaving,
        )
        answer = await self._exchange.call("POST", "/heartbeat", json=body)
        return await self._exchange.read(answer, wire.read_heard)

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        await self._submit_extra("/signals", wire.signals_body(signals))

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        await self._submit_extra(
            "/metrics", wire.metrics_body([(sample.timestamp, sample.values) for sample in samples])
        )

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        path = f"/selectors?{urlencode({'platform': platform})}"
        answer = await self._exchange.call("GET", path, absent=NotOffered)
        found = await self._exchange.read(answer, partial(wire.read_selectors, platform=platform))
        return [
            RankedSelector(
                platform=platform,
                field=selector.field,
                selector=selector.selector,
                selector_type=selector.selector_type,
                success_rate=selector.success_rate,
                samples=selector.samples,
            )
            for selector in found
        ]

    async def _submit_extra(self, path: str, body: bytes) -> None:
        answer = await self._exchange.call("POST", path, json=body, may=(Refused, TooLarge), absent=NotOffered)
        await self._exchange.read(answer, wire.read_receipt)


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise NotNow(f"the raw file {path} cannot be read: {error.strerror}") from error
