"""A Firestore of our own for each test, and workers of it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from parcelpost.clock import SystemClock
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.firestore.client import FirestoreClient, open_firestore
from tests.firestore.server import FirestoreServer

ROOT = "projects/p/databases/(default)/documents/parcelpost/main"

Open = Callable[..., AbstractAsyncContextManager[FirestoreClient]]


class ServersClock(SystemClock):
    """That of the machine, with the time that has gone by for the server; or what it is told to be."""

    def __init__(self, server: FirestoreServer, now: Callable[[], datetime] | None = None) -> None:
        self._server = server
        self._told = now

    def now(self) -> datetime:
        return self._told() if self._told else super().now() + self._server.documents.ahead

    def monotonic(self) -> float:
        return super().monotonic() + self._server.documents.ahead.total_seconds()


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("no_grpc_proxy", "*")


@pytest.fixture
async def server() -> AsyncIterator[FirestoreServer]:
    async with FirestoreServer() as server:
        yield server


@pytest.fixture
def open_worker(server: FirestoreServer, tmp_path: Path) -> Open:
    """`open_worker("w-1", lease_seconds=60)`: a worker's client, with these settings."""

    def opened(
        worker_id: str = "w-1", now: Any = None, **settings: Any
    ) -> AbstractAsyncContextManager[FirestoreClient]:
        plain = FirestoreSettings(project="p", raw=str(tmp_path / "raw"))
        environment = {"FIRESTORE_EMULATOR_HOST": server.host}
        return open_firestore(replace(plain, **settings), environment, worker_id, ServersClock(server, now))

    return opened


@pytest.fixture
async def client(open_worker: Open) -> AsyncIterator[FirestoreClient]:
    async with open_worker() as client:
        yield client
