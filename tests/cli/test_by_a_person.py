"""What a person has willed is no fault: it is not called wrong, and a command to paste does not undo it."""

from __future__ import annotations

import asyncio
from pathlib import Path

from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run


def problems(run: Run, store: Path) -> str:
    return " ".join(one["what"] for one in run("status", "--json", "--store", store).document["problems"])


def states(run: Run, store: Path) -> dict[str, str]:
    found = run("results", "--json", "--store", store).document["results"]
    return {one["task_id"]: one["delivery"] for one in found}


def test_what_a_person_set_aside_was_not_refused_by_the_gateway(full_store: Path, run: Run) -> None:
    run("results", "reject", "saved", "--reason", "its amounts are wrong", "--yes", "--store", full_store)
    assert "the gateway refused 1 result" in problems(run, full_store)
    assert "; 2 rejected, 1 of them by a person\n" in run("status", "--store", full_store).out
    again = run("results", "retry", "--all", "--yes", "--store", full_store).out.splitlines()
    assert again[0] == "1 result will be sent again."
    assert "1 set aside by a person (add --set-aside)" in again[1]
    assert states(run, full_store)["saved"] == "rejected"
    assert "refused" not in problems(run, full_store)
    shown = run("results", "show", "saved", "--json", "--store", full_store).document
    assert shown["last_error"] == "by a person: its amounts are wrong"


def test_what_a_person_set_aside_is_sent_after_all_when_it_is_named(full_store: Path, run: Run) -> None:
    for more in (("saved",), ("--all", "--set-aside", "--yes")):
        run("results", "reject", "saved", "--yes", "--store", full_store)
        run("results", "retry", *more, "--store", full_store)
        assert states(run, full_store)["saved"] == "unsynced"


def test_an_upstream_cannot_pass_its_refusal_for_a_persons_word(full_store: Path, run: Run) -> None:
    saved = run("results", "show", "saved", "--json", "--store", full_store).document["result_id"]

    async def refuse() -> None:
        async with LocalPersistenceManager.open(full_store) as lpm:
            await lpm.mark_rejected([saved], "by a person: nothing to see")

    asyncio.run(refuse())
    assert "the gateway refused 2 results" in problems(run, full_store)


def test_tasks_that_a_person_ended_raise_no_alarm(store: Path, run: Run) -> None:
    run("tasks", "reject", "t0", "--reason", "no such parcel", "--yes", "--store", store)
    run("tasks", "forget", "t1", "--yes", "--store", store)
    document = run("status", "--json", "--store", store).document
    assert (document["queue"]["failed"], document["failures"]["failed"], document["failures"]["ended"]) == (2, 0, 0)
    assert "failed" not in problems(run, store)
