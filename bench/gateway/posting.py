"""A lean client in a process of its own: some connections, each with the next body as soon as the last is answered.

`python -m bench.gateway.posting ADDRESS BATCHES` says `ready` when the bodies are made, begins when a line comes in,
and ends with the seconds it took.
"""

from __future__ import annotations

import asyncio
import json
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from urllib.parse import urlsplit

from bench.gateway.work import BATCH, CONNECTIONS, bodies, worker_of
from bench.timing import Run

_PATH = "/internal/results"


@contextmanager
def client(url: str, batches: int) -> Iterator[subprocess.Popen[str]]:
    """Ready to post."""
    command = [sys.executable, "-m", "bench.gateway.posting", url, str(batches)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
            yield process
        finally:
            process.kill()


def post(process: subprocess.Popen[str], batches: int) -> Run:
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
