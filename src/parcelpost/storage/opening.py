"""The first moments of an open store: one opener at a time, and what the dead left is brought back (I9)."""

from __future__ import annotations

import fcntl
import os
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

from parcelpost.clock import Clock
from parcelpost.errors import StoreBusy
from parcelpost.events import Emit, OwnerDied
from parcelpost.storage import backup, owner, queue_state, raw_recovery, tasks
from parcelpost.storage.db import LocalDatabase

_RETRY_SECONDS = 0.01


def live_folder(store: Path) -> Path:
    """Locks and journals of those who have the store open."""
    return store.with_name(store.name + "-live")


@asynccontextmanager
async def gate(live: Path, clock: Clock, timeout: float) -> AsyncIterator[None]:
    """Held while a store is opened or searched for the dead. Raises StoreBusy after `timeout` seconds."""
    handle = os.open(live / "gate", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        give_up_at = clock.monotonic() + timeout
        while not _locked(handle):
            if clock.monotonic() > give_up_at:
                raise StoreBusy(f"another process has been opening {live} for {timeout:g} s", hint="try again later")
            await clock.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


async def recover(
    database: LocalDatabase, live: Path, own_id: str, root: Path, clock: Clock, max_recoveries: int, emit: Emit
) -> int:
    """With the gate held: tasks and raw files of owners that died are made good. Answers the number of tasks."""
    _, dead = owner.others(live, own_id)
    left_pages = {path.name.rsplit(".", 2)[0] for path in live.glob("*.raw")}
    holders = set(await database.read(tasks.owners))
    suspects = sorted((set(dead) | left_pages | holders) - {own_id})
    total = 0
    for owner_id in suspects:
        if owner.is_alive(live, owner_id):
            continue
        last_change = await database.read(backup.last_change)
        facts = owner.facts(live, owner_id)
        restored, without_result = await raw_recovery.mend(database, live, owner_id, root)
        recovered, gave_up = await database.write(queue_state.recover, [owner_id], clock.now(), max_recoveries)
        owner.bury(live, owner_id)
        total += recovered + gave_up
        emit(
            OwnerDied(
                owner=owner_id,
                synchronous=facts.synchronous if facts else "unknown",
                tasks_recovered=recovered,
                tasks_given_up=gave_up,
                raw_files_restored=restored,
                pages_without_result=without_result,
                last_change=last_change,
            )
        )
    return total


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
