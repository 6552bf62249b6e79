"""The child processes of the demo. None outlives it."""

from __future__ import annotations

import asyncio
import os
import socket
import sys
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError

_HOST = "127.0.0.1"
_LOOK_SECONDS = 0.05
_PATIENCE_SECONDS = 30.0


class Child:
    """One of our commands, which can be killed and started again."""

    def __init__(self, arguments: list[str], settings: Mapping[str, str], log: Path) -> None:
        given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self._arguments = [*arguments, *given]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    async def start(self) -> int:
        """Its process id. In a session of its own: a Ctrl-C reaches the demonstration only, which then ends it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}
        environment["PARCELPOST_CONFIG"] = os.devnull  # the settings of whoever looks on are for real work
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # what is compiled under that umask nobody else could read
        with _open_log(self._log) as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "parcelpost.cli.demo.child", *self._arguments,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
                umask=0o077,
            )  # fmt: skip
        return self._process.pid

    async def kill(self) -> None:
        """SIGKILL: it has no time to tidy up."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def finish(self) -> None:
        """Waits for its own end. Raises ParcelpostError if that was none of a success."""
        if self._process and (code := await self._process.wait()):
            self.complain(f"ended with code {code}")

    async def says(self, text: str, clock: Clock) -> None:
        """Returns when its log has that text. Raises ParcelpostError if it never does."""
        deadline = clock.monotonic() + _PATIENCE_SECONDS
        while text not in self._log.read_text(errors="replace"):
            if self.has_ended or clock.monotonic() > deadline:
                self.complain("did not begin")
            await clock.sleep(_LOOK_SECONDS)

    def complain(self, what: str) -> None:
        last = self._log.read_text(errors="replace").splitlines()[-1:]
        raise ParcelpostError(f"parcelpost {self._arguments[0]} {what}: {''.join(last)}", hint=f"see {self._log}")


def _open_log(path: Path) -> BinaryIO:
    return open(path, "ab", opener=partial(os.open, mode=0o600))


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_HOST, 0))
        port: int = probe.getsockname()[1]
        return port


async def wait_until_listening(port: int, child: Child, clock: Clock) -> None:
    """Returns when somebody takes calls there. Raises ParcelpostError if nobody does."""
    deadline = clock.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            _, writer = await asyncio.open_connection(_HOST, port)
        except OSError:
            if child.has_ended or clock.monotonic() > deadline:
                child.complain("does not answer")
            await clock.sleep(_LOOK_SECONDS)
        else:
            writer.close()
            return
