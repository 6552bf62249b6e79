"""`parcelpost tasks delete` and `results delete`: what is asked, what is lost, what stays."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Run, rows


def delivery(run: Run, store: Path, task_id: str) -> str:
    return str(run("results", "show", task_id, "--json", "--store", store).document["delivery"])


def answering(monkeypatch: pytest.MonkeyPatch, *answers: str) -> None:
    """What a person types at each question."""
    left = iter(answers)
    monkeypatch.setattr("sys.stdin.readline", lambda: next(left, ""), raising=False)


def test_a_delivered_task_is_deleted_after_a_yes(full_store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    page = Path(run("results", "show", "sent", "--json", "--store", full_store).document["page"]["path"])
    assert page.is_file()
    answering(monkeypatch, "n\n")
    refused = run("tasks", "delete", "sent", "--store", full_store)
    assert refused.code == 1
    assert refused.err.startswith("Delete 1 task with results and pages? [y/N] error: not confirmed")
    answering(monkeypatch, "y\n")
    assert run("tasks", "delete", "sent", "--store", full_store).out == "1 task deleted.\n"
    assert not page.exists()
    assert "there is no task 'sent'" in run("tasks", "show", "sent", "--store", full_store).err


def test_an_undelivered_record_needs_a_second_yes(full_store: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    before = rows(full_store)
    arguments = ("results", "delete", "--platform", "vgsi", "--status", "completed", "--store", full_store)
    answering(monkeypatch, "y\n", "n\n")
    refused = run(*arguments)
    assert refused.code == 1
    assert "Delete 1 result with pages? [y/N]" in refused.err
    assert "2 records were never delivered. There is no other copy of them. Delete them as well? [y/N]" in (refused.err)
    assert rows(full_store) == before
    answering(monkeypatch, "y\n", "y\n")
    done = run(*arguments).out
    assert done == "3 results deleted. For 2 of them, the upstream will be notified that the task failed.\n"
    for task_id in ("saved", "refused"):
        report = run("results", "show", task_id, "--json", "--store", full_store).document
        assert (report["success"], report["data"], report["status"]) == (False, None, "failed")
        assert (report["error"], report["ended_by"]) == ("its record was deleted here", "operator")
        assert report["delivery"] == "unsynced"


def test_a_script_loses_no_record_unless_it_says_so(full_store: Path, run: Run) -> None:
    arguments = ("tasks", "delete", "--all", "--yes", "--store", full_store)
    kept = run(*arguments).out.splitlines()
    assert kept == [
        "1 task deleted. 2 marked as failed: they will be deleted once the upstream has been notified.",
        "Not deleted: 2 never delivered (add --unsynced to delete them), 2 not reported upstream yet.",
    ]
    assert delivery(run, full_store, "saved") == "unsynced"
    assert run(*arguments, "--unsynced", "--json").document == {
        "deleted": 0,
        "reported": 2,
        "result_kept": 0,
        "undelivered_records": 2,
        "kept": {"unreported": 4},
        "dry_run": False,
    }


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (("results", "delete", "saved"), "the record of 'saved' was never delivered (add --unsynced to delete it"),
        (("tasks", "delete", "refused"), "the record of 'refused' was never delivered (add --unsynced to delete it"),
        (("tasks", "delete", "failed"), "the outcome of 'failed' has not been reported yet"),
        (("results", "delete", "failed"), "the outcome of 'failed' has not been reported yet"),
        (("results", "delete", "waiting"), "there is no result for task 'waiting'"),
        (("tasks", "delete"), "no tasks were selected"),
    ],
)
def test_what_cannot_be_deleted_is_said(full_store: Path, run: Run, arguments: tuple[str, ...], why: str) -> None:
    before = rows(full_store)
    ran = run(*arguments, "--yes", "--store", full_store)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {why}")
    assert rows(full_store) == before


@pytest.mark.parametrize("what", ["tasks", "results"])
def test_a_dry_run_says_the_same_and_changes_nothing(full_store: Path, run: Run, what: str) -> None:
    before = rows(full_store)
    arguments = (what, "delete", "--all", "--unsynced", "--json", "--store", full_store)
    planned = run(*arguments, "--dry-run").document
    assert rows(full_store) == before
    words = run(what, "delete", "--all", "--dry-run", "--store", full_store).out
    assert words.startswith("Nothing was changed. The command would ask: Delete ")
    assert run(*arguments, "--yes").document == planned | {"dry_run": False}


def test_a_report_that_an_upstream_will_never_take_is_set_aside_and_then_deleted(full_store: Path, run: Run) -> None:
    run("results", "reject", "failed", "--yes", "--store", full_store)
    assert run("tasks", "delete", "failed", "--yes", "--store", full_store).out == "1 task deleted.\n"


def test_an_order_that_is_done_again_is_no_failure_to_its_upstream(full_store: Path, run: Run) -> None:
    run("tasks", "retry", "sent", "--completed", "--store", full_store)
    asked = run("tasks", "delete", "sent", "--dry-run", "--store", full_store).out
    assert asked.endswith("1 of them were due to run again: their earlier results are kept.\n")
    done = run("tasks", "delete", "sent", "--yes", "--store", full_store).out
    assert done == "0 tasks deleted. 1 will not run again: their earlier results are kept.\n"
    assert delivery(run, full_store, "sent") == "synced"


def test_a_page_is_written_as_it_was_fetched(full_store: Path, run: Run) -> None:
    assert run("results", "show", "saved", "--page", "--store", full_store).out == "<html>saved</html>" * 50
    none = run("results", "show", "failed", "--page", "--store", full_store)
    assert none.err.startswith("error: its page is not on this machine\n")
