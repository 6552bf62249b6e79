"""Files of tasks with lines that no database can hold: each is named, and harms nothing beside it."""

from __future__ import annotations

import asyncio
import json
import sys
from datetime import datetime
from pathlib import Path
from typing import Any

import pytest

from parcelpost.errors import InvalidInput
from parcelpost.gateway.ledger.base import Ledger
from tests.gateway.factories import task

HALF, NUL = "\\ud800", "\\u0000"
PLACE = '"platform": "echo", "state": "FL", "county": "union"'
LINES = [
    f'{{{PLACE}, "parcel_id": "1"}}',
    f'{{{PLACE}, "parcel_id": "{HALF}"}}',
    f'{{{PLACE}, "parcel_id": "2", "note": "{HALF}"}}',
    f'{{{PLACE}, "parcel_id": "{NUL}"}}',
    f'{{{PLACE}, "parcel_id": "3", "note": "{NUL}"}}',
    f'{{{PLACE}, "parcel_id": "4", "task_id": "t{NUL}"}}',
    f'{{{PLACE}, "parcel_id": "5", "task_id": "t{HALF}"}}',
    f'{{{PLACE}, "parcel_id": "6", "task_id": "six", "note": {{"{NUL}": ["{NUL}"]}}}}',
]


async def test_bad_lines_are_named_and_the_others_are_queued(
    database: str, ledger: Ledger, tmp_path: Path, now: datetime
) -> None:
    file = tmp_path / "tasks.jsonl"
    file.write_text("\n".join(LINES))
    command = [sys.executable, "-m", "parcelpost", "gateway", "add", str(file), "--database", database, "--json"]
    process = await asyncio.create_subprocess_exec(*command, cwd=tmp_path, stdout=asyncio.subprocess.PIPE)
    said, _ = await process.communicate()
    assert process.returncode == 1
    told = json.loads(said)
    assert (told["new"], told["bad"]) == (3, 5)
    assert [bad["line"] for bad in told["first_bad"]] == [2, 3, 4, 6, 7]
    granted = await ledger.grant("w1", ["echo"], 10, now, now)
    assert [one.task.target.parcel_id for one in granted] == ["1", "3", "6"]
    assert granted[2].task.target.extra == {"note": {"\0": ["\0"]}}


@pytest.mark.parametrize("extra", [{"note": "\ud800"}, {"\ud800": 1}])
async def test_a_target_that_is_no_text_is_bad_input(ledger: Ledger, now: datetime, extra: dict[str, Any]) -> None:
    with pytest.raises(InvalidInput):
        await ledger.add_tasks([task("good"), task("bad", **extra)], now)
    assert (await ledger.add_tasks([task("good")], now)).new == 1
