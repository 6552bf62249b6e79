"""The processes of a run: gateways, workers and the county, each of which is killed, paused and started again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import signal
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import psutil
from msgspec import Struct

from parcelpost.clock import Clock

HOST = "127.0.0.1"
_START_SECONDS = 60.0


class Command(Struct, frozen=True, kw_only=True):
    """A parcelpost command with what it needs."""

    words: Sequence[str]
    settings: Mapping[str, str] = {}
    environment: Mapping[str, str] = {}
    breaks: str = ""

    def line(self) -> list[str]:
        return [*self.words, *(part for key, value in self.settings.items() for part in ("--set", f"{key}={value}"))]


class Member:
    """One process of the run, by name."""

    def __init__(self, name: str, command: Command, folder: Path, clock: Clock) -> None:
        folder.mkdir(parents=True)
        self.name = name
        self.command = command
        self.folder = folder
        self.told_file = folder / "told.jsonl"
        self.log = folder / "log"
        self.starts = 0
        self.started_at = 0.0
        self.is_stopped = False
        self.is_wanted = False
        """Whether it is started again when it ends."""
        self.sent: set[int] = set()
        """The signals that this process was sent."""
        self._exits: list[int] = []
        """Codes of its earlier processes."""
        self._log_position = 0
        self.holds_until = 0.0
        """It is not started again before."""
        self._clock = clock
        self._process: asyncio.subprocess.Process | None = None

    @property
    def pid(self) -> int:
        return self._process.pid if self._process else 0

    @property
    def runs(self) -> bool:
        return self._process is not None and self._process.returncode is None

    @property
    def exit_code(self) -> int | None:
        return self._process.returncode if self._process else None

    async def start(self) -> None:
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}
        environment |= {"PARCELPOST_CONFIG": os.devnull, **self.command.environment}
        environment["PYTHONDONTWRITEBYTECODE"] = ""  # an installed worker is compiled, and starts as soon as it can
        place = [str(self.folder), str(self.told_file), self.command.breaks]
        if self._process is not None:
            self._exits.append(await self._process.wait())
        with self.log.open("ab") as log:
            self._process = await asyncio.create_subprocess_exec(
                sys.executable, "-m", "parcelpost.chaos.worker_process", *place, *self.command.line(),
                stdin=asyncio.subprocess.PIPE, stdout=log, stderr=log, env=environment, start_new_session=True,
            )  # fmt: skip
        self.starts += 1
        self.started_at = self._clock.monotonic()
        self.is_wanted, self.is_stopped, self.sent = True, False, set()

    def send(self, number: int) -> None:
        if self.runs:
            self.sent.add(number)
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    async def kill(self) -> None:
        self.is_wanted = False
        self.send(signal.SIGKILL)
        await self.wait()

    def pause(self) -> None:
        self.is_stopped = True
        self.send(signal.SIGSTOP)

    def resume(self) -> None:
        self.is_stopped = False
        self.send(signal.SIGCONT)

    async def wait(self) -> int:
        return await self._process.wait() if self._process else 0

    @property
    def kills(self) -> int:
        """How many of its processes ended by SIGKILL."""
        return [*self._exits, self.exit_code].count(-signal.SIGKILL)

    def memory_bytes(self) -> int:
        try:
            return int(psutil.Process(self.pid).memory_info().rss) if self.runs else 0
        except psutil.Error:
            return 0

    def new_log(self) -> str:
        """Returns the whole lines that were logged since the last call."""
        with self.log.open("rb") as log:
            log.seek(self._log_position)
            content = log.read()
        end = content.rfind(b"\n") + 1
        self._log_position += end
        return content[:end].decode(errors="replace")

    def printed_json(self) -> Any:
        """What a command with `--json` printed; its progress is in the same log."""
        lines = self.log.read_text(errors="replace").splitlines()
        return json.loads(next(line for line in reversed(lines) if line.startswith("{")))

    def last_lines(self, count: int = 3) -> str:
        return "\n".join(self.log.read_text(errors="replace").splitlines()[-count:])


async def wait_for_port(port: int, member: Member, clock: Clock) -> bool:
    """Returns when the port accepts connections, or False when the process ended or took too long."""
    return await wait_until(lambda: _accepts(port), clock, lambda: not member.runs)


async def wait_until(
    is_true: Callable[[], bool],
    clock: Clock,
    is_over: Callable[[], bool] = lambda: False,
    seconds: float = _START_SECONDS,
) -> bool:
    deadline = clock.monotonic() + seconds
    while not is_true():
        if is_over() or clock.monotonic() > deadline:
            return False
        await clock.sleep(0.05)
    return True


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(1.0)
        return probe.connect_ex((HOST, port)) == 0
