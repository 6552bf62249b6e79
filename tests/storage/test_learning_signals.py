"""Learning signals: stored in bulk, told once, summed up per selector."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from parcelpost.clock import ManualClock
from parcelpost.errors import InvalidInput
from parcelpost.model import Signal
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import NOW, look


def a_signal(selector: str = "#owner", *, success: bool = True, **fields: Any) -> Signal:
    return Signal(
        **{"platform": "vgsi", "field": "owner", "selector_type": "css", **fields}, selector=selector, success=success
    )


async def test_signals_come_back_as_they_were_in_the_order_stored(lpm: LocalPersistenceManager) -> None:
    signals = [
        a_signal(),
        a_signal(
            "//td[1]",
            success=False,
            selector_type="xpath",
            task_id="t1",
            context="https://x",
            error_message="no such element",
            execution_time_ms=7,
        ),
        a_signal("Owner:", selector_type="label"),
        a_signal("$.owner", selector_type="jsonpath"),
    ]
    assert await lpm.signals.append(signals) == 4
    stored = await lpm.signals.unsynced()
    assert [entry.signal for entry in stored] == signals
    assert {entry.created_at for entry in stored} == {NOW}


async def test_many_signals_are_stored_in_one_go(lpm: LocalPersistenceManager) -> None:
    assert await lpm.signals.append(a_signal(f"#s{n}") for n in range(2_000)) == 2_000
    assert len(await lpm.signals.unsynced()) == 500
    assert len(await lpm.signals.unsynced(limit=5_000)) == 2_000
    assert await lpm.signals.append([]) == 0


async def test_a_signal_is_told_once(lpm: LocalPersistenceManager, clock: ManualClock, store: Path) -> None:
    await lpm.signals.append([a_signal("#a"), a_signal("#b"), a_signal("#c")])
    first, second, _ = await lpm.signals.unsynced()
    clock.advance(5)
    assert await lpm.signals.mark_synced([first.signal_id, second.signal_id, "unknown"]) == 2
    assert await lpm.signals.mark_synced([first.signal_id]) == 0
    assert [entry.signal.selector for entry in await lpm.signals.unsynced()] == ["#c"]
    assert look(store, "SELECT synced_at FROM learning_signals WHERE synced = 1") == [("2026-01-01T00:00:05.000Z",)] * 2


BAD: dict[str, dict[str, Any]] = {
    "selector_type": {"selector_type": "id"},
    "empty selector": {"selector": ""},
    "lone surrogate in selector": {"selector": "\ud800"},
    "NUL in field": {"field": "a\0"},
    "empty platform": {"platform": ""},
    "lone surrogate in task_id": {"task_id": "\ud800"},
    "a time beyond 64 bits": {"execution_time_ms": 2**70},
}


@pytest.mark.parametrize("fields", BAD.values(), ids=BAD)
async def test_a_bad_signal_is_refused_and_none_of_its_call_is_stored(
    lpm: LocalPersistenceManager, fields: dict[str, Any]
) -> None:
    with pytest.raises(InvalidInput):
        await lpm.signals.append([a_signal("#a"), a_signal(**fields)])
    assert await lpm.signals.unsynced() == []
    assert await lpm.signals.append([a_signal("#a")]) == 1


async def test_a_messages_oddities_are_no_reason_to_refuse(lpm: LocalPersistenceManager) -> None:
    await lpm.signals.append([a_signal(context="\ud800\0", error_message="x" * 100_000)])
    (entry,) = await lpm.signals.unsynced()
    assert len(entry.signal.error_message or "") == 4_000
