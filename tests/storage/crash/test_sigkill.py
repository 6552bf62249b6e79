"""I1, I2, I3, I6, I9 against SIGKILL: a real process, killed at random moments, again and again on one store."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from parcelpost.events import Event, OwnerCrashed
from parcelpost.model import TaskStatus
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.admin import Selection
from tests.lengths import short_and_long
from tests.storage.crash.acknowledged import Acknowledged, Writer, rows_without_file
from tests.storage.crash.agreement import assert_whole

pytestmark = [pytest.mark.slow, pytest.mark.timeout(600)]


@short_and_long("kills", (5,), (50,))
async def test_nothing_acknowledged_is_missing_after_many_kills(store: Path, kills: int) -> None:
    pick = random.Random()
    acknowledged = Acknowledged()
    for kill in range(kills):
        with Writer(store, f"w{kill}", page_bytes=pick.choice([2_000, 60_000])) as writer:
            if kill == 0:
                writer.read(acknowledged, 1, until="opened")  # before that there is no file to look into
            writer.read(acknowledged, pick.randrange(60))
            writer.kill()
            for line in writer.lines():  # what it had still said: after the store's answer, before its death
                acknowledged.note(line)
        assert acknowledged.missing_rows(store) == []
        assert acknowledged.missing_files(store) == []  # before anybody opens the store and could mend something
        if kill % 5 == 4:
            await assert_comes_back_whole(store, acknowledged)
    assert len(acknowledged.saved) > kills
    assert acknowledged.delivered


async def assert_comes_back_whole(store: Path, acknowledged: Acknowledged) -> None:
    events: list[Event] = []
    async with LocalPersistenceManager.open(store, emit=events.append) as lpm:
        died = [event for event in events if isinstance(event, OwnerCrashed)]
        assert died
        depth = await lpm.queue_depth()
        assert depth.processing == 0
        assert depth.pending >= sum(event.tasks_recovered for event in died)
        assert await lpm.list_tasks(Selection(statuses=(TaskStatus.FAILED,))) == []
    assert_whole(store)
    assert acknowledged.missing_rows(store) == []
    assert acknowledged.missing_files(store) == []
    assert rows_without_file(store) == []
