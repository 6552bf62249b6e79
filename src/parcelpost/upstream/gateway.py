"""GatewayClient: the Upstream over the gateway's HTTP API, and a probe of what answers at an address."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import quote, urlencode

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import NotOffered, Refused, TooLarge, Unauthorized, Unavailable, UpstreamError
from parcelpost.model import OutboxEntry, Signal, TaskStatus
from parcelpost.protocol import client, payloads
from parcelpost.protocol.payloads import member, members
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.base import (
    MOST_TASKS,
    BadTask,
    Heartbeat,
    MetricsSample,
    RankedSelector,
    Receipt,
    Submitted,
    Work,
)
from parcelpost.upstream.http import Answer, Exchange, ExpectedLedger, PlainClient, Upload, open_client

T = TypeVar("T")

_NOBODYS = "parcelpost-nobody"
"""A platform that nobody has tasks of."""
_SAFE_IN_A_SEGMENT = ":@!$&'()*+,;="  # RFC 3986: who escapes them is not understood by the public Go gateway


_COMPLETIONS = {TaskStatus.EXPIRED: client.expiry_body, TaskStatus.NOT_FOUND: client.not_found_body}
"""What goes with /complete, where the status says more than that there is nothing to send."""


class GatewayClient:
    """Keeps the Upstream protocol. Made by `open`; may be used by many tasks of one event loop at a time."""

    def __init__(self, exchange: Exchange, now: Callable[[], datetime], ledger: ExpectedLedger | None = None) -> None:
        self._exchange = exchange
        self._now = now
        self._ledger = ledger

    @classmethod
    @asynccontextmanager
    async def open(
        cls,
        settings: GatewaySettings,
        token: str,
        worker_id: str,
        now: Callable[[], datetime],
        ledger: ExpectedLedger | None = None,
    ) -> AsyncIterator[GatewayClient]:
        """Connects on the first call. Raises InvalidSettings for an address, token or id that cannot be used.

        With `ledger`, every call may raise AnotherGateway.
        """
        async with open_client(token, worker_id) as client:
            yield cls(Exchange(client, settings, token, now, ledger), now, ledger)

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        asked = [("capacity", str(min(max(capacity, 1), MOST_TASKS))), *(("platforms", name) for name in platforms)]
        answer = await self._call("GET", f"/work?{urlencode(asked)}")
        found = await self._read(answer, client.read_work)
        return Work(
            tasks=found.tasks,
            bad=[BadTask(task_id=task.task_id, problem=task.problem) for task in found.bad],
            retry_after=found.retry_after,
            rest=payloads.rest_seconds(answer.headers, self._now()),
        )

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        body = client.results_body(entries, self._now())
        answer = await self._call("POST", "/results", json=body, may=(Refused, TooLarge))
        task_ids = [entry.task_id for entry in entries]
        found = await self._read(answer, partial(client.read_results, task_ids=task_ids))
        hide = self._exchange.without_token
        receipts = {
            task_id: Receipt(stored=receipt.stored, error=hide(receipt.error))
            for task_id, receipt in found.receipts.items()
        }
        errors = [hide(error) for error in found.errors]
        return Submitted(stored=found.stored, failed=found.failed, errors=errors, receipts=receipts)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        """The file's own bytes. A file that is gone is Refused: no later try can send it."""
        name, metadata = payloads.raw_file_name(entry), payloads.raw_file_metadata(entry)
        with await asyncio.to_thread(_opened, path) as file:
            upload = Upload(metadata, name, file)
            try:
                answer = await self._call("POST", "/raw-files", upload=upload, may=(Refused, TooLarge))
            except OSError as error:
                raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error
        await self._read(answer, payloads.read_raw_file)

    async def report_end(self, entry: OutboxEntry) -> None:
        """An id that cannot be named in an address, or only in a way that this gateway does not take, is Refused."""
        task_id = quote(entry.task_id, safe=_SAFE_IN_A_SEGMENT)
        if not task_id.strip("."):
            raise Refused(f"the task id {entry.task_id!r} cannot be named in an address")
        failed = entry.status is TaskStatus.FAILED
        body = _COMPLETIONS[entry.status](entry.error_text) if entry.status in _COMPLETIONS else b""
        answer = await self._call(
            "POST",
            f"/tasks/{task_id}/{'fail' if failed else 'complete'}",
            json=client.failure_body(entry.error_text, entry.retries + 1) if failed else body,
            may=(Refused,),
            absent=Unauthorized if task_id == entry.task_id else Refused,
        )
        await self._read(answer, client.read_end)

    async def heartbeat(self, beat: Heartbeat) -> client.HeartbeatReply:
        body = client.heartbeat_body(
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
        answer = await self._call("POST", "/heartbeat", json=body)
        return await self._read(answer, client.read_heartbeat_reply)

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        await self._submit_extra("/signals", client.signals_body(signals))

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        await self._submit_extra(
            "/metrics", client.metrics_body([(sample.timestamp, sample.values) for sample in samples])
        )

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        path = f"/selectors?{urlencode({'platform': platform})}"
        answer = await self._call("GET", path, absent=NotOffered)
        found = await self._read(answer, partial(client.read_selectors, platform=platform))
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
        answer = await self._call("POST", path, json=body, may=(Refused, TooLarge), absent=NotOffered)
        await self._read(answer, client.read_receipt)

    async def _call(
        self,
        method: str,
        path: str,
        *,
        json: bytes = b"",
        upload: Upload | None = None,
        may: Collection[type[UpstreamError]] = (),
        absent: type[UpstreamError] = Unauthorized,
    ) -> Answer:
        """Changes something there: so, in doubt, what answers is asked first which one it is."""
        try:
            if self._ledger is not None and self._ledger.in_doubt and await self._ledger.expected():
                await self._ask_which()
            return await self._exchange.call(method, path, json=json, upload=upload, may=may, absent=absent)
        except (Unavailable, Unauthorized):
            if self._ledger is not None:
                self._ledger.doubt()
            raise

    async def _read(self, answer: Answer, reader: Callable[[bytes], T]) -> T:
        """What the answer says, if it comes from the right one: what another has taken is not delivered."""
        found = await self._exchange.read(answer, reader)
        await self._meet(answer)
        return found

    async def _ask_which(self) -> None:
        """By a call that every gateway with a ledger id has, and that changes nothing."""
        answer = await self._exchange.ask("GET", f"/selectors?{urlencode({'platform': _NOBODYS})}")
        if not answer.is_good and answer.status not in {404, 405}:
            raise self._exchange.error(answer)
        await self._meet(answer)

    async def _meet(self, answer: Answer) -> None:
        if self._ledger is not None:
            await self._ledger.met(payloads.read_ledger_id(answer.headers))


def _opened(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error


_UNASSIGNED = "parcelpost-doctor"
"""A platform that nobody has tasks of."""
_MOST_VERSION_CHARS = 40


class Probed(Struct, frozen=True, kw_only=True):
    error: UpstreamError | None = None
    """Why it cannot be used; None: it knows our token and speaks the contract."""
    extended: bool = False
    """It has the optional parts of the contract, as our own gateway does."""
    version: str = ""
    """As our own gateway says; '' of others."""
    date: datetime | None = None
    """Its clock; None where it says nothing."""
    ledger_id: str | None = None
    """Which ledger it has, '' where it does not say; None where it could not be asked."""


async def probe(settings: GatewaySettings, token: str, worker_id: str, now: Callable[[], datetime]) -> Probed:
    """`worker_id`: '' for none. Raises InvalidSettings for an address, token or id that cannot be used."""
    async with open_client(token, worker_id) as client:
        (version, date), spoken = await asyncio.gather(
            _front(client, settings, token, now), _contract(Exchange(client, settings, token, now))
        )
    if isinstance(spoken, UpstreamError):
        return Probed(error=spoken, version=version, date=date)
    extended, ledger_id = spoken
    return Probed(extended=extended, version=version, date=date, ledger_id=ledger_id)


async def _front(
    client: PlainClient, settings: GatewaySettings, token: str, now: Callable[[], datetime]
) -> tuple[str, datetime | None]:
    """What it says to everybody: its version, if it is ours, and its clock."""
    try:
        answer = await Exchange(client, replace(settings, base_path=""), token, now).ask("GET", "/health")
    except (Unavailable, Unauthorized):
        return "", None
    try:
        version = member(members(answer.body), "version")
    except Unavailable:
        version = ""
    return str(version or "")[:_MOST_VERSION_CHARS], payloads.http_date(answer.headers.get("date", ""))


async def _contract(exchange: Exchange) -> tuple[bool, str] | UpstreamError:
    """Whether it has the optional parts, and which ledger; or why it does not let us in, or is no gateway."""
    try:
        return await _has_extensions(exchange)
    except UpstreamError as error:
        return error


async def _has_extensions(exchange: Exchange) -> tuple[bool, str]:
    selectors = await exchange.ask("GET", f"/selectors?{urlencode({'platform': _UNASSIGNED})}")
    if selectors.is_good:
        await exchange.read(selectors, partial(client.read_selectors, platform=_UNASSIGNED))
        return True, payloads.read_ledger_id(selectors.headers)
    if selectors.status not in {404, 405}:
        raise exchange.error(selectors)
    # Of a platform that nobody has tasks of, none is taken.
    work = await exchange.call("GET", f"/work?{urlencode({'capacity': 1, 'platforms': _UNASSIGNED})}")
    await exchange.read(work, client.read_work)
    return False, payloads.read_ledger_id(work.headers)
