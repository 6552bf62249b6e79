"""`parcelpost doctor`: every command that it names mends what it is named for."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from parcelpost.storage import migrations
from tests.cli.broken_stores import BROKEN, above_its_cap, do, told
from tests.cli.support import Run, make_store


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder of its own, with nothing set."""
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PARCELPOST_WORKER_MODE", "standalone")
    folder = tmp_path / "here"
    folder.mkdir(mode=0o700)
    monkeypatch.chdir(folder)
    return folder


@pytest.mark.parametrize(("words", "broken"), BROKEN.items(), ids=[make.__name__ for make, _ in BROKEN.values()])
def test_what_is_broken_is_told_and_mended_by_the_command_that_is_told(
    words: str,
    broken: tuple[Callable[[Path], Path], str],
    here: Path,
    run: Run,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    make, command = broken
    if make is above_its_cap:
        monkeypatch.setenv("PARCELPOST_STORAGE_MAX_BYTES", "2MiB")
    store = make(here)
    found = run("doctor", "--strict", "--json", "--store", store)
    assert found.code == 1
    problem = told(found.document, words)
    assert problem["command"].startswith(command)
    do(problem["command"], run)
    again = run("doctor", "--json", "--store", store).document
    assert [one for one in again["findings"] if words in one["message"]] == []


def test_a_store_of_an_earlier_version_is_told_and_migrated(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = make_store(here / "parcelpost.db")
    newest = migrations.load()[-1].version + 1
    later = migrations.Migration(newest, "Notes on tasks", "CREATE TABLE notes (text TEXT NOT NULL) STRICT;")
    known = [*migrations.load(), later]
    monkeypatch.setattr(migrations, "load", lambda: known)
    found = run("doctor", "--strict", "--json", "--store", store)
    assert found.code == 1
    problem = told(found.document, f"this program needs {newest}")
    assert problem["command"].startswith("parcelpost store migrate")
    do(problem["command"], run)
    assert run("doctor", "--strict", "--store", store).code == 0


def test_settings_that_nobody_made_yet_are_made(here: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_WORKER_MODE", "ondemand")
    problem = told(run("doctor", "--json").document, "needs gateway.url")
    assert problem["command"] == "parcelpost init"
    do(problem["command"], run)
    monkeypatch.delenv("PARCELPOST_WORKER_MODE")
    assert run("doctor", "--strict").code == 0


def test_a_store_that_never_had_a_worker_is_not_told_of_a_gateway(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("PARCELPOST_WORKER_MODE")
    for prepare in ((), ("add", "echo", "7", "--state", "CT", "--county", "hartford")):
        if prepare:
            assert run(*prepare).code == 0
        found = run("doctor")
        assert "gateway.url" not in found.out
        assert "gateway.url" not in run("status").out
        assert "no gateway is set: results stay in the local store" in found.out


def test_a_token_that_others_can_read_is_hidden(here: Path, run: Run) -> None:
    (here / "token").write_text("s3cret")
    (here / "token").chmod(0o644)
    chosen = ("--set", "gateway.token_file=token")
    found = run("doctor", "--json", "--strict", *chosen)
    assert found.code == 1
    do(told(found.document, "by every user")["command"], run)
    assert run("doctor", "--strict", *chosen).code == 0
