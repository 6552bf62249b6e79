"""The store open for new tasks: made where there is none."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parcelpost.cli.running import CLOCK, changing, options
from parcelpost.storage.lpm import LocalPersistenceManager


@asynccontextmanager
async def filling(store: Path) -> AsyncIterator[LocalPersistenceManager]:
    """As `changing`, but a store that is not there is made first."""
    if not store.exists():
        async with LocalPersistenceManager.open(store, options=options(), clock=CLOCK, worker="cli"):
            pass
    async with changing(store) as lpm:
        yield lpm
