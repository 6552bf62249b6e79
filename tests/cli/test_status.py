"""`parcelpost store status`: what it says, and that it only looks."""

from __future__ import annotations

import os
import shutil
import sqlite3
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import Run, change, damage, holder, leave_a_death, make_old, make_store, rows, run_process

NOBODY = 65534

# Runs the command once to load all it needs, then again without root's powers: the interpreter itself may be out of
# another user's reach.
AS_NOBODY = f"""
import contextlib, os, sys
from parcelpost.cli.main import main
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
if os.geteuid() == 0:
    os.setegid({NOBODY})
    os.seteuid({NOBODY})
print("and again", file=sys.stderr)
main(sys.argv[1:])
"""

LOOKS = ("store status", "store check", "tasks list", "results list", "top --once")
CHANGES = ("store clean", "store migrate")


def test_a_sound_store_is_well(store: Path, run: Run) -> None:
    assert run("store", "backup", "--store", store).code == 0
    ran = run("store", "status", "--store", store)
    assert ran.code == 0
    assert ran.out.startswith("No problems found.\n")
    assert "open in        no process" in ran.out


@pytest.mark.parametrize("words", [*LOOKS, "store backup"])
def test_a_store_may_be_named_from_where_one_stands(
    store: Path, run: Run, monkeypatch: pytest.MonkeyPatch, words: str
) -> None:
    monkeypatch.chdir(store.parent)
    ran = run(*words.split(), "--store", store.name)
    assert ran.code in (0, 1), ran.err
    assert "Traceback" not in ran.err
    assert "error" not in ran.err


def test_the_store_and_its_cap_are_those_of_the_settings_file(
    store: Path, run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARCELPOST_STORE", raising=False)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "parcelpost.toml").write_text(f'[storage]\npath = "{store}"\nmax_bytes = 123_456_789\n')
    ran = run("store", "status", "--json")
    assert ran.document["store"] == str(store)
    assert ran.document["storage"]["max_bytes"] == 123_456_789


def test_every_number_is_there(full_store: Path, run: Run) -> None:
    out = run("store", "status", "--store", full_store).out
    assert "3 results to deliver" in out
    assert "1 rejected" in out
    assert "tasks   pending  processing  completed  not found  failed  expired" in out
    assert "all           2           0          3          0       1        1" in out
    assert "1 of them not yet due" in out
    assert "beacon           until resumed  asked to wait" in out


def test_json_says_the_same(full_store: Path, run: Run) -> None:
    found = run("store", "status", "--store", full_store, "--json").document
    assert found["ok"] is False
    assert (found["queue"]["pending"], found["queue"]["delayed"], found["queue"]["unsynced"]) == (2, 1, 3)
    assert found["platforms"]["beacon"] == {"failed": 1}
    assert found["paused"] == {"beacon": {"until": None, "reason": "asked to wait"}}
    assert found["storage"]["level"] == "fine"
    assert found["storage"]["raw"] > 0
    assert found["backups"] == []
    assert found["workers"] == found["commands"] == found["crashed"] == []


def test_the_first_line_says_what_is_wrong_and_what_to_do(full_store: Path, run: Run) -> None:
    make_old(full_store, hours=27)
    first, second, *_ = run("store", "status", "--store", full_store).out.splitlines()
    assert first.startswith("Error: the upstream rejected 1 result. Fix: see why with 'parcelpost results list")
    assert second.startswith("Warning: there is no backup yet. Fix: run 'parcelpost store backup")


def test_an_old_backup_needs_attention(store: Path, run: Run) -> None:
    made = run("store", "backup", "--store", store, "--json").document["path"]
    os.utime(made, (1_000_000_000, 1_000_000_000))
    assert "Warning: the newest backup is " in run("store", "status", "--store", store).out


def test_it_names_who_has_the_store_open(store: Path, run: Run) -> None:
    with holder(store, claims=1) as process:
        found = run("store", "status", "--store", store, "--json").document
        assert [one["pid"] for one in found["workers"]] == [process.pid]
        assert found["queue"]["processing"] == 1


def test_it_only_looks_even_after_a_death(store: Path, run: Run) -> None:
    leave_a_death(store, claims=2)
    before = (rows(store), sorted(store.parent.rglob("*")))
    found = run("store", "status", "--store", store, "--json").document
    assert (found["queue"]["processing"], len(found["crashed"])) == (2, 1)
    assert "crashed with the store open" in found["findings"][0]["message"]
    assert (rows(store), sorted(store.parent.rglob("*"))) == before


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES, "store backup"])
def test_a_missing_store_is_never_created(tmp_path: Path, run: Run, command: str) -> None:
    ran = run(*command.split(), "--store", tmp_path / "none" / "parcelpost.db")
    assert ran.code == 1
    assert ran.err.startswith("error: there is no store at ")
    assert "\nhint: " in ran.err
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES, "store backup"])
def test_a_file_of_another_program_is_left_as_it_is(tmp_path: Path, run: Run, command: str) -> None:
    other = tmp_path / "other.db"
    with sqlite3.connect(other) as db:
        db.execute("CREATE TABLE notes (text)")
    db.close()
    for content in (b"", b"not a database at all", other.read_bytes()):
        other.write_bytes(content)
        ran = run(*command.split(), "--store", other)
        assert ran.code == 1
        assert ran.err.startswith(f"error: {other} is ")
        assert "hint: point --store at another path" in ran.err
        assert other.read_bytes() == content
        assert list(tmp_path.iterdir()) == [other]


