"""`parcelpost firestore show`, and what a worker needs for Firestore."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cli.support import Run

SHIPPED = Path(__file__).parents[2] / "src" / "parcelpost" / "upstream" / "firestore" / "project"
FILES = {
    "rules": "firestore.rules",
    "indexes": "firestore.indexes.json",
    "layout": "README.md",
    "project": "firebase.json",
}
WITHOUT = "import sys; sys.modules['google'] = sys.modules['grpc'] = None; from parcelpost.cli.main import main; main()"


def _without_packages(folder: Path, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-c", WITHOUT, *arguments]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False)


@pytest.mark.parametrize("what", FILES)
def test_what_is_shipped_is_printed_and_needs_no_package(tmp_path: Path, what: str) -> None:
    done = _without_packages(tmp_path, "firestore", "show", what)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == (SHIPPED / FILES[what]).read_text(encoding="utf-8")


def test_nothing_else_is_shipped() -> None:
    assert sorted(file.name for file in SHIPPED.iterdir()) == sorted(FILES.values())
    json.loads((SHIPPED / FILES["indexes"]).read_text())


def test_a_worker_says_which_packages_are_missing(tmp_path: Path) -> None:
    done = _without_packages(tmp_path, "run", "--upstream", "firestore", "--set", "firestore.raw=raw")
    assert done.returncode == 2
    assert done.stderr.splitlines()[-2:] == [
        "error: worker.upstream is firestore, but google-cloud-firestore is not installed",
        "hint: in a clone of the repository, run: pip install '.[firestore]'",
    ]
    assert list(tmp_path.iterdir()) == [], "nothing was made"


def test_without_them_everything_else_works(tmp_path: Path) -> None:
    done = _without_packages(tmp_path, "add", "echo", "1", "--state", "CT", "--county", "x")
    assert done.returncode == 0, done.stderr
    done = _without_packages(tmp_path, "run", "--mode", "standalone", "--until-empty")
    assert done.returncode == 0, done.stderr
    assert "1 completed" in done.stdout


def test_check_looks_at_the_key_that_the_environment_names(
    tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = tmp_path / "key.json"
    key.write_text('{"type": "service_account", "private_key": ["SECRET"]}')
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(key))
    chosen = ("--set", "worker.upstream=firestore", "--set", "firestore.raw=gs://bucket")
    ran = run("config", "check", *chosen)
    assert ran.code == 1
    assert f"GOOGLE_APPLICATION_CREDENTIALS {key} cannot be used" in ran.out + ran.err
    assert "SECRET" not in ran.out + ran.err
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    assert run("config", "check", *chosen).code == 0, "an emulator needs none"


def test_a_worker_says_that_it_uses_an_emulator(tmp_path: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("FIRESTORE_EMULATOR_HOST", "127.0.0.1:1")
    chosen = ("--set", "firestore.raw=raw", "--set", "firestore.project=p", "--set", "log.level=info")
    ran = run("run", "--mode", "standalone", "--upstream", "firestore", "--until-empty", *chosen)
    assert ran.code == 0, ran.err
    place = "firestore p/(default)/parcelpost/main of the emulator at 127.0.0.1:1 (FIRESTORE_EMULATOR_HOST)"
    assert place in ran.out + ran.err
