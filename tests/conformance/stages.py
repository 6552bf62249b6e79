"""Upstreams for one suite: each with its own way to be filled and looked into, by whoever owns it."""

from __future__ import annotations

import gzip
import json
import os
import secrets
from collections.abc import AsyncIterator
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Protocol

from google.cloud.firestore_v1 import AsyncClient

from parcelpost.clock import SystemClock
from parcelpost.gateway.models import OFFLINE_AFTER, SourceKey
from parcelpost.model import Task
from parcelpost.object_store import open_any_raw_store
from parcelpost.places import parcel_norm
from parcelpost.settings.schema import FirestoreSettings, GatewaySettings
from parcelpost.upstream.base import Upstream
from parcelpost.upstream.firestore.client import open_firestore
from parcelpost.upstream.firestore.results import open_record
from parcelpost.upstream.gateway import GatewayClient
from tests.firestore.server import FirestoreServer
from tests.gateway.served import Served, served

Place = tuple[str, str, str, str]
"""platform, state, county, parcel"""

PROJECT = "parcelpost-tests"


class UpstreamStage(Protocol):
    def worker(self, worker_id: str) -> AbstractAsyncContextManager[Upstream]: ...

    async def add(self, *tasks: Task) -> None: ...

    async def state(self, task_id: str) -> tuple[str, str | None]:
        """queued, leased, done or failed; and why."""

    async def results(self, place: Place) -> dict[str, Any]:
        """All that is known of a parcel: records by task."""

    async def newest(self, place: Place) -> Any:
        """Its newest record."""

    async def page(self, sha256: str) -> bytes | None: ...

    async def order(self, worker_id: str, command: str) -> None: ...

    async def end_leases(self) -> None:
        """As if so much time had gone by."""


class GatewayStage:
    def __init__(self, gateway: Served) -> None:
        self._gateway = gateway

    @asynccontextmanager
    async def worker(self, worker_id: str) -> AsyncIterator[Upstream]:
        settings = GatewaySettings(url=self._gateway.address)
        async with GatewayClient.open(settings, "none", worker_id, SystemClock().now) as client:
            yield client

    async def add(self, *tasks: Task) -> None:
        await self._gateway.ledger.add_tasks(tasks, _now())

    async def state(self, task_id: str) -> tuple[str, str | None]:
        row = await self._gateway.ledger.task(task_id)
        assert row is not None
        return ("failed" if row.state == "dead" else str(row.state)), row.error

    async def results(self, place: Place) -> dict[str, Any]:
        versions = await self._gateway.ledger.versions(_source(place), 100)
        return {version.task_id: json.loads(version.data) for version in versions}

    async def newest(self, place: Place) -> Any:
        record = await self._gateway.ledger.record(_source(place))
        return None if record is None else json.loads(record.data)

    async def page(self, sha256: str) -> bytes | None:
        page = await self._gateway.raw_store.open(sha256)
        return None if page is None else gzip.decompress(b"".join([chunk async for chunk in page.chunks]))

    async def order(self, worker_id: str, command: str) -> None:
        now = _now()
        assert await self._gateway.ledger.add_command(command, worker_id, now, now - OFFLINE_AFTER) == 1

    async def end_leases(self) -> None:
        await self._gateway.ledger.expire_leases(_now() + timedelta(days=2), 1_000)


def _source(place: Place) -> SourceKey:
    platform, state, county, parcel_id = place
    return SourceKey(state, county, parcel_norm(parcel_id), platform)


class FirestoreStage:
    """Filled and looked into as an application of Firebase would, with Google's own client."""

    def __init__(self, host: str, folder: Path, client: AsyncClient) -> None:
        self.settings = FirestoreSettings(
            project=PROJECT, root=f"parcelpost/{secrets.token_hex(8)}", raw=str(folder / "raw"), timeout_seconds=20.0
        )
        self.environment = {"FIRESTORE_EMULATOR_HOST": host}
        self.raw = folder / "raw"
        self._client = client

    def worker(self, worker_id: str) -> AbstractAsyncContextManager[Upstream]:
        return open_firestore(self.settings, self.environment, worker_id, SystemClock())

    def document(self, *path: str) -> Any:
        return self._client.document(*self.settings.root.split("/"), *path)

    async def all(self, collection: str) -> dict[str, dict[str, Any]]:
        """Every document of it, by its id."""
        found = self._client.collection(*self.settings.root.split("/"), collection).stream()
        return {document.id: document.to_dict() or {} async for document in found}

    async def add(self, *tasks: Task) -> None:
        for number, task in enumerate(tasks):
            target = task.target
            words = {"parcel_id": target.parcel_id, "state": target.state, "county": target.county, **target.extra}
            await self.document("tasks", task.task_id).set(
                {
                    "status": "queued",
                    "platform": task.platform,
                    "target": words,
                    "priority": int(task.priority),
                    "created_at": _now() + timedelta(microseconds=number),
                }
            )

    async def state(self, task_id: str) -> tuple[str, str | None]:
        task = (await self.document("tasks", task_id).get()).to_dict()
        return task["status"], task.get("error")

    async def results(self, place: Place) -> dict[str, Any]:
        found = (await self.all("results")).values()
        store = open_any_raw_store(str(self.raw), {}, setting="firestore.raw", google_key_file="")
        return {one["task_id"]: await open_record(one, store) for one in found if _place(one) == place}

    async def newest(self, place: Place) -> Any:
        (parcel,) = [one for one in (await self.all("parcels")).values() if _place(one) == place]
        return (await self.results(place))[parcel["task_id"]]

    async def page(self, sha256: str) -> bytes | None:
        path = self.raw / sha256[:2] / sha256[2:4] / f"{sha256}.html.gz"
        return gzip.decompress(path.read_bytes()) if path.exists() else None

    async def order(self, worker_id: str, command: str) -> None:
        commands = self.document("workers", worker_id).collection("commands")
        await commands.add({"command": command, "sent_at": _now()})

    async def end_leases(self) -> None:
        for task_id, task in (await self.all("tasks")).items():
            if task["status"] == "leased":
                await self.document("tasks", task_id).update({"lease_expires_at": _now() - timedelta(seconds=1)})


@asynccontextmanager
async def gateway_stage(folder: Path) -> AsyncIterator[GatewayStage]:
    async with served(folder) as gateway:
        yield GatewayStage(gateway)


@asynccontextmanager
async def firestore_stage(folder: Path, server: FirestoreServer | None = None) -> AsyncIterator[FirestoreStage]:
    """On that server, or on the emulator that FIRESTORE_EMULATOR_HOST names, or else on a server of its own."""
    emulator = os.environ.get("FIRESTORE_EMULATOR_HOST")
    if server is None and emulator is None:
        async with FirestoreServer() as own, firestore_stage(folder, own) as stage:
            yield stage
        return
    host = server.host if server else emulator or ""
    yield FirestoreStage(host, folder, _google_client(host))


def _google_client(host: str) -> AsyncClient:
    """It takes its address from the environment only."""
    before = os.environ.get("FIRESTORE_EMULATOR_HOST")
    os.environ["FIRESTORE_EMULATOR_HOST"] = host
    try:
        return AsyncClient(project=PROJECT)
    finally:
        if before is None:
            del os.environ["FIRESTORE_EMULATOR_HOST"]
        else:
            os.environ["FIRESTORE_EMULATOR_HOST"] = before


def _place(document: dict[str, Any]) -> Place:
    return document["platform"], document["state"], document["county"], document["parcel_id"]


def _now() -> datetime:
    return datetime.now(UTC)
