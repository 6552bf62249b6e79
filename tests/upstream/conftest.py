"""A hostile gateway and a client of it."""

from __future__ import annotations

from collections.abc import AsyncIterator

import pytest

from parcelpost.settings.schema import GatewaySettings
from parcelpost.upstream.gateway import GatewayClient
from tests.hostile import HostileGateway
from tests.upstream.factories import NOW


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """The tests' own gateway is on this machine, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")


@pytest.fixture
async def gateway() -> AsyncIterator[HostileGateway]:
    async with HostileGateway() as gateway:
        yield gateway


@pytest.fixture
async def client(gateway: HostileGateway) -> AsyncIterator[GatewayClient]:
    settings = GatewaySettings(url=gateway.url, timeout_seconds=10.0)
    async with GatewayClient.open(settings, gateway.token, "w-1", lambda: NOW) as client:
        yield client
