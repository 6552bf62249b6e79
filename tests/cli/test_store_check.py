"""`parcelpost store check`: what it finds, and what it tells to do."""

from __future__ import annotations

import gzip
from pathlib import Path

import pytest

from tests.cli.support import Run, change, damage, leave_a_death, make_store, rows


def page(store: Path, task_id: str) -> Path:
    return store.parent / "data" / "vgsi" / "CT" / "hartford" / f"p-{task_id}.html.gz"


@pytest.mark.parametrize("flags", [(), ("--deep",)])
def test_a_sound_store_is_whole(full_store: Path, run: Run, flags: tuple[str, ...]) -> None:
    ran = run("store", "check", *flags, "--store", full_store)
    assert ran.code == 0
    assert ran.out.startswith("The store is intact.\n2 pages of undelivered results ")
    found = run("store", "check", *flags, "--json", "--store", full_store).document
    assert found == {"ok": True, "deep": bool(flags), "findings": [], "pages": 2, "orphans": 0}


@pytest.mark.parametrize("task_id", ["saved", "refused"])
def test_a_page_that_is_missing_is_found(full_store: Path, run: Run, task_id: str) -> None:
    page(full_store, task_id).unlink()
    ran = run("store", "check", "--store", full_store)
    assert ran.code == 1
    assert f"Error: the page {page(full_store, task_id)} of task {task_id} is missing." in ran.out
    assert f"Fix: restore {page(full_store, task_id)} from a copy" in ran.out
    assert "1 error found." in ran.out


def test_a_page_that_was_delivered_may_be_gone(full_store: Path, run: Run) -> None:
    page(full_store, "sent").unlink()
    assert run("store", "check", "--store", full_store).code == 0


@pytest.mark.parametrize(
    "content", [b"cut short", b"", gzip.compress(b"<html>another page</html>")], ids=["cut", "empty", "another"]
)
def test_only_a_deep_check_reads_the_pages(full_store: Path, run: Run, content: bytes) -> None:
    page(full_store, "saved").write_bytes(content)
    assert run("store", "check", "--store", full_store).code == 0
    ran = run("store", "check", "--deep", "--json", "--store", full_store)
    assert ran.code == 1
    assert [one["message"].split()[-1] for one in ran.document["findings"]] == ["damaged"]


def test_after_a_death_the_journal_may_mend_a_page(full_store: Path, run: Run) -> None:
    page(full_store, "saved").unlink()
    leave_a_death(full_store, claims=1)
    assert "Fix: run 'parcelpost store clean" in run("store", "check", "--store", full_store).out


def test_pages_that_no_result_names_are_counted(full_store: Path, run: Run) -> None:
    page(full_store, "nobody").write_bytes(b"x")
    ran = run("store", "check", "--store", full_store)
    assert ran.code == 0
    assert "1 page belongs to no result" in ran.out


def test_a_reference_to_a_missing_row_is_found(full_store: Path, run: Run) -> None:
    change(full_store, "PRAGMA foreign_keys = OFF; DELETE FROM tasks WHERE task_id = 'saved';")
    ran = run("store", "check", "--store", full_store)
    assert ran.code == 1
    assert "refers to a missing tasks" in ran.out


def test_damage_is_found_and_the_newest_backup_mends_it(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=2_000)
    before = rows(store)
    assert run("store", "backup", "--store", store).code == 0
    damage(store)
    ran = run("store", "check", "--store", store)
    assert ran.code == 1
    assert f"'parcelpost store restore --latest --force --store {store}'" in ran.out
    assert run("store", "restore", "--latest", "--force", "--store", store).code == 0
    assert run("store", "check", "--deep", "--store", store).code == 0
    assert rows(store) == before


def test_damage_without_a_backup_has_a_last_resort(tmp_path: Path, run: Run) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=5_000)
    damage(store)
    found = run("store", "check", "--json", "--store", store).document
    assert len(found["findings"]) == 1
    assert "\n" not in found["findings"][0]["message"]
    assert "parcelpost store salvage --replace" in found["findings"][0]["fix"]


def test_an_index_that_lost_a_row_needs_the_deep_check(store: Path, run: Run) -> None:
    change(
        store,
        """PRAGMA writable_schema = ON;
           UPDATE sqlite_schema SET sql = 'CREATE INDEX tasks_processing ON tasks (claimed_by, platform)'
           WHERE name = 'tasks_processing';""",
    )
    assert run("store", "check", "--store", store).code == 0
    assert run("store", "check", "--deep", "--store", store).code == 1
