"""`pytest --processes`: what the tests themselves are run with."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[1]

TESTS = """
import os
import pytest

def note(name, request):
    with open(request.config.rootpath / name, "a") as file:
        file.write(f"{os.getpid()}\\n")

@pytest.fixture(scope="session")
def kept(request):
    yield
    note("given_back", request)

@pytest.mark.parametrize("number", range(20))
def test_good(number, kept, tmp_path):
    (tmp_path / "own").mkdir()

@pytest.mark.xdist_group("together")
@pytest.mark.parametrize("number", range(5))
def test_grouped(number, request):
    note("grouped", request)

def test_bad():
    print("what it printed")
    assert 1 == 2

def test_deadly():
    os._exit(3)

def test_skipped():
    pytest.skip("for a reason")
"""


def test_every_test_is_run_once_and_one_that_takes_its_process_along_is_the_only_one_that_fails(tmp_path: Path) -> None:
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\nmarkers = xdist_group\n")
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-rs",
        "-p",
        "tests.processes",
        "--processes",
        "2",
        "-p",
        "no:cacheprovider",
    ]
    done = subprocess.run(
        [*command, f"--basetemp={tmp_path / 'temp'}", f"--rootdir={tmp_path}", "-c", tmp_path / "pytest.ini", tmp_path],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1, done.stderr
    assert re.search(r"= 2 failed, 25 passed, 1 skipped in ", done.stdout), done.stdout
    assert "the process that ran it ended with 3" in done.stdout
    assert done.stdout.count("what it printed\n") == 1
    assert "for a reason" in done.stdout
    assert len(set((tmp_path / "grouped").read_text().split())) == 1
    assert (tmp_path / "given_back").exists()
