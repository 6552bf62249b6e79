"""Real processes of ours, forked from one that has everything imported: most of what a start costs is paid once."""

from __future__ import annotations

import asyncio
import contextlib
import gc
import multiprocessing
import os
import resource
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping, Sequence
from multiprocessing import reduction
from pathlib import Path
from types import TracebackType
from typing import Any, NamedTuple, Self

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(
    [
        "parcelpost.cli.main",
        "parcelpost.cli.commands.run",
        "parcelpost.cli.worker_setup",
        "parcelpost.cli.commands.status",
        "parcelpost.cli.commands.gateway_serve",
        "parcelpost.cli.commands.simulate",
        "parcelpost.gateway.app",
    ]
)


def _command(*words: str) -> None:
    from parcelpost.cli.main import main

    sys.argv = ["parcelpost", *words]
    main()


class Forked:
    """`parcelpost ...` as `subprocess.Popen` shows it; killed when it is left. What it says goes to these files.

    `run` is what takes the words there, in place of the command.
    """

    def __init__(
        self,
        *words: str,
        folder: Path,
        environment: Mapping[str, str] = os.environ,
        stdout: int,
        stderr: int,
        open_files: tuple[int, int] | None = None,
        run: Callable[..., None] = _command,
    ) -> None:
        start = _Start(words, str(folder), dict(environment), _Handed(stdout), _Handed(stderr), open_files, run)
        self._process = _context.Process(target=_run, args=(start,), daemon=True)
        self._process.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, _kind: type[BaseException] | None, _error: BaseException | None, _at: TracebackType | None
    ) -> None:
        self.kill()
        self._process.join()

    @property
    def pid(self) -> int:
        assert self._process.pid is not None
        return self._process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.exitcode

    def send_signal(self, number: int) -> None:
        if self.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended, and its exit code is on its way to us
                os.kill(self.pid, number)

    def kill(self) -> None:
        self.send_signal(signal.SIGKILL)

    async def ended(self) -> int:
        """Its exit code."""
        loop, end = asyncio.get_running_loop(), asyncio.Event()
        loop.add_reader(self._process.sentinel, end.set)
        try:
            await end.wait()
        finally:
            loop.remove_reader(self._process.sentinel)
        return self.wait()

    def wait(self, timeout: float | None = None) -> int:
        """Its exit code."""
        self._process.join(timeout)
        if self.returncode is None:
            raise subprocess.TimeoutExpired("parcelpost", timeout or 0)
        return self.returncode


def run_forked(
    *words: str,
    folder: Path,
    environment: Mapping[str, str] = os.environ,
    open_files: tuple[int, int] | None = None,
    timeout: float,
) -> subprocess.CompletedProcess[str]:
    """As `subprocess.run` does it, with all that it printed."""
    with tempfile.TemporaryFile("w+") as out, tempfile.TemporaryFile("w+") as err:
        with Forked(
            *words,
            folder=folder,
            environment=environment,
            stdout=out.fileno(),
            stderr=err.fileno(),
            open_files=open_files,
        ) as process:
            code = process.wait(timeout)
        out.seek(0)
        err.seek(0)
        return subprocess.CompletedProcess(words, code, out.read(), err.read())


class _Handed:
    """An open file that is handed to the new process, which gets the number that it has there."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def __reduce__(self) -> tuple[Any, ...]:
        return _taken, (reduction.DupFd(self._descriptor),)


def _taken(handed: Any) -> int:
    descriptor: int = handed.detach()
    return descriptor


class _Start(NamedTuple):
    words: Sequence[str]
    folder: str
    environment: dict[str, str]
    stdout: Any
    stderr: Any
    open_files: tuple[int, int] | None
    run: Callable[..., None]


def _run(start: _Start) -> None:
    os.chdir(start.folder)
    os.environ.clear()
    os.environ.update(start.environment)
    for stream, descriptor in ((1, start.stdout), (2, start.stderr)):
        os.dup2(descriptor, stream)
    for descriptor in {start.stdout, start.stderr}:
        os.close(descriptor)
    sys.stdout = os.fdopen(1, "w", closefd=False)  # those that were forked along may be of another kind
    sys.stderr = os.fdopen(2, "w", buffering=1, errors="backslashreplace", closefd=False)
    if start.open_files:
        resource.setrlimit(resource.RLIMIT_NOFILE, start.open_files)
    gc.freeze()
    start.run(*start.words)
