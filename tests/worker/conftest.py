from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from tests.hostile import HostileGateway
from tests.worker.rig import Rig, rigged


@pytest.fixture
async def rig(tmp_path: Path) -> AsyncIterator[Rig]:
    async with HostileGateway() as gateway, rigged(tmp_path, gateway) as rig:
        yield rig
