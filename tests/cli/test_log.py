"""`parcelpost log`: sync rounds, newest last."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
from pathlib import Path

import pytest

from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.history import SyncRound
from tests.cli.support import COMMAND, Run, rows

ROUNDS = (
    SyncRound(direction="download", record_type="tasks", record_count=12, success=True, duration_ms=80),
    SyncRound(direction="upload", record_type="raw_files", record_count=50, success=True, duration_ms=1_234),
    SyncRound(direction="upload", record_type="results", record_count=50, success=False, error="503\x1b[2J\nbusy"),
    SyncRound(direction="download", record_type="tasks", record_count=0, success=False, error="timed out"),
)


def record(store: Path, *rounds: SyncRound) -> None:
    async def write() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for one in rounds:
                await lpm.sync_log.record(one)

    asyncio.run(write())


@pytest.fixture
def logged(store: Path) -> Path:
    record(store, *ROUNDS)
    return store


def after_the_time(line: str) -> str:
    moment, _, rest = line.partition(" UTC  ")
    assert len(moment) == len("2026-11-15 19:50:33")
    return rest


def test_rounds_stand_below_each_other_the_newest_last(logged: Path, run: Run) -> None:
    ran = run("log", "--store", logged)
    assert (ran.code, ran.err) == (0, "")
    assert [after_the_time(line) for line in ran.out.splitlines()] == [
        "download       12 tasks                  80 ms  ok",
        "upload         50 raw files           1,234 ms  ok",
        "upload         50 results                    -  failed  503\\x1b[2J\\nbusy",
        "download        0 tasks                      -  failed  timed out",
    ]


@pytest.mark.parametrize(
    ("arguments", "shown"),
    [
        (("--limit", 2), [2, 3]),
        (("--failed",), [2, 3]),
        (("--direction", "upload"), [1, 2]),
        (("--direction", "download", "--failed"), [3]),
        (("--limit", 1, "--direction", "upload"), [2]),
    ],
)
def test_a_part_of_them(logged: Path, run: Run, arguments: tuple[object, ...], shown: list[int]) -> None:
    lines = run("log", *arguments, "--json", "--store", logged).out.splitlines()
    found = [json.loads(line) for line in lines]
    expected = [(ROUNDS[n].direction, ROUNDS[n].record_type, ROUNDS[n].error) for n in shown]
    assert [(one["direction"], one["record_type"], one["error"]) for one in found] == expected


def test_every_json_line_has_the_same_keys(logged: Path, run: Run) -> None:
    for line in run("log", "--json", "--store", logged).out.splitlines():
        assert set(json.loads(line)) == {
            "sync_id", "created_at", "direction", "record_type", "record_count", "success", "error", "duration_ms"
        }  # fmt: skip


def test_no_rounds_are_one_line_and_no_json(store: Path, run: Run) -> None:
    assert run("log", "--store", store).out == "No sync rounds yet.\n"
    assert run("log", "--json", "--store", store).out == ""


def test_it_only_looks(logged: Path, run: Run) -> None:
    before = rows(logged)
    run("log", "--store", logged)
    assert rows(logged) == before


def test_a_missing_store_is_not_created(tmp_path: Path, run: Run) -> None:
    ran = run("log", "--store", tmp_path / "none.db")
    assert (ran.code, list(tmp_path.iterdir())) == (1, [])
    assert ran.err.startswith("error: there is no store at ")


@pytest.mark.parametrize("option", ["--follow", "-f"])
def test_following_goes_on_with_what_comes_until_ctrl_c(logged: Path, option: str) -> None:
    command = [COMMAND, "log", option, "--failed", "--json", "--limit", "1", "--store", str(logged)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert json.loads(process.stdout.readline())["error"] == "timed out"
        for reason in ("again", "and again"):
            failed = SyncRound(direction="upload", record_type="results", record_count=1, success=False, error=reason)
            record(logged, ROUNDS[0], failed)
            assert json.loads(process.stdout.readline())["error"] == reason
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert (process.returncode, out, err) == (0, "", "")


def test_following_an_empty_log_begins_with_the_first_round(store: Path) -> None:
    command = [COMMAND, "log", "-f", "--json", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        record(store, ROUNDS[0])
        assert json.loads(process.stdout.readline())["record_count"] == 12
        process.send_signal(signal.SIGINT)
    assert process.returncode == 0
