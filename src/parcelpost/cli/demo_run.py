"""What happens in the demonstration, and the proof at its end."""

from __future__ import annotations

import asyncio
import signal
import sys
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import msgspec

from parcelpost.cli.checking import page_sha256
from parcelpost.cli.demo_worker import BroughtBack, Report, Saved, Stored
from parcelpost.cli.output import count
from parcelpost.cli.progress import Meter
from parcelpost.cli.running import CLOCK, looking
from parcelpost.errors import ParcelpostError
from parcelpost.model import OutboxEntry
from parcelpost.storage import outbox, queue_state
from parcelpost.storage.raw_names import inside

_PIPE_BYTES = 4096
_PAGE_ROWS = 500
_ANY = {"sync": None, "platform": None, "parcel_id": None, "success": None}

_decode = msgspec.json.Decoder(Report).decode


class Proof(msgspec.Struct, frozen=True):
    what: str
    expected: int
    found: int


class _Heard(msgspec.Struct):
    """What one worker process said before its end."""

    stored: int = 0
    brought_back: int = 0
    saved: list[Saved] = []
    process: int = 0
    code: int = 0


async def run(store: Path, tasks: int) -> list[Proof]:
    """Tells the story on stdout. No worker process outlives it, however it ends."""
    half = tasks // 2
    _say(f"A worker starts: it stores {count(tasks, 'task')} in {store} and works through them.")
    first = await _worker(store, tasks, done_before=0, kill_at=half)
    _say(f"Process {first.process} was killed with SIGKILL; it had confirmed {count(len(first.saved), 'result')}.")
    _say("Another worker starts on the same store.")
    second = await _worker(store, tasks, done_before=len(first.saved))
    _say(
        f"It brought back {count(second.brought_back, 'task')} that the killed one held, "
        f"confirmed {count(len(second.saved), 'result')} more, and ended by itself."
    )
    confirmed = [*first.saved, *second.saved]
    unheard = count(tasks - len(confirmed), "result was", "results were")
    _say(f"{unheard} saved but not yet confirmed at the kill. Now everything is compared with what was confirmed.")
    return await _prove(store, tasks, confirmed)


async def _worker(store: Path, tasks: int, *, done_before: int, kill_at: int | None = None) -> _Heard:
    """Runs a worker to its end, which comes by SIGKILL once `kill_at` results are confirmed."""
    heard = _Heard()
    async with _process(store, tasks) as process, Meter("results confirmed", after=0.2, line_every=1) as meter:
        heard.process = process.pid
        async for line in cast(asyncio.StreamReader, process.stdout):
            match _decode(line):
                case Stored(new):
                    heard.stored = new
                case BroughtBack(held):
                    heard.brought_back += held
                case Saved() as saved:
                    heard.saved.append(saved)
                    meter(done_before + len(heard.saved), tasks)
                    if len(heard.saved) == kill_at:
                        process.kill()
        heard.code = await process.wait()
    if heard.code != (0 if kill_at is None else -signal.SIGKILL):
        raise ParcelpostError(f"the worker ended with code {heard.code}", hint="its own message stands above")
    return heard


@asynccontextmanager
async def _process(store: Path, tasks: int) -> AsyncIterator[asyncio.subprocess.Process]:
    """In a session of its own: a Ctrl-C reaches this process only, which then ends the worker."""
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "parcelpost.cli.demo_worker", str(store), str(tasks),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        start_new_session=True,
        pipesize=_PIPE_BYTES,  # a small pipe, so that the worker cannot run far ahead of its killer
    )  # fmt: skip
    try:
        yield process
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()


async def _prove(store: Path, tasks: int, confirmed: list[Saved]) -> list[Proof]:
    root = store.parent / "data"
    entries: dict[str, OutboxEntry] = {}
    per_task: Counter[str] = Counter()
    hashes: dict[str, str | None] = {}
    async with looking(store) as database, Meter("results compared", after=1, line_every=5) as meter:
        depth = await database.read(queue_state.depth, CLOCK.now())
        after = 0
        while page := await database.read(outbox.search, _ANY, _PAGE_ROWS, after):
            after = page[-1].seq
            entries |= {entry.result_id: entry for entry in page}
            per_task.update(entry.task_id for entry in page)
            hashes |= await asyncio.to_thread(_hashes, root, page)
            meter(len(entries), tasks)
    there = [one for one in confirmed if one.result_id in entries]
    twice = Counter(one.task_id for one in confirmed)
    return [
        Proof("tasks completed", tasks, depth.completed),
        Proof("tasks still pending or processing", 0, depth.pending + depth.processing),
        Proof("tasks with exactly one result", tasks, sum(number == 1 for number in per_task.values())),
        Proof("tasks confirmed twice", 0, sum(number > 1 for number in twice.values())),
        Proof("confirmed results that are there", len(confirmed), len(there)),
        Proof(
            "confirmed pages with the right hash", len(confirmed), sum(hashes[i.result_id] == i.sha256 for i in there)
        ),
        Proof("all pages with the right hash", tasks, sum(hashes[key] == e.raw_sha256 for key, e in entries.items())),
    ]


def _hashes(root: Path, entries: list[OutboxEntry]) -> dict[str, str | None]:
    return {one.result_id: page_sha256(inside(root, one.html_path)) if one.html_path else None for one in entries}


def _say(line: str) -> None:
    print(line, flush=True)
