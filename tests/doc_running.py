"""Runs what the documents say, in one folder, one line after the other, as a reader would."""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from parcelpost.cli.main import main
from tests.cli.support import Ran

_SHELL = re.compile(r"[|&;<>$]|^(?!parcelpost )")


class Reader:
    """Somebody with a terminal, and further ones for what runs until it is told to end."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, str]) -> None:
        self._folder = folder
        self._capsys = capsys
        self._ports = ports
        """A port of the page -> the free one that takes its place."""
        self._running: list[subprocess.Popen[str]] = []

    def types(self, line: str, *, is_asked: bool = False) -> Ran:
        """What is asked is answered with yes."""
        line = self._here(line)
        return self._in_shell(line) if is_asked or _SHELL.search(line) else self._in_process(line)

    def leaves_running(self, line: str, ready: str) -> str:
        """Returns when it has said that: with all that it has said."""
        process = subprocess.Popen(
            ["bash", "-c", f"exec {self._here(line)}"],
            cwd=self._folder,
            env=self._environment(),
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        self._running.append(process)
        assert process.stdout is not None
        said = ""
        while ready not in said:
            heard = process.stdout.readline()
            assert heard, f"{line}: {said}"
            said += heard
        return said

    def interrupts_all(self) -> list[int]:
        """Ctrl-C, the last one first. Their exit codes."""
        codes = []
        for process in reversed(self._running):
            process.send_signal(signal.SIGINT)
            process.communicate(timeout=60)
            codes.append(process.returncode)
        self._running.clear()
        return codes

    def kills_all(self) -> None:
        for process in self._running:
            process.kill()
            process.communicate()

    def _here(self, line: str) -> str:
        for port, free in self._ports.items():
            line = line.replace(f":{port}", f":{free}")
        if line.startswith("parcelpost simulate county"):
            line += f" --port {self._ports['8090']}"
        return line

    def _in_shell(self, line: str) -> Ran:
        done = subprocess.run(
            ["bash", "-c", line],
            cwd=self._folder,
            env=self._environment(),
            input="y\n",
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
        )
        return Ran(done.returncode, done.stdout, done.stderr)

    def _in_process(self, line: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end:
            main(shlex.split(line)[1:])
        out, err = self._capsys.readouterr()
        return Ran(end.value.code if isinstance(end.value.code, int) else 1, out, err)

    def _environment(self) -> dict[str, str]:
        path = f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"
        return {**os.environ, "PATH": path, "PARCELPOST_SERVER_PORT": self._ports["8700"]}


def differences(shown: tuple[str, ...], printed: str) -> list[str]:
    """What a page shows and what was printed, where they differ; `...` is anything, and columns may be wider."""
    wanted = _narrow("\n".join(shown))
    pattern = re.escape(wanted).replace(re.escape("..."), ".*?")
    if re.fullmatch(pattern, _narrow(printed), flags=re.DOTALL):
        return []
    return [f"shown:\n{wanted}", f"printed:\n{printed}"]


def _narrow(text: str) -> str:
    return re.sub(r" {2,}", "  ", text).strip("\n")


@contextlib.contextmanager
def reader(folder: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, str]) -> Iterator[Reader]:
    one = Reader(folder, capsys, ports)
    try:
        yield one
    finally:
        one.kills_all()
