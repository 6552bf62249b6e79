"""Real worker processes, and how a test waits for them."""

from __future__ import annotations

import asyncio
import os
import sys
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

from tests.acceptance.forked import Forked

PATIENCE_SECONDS = 300

FAST = {
    "sync.backoff_min_seconds": "0.1",
    "sync.backoff_max_seconds": "0.5",
    "collector.poll_seconds": "0.2",
    "executor.idle_seconds": "0.1",
    "executor.retry_min_seconds": "0.1",
    "executor.retry_max_seconds": "0.5",
    "heartbeat.seconds": "0.5",
    "gateway.timeout_seconds": "20",
    "worker.drain_seconds": "5",
    "resources.slow_percent": "100",
}
"""A worker that is as impatient as a test, and does not wait for a full machine."""


class WorkerProcess:
    """`parcelpost run`, and what it says."""

    def __init__(self, process: Forked) -> None:
        self._process = process
        self._lines: list[bytes] = []
        self._news = asyncio.Condition()
        self.kill = process.kill
        self.send_signal = process.send_signal
        self.pid = process.pid

    @property
    def returncode(self) -> int | None:
        return self._process.returncode

    async def ended(self, seconds: float = PATIENCE_SECONDS) -> int:
        """Its exit code."""
        return await asyncio.wait_for(self._process.ended(), seconds)

    async def said(self, text: str, times: int = 1) -> None:
        """Waits for that many lines that hold the text."""
        async with asyncio.timeout(PATIENCE_SECONDS), self._news:
            await self._news.wait_for(lambda: sum(text.encode() in line for line in self._lines) >= times)

    async def listen(self, output: int, log: Path) -> None:
        """Until it ends. What it says goes into the log, too."""
        heard = asyncio.StreamReader(limit=2**20)
        loop = asyncio.get_running_loop()
        transport, _ = await loop.connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(heard), os.fdopen(output, "rb", buffering=0)
        )
        with log.open("ab", buffering=0) as file:
            async for line in heard:
                file.write(line)
                async with self._news:
                    self._lines.append(line)
                    self._news.notify_all()
        transport.close()


def given(settings: Mapping[str, str]) -> list[str]:
    return [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]


def command(*arguments: str, settings: Mapping[str, str] = FAST) -> list[str]:
    """As an operator starts it."""
    return [sys.executable, "-m", "parcelpost", *arguments, *given(settings)]


@asynccontextmanager
async def worker(
    *arguments: str, folder: Path, token: str = "", settings: Mapping[str, str] = FAST
) -> AsyncIterator[WorkerProcess]:
    """`parcelpost run ...` in its folder; killed at the end if it still runs."""
    output, says = os.pipe()
    environment = {**os.environ, "PARCELPOST_GATEWAY_TOKEN": token}
    words = ("run", *arguments, *given(settings))
    with Forked(*words, folder=folder, environment=environment, stdout=says, stderr=says) as process:
        os.close(says)
        running = WorkerProcess(process)
        listening = asyncio.create_task(running.listen(output, folder / "worker.log"))
        try:
            yield running
        finally:
            process.kill()
            await listening


async def eventually(holds: Callable[[], Awaitable[bool]], seconds: float = PATIENCE_SECONDS) -> None:
    """For what another process does and tells nobody: looks again and again. Fails when the time is up."""
    async with asyncio.timeout(seconds):
        while not await holds():
            await asyncio.sleep(0.1)
