"""`parcelpost demo`: the story, the proof, and that nothing is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from urllib.request import urlopen

import psutil
import pytest

from tests.cli.support import COMMAND, run_process

pytestmark = pytest.mark.slow

TASKS = "200"


@contextmanager
def demo(temporary: Path, *arguments: str) -> Iterator[subprocess.Popen[str]]:
    with subprocess.Popen(
        [COMMAND, "demo", *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(temporary)},
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def read_until(process: subprocess.Popen[str], wanted: str) -> str:
    """What it printed until then. The test's own time limit is the end."""
    assert process.stdout is not None
    read = ""
    while wanted not in read:
        line = process.stdout.readline()
        assert line, read
        read += line
    return read


def test_nothing_is_missing_after_both_were_killed(tmp_path: Path) -> None:
    folder = tmp_path / "kept"
    with demo(tmp_path, "--tasks", TASKS, "--dir", str(folder)) as process:
        out, err = process.communicate()
    assert process.returncode == 0, out + err
    assert re.search(r"The gateway was killed with SIGKILL; it has \d+ results\. The worker goes on\.", out)
    assert re.search(r"The worker was killed with SIGKILL; \d+ results? w", out)
    assert re.search(r"tasks with exactly one result +200 +200 +same\n", out)
    assert re.search(r"results with the same content hash +200 +200 +same\n", out)
    assert re.search(r"pages with the same hash +200 +200 +same\n", out)
    assert "Nothing is missing." in out
    assert re.search(r"scraped by the worker: [\d,]+ of 200; stored at the gateway: \d+\n", err)
    assert str(folder / "gateway" / "gateway.db") in out
    assert run_process("store", "check", "--deep", "--store", folder / "worker" / "parcelpost.db").code == 0
    again = run_process("demo", "--dir", folder)
    assert (again.code, again.err.splitlines()[0]) == (1, f"error: there is a demo in {folder} already")


def test_the_dashboard_stays_up_until_ctrl_c(tmp_path: Path) -> None:
    with demo(tmp_path, "--tasks", TASKS, "--stay", "--keep") as process:
        read = read_until(process, "until Ctrl-C")
        (address,) = re.findall(r"The dashboard stays up at (\S+/)", read)
        with urlopen(f"{address}health") as answer:
            assert answer.status == 200
        children = psutil.Process(process.pid).children()
        process.send_signal(signal.SIGINT)
        process.communicate()
    assert process.returncode == 0
    assert len(children) == 1
    assert not any(child.is_running() for child in children)
    (folder,) = tmp_path.iterdir()
    assert (folder / "worker" / "parcelpost.db").is_file()


def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with demo(tmp_path, "--tasks", "100000") as process:
        read_until(process, "A worker runs")
        children = psutil.Process(process.pid).children()
        assert len(children) == 2
        process.send_signal(signal.SIGINT)
        out, err = process.communicate()
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert not any(child.is_running() for child in children)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_demo_takes_its_processes_with_it(tmp_path: Path) -> None:
    with demo(tmp_path, "--tasks", "100000") as process:
        read_until(process, "A worker runs")
        children = psutil.Process(process.pid).children()
        process.kill()
        process.communicate()
        _, alive = psutil.wait_procs(children, timeout=60)
    assert alive == []


def test_a_terminal_sees_bars(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    command = [COMMAND, "demo", "--tasks", TASKS]
    with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # how Linux says that the other side is closed
            os.close(ours)
    assert process.returncode == 0
    assert b"scraped by the worker" in seen
    assert b"stored at the gateway" in seen
    assert "━".encode() in seen
    assert list(tmp_path.iterdir()) == []
