"""Real gateways and workers, by the dozen, on one PostgreSQL."""

from __future__ import annotations

import asyncio
import signal
import socket
from collections.abc import Mapping
from pathlib import Path

from tests.acceptance.forked import Forked
from tests.acceptance.processes import FAST, given

GATEWAY_SETTINGS = {
    "server.lease_seconds": "5",
    "server.max_attempts": "100",
    "server.requests_per_second": "10000",
    "log.level": "warning",
}
WORKER_SETTINGS = {
    **FAST,
    "executor.slots": "8",
    "sync.batch_size": "100",
    "log.level": "warning",
}


class Member:
    """A process that can be killed and started again."""

    def __init__(self, arguments: list[str], settings: Mapping[str, str], folder: Path) -> None:
        folder.mkdir(parents=True)
        self._words = (*arguments, *given(settings))
        self._folder = folder
        self.worker_id = settings.get("worker.id", "")
        self._process: Forked | None = None

    def start(self) -> None:
        with (self._folder / "log").open("ab") as log:
            self._process = Forked(*self._words, folder=self._folder, stdout=log.fileno(), stderr=log.fileno())

    def pause(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        assert self._process is not None
        self._process.send_signal(signal.SIGCONT)

    async def kill(self) -> None:
        if self._process:
            self._process.kill()
            await self._process.ended()

    async def ended(self) -> int:
        assert self._process is not None
        return await self._process.ended()

    @property
    def log(self) -> str:
        return (self._folder / "log").read_text()


class Fleet:
    """Kills what still runs when it is left. A worker has so many tasks at most."""

    def __init__(self, database: str, folder: Path, *, gateways: int, workers: int, at_most: int) -> None:
        self._database = database
        self._folder = folder
        self._water = {"collector.low_water": str(at_most // 2), "collector.high_water": str(at_most)}
        self._ports = [free_port() for _ in range(gateways)]
        self.gateways = [self._gateway(number) for number in range(gateways)]
        self.workers = [self.worker(number) for number in range(workers)]

    async def __aenter__(self) -> Fleet:
        for gateway, port in zip(self.gateways, self._ports, strict=True):
            gateway.start()
            await _listening(port)
        return self

    async def __aexit__(self, *_: object) -> None:
        for member in (*self.workers, *self.gateways):
            await member.kill()

    def worker(self, number: int) -> Member:
        url = f"http://127.0.0.1:{self._ports[number % len(self._ports)]}"
        arguments = ["run", "--gateway", url, "--store", "store.db", "--until-empty"]
        settings = WORKER_SETTINGS | self._water | {"worker.id": f"w{number}"}
        return Member(arguments, settings, self._folder / f"worker-{number}")

    async def add(self, tasks: Path) -> None:
        """`parcelpost gateway add`."""
        with Forked(
            "gateway", "add", str(tasks), "--database", self._database, folder=self._folder, stdout=1, stderr=2
        ) as it:
            assert await it.ended() == 0

    def _gateway(self, number: int) -> Member:
        place = ["--database", self._database, "--raw", str(self._folder / "raw")]
        arguments = ["gateway", "serve", "--port", str(self._ports[number]), *place]
        return Member(arguments, GATEWAY_SETTINGS, self._folder / f"gateway-{number}")


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


async def _listening(port: int) -> None:
    while True:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(0.05)
        else:
            writer.close()
            return
