"""Real worker processes, started as an operator starts them."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

FAST = {
    "sync.backoff_min_seconds": "0.1",
    "sync.backoff_max_seconds": "0.5",
    "collector.poll_seconds": "0.2",
    "executor.idle_seconds": "0.1",
    "executor.retry_min_seconds": "0.1",
    "executor.retry_max_seconds": "0.5",
    "heartbeat.seconds": "0.5",
    "gateway.timeout_seconds": "2",
    "worker.drain_seconds": "5",
}
"""A worker that is as impatient as a test."""


def command(*arguments: str, settings: Mapping[str, str] = FAST) -> list[str]:
    given = [part for key, value in settings.items() for part in ("--set", f"{key}={value}")]
    return [sys.executable, "-m", "parcelpost", *arguments, *given]


@asynccontextmanager
async def worker(
    *arguments: str, folder: Path, token: str = "", settings: Mapping[str, str] = FAST
) -> AsyncIterator[asyncio.subprocess.Process]:
    """`parcelpost run ...` in its folder; killed at the end if it still runs."""
    environment = {**os.environ, "PARCELPOST_GATEWAY_TOKEN": token}
    with (folder / "worker.log").open("ab") as log:
        process = await asyncio.create_subprocess_exec(
            *command("run", *arguments, settings=settings), cwd=folder, env=environment, stdout=log, stderr=log
        )
    try:
        yield process
    finally:
        if process.returncode is None:
            process.send_signal(signal.SIGKILL)
        await process.wait()
