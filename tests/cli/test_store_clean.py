"""`parcelpost store clean` and `migrate`."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import parcelpost
from parcelpost.storage import migrations
from tests.cli.support import Ran, Run, change, holder, leave_a_death, rows

LONG_AGO = "2020-01-01T00:00:00.000Z"
VERSION = migrations.load()[-1].version
"""Of this program's schema."""


def make_old(store: Path) -> None:
    """Everything that ended or was delivered is past its retention."""
    change(
        store,
        f"""UPDATE tasks SET completed_at = '{LONG_AGO}' WHERE completed_at IS NOT NULL;
            UPDATE results SET synced_at = '{LONG_AGO}' WHERE synced = 1;""",
    )


def test_what_is_young_stays(full_store: Path, run: Run) -> None:
    ran = run("store", "clean", "--store", full_store)
    assert ran.code == 0
    assert ran.out.splitlines()[1:3] == ["tasks          0", "results        0"]


def test_what_is_old_and_delivered_goes_and_nothing_else(full_store: Path, run: Run) -> None:
    make_old(full_store)
    removed = run("store", "clean", "--json", "--store", full_store).document["removed"]
    assert (removed["tasks"], removed["results"], removed["files"]) == (1, 1, 2)
    left = run("tasks", "--json", "--store", full_store).document["tasks"]
    assert {one["task"]["task_id"] for one in left} == {"saved", "refused", "failed", "expired", "later", "waiting"}


def test_relief_takes_what_is_delivered_whatever_its_age(full_store: Path, run: Run) -> None:
    removed = run("store", "clean", "--free-space", "--full", "--json", "--store", full_store).document["removed"]
    assert (removed["tasks"], removed["results"]) == (1, 1)
    assert run("store", "check", "--deep", "--store", full_store).code == 0


def test_cleaning_brings_back_what_the_dead_held(store: Path, run: Run) -> None:
    leave_a_death(store, claims=2)
    ran = run("store", "clean", "--store", store)
    assert ran.code == 0
    assert "crashed with the store open: 2 tasks recovered" in ran.err
    queue = run("store", "status", "--json", "--store", store).document["queue"]
    assert (queue["pending"], queue["processing"]) == (3, 0)


def test_a_store_of_this_version_needs_no_migration(store: Path, run: Run) -> None:
    before = rows(store)
    ran = run("store", "migrate", "--store", store)
    assert (ran.code, ran.out) == (
        0,
        f"Nothing to do: the store already has schema version {VERSION}.\n",
    )
    assert run("store", "migrate", "--json", "--store", store).document == {
        "from_version": VERSION,
        "to_version": VERSION,
        "backup": None,
    }
    assert rows(store) == before


def newer_program(folder: Path, *arguments: object) -> Ran:
    """This program with one more migration."""
    package = folder / "newer" / "parcelpost"
    if not package.exists():
        shutil.copytree(Path(parcelpost.__file__).parent, package, ignore=shutil.ignore_patterns("__pycache__"))
        sql = "-- Notes on tasks\nCREATE TABLE notes (text TEXT NOT NULL) STRICT;\n"
        (package / "storage" / "migrations" / f"{VERSION + 1:04}_notes.sql").write_text(sql)
    done = subprocess.run(
        [sys.executable, "-c", "from parcelpost.cli.main import main; main()", *map(str, arguments)],
        env=os.environ | {"PYTHONPATH": str(package.parent)},
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return Ran(done.returncode, done.stdout, done.stderr)


def test_an_older_store_is_looked_at_only_after_it_was_migrated(full_store: Path, tmp_path: Path) -> None:
    before = rows(full_store)
    refused = newer_program(tmp_path, "store", "status", "--store", full_store)
    assert refused.code == 1
    assert f"the store has schema version {VERSION}, this program needs {VERSION + 1}" in refused.err
    assert "hint: run 'parcelpost store migrate'" in refused.err
    assert rows(full_store) == before
    done = newer_program(tmp_path, "store", "migrate", "--store", full_store)
    assert done.code == 0
    (copy,) = (full_store.parent / "backups").iterdir()
    assert done.out == f"Migrated from schema version {VERSION} to {VERSION + 1}. Backup of the old store: {copy}\n"
    assert rows(copy) == before
    assert newer_program(tmp_path, "tasks", "show", "saved", "--store", full_store).code == 0


def test_a_store_in_use_is_not_migrated(full_store: Path, tmp_path: Path) -> None:
    with holder(full_store):
        ran = newer_program(tmp_path, "store", "migrate", "--store", full_store)
    assert ran.code == 1
    assert "is open in holder-" in ran.err
    assert "hint: stop the worker first" in ran.err
