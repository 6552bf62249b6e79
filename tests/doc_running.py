"""Runs what the documents say, in one folder, one line after the other, as a reader would."""

from __future__ import annotations

import contextlib
import io
import os
import re
import shlex
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple, TextIO

import pytest

from parcelpost.cli.main import main
from tests.acceptance.forked import Forked
from tests.cli.support import Ran

_SHELL = re.compile(r"[|&;<>$]|^(?!parcelpost )")


class _Running(NamedTuple):
    process: Forked
    output: TextIO

    def hears_the_rest(self) -> None:
        """Until it ends."""
        with self.output:
            self.output.read()


class Reader:
    """Somebody with a terminal, and further ones for what runs until it is told to end."""

    def __init__(self, folder: Path, capsys: pytest.CaptureFixture[str], ports: dict[str, str]) -> None:
        self._folder = folder
        self._capsys = capsys
        self._ports = ports
        """A port of the page -> the free one that takes its place."""
        self._running: list[_Running] = []

    def types(self, line: str, *, is_asked: bool = False) -> Ran:
        """What is asked is answered with yes."""
        line = self._here(line)
        return self._in_shell(line) if _SHELL.search(line) else self._in_process(line, "y\n" if is_asked else "")

    def leaves_running(self, line: str, ready: str) -> str:
        """Returns when it has said that: with all that it has said."""
        output, says = os.pipe()
        words = shlex.split(self._here(line))[1:]
        process = Forked(*words, folder=self._folder, environment=self._environment(), stdout=says, stderr=says)
        os.close(says)
        running = _Running(process, os.fdopen(output))
        self._running.append(running)
        said = ""
        while ready not in said:
            heard = running.output.readline()
            assert heard, f"{line}: {said}"
            said += heard
        return said

    def interrupts_all(self) -> list[int]:
        """Ctrl-C, the last one first. Their exit codes."""
        codes = []
        for running in reversed(self._running):
            running.process.send_signal(signal.SIGINT)
            running.hears_the_rest()
            codes.append(running.process.wait(60))
        self._running.clear()
        return codes

    def kills_all(self) -> None:
        for running in self._running:
            running.process.kill()
            running.hears_the_rest()
            running.process.wait()

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

    def _in_process(self, line: str, answer: str) -> Ran:
        self._capsys.readouterr()
        with pytest.raises(SystemExit) as end, pytest.MonkeyPatch.context() as patch:
            patch.setattr(sys, "stdin", io.StringIO(answer))
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
