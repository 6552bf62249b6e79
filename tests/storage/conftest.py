"""An open store on a real file, and a clock that stands still."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from parcelpost.clock import ManualClock
from parcelpost.events import Event
from parcelpost.storage import LocalPersistenceManager


@pytest.fixture
def clock() -> ManualClock:
    return ManualClock()


@pytest.fixture
def store(tmp_path: Path) -> Path:
    return tmp_path / "local_data" / "parcelpost.db"


@pytest.fixture
def events() -> list[Event]:
    """What the store of `lpm` has reported."""
    return []


@pytest.fixture
async def lpm(store: Path, clock: ManualClock, events: list[Event]) -> AsyncIterator[LocalPersistenceManager]:
    async with LocalPersistenceManager.open(store, clock=clock, emit=events.append, worker="test") as opened:
        yield opened
