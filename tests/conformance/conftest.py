"""`stage` is each upstream in turn: the reference gateway over HTTP, and Firestore."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.conformance.stages import UpstreamStage, firestore_stage, gateway_stage


@pytest.fixture(autouse=True)
def no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them are on this machine, whatever the environment says."""
    monkeypatch.setenv("NO_PROXY", "*")
    monkeypatch.setenv("no_grpc_proxy", "*")


@pytest.fixture(params=["gateway", "firestore"])
async def stage(request: pytest.FixtureRequest, tmp_path: Path) -> AsyncIterator[UpstreamStage]:
    opened = gateway_stage(tmp_path) if request.param == "gateway" else firestore_stage(tmp_path)
    async with opened as stage:
        yield stage
