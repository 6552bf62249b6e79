"""`parcelpost store backup` and `restore`: what they make, what they refuse, what they set aside."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.cli.support import Run, change, holder, rows

LATER = "2099-01-01T00:00:00.000Z"


@pytest.fixture
def backup(full_store: Path, run: Run) -> Path:
    return Path(run("store", "backup", "--store", full_store, "--json").document["path"])


def make_newer(store: Path) -> None:
    change(store, f"UPDATE tasks SET completed_at = '{LATER}' WHERE task_id = 'failed'")


def test_a_backup_holds_everything(full_store: Path, run: Run) -> None:
    ran = run("store", "backup", "--store", full_store)
    assert ran.code == 0
    (made,) = (full_store.parent / "backups").iterdir()
    assert ran.out.startswith(f"Backup created: {made} (")
    assert "0 older backups removed." in ran.out
    assert rows(made) == rows(full_store)


def test_seven_backups_are_kept(full_store: Path, run: Run) -> None:
    folder = full_store.parent / "backups"
    folder.mkdir()
    for day in range(10, 19):
        (folder / f"parcelpost_202001{day}T020000.db").touch()
    assert run("store", "backup", "--store", full_store, "--json").document["removed"] == 3
    assert len(list(folder.iterdir())) == 7


def test_a_backup_is_made_while_a_worker_has_the_store_open(full_store: Path, run: Run) -> None:
    with holder(full_store, claims=1):
        assert run("store", "backup", "--store", full_store).code == 0


def test_restoring_sets_the_present_store_aside(full_store: Path, backup: Path, run: Run) -> None:
    before = rows(full_store)
    ran = run("store", "restore", backup, "--store", full_store)
    assert ran.code == 0
    assert ran.out.startswith(f"Restored {full_store}.\ntasks           7\nresults         5, 4 not delivered\n")
    (aside,) = (full_store.parent / "backups").glob("*_before_restore_*.db")
    assert str(aside) in ran.out
    assert rows(aside) == rows(full_store) == before


def test_restoring_where_no_store_is(full_store: Path, backup: Path, run: Run) -> None:
    elsewhere = full_store.parent.parent / "new machine" / "parcelpost.db"
    done = run("store", "restore", backup, "--store", elsewhere, "--json").document
    assert done["previous"] is None
    assert done["contents"]["tasks"] == 7
    assert rows(elsewhere) == rows(backup)


def test_a_bare_name_is_looked_for_among_the_backups(full_store: Path, backup: Path, run: Run) -> None:
    assert run("store", "restore", backup.name, "--store", full_store).code == 0


def test_a_newer_store_is_not_replaced_without_force(full_store: Path, backup: Path, run: Run) -> None:
    make_newer(full_store)
    before = rows(full_store)
    ran = run("store", "restore", "--latest", "--store", full_store)
    assert ran.code == 1
    assert "the store is newer than the backup" in ran.err
    assert "hint: add --force" in ran.err
    assert rows(full_store) == before
    forced = run("store", "restore", "--latest", "--force", "--store", full_store, "--json").document
    assert LATER not in "".join(rows(full_store))
    assert LATER in "".join(rows(Path(forced["previous"])))


def test_a_store_in_use_is_not_replaced_without_force(full_store: Path, backup: Path, run: Run) -> None:
    with holder(full_store):
        ran = run("store", "restore", backup, "--store", full_store)
        assert ran.code == 1
        assert "is open in holder-" in ran.err
        assert "hint: stop the worker first, or add --force" in ran.err
        assert run("store", "restore", backup, "--force", "--store", full_store).code == 0


def test_a_damaged_backup_is_refused_even_with_force(full_store: Path, backup: Path, run: Run) -> None:
    before = rows(full_store)
    backup.write_bytes(b"nonsense" * 1_000)
    ran = run("store", "restore", backup, "--force", "--store", full_store)
    assert ran.code == 1
    assert "hint: use an older backup" in ran.err
    assert rows(full_store) == before


@pytest.mark.parametrize("arguments", [(), ("some.db", "--latest")])
def test_the_backup_must_be_named_one_way(full_store: Path, run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("store", "restore", *arguments, "--store", full_store)
    assert (ran.code, ran.err.splitlines()[0]) == (1, "error: specify either a backup file or --latest")


@pytest.mark.parametrize("arguments", [("--latest",), ("nowhere.db",), ("/nowhere/at/all.db",)])
def test_a_backup_that_is_not_there_changes_nothing(tmp_path: Path, run: Run, arguments: tuple[str, ...]) -> None:
    ran = run("store", "restore", *arguments, "--store", tmp_path / "typo" / "parcelpost.db")
    assert ran.code == 1
    assert ran.err.startswith("error: there is no backup ")
    assert "\nhint: " in ran.err
    assert list(tmp_path.iterdir()) == []
