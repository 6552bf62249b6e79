"""Asking for what cannot be there: a name with bytes that are no text, as a shell may hand over."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.operator_actions import Selection
from tests.storage.factories import everything, list_results, list_tasks, requeue, save_one

NOT_TEXT = b"parcel \xff".decode(errors="surrogateescape")

ASK: dict[str, Callable[[LocalPersistenceManager], Awaitable[object]]] = {
    "get_task": lambda lpm: lpm.get_task(NOT_TEXT),
    "list_tasks": lambda lpm: list_tasks(lpm, Selection(parcel_id=NOT_TEXT)),
    "get_result": lambda lpm: lpm.get_result(NOT_TEXT),
    "list_results": lambda lpm: list_results(lpm, Selection(platform=NOT_TEXT)),
    "claim": lambda lpm: lpm.claim(platforms=[NOT_TEXT]),
    "requeue": lambda lpm: requeue(lpm, [NOT_TEXT]),
    "mark_synced": lambda lpm: lpm.mark_synced([NOT_TEXT]),
    "mark_raw_synced": lambda lpm: lpm.mark_raw_synced([NOT_TEXT]),
    "mark_rejected": lambda lpm: lpm.mark_rejected([NOT_TEXT], "no"),
    "resume_platform": lambda lpm: lpm.resume_platform(NOT_TEXT),
    "cache.get": lambda lpm: lpm.cache.get(NOT_TEXT),
    "cache.delete": lambda lpm: lpm.cache.delete(NOT_TEXT),
    "signals.mark_synced": lambda lpm: lpm.signals.mark_synced([NOT_TEXT]),
    "sync_log.recent": lambda lpm: lpm.sync_log.recent(direction=NOT_TEXT),
}


async def test_it_finds_nothing_or_says_that_it_is_no_text(
    subtests: pytest.Subtests, lpm: LocalPersistenceManager, store: Path
) -> None:
    await save_one(lpm)
    before = everything(store)
    for name, ask in ASK.items():
        with subtests.test(name):
            try:
                found = await ask(lpm)
            except InvalidInput:
                found = None
            assert not found
            assert everything(store) == before
