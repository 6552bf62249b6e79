"""What an operator ended or rejected is no failure: no alarm, and `retry --all` does not undo it."""

from __future__ import annotations

from pathlib import Path

from tests.cli.support import Run


def problems(run: Run, store: Path) -> str:
    return " ".join(one["message"] for one in run("status", "--json", "--store", store).document["findings"])


def states(run: Run, store: Path) -> dict[str, str]:
    found = run("results", "--json", "--store", store).document["results"]
    return {one["task_id"]: one["delivery"] for one in found}


def test_what_the_operator_rejected_was_not_refused_by_the_gateway(full_store: Path, run: Run) -> None:
    run("results", "reject", "saved", "--reason", "its amounts are wrong", "--yes", "--store", full_store)
    assert "the upstream rejected 1 result" in problems(run, full_store)
    assert "; 2 rejected, 1 of them by the operator\n" in run("status", "--store", full_store).out
    again = run("results", "retry", "--all", "--yes", "--store", full_store).out.splitlines()
    assert again[0] == "1 result will be sent again."
    assert "1 rejected by the operator (add --by-operator)" in again[1]
    assert states(run, full_store)["saved"] == "rejected"
    assert "rejected" not in problems(run, full_store)
    shown = run("results", "show", "saved", "--json", "--store", full_store).document
    assert (shown["last_error"], shown["rejected_by"]) == ("its amounts are wrong", "operator")
    assert "by the operator: its amounts are wrong" in run("results", "show", "saved", "--store", full_store).out


def test_what_the_operator_rejected_is_sent_after_all_when_it_is_named(full_store: Path, run: Run) -> None:
    for more in (("saved",), ("--all", "--by-operator", "--yes")):
        run("results", "reject", "saved", "--yes", "--store", full_store)
        run("results", "retry", *more, "--store", full_store)
        assert states(run, full_store)["saved"] == "unsynced"


def test_tasks_that_the_operator_ended_raise_no_alarm(store: Path, run: Run) -> None:
    run("tasks", "reject", "t0", "--reason", "no such parcel", "--yes", "--store", store)
    run("tasks", "delete", "t1", "--yes", "--store", store)
    document = run("status", "--json", "--store", store).document
    assert (document["queue"]["failed"], document["failures"]["failed"], document["failures"]["ended"]) == (2, 0, 0)
    assert "failed" not in problems(run, store)
    assert "by the operator: no such parcel" in run("tasks", "show", "t0", "--store", store).out
    assert run("tasks", "show", "t0", "--json", "--store", store).document["ended_by"] == "operator"
