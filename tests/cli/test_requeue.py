"""`parcelpost store requeue`: by id, by status, and what it asks first."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Run, run_process


def status(run: Run, store: Path, task_id: str) -> str:
    return str(run("store", "tasks", task_id, "--json", "--store", store).document["status"])


def test_one_task_is_requeued_without_a_question(full_store: Path, run: Run) -> None:
    ran = run("store", "requeue", "failed", "--store", full_store)
    assert (ran.code, ran.out) == (0, "1 task pending again.\n")
    assert status(run, full_store, "failed") == "pending"


def test_several_are_asked_for(full_store: Path, run: Run) -> None:
    arguments = ("store", "requeue", "failed", "expired", "--store", full_store)
    refused = run_process(*arguments, answer="no\n")
    assert refused.code == 1
    assert refused.err.startswith("Requeue 2 tasks? [y/N] ")
    assert status(run, full_store, "failed") == "failed"
    assert run_process(*arguments, answer="yes\n").out == "2 tasks pending again.\n"


@pytest.mark.parametrize(
    ("arguments", "changed"),
    [
        (("--failed",), 1),
        (("--expired",), 1),
        (("--failed", "--expired"), 2),
        (("--failed", "--platform", "vgsi"), 0),
        (("--failed", "--platform", "beacon"), 1),
        (("--completed",), 1),
        (("--failed", "--completed", "--expired"), 3),
        (("--completed", "sent"), 1),
    ],
)
def test_it_says_how_many_changed(full_store: Path, run: Run, arguments: tuple[str, ...], changed: int) -> None:
    assert run("store", "requeue", *arguments, "--yes", "--json", "--store", full_store).document == {
        "requeued": changed
    }


def test_completed_ones_are_asked_for_by_their_number_at_most(full_store: Path) -> None:
    ran = run_process("store", "requeue", "--completed", "--store", full_store, answer="y\n")
    assert "Requeue 3 tasks (completed; of the completed ones those that were delivered)?" in ran.err
    assert ran.out == "1 task pending again.\n"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("nobody",), "there is no task 'nobody'"),
        (("waiting",), "'waiting' is pending"),
        (("sent",), "'sent' is completed (add --completed to scrape it once more)"),
        (("saved", "--completed"), "the result of 'saved' is not delivered yet"),
        (("failed", "nobody", "waiting"), "there is no task 'nobody'; 'waiting' is pending"),
        (("failed", "--failed"), "task ids do not go together with --failed, --expired or --platform"),
        ((), "which tasks?"),
    ],
)
def test_what_cannot_be_requeued_is_said(full_store: Path, run: Run, arguments: tuple[str, ...], why: str) -> None:
    ran = run("store", "requeue", *arguments, "--yes", "--store", full_store)
    error, hint = ran.err.splitlines()
    assert (ran.code, error) == (1, f"error: {why}")
    assert hint.startswith("hint: ")
    assert status(run, full_store, "failed") == "failed"
