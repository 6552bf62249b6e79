"""`parcelpost add`: one parcel, any number of times."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Ran, Run, change, make_store, rows, run_process

PARCEL = ("echo", "1-23-4", "--state", "CT", "--county", "hartford")


def add(run: Run, store: Path, *arguments: object) -> Ran:
    return run("add", *(arguments or PARCEL), "--store", store)


def the_task(run: Run, store: Path) -> Any:
    (found,) = run("tasks", "--json", "--store", store).document["tasks"]
    return found


def test_a_parcel_becomes_a_task_in_a_store_that_is_made_for_it(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "new" / "parcelpost.db"
    ran = add(run, store)
    found = the_task(run, store)
    task = found["task"]
    assert (ran.code, ran.err) == (0, "")
    assert ran.out == f"Added task {task['task_id']}: parcel 1-23-4 in hartford, CT, on echo.\n"
    assert task["task_id"].startswith("1-23-4-")
    assert task["target"] == {"parcel_id": "1-23-4", "state": "CT", "county": "hartford"}
    assert (task["platform"], task["source"], task["priority"], task["max_retries"]) == ("echo", "cli", 3, 3)
    assert found["status"] == "pending"


def test_every_option_reaches_the_task(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    options = ("--url", "https://example.org/1", "--priority", "urgent", "--max-retries", 7, "--id", "mine")
    extra = ("--extra", "note=a=b", "--extra", "delay_ms:=50", "--extra", 'list:=[1, "x"]')
    assert add(run, store, *PARCEL, *options, *extra, "--json").document == {
        "task_id": "mine",
        "new": True,
        "status": "pending",
    }
    task = the_task(run, store)["task"]
    assert (task["task_id"], task["priority"], task["max_retries"]) == ("mine", 1, 7)
    assert task["target"]["url"] == "https://example.org/1"
    assert task["target"]["extra"] == {"note": "a=b", "delay_ms": 50, "list": [1, "x"]}


def test_adding_again_changes_nothing_and_says_so(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    first = add(run, store, *PARCEL, "--json").document["task_id"]
    before = rows(store)
    ran = add(run, store, "ECHO", " 1-23-4 ", "--state", "ct", "--county", "Hartford")
    assert (ran.code, rows(store)) == (0, before)
    assert ran.out.startswith(f"Task {first} already exists, pending for ")
    assert add(run, store, *PARCEL, "--json").document == {"task_id": first, "new": False, "status": "pending"}


@pytest.mark.parametrize(
    ("status", "words", "remedy"),
    [("completed", "completed 2 h ago", "tasks retry --completed"), ("failed", "failed 2 h ago", "tasks retry")],
)
def test_a_task_that_ended_says_how_to_scrape_it_again(
    tmp_path: Path, run: Run, status: str, words: str, remedy: str
) -> None:
    store = tmp_path / "parcelpost.db"
    task_id = add(run, store, *PARCEL, "--json").document["task_id"]
    ended = "strftime('%Y-%m-%dT%H:%M:%fZ', 'now', '-2 hours')"
    change(store, f"UPDATE tasks SET status = '{status}', completed_at = {ended}")
    out = add(run, store).out
    again = f"parcelpost {remedy} {task_id} --store {store}"
    assert out == f"Task {task_id} already exists, {words}; use '{again}' to scrape it again.\n"
    assert run(*again.split()[1:]).out == "1 task pending again.\n"


def test_another_url_or_extra_is_another_task(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    for more in ((), ("--url", "https://example.org"), ("--extra", "year=2025"), ("--extra", "year=2026")):
        assert add(run, store, *PARCEL, *more, "--json").document["new"] is True


def test_an_id_that_is_another_parcels_is_refused(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    add(run, store, *PARCEL, "--id", "7")
    ran = add(run, store, "echo", "9-9-9", "--state", "CT", "--county", "hartford", "--id", "7")
    assert ran.code == 1
    assert ran.err.startswith("error: task ID '7' already belongs to parcel '1-23-4'\nhint: ")
    assert the_task(run, store)["task"]["target"]["parcel_id"] == "1-23-4"


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        (("echo", " ", "--state", "CT", "--county", "x"), "parcel_id is empty"),
        (("echo", "1\n2", "--state", "CT", "--county", "x"), "parcel_id contains a line break: is a quote missing?"),
        ((*PARCEL, "--extra", "nothing"), "--extra 'nothing' is not KEY=VALUE"),
        ((*PARCEL, "--extra", "=1"), "--extra '=1' is not KEY=VALUE"),
        ((*PARCEL, "--extra", "n:=[1"), "--extra 'n:=[1' is not valid JSON: Input data was truncated"),
        ((*PARCEL, "--extra", "county=x"), "target.extra contains county, which has its own field"),
        (("ehco", "1", "--state", "CT", "--county", "x"), "unknown platform 'ehco' (did you mean echo?)"),
        (
            ("v" * 600, "1", "--state", "CT", "--county", "x", "--any-platform"),
            "platform has 600 characters; at most 512 are allowed",
        ),
    ],
)
def test_what_cannot_be_stored_is_said_in_two_lines(
    tmp_path: Path, run: Run, arguments: tuple[str, ...], error: str
) -> None:
    ran = add(run, make_store(tmp_path / "parcelpost.db"), *arguments)
    first, second = ran.err.splitlines()
    assert (ran.code, first) == (1, f"error: {error}")
    assert second.startswith("hint: ")


def test_a_platform_is_known_however_its_letters_are_written(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    assert add(run, store, "ECHO", "1-23-4", "--state", "CT", "--county", "hartford").code == 0
    assert the_task(run, store)["task"]["platform"] == "echo"


def test_a_county_that_the_platform_does_not_know_is_refused_with_the_nearest(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    parcel = ("grizzly_gis", "11-2S-15-00010-001", "--state", "FL", "--county", "columbus")
    refused = add(run, store, *parcel)
    assert (refused.code, store.exists()) == (1, False)
    assert "columbus, FL (did you mean columbia, FL?)" in refused.err
    assert add(run, store, *parcel, "--any-platform").code == 0
    assert add(run, store, *parcel, "--url", "https://example.org/1").code == 0
    refused = add(run, store, "echo", "1", "--state", "Conecticut", "--county", "x")
    assert refused.err.startswith("error: unknown state 'Conecticut' (did you mean Connecticut (CT)?)\nhint: ")


def test_a_platform_that_only_other_workers_know_is_taken_on_demand(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    parcel = ("theirs", "1", "--state", "CT", "--county", "x")
    refused = add(run, store, *parcel)
    assert refused.code == 1
    assert not store.exists()
    assert "known platforms: arcgis, beacon, " in refused.err
    assert "use --any-platform" in refused.err
    assert add(run, store, *parcel, "--any-platform").code == 0
    assert the_task(run, store)["task"]["platform"] == "theirs"


def test_a_path_where_no_store_can_be_is_said_with_what_to_do(tmp_path: Path, run: Run) -> None:
    (tmp_path / "file").touch()
    ran = add(run, tmp_path / "file" / "parcelpost.db", *PARCEL)
    assert ran.code == 1
    assert "hint: check the path: one of its folders does not exist, or is a file\n" in ran.err


def test_state_and_county_must_be_given(tmp_path: Path, run: Run) -> None:
    assert add(run, tmp_path / "parcelpost.db", "echo", "1").code == 2


def test_the_default_store_is_beside_the_caller(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("PARCELPOST_STORE", raising=False)
    assert run_process("add", *PARCEL).code == 0
    assert "already exists" in run_process("add", *PARCEL).out
    assert (tmp_path / "local_data" / "parcelpost.db").exists()
    assert "1 task to do" in run_process("status").out
    assert run_process("log").out == "No sync rounds yet.\n"
