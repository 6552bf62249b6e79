"""Real worker processes, forked from one that has everything imported: most of what a start costs is paid once."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from multiprocessing.context import ForkServerProcess
from pathlib import Path
from typing import NamedTuple

from tests.acceptance.processes import command

_context = multiprocessing.get_context("forkserver")
_context.set_forkserver_preload(["parcelpost.cli.main", "parcelpost.cli.working", "parcelpost.client.firestore"])


class ForkedProcess(NamedTuple):
    process: ForkServerProcess

    @property
    def returncode(self) -> int | None:
        return self.process.exitcode


@asynccontextmanager
async def forked_worker(*arguments: str, folder: Path, settings: Mapping[str, str]) -> AsyncIterator[ForkedProcess]:
    """`parcelpost run ...` in its folder; SIGKILLed at the end. What it says is in forked.log."""
    _, _, *words = command("run", *arguments, settings=settings)
    process = _context.Process(target=_run, args=(words, str(folder), dict(os.environ)))
    process.start()
    try:
        yield ForkedProcess(process)
    finally:
        process.kill()
        await asyncio.to_thread(process.join)
        process.close()


def _run(words: list[str], folder: str, environment: dict[str, str]) -> None:
    from parcelpost.cli.main import main

    os.chdir(folder)
    os.environ.update(environment)
    log = os.open("forked.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    for stream in (1, 2):
        os.dup2(log, stream)
    sys.argv = words
    main()
