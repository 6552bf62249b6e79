"""Large files: bounded memory, and an interrupt that loses nothing."""

from __future__ import annotations

import contextlib
import signal
import sqlite3
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, Run
from tests.lengths import short_and_long
from tests.storage.factories import look

MAX_BYTES = 150 * 1024**2

# The command in this process, which then says how much memory it took at most. On Linux getrusage counts what the
# parent had when it started this process; the kernel's own file does not.
MEASURED = """
import contextlib, pathlib, resource, sys
from parcelpost.cli.main import main
with contextlib.suppress(SystemExit):
    main(sys.argv[1:])
if sys.platform == "linux":
    peak = int(pathlib.Path("/proc/self/status").read_text().split("VmHWM:")[1].split()[0]) * 1024
else:
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
print(peak)
"""


STORE = ("import", "--store")
LEDGER = ("gateway", "add", "--database")


def measured(file: Path, into: tuple[str, ...] = STORE) -> tuple[str, int]:
    """What an import says last, and the most memory it took."""
    *command, place = into
    arguments = [*command, str(file), "--platform", "echo", place, str(file.with_name("parcelpost.db"))]
    done = subprocess.run([sys.executable, "-c", MEASURED, *arguments], capture_output=True, text=True, check=True)
    *_, summary, peak = done.stdout.splitlines()
    return summary, int(peak)


def parcels(count: int, owner: str = "SMITH") -> str:
    rows = (f'{n:09},hartford,"{owner}, JOHN {n}",{n} MAIN ST,https://example.org/{n}\n' for n in range(count))
    return "PIN,County,Owner,Address,URL\n" + "".join(rows)


@pytest.mark.slow
@pytest.mark.parametrize("into", [STORE, pytest.param(LEDGER, marks=pytest.mark.long)], ids=["store", "ledger"])
@short_and_long("lines, owner", (4_000, "SMITH" * 5_000), (200_000, "SMITH"))
def test_many_lines_fit_into_150_mb(tmp_path: Path, into: tuple[str, ...], lines: int, owner: str) -> None:
    """4,000 long lines are 100 MB, and 200,000 short ones are as many rows to keep account of."""
    file = tmp_path / "p.csv"
    file.write_text(parcels(lines, owner))
    summary, peak = measured(file, into)
    assert summary == f"{lines:,} new tasks, 0 already known, 0 invalid rows."
    assert peak < MAX_BYTES


def test_rows_as_large_as_may_be_fit_too(tmp_path: Path) -> None:
    file = tmp_path / "p.json"
    with file.open("w") as out:
        out.write("[")
        for number in range(150):
            out.write(f'{{"pin": "{number}", "pad": "{"x" * 900_000}"}},\n')
        out.write('{"pin": "last"}]')
    summary, peak = measured(file)
    assert summary == "1 new task, 0 already known, 150 invalid rows."
    assert peak < MAX_BYTES


def test_ctrl_c_leaves_what_is_stored_and_says_how_to_go_on(tmp_path: Path, run: Run) -> None:
    store = tmp_path / "parcelpost.db"
    arguments = [COMMAND, "import", "-", "--format", "csv", "--platform", "echo", "--store", str(store)]
    with subprocess.Popen(arguments, stdin=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdin is not None
        process.stdin.write(parcels(9_000))
        process.stdin.flush()  # and stays open: it waits for more
        _wait_for_tasks(store)
        process.send_signal(signal.SIGINT)
        _, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "new tasks stored from" in err
    assert "To continue, import the file again" in err
    assert "Traceback" not in err
    file = tmp_path / "p.csv"
    file.write_text(parcels(9_000))
    again = run("import", file, "--platform", "echo", "--json", "--store", store)
    assert again.document["known"] >= 2_000
    assert again.document["new"] + again.document["known"] == 9_000


def _wait_for_tasks(store: Path) -> None:
    """The test's own time limit is the end."""
    while True:
        time.sleep(0.02)
        with contextlib.suppress(sqlite3.Error):  # it is not made yet, or only half
            if store.exists() and look(store, "SELECT count(*) FROM tasks") != [(0,)]:
                return