def test_a_folder_is_no_store(tmp_path: Path, run: Run) -> None:
    ran = run("store", "status", "--store", tmp_path)
    assert (ran.code, ran.err.splitlines()[0]) == (1, f"error: {tmp_path} is a folder")


@pytest.mark.parametrize("command", [*LOOKS, *CHANGES])
def test_a_store_of_a_newer_program_is_refused(store: Path, run: Run, command: str) -> None:
    change(store, "INSERT INTO schema_version VALUES (99, '2030-01-01T00:00:00.000Z', 'From the future', 'x')")
    ran = run(*command.split(), "--store", store)
    assert ran.code == 1
    assert ran.err.startswith("error: the store has schema version 99")
    assert "hint: upgrade this program" in ran.err


def test_a_damaged_header_beside_backups_is_damage(store: Path, run: Run) -> None:
    run("store", "backup", "--store", store)
    store.write_bytes(b"\0" * store.stat().st_size)
    ran = run("store", "status", "--store", store)
    assert ran.code == 1
    assert "there are backups" in ran.err
    assert "parcelpost store check" in ran.err
    assert "restore a backup" in ran.err


@pytest.fixture
def reachable(tmp_path: Path) -> Iterator[Path]:
    """A folder that any user can enter, unlike tmp_path."""
    folder = Path(tempfile.mkdtemp(prefix="parcelpost-test-"))
    folder.chmod(0o755)
    yield folder
    folder.chmod(0o755)
    shutil.rmtree(folder)


@pytest.mark.parametrize("command", ["status", "check"])
def test_a_folder_that_cannot_be_written_has_its_own_error(reachable: Path, command: str) -> None:
    store = make_store(reachable / "parcelpost.db", tasks=1)
    shutil.rmtree(reachable / "parcelpost.db-live")
    store.chmod(0o644)
    reachable.chmod(0o555)
    arguments = [sys.executable, "-c", AS_NOBODY, "store", command, "--store", str(store)]
    done = subprocess.run(arguments, capture_output=True, text=True, timeout=60, check=False)
    error, hint = done.stderr.split("and again\n")[1].splitlines()
    assert done.returncode == 1
    assert error.startswith(f"error: {store}: ")
    assert hint.startswith("hint: check the owner of the file and its folder")


def test_a_damaged_store_is_an_error_with_a_hint_not_a_traceback(tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=2_000)
    damage(store)
    ran = run_process("store", "status", "--store", store)
    error, hint = ran.err.splitlines()
    assert (ran.code, error) == (1, f"error: {store}: database disk image is malformed")
    assert hint.startswith(f"hint: run 'parcelpost store check --store {store}'")
