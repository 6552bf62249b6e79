"""What a service manager is told: a real datagram socket, and real processes."""

from __future__ import annotations

import asyncio
import contextlib
import os
import socket
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from pathlib import Path

import pytest

from parcelpost.cli.systemd import Service, ServiceSocket, status_line
from parcelpost.events import GatewayStopped, WorkerDraining, WorkProgress
from tests.acceptance.processes import FAST, PATIENCE_SECONDS, command

STANDS = WorkProgress(pending=3, processing=1, completed=7, not_found=0, failed=0, expired=0, unsynced=2, rejected=0)


class Listener:
    """The service manager's end."""

    def __init__(self, sock: socket.socket) -> None:
        self._socket = sock
        self.heard: list[dict[str, str]] = []

    def take(self) -> list[dict[str, str]]:
        """What came since the last time."""
        taken = []
        with contextlib.suppress(BlockingIOError):
            while True:
                text = self._socket.recv(65_536).decode()
                taken.append(dict(line.split("=", 1) for line in text.split("\n")))
        self.heard += taken
        return taken

    async def until(self, holds: Callable[[dict[str, str]], bool]) -> dict[str, str]:
        """The first message, of all so far and those to come, that is as wanted."""
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (found := [one for one in self.heard if holds(one)]):
                self.take()
                await asyncio.sleep(0.02)
        return found[0]


@contextlib.contextmanager
def listening(address: str) -> Iterator[Listener]:
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as sock:
        sock.bind(address)
        sock.setblocking(False)
        yield Listener(sock)


@pytest.fixture
def manager(tmp_path: Path) -> Iterator[Listener]:
    with listening(str(tmp_path / "notify")) as listener:
        yield listener


@pytest.fixture
def service(tmp_path: Path, manager: Listener) -> Service:
    return Service({"NOTIFY_SOCKET": str(tmp_path / "notify"), "WATCHDOG_USEC": "6000000"})


async def test_ready_is_told_once_and_alive_again_and_again(service: Service, manager: Listener) -> None:
    service.emit(STANDS)
    assert await service.step() == 2.0
    said = "3 tasks to do, 1 running, 7 completed, 0 failed, 0 expired; 2 to deliver"
    assert manager.take() == [{"STATUS": said, "WATCHDOG": "1", "READY": "1"}]
    service.problems = lambda: ["storage: executor must stop", "paused by the gateway"]
    await service.step()
    problems = "storage: executor must stop; paused by the gateway"
    assert manager.take() == [{"STATUS": problems, "WATCHDOG": "1"}]


async def test_who_is_stuck_misses_the_watchdog_and_says_so(service: Service, manager: Listener) -> None:
    await service.step()
    service.stuck = lambda: ["sync"]
    await service.step()
    assert manager.take()[-1] == {"STATUS": "stuck: sync"}
    service.stuck = list
    await service.step()
    assert manager.take()[-1]["WATCHDOG"] == "1"


async def test_who_is_not_ready_for_stuck_loops_is_so_later(service: Service, manager: Listener) -> None:
    service.stuck = lambda: ["slot 1"]
    await service.step()
    assert "READY" not in manager.take()[-1]
    service.stuck = list
    await service.step()
    assert manager.take()[-1]["READY"] == "1"


async def test_who_leaves_asks_for_time(service: Service, manager: Listener) -> None:
    service.emit(WorkerDraining(reason="SIGTERM", seconds=30.0))
    (said,) = manager.take()
    assert (said["STOPPING"], said["EXTEND_TIMEOUT_USEC"]) == ("1", "90000000")
    assert said["STATUS"].startswith("draining (SIGTERM)")
    await service.step()
    (said,) = manager.take()
    assert (said["WATCHDOG"], said["EXTEND_TIMEOUT_USEC"], "READY" in said) == ("1", "60000000", False)
    service.stuck = lambda: ["slot 1"]
    await service.step()
    assert "EXTEND_TIMEOUT_USEC" not in manager.take()[-1]
    service.emit(GatewayStopped())
    assert manager.take()[-1]["EXTEND_TIMEOUT_USEC"] == "60000000"


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux has sockets whose names are in no folder")
def test_a_socket_may_be_in_no_folder() -> None:
    name = f"parcelpost-test-{os.getpid()}"
    with listening(f"\0{name}") as manager:
        assert ServiceSocket({"NOTIFY_SOCKET": f"@{name}"}).send("READY=1")
        assert manager.take() == [{"READY": "1"}]


@pytest.mark.parametrize("address", ["", "relative", "/no/such/socket", "@nobody-listens-here"])
async def test_without_a_manager_nothing_happens(address: str) -> None:
    service = Service({"NOTIFY_SOCKET": address})
    assert service.is_watched is address.startswith(("/", "@"))
    assert await service.step() == 10.0
    service.emit(STANDS)
    service.leave("SIGTERM", 1.0)


def test_a_word_that_finds_no_room_is_lost_and_nobody_waits(tmp_path: Path, manager: Listener) -> None:
    there = ServiceSocket({"NOTIFY_SOCKET": str(tmp_path / "notify")})
    assert not all(there.send("WATCHDOG=1") for _ in range(100_000))


def test_the_watchdog_is_fed_three_times_as_often_as_it_must() -> None:
    cases: list[tuple[dict[str, str], float]] = [
        ({}, 10.0),
        ({"WATCHDOG_USEC": "0"}, 10.0),
        ({"WATCHDOG_USEC": "soon"}, 10.0),
        ({"WATCHDOG_USEC": "3000000"}, 1.0),
        ({"WATCHDOG_USEC": "600000000"}, 10.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": str(os.getpid())}, 1.0),
        ({"WATCHDOG_USEC": "3000000", "WATCHDOG_PID": "1"}, 10.0),
    ]
    for environment, seconds in cases:
        assert ServiceSocket(environment).interval_seconds == seconds, environment


def test_a_status_is_one_line_of_bounded_length() -> None:
    assert status_line("a\nREADY=1\x1b[2J") == "STATUS=a\\nREADY=1\\x1b[2J"
    assert len(status_line("x" * 10_000)) == 207


@contextlib.asynccontextmanager
async def process(folder: Path, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
    """Started as systemd does: with a socket to speak to and a watchdog."""
    env = {**os.environ, "NOTIFY_SOCKET": str(folder / "notify"), "WATCHDOG_USEC": "900000"}
    nowhere = asyncio.subprocess.DEVNULL
    made = await asyncio.create_subprocess_exec(*arguments, cwd=folder, env=env, stdout=nowhere, stderr=nowhere)
    try:
        yield made
    finally:
        if made.returncode is None:
            made.kill()
        await made.wait()


async def test_a_worker_and_a_gateway_say_when_they_are_ready_alive_and_leaving(tmp_path: Path) -> None:
    gateway = [sys.executable, "-m", "parcelpost", "gateway", "serve", "--port", "0"]
    for arguments in (command("run", "--mode", "standalone", settings=FAST), gateway):
        with listening(str(tmp_path / "notify")) as manager:
            async with process(tmp_path, *arguments) as running:
                first = await manager.until(lambda said: "READY" in said)
                assert first["WATCHDOG"] == "1"
                await manager.until(lambda said: said.get("WATCHDOG") == "1" and "READY" not in said)
                running.terminate()
                assert int((await manager.until(lambda said: "STOPPING" in said))["EXTEND_TIMEOUT_USEC"]) > 0
                assert await asyncio.wait_for(running.wait(), PATIENCE_SECONDS) == 0
            assert "READY" not in manager.heard[-1]
        (tmp_path / "notify").unlink()
