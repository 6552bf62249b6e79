"""GatewayClient: the Upstream over a gateway's HTTP API; and a probe that checks what answers at an address."""

from __future__ import annotations

import asyncio
import hashlib
import io
from collections.abc import AsyncIterator, Callable, Collection, Sequence
from contextlib import asynccontextmanager
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import IO, TypeVar
from urllib.parse import quote, urlencode

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.errors import NotOffered, Refused, TooLarge, Unauthorized, Unavailable, UpstreamError
from parcelpost.model import Lease, OutboxEntry, Signal, TaskStatus
from parcelpost.protocol import client, payloads
from parcelpost.protocol.payloads import (
    MAX_ARTIFACT_BYTES,
    ArtifactKind,
    ArtifactMetadata,
    Heartbeat,
    HeartbeatReply,
    MetricsSample,
    RankedSelector,
    Submitted,
    Work,
    member,
    members,
)
from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.base import MAX_TASKS
from parcelpost.upstream.http import Answer, Exchange, ExpectedLedger, PlainClient, Upload, open_client

T = TypeVar("T")

_UNUSED_PLATFORM = "parcelpost-doctor"
"""A platform without tasks: requesting its tasks changes nothing."""
_ASK_SELECTORS = f"/selectors?{urlencode({'platform': _UNUSED_PLATFORM})}"
_SAFE_IN_A_SEGMENT = ":@!$&'()*+,;="  # RFC 3986; the public Go gateway does not find them escaped
_MAX_VERSION_CHARS = 40


