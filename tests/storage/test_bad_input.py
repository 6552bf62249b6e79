"""What cannot be stored is refused with a clear error, and harms nobody beside it."""

from __future__ import annotations

import math
import subprocess
import sys
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from parcelpost.errors import InvalidInput
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_result, a_task, claim_one, everything, look, the_result

LONE = "lone \ud800 surrogate"
NUL = "nul \0 byte"
ROOT = Path(__file__).parents[2]


class _Odd:
    """Nothing JSON knows."""


class _Price(msgspec.Struct):
    amount: float


@dataclass
class _Cost:
    amount: float


def nested(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


BAD_VALUES: dict[str, Any] = {
    "NaN": math.nan,
    "NaN beside a null": [None, math.nan],
    "infinity": math.inf,
    "minus infinity deep inside": {"a": [{"b": (-math.inf,)}]},
    "NaN in a class of msgspec's": _Price(math.nan),
    "infinity in a dataclass": [_Cost(math.inf)],
    "a lone surrogate": LONE,
    "a lone surrogate as a key": {LONE: 1},
    "an object": _Odd(),
    "a complex number": 1j,
    "a tuple as a key": {(1, 2): 3},
    "None as a key": {None: 3},
    "a number of 5,000 digits": 10**5_000,
    "nested 100,000 deep": nested(100_000),
}

GOOD_VALUES: dict[str, Any] = {
    "nulls": {"a": None, "b": [None]},
    "a text that says null": "null",
    "a NUL byte": NUL,
    "the greatest float": 1.7976931348623157e308,
    "an integer of 30 digits": 10**30,
    "minus zero": -0.0,
    "an emoji": "🏠",
    "a text of every plane": "a\u00e9\u4e00\U0001f3e0\x7f\u2028",
    "nested 100 deep": nested(100),
    "SQL": "'); DROP TABLE tasks; --",
}


async def test_a_bad_target_is_refused(subtests: pytest.Subtests, lpm: LocalPersistenceManager, store: Path) -> None:
    for name, value in BAD_VALUES.items():
        with subtests.test(name):
            with pytest.raises(InvalidInput, match=r"^target "):
                await lpm.add_task(a_task(extra={"value": value}))
            with pytest.raises(InvalidInput, match=r"^target "):
                await lpm.add_task(a_task(extra={"null": None, "value": value}))
            assert everything(store) == []


@pytest.mark.parametrize("value", GOOD_VALUES.values(), ids=GOOD_VALUES)
async def test_odd_but_good_values_are_stored_as_they_are(lpm: LocalPersistenceManager, value: Any) -> None:
    claim = await claim_one(lpm, a_task(extra={"value": value}))
    assert claim.task.target.extra == {"value": value}
    await lpm.save_result(claim, a_result({"value": value}))
    data = (await the_result(lpm)).data
    assert data is not None
    assert msgspec.json.decode(data) == {"value": value}


async def test_numbers_as_keys_are_stored_as_text(lpm: LocalPersistenceManager) -> None:
    claim = await claim_one(lpm)
    await lpm.save_result(claim, a_result({"taxes": {2024: 1.5, 2025: 2.5}}))
    assert (await the_result(lpm)).data == b'{"taxes":{"2024":1.5,"2025":2.5}}'


DEEP = """
import asyncio, sys
from parcelpost.errors import InvalidInput
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_task
from tests.storage.test_bad_input import nested

async def main():
    async with LocalPersistenceManager.open(sys.argv[1]) as lpm:
        for depth in range(940, 1_010):
            try:
                await lpm.add_task(a_task(str(depth), extra={"value": nested(depth)}))
            except InvalidInput:
                break
        await lpm.claim(100)

asyncio.run(main())
"""


def test_a_target_that_was_taken_can_be_read_again_however_deep(store: Path) -> None:
    """I1: or it would keep everybody from claiming. In a script, whose stack is short when it stores the task."""
    command = [sys.executable, "-c", DEEP, str(store)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-500:]


async def test_bad_text_in_any_field_of_a_task_is_refused(
    subtests: pytest.Subtests, lpm: LocalPersistenceManager, store: Path
) -> None:
    for text in [LONE, NUL]:
        for field in ["task_id", "platform", "type", "parcel_id", "state", "county", "url"]:
            with subtests.test(text=text, field=field):
                bad = a_task(**{field: text})  # type: ignore[arg-type] # one text field at a time
                with pytest.raises(InvalidInput, match=field):
                    await lpm.add_task(bad)
                added = await lpm.add_tasks([bad])
                assert (added.new, added.refused, len(added.refusals)) == (0, 1, 1)
                assert everything(store) == []


BAD_TASKS: dict[str, dict[str, Any]] = {
    "empty task_id": {"task_id": ""},
    "empty platform": {"platform": ""},
    "long task_id": {"task_id": "x" * 600},
    "long url": {"url": "https://x/" + "x" * 8_000},
    "long parcel_id": {"parcel_id": "1" * 600},
    "large target": {"extra": {"pad": "x" * 300_000}},
    "unknown source": {"source": "fax"},
    "unknown priority": {"priority": 5},
    "priority 0": {"priority": 0},
    "no priority": {"priority": None},
    "negative retries": {"max_retries": -1},
    "too many retries": {"max_retries": 10**6},
    "retries not whole": {"max_retries": 2.5},
    "retries as text": {"max_retries": "3"},
    "no retries": {"max_retries": None},
    "a number for a task_id": {"task_id": 7},
    "bytes for a platform": {"platform": b"vgsi"},
    "a lease without a zone": {"lease_expires_at": datetime(2026, 1, 1)},  # noqa: DTZ001 - the point
    "a lease as text": {"lease_expires_at": "2026-01-01T00:00:00Z"},
}


async def test_a_bad_task_is_refused_among_good_ones(
    lpm: LocalPersistenceManager, store: Path, subtests: pytest.Subtests
) -> None:
    good: list[str] = []
    for name, fields in BAD_TASKS.items():
        with subtests.test(name):
            bad = a_task(**fields)
            with pytest.raises(InvalidInput):
                await lpm.add_task(bad)
            before, after = f"before {name}", f"after {name}"
            added = await lpm.add_tasks([a_task(before), bad, a_task(after)])
            good += [before, after]
            assert (added.new, added.known, added.refused) == (2, 0, 1)
            assert [refusal[0] for refusal in added.refusals] == [str(bad.task_id)]
    assert look(store, "SELECT task_id FROM tasks ORDER BY seq") == [(task_id,) for task_id in good]


async def test_of_many_bad_tasks_all_are_counted_and_the_first_hundred_named(lpm: LocalPersistenceManager) -> None:
    added = await lpm.add_tasks(a_task(f"t{n}", state=NUL if n % 2 else "CT") for n in range(3_000))
    assert (added.new, added.refused, len(added.refusals)) == (1_500, 1_500, 100)
    assert added.refusals[0] == ("t1", "target.state contains a NUL byte")
