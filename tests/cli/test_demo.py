"""`parcelpost demo`: the story, the proof, and that nothing is left behind."""

from __future__ import annotations

import os
import pty
import re
import signal
import subprocess
from pathlib import Path

import psutil

from tests.cli.support import COMMAND, Ran, run_process


def demo(temporary: Path, *arguments: object) -> Ran:
    return run_process("demo", "--tasks", 600, *arguments, environment={"TMPDIR": str(temporary)})


def test_nothing_is_missing_after_the_kill(tmp_path: Path) -> None:
    ran = demo(tmp_path)
    assert ran.code == 0, ran.err
    assert re.search(r"Process \d+ was killed with SIGKILL; it had confirmed (3|4)\d\d results\.", ran.out)
    assert re.search(r"tasks with exactly one result +600 +600\n", ran.out)
    assert "Nothing is missing." in ran.out
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_was_named_stays(tmp_path: Path) -> None:
    ran = demo(tmp_path, "--dir", tmp_path / "kept")
    assert ran.code == 0
    assert f"The files: {tmp_path / 'kept' / 'parcelpost.db'}" in ran.out
    assert run_process("store", "check", "--deep", "--store", tmp_path / "kept" / "parcelpost.db").code == 0
    again = demo(tmp_path, "--dir", tmp_path / "kept")
    assert (again.code, again.err.splitlines()[0]) == (1, f"error: there is a store in {tmp_path / 'kept'} already")


def test_the_temporary_folder_stays_on_demand(tmp_path: Path) -> None:
    assert demo(tmp_path, "--keep").code == 0
    (folder,) = tmp_path.iterdir()
    assert (folder / "parcelpost.db").is_file()


def test_ctrl_c_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    with subprocess.Popen(
        [COMMAND, "demo", "--tasks", "100000"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as process:
        assert process.stderr is not None
        while " of 100,000" not in process.stderr.readline():
            assert process.poll() is None
        workers = psutil.Process(process.pid).children()
        assert len(workers) == 1
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
    assert process.returncode == 130
    assert "Traceback" not in out + err
    assert not any(worker.is_running() for worker in workers)
    assert list(tmp_path.iterdir()) == []


def test_a_killed_demo_takes_its_worker_with_it(tmp_path: Path) -> None:
    with subprocess.Popen(
        [COMMAND, "demo", "--tasks", "100000", "--dir", str(tmp_path / "demo")],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        assert process.stderr is not None
        while " of 100,000" not in process.stderr.readline():
            assert process.poll() is None
        (worker,) = psutil.Process(process.pid).children()
        process.kill()
        process.communicate(timeout=60)  # returns once nobody has its stderr open, the worker included
    found = run_process("store", "status", "--json", "--store", tmp_path / "demo" / "parcelpost.db").document
    assert found["open_in"] == []
    assert [one["pid"] for one in found["left_by_dead"]] == [worker.pid]


def test_a_terminal_sees_a_bar(tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    environment = os.environ | {"TMPDIR": str(tmp_path), "TERM": "xterm-256color"}
    with subprocess.Popen([COMMAND, "demo"], stdout=subprocess.DEVNULL, stderr=theirs, env=environment) as process:
        os.close(theirs)
        seen = b""
        try:
            while chunk := os.read(ours, 4096):
                seen += chunk
        except OSError:  # how Linux says that the other side is closed
            os.close(ours)
    assert process.returncode == 0
    assert b"results confirmed" in seen
    assert "━".encode() in seen
