"""`parcelpost tasks retry` and `results retry`: by id, by filters, and what is asked first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Run, holder


def status(run: Run, store: Path, task_id: str) -> str:
    return str(run("tasks", "show", task_id, "--json", "--store", store).document["status"])


def test_one_task_is_retried_without_a_question(full_store: Path, run: Run) -> None:
    ran = run("tasks", "retry", "failed", "--store", full_store)
    assert (ran.code, ran.out) == (0, "1 task pending again.\n")
    assert status(run, full_store, "failed") == "pending"


def test_several_are_asked_for(full_store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    arguments = ("tasks", "retry", "failed", "expired", "--store", full_store)
    answers = iter(["no\n", "yes\n"])
    monkeypatch.setattr("sys.stdin.readline", lambda: next(answers), raising=False)
    refused = run(*arguments)
    assert refused.code == 1
    assert refused.err.startswith("Retry 2 tasks? [y/N] ")
    assert status(run, full_store, "failed") == "failed"
    assert run(*arguments).out == "2 tasks pending again.\n"


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("--status", "failed"), 1),
        (("--error", "NO TABLE"), 1),
        (("--status", "completed"), 1),
        (("--status", "pending"), 1),
        (("--all",), 3),
        (("--all", "--completed"), 4),
        (("--completed", "sent"), 1),
        (("later",), 1),
    ],
)
def test_it_says_how_many_changed(full_store: Path, run: Run, arguments: tuple[str, ...], changed: int) -> None:
    planned = run("tasks", "retry", *arguments, "--dry-run", "--json", "--store", full_store).document
    assert (planned["retried"], planned["dry_run"]) == (changed, True)
    done = run("tasks", "retry", *arguments, "--yes", "--json", "--store", full_store).document
    assert done == planned | {"dry_run": False}


def test_what_waits_for_another_try_is_tried_now(full_store: Path, run: Run) -> None:
    assert run("tasks", "retry", "later", "--store", full_store).out == "1 task pending again.\n"
    now = run("tasks", "show", "later", "--json", "--store", full_store).document
    assert (now["available_at"], now["retries"], now["error"]) == (None, 1, "busy")


def test_what_stays_as_it_is_is_said(full_store: Path, run: Run) -> None:
    out = run("tasks", "retry", "--all", "--yes", "--store", full_store).out
    assert out == "3 tasks pending again.\nNot retried: 3 completed (add --completed), 1 pending.\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nobody",), "there is no task 'nobody'"),
        (("waiting",), "'waiting' is pending"),
        (("sent",), "'sent' is completed (add --completed to scrape it again)"),
        (("saved", "--completed"), "the result of 'saved' has not been delivered yet"),
        (("failed", "nobody", "waiting"), "there is no task 'nobody'; 'waiting' is pending"),
        (("failed", "--status", "failed"), "task IDs cannot be combined with filters or --all"),
        (("--platform", "vgsi", "--all"), "--all cannot be combined with filters"),
        ((), "no tasks were selected"),
    ],
)
def test_what_cannot_be_retried_is_said(full_store: Path, run: Run, arguments: tuple[str, ...], why: str) -> None:
    ran = run("tasks", "retry", *arguments, "--yes", "--store", full_store)
    error, hint = ran.err.splitlines()
    assert (ran.code, error) == (1, f"error: {why}")
    assert hint.startswith("hint: ")
    assert status(run, full_store, "failed") == "failed"


def test_a_task_that_a_live_worker_holds_is_left_to_it(store: Path, run: Run) -> None:
    with holder(store):
        for word in (("retry",), ("reject", "--yes"), ("delete", "--yes")):
            ran = run("tasks", *word, "t0", "--store", store)
            assert ran.code == 1
            assert "error: 't0' is being processed by holder-" in ran.err
            assert ": wait until it finishes, or stop that worker\n" in ran.err
        many = run("tasks", "delete", "--all", "--yes", "--json", "--store", store).document
        assert (many["deleted"], many["reported"], many["kept"]) == (0, 2, {"processing": 1})


def rejected(run: Run, store: Path) -> list[str]:
    found = run("results", "list", "--delivery", "rejected", "--json", "--store", store).document["results"]
    return [one["task_id"] for one in found]


def test_rejected_results_are_sent_again(full_store: Path, run: Run) -> None:
    assert run("results", "retry", "--all", "--store", full_store).out == (
        "1 result will be sent again.\nNot retried: 1 delivered, 3 waiting to be sent.\n"
    )
    assert rejected(run, full_store) == []


def test_a_rejected_result_is_named_by_its_task(full_store: Path, run: Run) -> None:
    wrong = run("results", "retry", "refused", "saved", "nobody", "--store", full_store)
    assert wrong.code == 1
    assert wrong.err.startswith(
        "error: the result of 'saved' is already waiting to be sent; there is no result for task 'nobody'\n"
        "hint: nothing was changed; see 'parcelpost results show TASK_ID"
    )
    done = run("results", "retry", "refused", "--json", "--store", full_store).document
    assert done == {"retried": 1, "kept": {}, "dry_run": False}


def test_the_operator_rejects_results_and_sends_them_again(full_store: Path, run: Run) -> None:
    arguments = ("results", "reject", "saved", "--reason", "wrong\x1b[2J amounts", "--store", full_store)
    ran = run(*arguments, "--yes")
    assert ran.out == "1 result rejected: wrong\\x1b[2J amounts.\n"
    assert rejected(run, full_store) == ["saved", "refused"]
    assert run(*arguments, "--yes").err.startswith("error: the result of 'saved' is already rejected")
    run("results", "retry", "--all", "--yes", "--store", full_store)
    assert rejected(run, full_store) == ["saved"]
    run("results", "retry", "--all", "--by-operator", "--yes", "--store", full_store)
    assert rejected(run, full_store) == []


def test_rejected_tasks_end_as_failed_and_are_reported(full_store: Path, run: Run) -> None:
    ran = run("tasks", "reject", "--status", "pending", "--yes", "--reason", "no such county", "--store", full_store)
    assert ran.out == "2 tasks marked as failed: no such county.\n"
    report = run("results", "show", "waiting", "--json", "--store", full_store).document
    assert (report["status"], report["delivery"]) == ("failed", "unsynced")
    assert (report["error"], report["ended_by"]) == ("no such county", "operator")
    again = run("tasks", "reject", "waiting", "--yes", "--store", full_store)
    assert again.err.startswith("error: 'waiting' has already ended\n")
