"""A lean client in a process of its own, with the same results for every contender.

Bodies hold 100 results, each of another parcel and task, and are made before any clock starts.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from itertools import islice
from urllib.parse import urlsplit

import msgspec

from bench.store.work import PLATFORM, SCRAPED_AT, make_tasks, make_work
from bench.timing import Run
from parcelpost.model import Task

BATCH = 100
CONNECTIONS = 8

_RECORDS = 1_000


def bodies(batches: int) -> Iterator[bytes]:
    """What workers post, batch by batch."""
    records = make_work(_RECORDS).records
    for batch, tasks in enumerate(batches_of_tasks(batches)):
        yield msgspec.json.encode(
            [
                {
                    "task_id": task.task_id,
                    "parcel_id": task.target.parcel_id,
                    "platform": PLATFORM,
                    "state": task.target.state,
                    "county": task.target.county,
                    "data": records[(batch * BATCH + place) % _RECORDS],
                    "scraped_at": SCRAPED_AT,
                    "parse_duration_ms": 12,
                    "idempotency_key": f"{task.task_id}-{batch:056}",
                }
                for place, task in enumerate(tasks)
            ]
        )


def batches_of_tasks(batches: int) -> Iterator[list[Task]]:
    """The tasks whose results the bodies hold."""
    tasks = make_tasks(batches * BATCH)
    for _ in range(batches):
        yield list(islice(tasks, BATCH))


def worker_of(batch: int) -> str:
    """Who holds a batch's tasks and posts their results: one worker for each connection."""
    return f"bench-{batch % CONNECTIONS}"


_PATH = "/internal/results"


@contextmanager
def posting_client(url: str, batches: int) -> Iterator[subprocess.Popen[str]]:
    """Ready to post."""
    command = [sys.executable, "-m", "bench.gateway.client", url, str(batches)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def post_bodies(process: subprocess.Popen[str], batches: int) -> Run:
    assert process.stdin is not None and process.stdout is not None
    process.stdin.write("go\n")
    process.stdin.flush()
    return Run(batches * BATCH, float(process.stdout.readline()))


async def _connection(host: str, port: int, posted: Sequence[bytes], worker_id: str) -> None:
    reader, writer = await asyncio.open_connection(host, port)
    head = f"POST {_PATH} HTTP/1.1\r\nHost: {host}:{port}\r\nX-Worker-ID: {worker_id}\r\n"
    head += "Content-Type: application/json\r\nContent-Length: "
    for body in posted:
        writer.write(f"{head}{len(body)}\r\n\r\n".encode() + body)
        answer = await reader.readuntil(b"\r\n\r\n")
        length = next(line for line in answer.lower().split(b"\r\n") if line.startswith(b"content-length:"))
        words = await reader.readexactly(int(length.split(b":")[1]))
        if answer.split(b" ", 2)[1] != b"200" or json.loads(words)["inserted"] != BATCH:
            raise RuntimeError(f"{answer.decode()}{words.decode()}")
    writer.close()


async def _post(url: str, posted: Sequence[bytes]) -> float:
    address = urlsplit(url)
    host, port = address.hostname or "", address.port or 0
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            group.create_task(_connection(host, port, posted[number::CONNECTIONS], worker_of(number)))
    return time.perf_counter() - start


if __name__ == "__main__":
    made = list(bodies(int(sys.argv[2])))
    print("ready", flush=True)
    sys.stdin.readline()
    print(asyncio.run(_post(sys.argv[1], made)), flush=True)
