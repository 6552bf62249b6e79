"""`run --processes N`: several workers on one store, started, watched and drained by a process that scrapes nothing."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import socket
import sys
from collections.abc import AsyncIterator, Coroutine, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.cli.systemd import Service
from parcelpost.clock import Clock
from parcelpost.events import Emit, ProcessEnded
from parcelpost.health_checks import Finding, sort_findings
from parcelpost.settings import Settings
from parcelpost.worker import health_pages
from parcelpost.worker.health_pages import Response

_LOOPBACK = "127.0.0.1"
_ANSWER_SECONDS = 3.0
_MOST_ANSWER_BYTES = 16 * 1024**2
_CHECK_SECONDS, _STARTING_CHECK_SECONDS = 5.0, 1.0
_FIRST_PAUSE, _LONGEST_PAUSE = 1.0, 60.0
_NOTIFICATION_VARIABLES = ("NOTIFY_SOCKET", "WATCHDOG_USEC", "WATCHDOG_PID")


def share_of(settings: Settings, number: int) -> Settings:
    """Returns the settings of one process, the first being 1. Together, they stay within the operator's limits.

    Each share is at least one, which `check_runnable` ensures (unless `browser.most` is 0). Each process waits longer
    between two requests to a host: see `FetchOptions.processes`.
    """
    count = settings.worker.processes

    def share(total: int) -> int:
        return total // count + (number <= total % count)

    return replace(
        settings,
        executor=replace(settings.executor, slots=share(settings.executor.slots)),
        fetch=replace(settings.fetch, concurrency_per_host=share(settings.fetch.concurrency_per_host)),
        browser=replace(settings.browser, most=share(settings.browser.most)),
        http=replace(settings.http, port=0),  # the supervising process serves it
    )


def health_socket() -> socket.socket:
    """Returns the socket on which a worker process answers the one that started it: its standard input."""
    return socket.socket(fileno=os.dup(0))


class _Process(Struct):
    number: int
    listener: socket.socket
    process: asyncio.subprocess.Process | None = None

    async def get(self, path: str) -> bytes | None:
        """Returns the body of one of its health pages; None if it does not respond."""
        writer = None
        with contextlib.suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
            async with asyncio.timeout(_ANSWER_SECONDS):
                reader, writer = await asyncio.open_connection(*self.listener.getsockname())
                writer.write(f"GET {path} HTTP/1.1\r\n\r\n".encode())
                answer = await reader.read(_MOST_ANSWER_BYTES)
                while not reader.at_eof() and len(answer) < _MOST_ANSWER_BYTES:
                    answer += await reader.read(_MOST_ANSWER_BYTES - len(answer))
                _, found, body = answer.partition(b"\r\n\r\n")
                return body if found else None
        if writer is not None:
            writer.transport.abort()
        return None


class _State(Struct, frozen=True):
    findings: list[Finding]


class WorkerProcesses:
    """A process that is killed is started again. One that fails ends the others, and its exit code is returned."""

    def __init__(self, command: Sequence[str], settings: Settings, clock: Clock, emit: Emit) -> None:
        """`command`: the arguments of `parcelpost run`, to which `--process N` is added."""
        self._command = command
        self._settings = settings
        self._clock = clock
        self._emit = emit
        self._leaving = asyncio.Event()
        self._processes: list[_Process] = []
        self._problems: list[str] = ["starting"]
        """What the last look found to block the work."""

    def interrupt(self) -> None:
        """Drains the processes; the second time, stops them."""
        self._leaving.set()
        for worker in self._processes:
            _send(worker, signal.SIGTERM)

    async def run(self, environment: Mapping[str, str]) -> int:
        """Runs until all processes have ended. Returns the exit code. Raises AddressNotFree."""
        service = Service(environment)
        service.stuck = lambda: self._problems
        async with AsyncExitStack() as stack:
            for number in range(1, self._settings.worker.processes + 1):
                listener = stack.enter_context(socket.create_server((_LOOPBACK, 0)))
                self._processes.append(_Process(number, listener))
            pages: dict[str, health_pages.Page] = {
                "/healthz": self._health,
                "/readyz": self._readiness,
                "/metrics": self._metrics,
            }
            await stack.enter_async_context(health_pages.served(self._settings.http, pages, self._emit))
            if service.is_watched:
                await stack.enter_async_context(_background(self._watch(service)))
                await stack.enter_async_context(_background(service.run(self._clock)))
            own = {name: text for name, text in environment.items() if name not in _NOTIFICATION_VARIABLES}
            codes = await asyncio.gather(*(self._keep_running(worker, own) for worker in self._processes))
        return max(codes)

    async def _keep_running(self, worker: _Process, environment: Mapping[str, str]) -> int:
        """Returns the exit code with which the process ended by itself."""
        pause = _FIRST_PAUSE
        while True:
            started = self._clock.monotonic()
            worker.process = await asyncio.create_subprocess_exec(
                *(sys.executable, "-m", "parcelpost", "run", *self._command, "--process", str(worker.number)),
                stdin=worker.listener.fileno(),
                env=environment,
                start_new_session=True,  # Ctrl-C reaches the supervising process only, which passes it on once
            )
            if self._leaving.is_set():
                _send(worker, signal.SIGTERM)
            code = await worker.process.wait()
            if code >= 0 or self._leaving.is_set():
                if code > 0:
                    self.interrupt()
                return max(code, 0)
            if self._clock.monotonic() - started > _LONGEST_PAUSE:
                pause = _FIRST_PAUSE
            name = signal.Signals(-code).name
            self._emit(ProcessEnded(process=worker.number, signal=name, restart_in_seconds=pause))
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause):
                    await self._leaving.wait()
            if self._leaving.is_set():
                return 0
            pause = min(2 * pause, _LONGEST_PAUSE)

    async def _watch(self, service: Service) -> None:
        while True:
            findings = await self._findings("/healthz")
            self._problems = [finding.message for finding in findings if finding.blocks_work]
            if self._leaving.is_set():
                service.leave("draining", self._settings.worker.drain_seconds)
            await self._clock.sleep(_STARTING_CHECK_SECONDS if self._problems else _CHECK_SECONDS)

    async def _health(self) -> Response:
        return health_pages.state(await self._findings("/healthz"))

    async def _readiness(self) -> Response:
        return health_pages.state(await self._findings("/readyz"))

    async def _findings(self, path: str) -> list[Finding]:
        """What several processes report is reported once."""
        answers = await asyncio.gather(*(worker.get(path) for worker in self._processes))
        findings: dict[tuple[str, str], Finding] = {}
        for worker, answer in zip(self._processes, answers, strict=True):
            try:
                reported = msgspec.json.decode(answer or b"", type=_State).findings
            except msgspec.DecodeError:
                message = f"process {worker.number} does not respond"
                reported = [Finding.of("worker.stuck", message, "wait a minute, then restart the worker")]
            findings |= {(finding.id, finding.message): finding for finding in reported}
        return sort_findings(findings.values())

    async def _metrics(self) -> Response:
        from parcelpost.telemetry import CONTENT_TYPE, merged_pages

        answers = await asyncio.gather(*(worker.get("/metrics") for worker in self._processes))
        pages = {str(worker.number): page for worker, page in zip(self._processes, answers, strict=True) if page}
        return Response(200, merged_pages(pages), CONTENT_TYPE)


def _send(worker: _Process, number: signal.Signals) -> None:
    if worker.process is not None and worker.process.returncode is None:
        with contextlib.suppress(ProcessLookupError):
            worker.process.send_signal(number)


@asynccontextmanager
async def _background(work: Coroutine[Any, Any, None]) -> AsyncIterator[None]:
    task = asyncio.create_task(work)
    try:
        yield
    finally:
        task.cancel()
        await asyncio.wait([task])