class GatewayClient:
    """Created by `open`. Any number of coroutines of one event loop may share it."""

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
        """Connects on the first call. Raises InvalidSettings for an invalid address, token or id.

        With `ledger`, every call may raise AnotherGateway.
        """
        async with open_client(token, worker_id) as http:
            yield cls(Exchange(http, settings, token, now, ledger), now, ledger)

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        query = [("capacity", str(min(max(capacity, 1), MAX_TASKS))), *(("platforms", name) for name in platforms)]
        answer = await self._call("GET", f"/work?{urlencode(query)}")
        work = await self._read(answer, client.read_work)
        return replace(work, rest=payloads.rest_seconds(answer.headers, self._now()))

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        body = client.results_body(entries, self._now())
        answer = await self._call("POST", "/results", json=body, may=(Refused, TooLarge))
        task_ids = [entry.task_id for entry in entries]
        hide = self._exchange.without_token
        return await self._read(answer, partial(client.read_results, task_ids=task_ids, hide=hide))

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        """Sends the file as it is on disk. Raises Refused for a missing file, because retrying does not help."""
        name, metadata = payloads.raw_file_name(entry), payloads.raw_file_metadata(entry)
        with await asyncio.to_thread(_open_page, path) as file:
            upload = Upload(metadata, name, file)
            try:
                answer = await self._call("POST", "/raw-files", upload=upload, may=(Refused, TooLarge))
            except OSError as error:
                raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error
        await self._read(answer, partial(client.read_raw_file, sha256=entry.raw_sha256))

    async def report_end(self, entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> Sequence[ArtifactKind]:
        """Raises Refused for an id that cannot be part of a path, or that this gateway does not find there."""
        task_id = quote(entry.task_id, safe=_SAFE_IN_A_SEGMENT)
        if not task_id.strip("."):
            raise Refused(f"the task ID {entry.task_id!r} cannot be used in a URL")
        answer = await self._call(
            "POST",
            f"/tasks/{task_id}/{'fail' if entry.status is TaskStatus.FAILED else 'complete'}",
            json=client.end_body(entry, artifacts),
            may=(Refused,),
            absent=Unauthorized if task_id == entry.task_id else Refused,
        )
        return await self._read(answer, partial(client.read_end, task_id=entry.task_id))

    async def upload_artifact(self, task_id: str, kind: ArtifactKind, path: Path) -> None:
        content = await asyncio.to_thread(_read_artifact, path)
        metadata = ArtifactMetadata(task_id=task_id, kind=kind, sha256=hashlib.sha256(content).hexdigest())
        upload = Upload(msgspec.json.encode(metadata), path.name, io.BytesIO(content))
        answer = await self._call("POST", "/artifacts", upload=upload, may=(Refused, TooLarge), absent=NotOffered)
        await self._read(answer, partial(client.read_raw_file, sha256=metadata.sha256))

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        answer = await self._call("POST", "/heartbeat", json=client.heartbeat_body(beat))
        return await self._read(answer, client.read_heartbeat_reply)

    async def extend_leases(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        """Does nothing: a gateway's leases have no ids and are extended by heartbeats."""
        return ()

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        await self._submit_extra("/signals", msgspec.json.encode(signals))

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        await self._submit_extra("/metrics", client.metrics_body(samples))

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        path = f"/selectors?{urlencode({'platform': platform})}"
        answer = await self._call("GET", path, absent=NotOffered)
        return await self._read(answer, partial(client.read_selectors, platform=platform))

    async def _submit_extra(self, path: str, body: bytes) -> None:
        answer = await self._call("POST", path, json=body, may=(Refused, TooLarge), absent=NotOffered)
        await self._read(answer, members)

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
        """Makes a call. If another gateway may be at the address by now, checks that first."""
        try:
            if self._ledger is not None and self._ledger.in_doubt and await self._ledger.expected():
                await self._check_ledger()
            return await self._exchange.call(method, path, json=json, upload=upload, may=may, absent=absent)
        except (Unavailable, Unauthorized):
            if self._ledger is not None:
                self._ledger.doubt()
            raise

    async def _read(self, answer: Answer, reader: Callable[[bytes], T]) -> T:
        """Returns the content of the answer. Raises AnotherGateway if a different gateway sent it."""
        content = await self._exchange.read(answer, reader)
        await self._check_answer(answer)
        return content

    async def _check_ledger(self) -> None:
        """Makes a harmless call that every gateway with a ledger id supports."""
        answer = await self._exchange.send("GET", _ASK_SELECTORS)
        if not answer.is_good and answer.status not in {404, 405}:
            raise self._exchange.error(answer)
        await self._check_answer(answer)

    async def _check_answer(self, answer: Answer) -> None:
        if self._ledger is not None:
            await self._ledger.met(payloads.read_ledger_id(answer.headers))


def _read_artifact(path: Path) -> bytes:
    """Raises Refused for a file that is missing, cannot be read or is too large."""
    try:
        with path.open("rb") as file:
            content = file.read(MAX_ARTIFACT_BYTES + 1)
    except OSError as error:
        raise Refused(f"the artifact {path} cannot be read: {error.strerror}") from error
    if len(content) > MAX_ARTIFACT_BYTES:
        raise Refused(f"the artifact {path} is too large")
    return content


def _open_page(path: Path) -> IO[bytes]:
    try:
        return path.open("rb")
    except (FileNotFoundError, NotADirectoryError, IsADirectoryError, PermissionError) as error:
        raise Refused(f"the raw file {path} cannot be read: {error.strerror}") from error
    except OSError as error:
        raise Unavailable(f"the raw file {path} cannot be read: {error.strerror}") from error


class ProbeResult(Struct, frozen=True, kw_only=True):
    error: UpstreamError | None = None
    """Why it cannot be used; None if it accepts our token and follows the contract."""
    extended: bool = False
    """Whether it has the optional parts of the contract, like our own gateway."""
    version: str = ""
    """The version of our own gateway; '' for others."""
    date: datetime | None = None
    """The time by its clock, if its answer has a Date."""
    ledger_id: str | None = None
    """'' if it gives none; None if it could not be requested."""


async def probe(settings: GatewaySettings, token: str, worker_id: str, now: Callable[[], datetime]) -> ProbeResult:
    """Checks what answers at the address. `worker_id` may be ''. Raises InvalidSettings, like `open`."""
    async with open_client(token, worker_id) as http:
        (version, date), contract = await asyncio.gather(
            _probe_health(http, settings, token, now), _probe_contract(Exchange(http, settings, token, now))
        )
    if isinstance(contract, UpstreamError):
        return ProbeResult(error=contract, version=version, date=date)
    extended, ledger_id = contract
    return ProbeResult(extended=extended, version=version, date=date, ledger_id=ledger_id)


async def _probe_health(
    http: PlainClient, settings: GatewaySettings, token: str, now: Callable[[], datetime]
) -> tuple[str, datetime | None]:
    """Returns its version if it is our own gateway, and the time by its clock."""
    try:
        answer = await Exchange(http, replace(settings, base_path=""), token, now).send("GET", "/health")
    except (Unavailable, Unauthorized):
        return "", None
    try:
        version = member(members(answer.body), "version")
    except Unavailable:
        version = ""
    return str(version or "")[:_MAX_VERSION_CHARS], payloads.http_date(answer.headers.get("date", ""))


async def _probe_contract(exchange: Exchange) -> tuple[bool, str] | UpstreamError:
    """Returns whether it has the optional parts, and its ledger id; or why it cannot be used."""
    try:
        selectors = await exchange.send("GET", _ASK_SELECTORS)
        if selectors.is_good:
            await exchange.read(selectors, partial(client.read_selectors, platform=_UNUSED_PLATFORM))
            return True, payloads.read_ledger_id(selectors.headers)
        if selectors.status not in {404, 405}:
            return exchange.error(selectors)
        work = await exchange.call("GET", f"/work?{urlencode({'capacity': 1, 'platforms': _UNUSED_PLATFORM})}")
        await exchange.read(work, client.read_work)
        return False, payloads.read_ledger_id(work.headers)
    except UpstreamError as error:
        return error
