"""The child processes of the demo: our own commands, each of which ends when the demo ends."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import threading
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import BinaryIO

from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError

_HOST = "127.0.0.1"
_POLL_SECONDS = 0.05
_TIMEOUT_SECONDS = 30.0


class Child:
    """A parcelpost command that can be killed and restarted."""

    def __init__(self, arguments: list[str], settings: Mapping[str, str], log: Path) -> None:
        options = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
        self._arguments = [*arguments, *options]
        self._log = log
        self._process: asyncio.subprocess.Process | None = None

    @property
    def has_ended(self) -> bool:
        return self._process is None or self._process.returncode is not None

    async def start(self) -> int:
        """Returns the process id. Runs in its own session, so that Ctrl-C reaches only the demo, which then ends it."""
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}
        environment["PARCELPOST_CONFIG"] = os.devnull  # not the user's own settings
        environment["PYTHONDONTWRITEBYTECODE"] = "1"  # under this umask others could not read the files
        with _open_log(self._log) as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "parcelpost.cli.demo.processes", *self._arguments,
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
                umask=0o077,
            )  # fmt: skip
        return self._process.pid

    async def kill(self) -> None:
        """Sends SIGKILL: there is no time to clean up."""
        if self._process and self._process.returncode is None:
            self._process.kill()
            await self._process.wait()

    async def finish(self) -> None:
        """Waits until it exits. Raises ParcelpostError unless it exits with 0."""
        if self._process and (code := await self._process.wait()):
            self.fail(f"exited with code {code}")

    async def wait_for_output(self, text: str, clock: Clock) -> None:
        """Returns when its log has that text. Raises ParcelpostError after 30 s."""
        deadline = clock.monotonic() + _TIMEOUT_SECONDS
        while text not in self._log.read_text(errors="replace"):
            if self.has_ended or clock.monotonic() > deadline:
                self.fail("did not start")
            await clock.sleep(_POLL_SECONDS)

    def fail(self, problem: str) -> None:
        last = self._log.read_text(errors="replace").splitlines()[-1:]
        raise ParcelpostError(f"parcelpost {self._arguments[0]} {problem}: {''.join(last)}", hint=f"see {self._log}")


def _open_log(path: Path) -> BinaryIO:
    return open(path, "ab", opener=partial(os.open, mode=0o600))


async def wait_until_listening(port: int, child: Child, clock: Clock) -> None:
    """Returns when the port accepts connections. Raises ParcelpostError after 30 s."""
    deadline = clock.monotonic() + _TIMEOUT_SECONDS
    while True:
        try:
            _, writer = await asyncio.open_connection(_HOST, port)
        except OSError:
            if child.has_ended or clock.monotonic() > deadline:
                child.fail("is not responding")
            await clock.sleep(_POLL_SECONDS)
        else:
            writer.close()
            return


def _exit_with_parent() -> None:
    os.read(0, 1)  # returns when the parent's end is closed
    os.kill(os.getpid(), signal.SIGKILL)


if __name__ == "__main__":
    from parcelpost.cli.main import main

    threading.Thread(target=_exit_with_parent, daemon=True).start()
    main(sys.argv[1:])
