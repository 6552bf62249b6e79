"""The sandbox thread: runs platform code with a time limit.

Platform code can neither block the worker's event loop nor end the worker.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Awaitable, Callable, Coroutine
from concurrent.futures import Future, ThreadPoolExecutor
from contextvars import Context
from queue import SimpleQueue
from typing import Any, ParamSpec, TypeVar

from parcelpost.model import (
    Outcome,
    Retry,
    Task,
)
from parcelpost.scrapers.platform import Scrape
from parcelpost.worker.outcomes import checked, from_exception

P = ParamSpec("P")
T = TypeVar("T")

_Job = tuple[Future[Any], Callable[[], Any]]

_MOST_THREADS = 32


class DaemonThreads(ThreadPoolExecutor):
    """An executor with daemon threads, which do not keep the process alive. Event loops require this base class."""

    def __init__(self) -> None:
        super().__init__(max_workers=_MOST_THREADS)
        self._started = 0
        self._lock = threading.Lock()
        self._jobs: SimpleQueue[_Job | None] = SimpleQueue()
        self.unfinished = 0
        """Calls that have not ended. Decremented before the caller gets the result."""

    def submit(self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> Future[T]:
        future: Future[T] = Future()
        with self._lock:
            self.unfinished += 1
            if self._started < min(_MOST_THREADS, self.unfinished):
                threading.Thread(target=self._work, name="platform-call", daemon=True).start()
                self._started += 1
        self._jobs.put((future, lambda: fn(*args, **kwargs)))
        return future

    def shutdown(self, wait: bool = True, *, cancel_futures: bool = False) -> None:
        """Lets the threads end after the submitted calls, without waiting for them."""
        del wait, cancel_futures
        with self._lock:
            for _ in range(self._started):
                self._jobs.put(None)

    def _work(self) -> None:
        while (job := self._jobs.get()) is not None:
            self._perform(*job)
            del job

    def _perform(self, future: Future[Any], call: Callable[[], Any]) -> None:
        is_wanted = future.set_running_or_notify_cancel()
        result, error = _capture(call) if is_wanted else (None, None)
        with self._lock:
            self.unfinished -= 1
        if is_wanted and error is None:
            future.set_result(result)
        elif is_wanted:
            future.set_exception(error)


GRACE_SECONDS = 2.0


class _Call:
    """One call, shared by the caller and the sandbox's thread."""

    __slots__ = ("answer", "cancelled", "home", "is_notified", "scrape", "task", "timer", "work")

    def __init__(self, scrape: Scrape, task: Task, home: asyncio.AbstractEventLoop) -> None:
        self.scrape = scrape
        self.task = task
        self.home = home
        self.answer: asyncio.Future[Outcome | None] = home.create_future()
        self.timer: asyncio.TimerHandle | None = None
        self.cancelled = False
        self.is_notified = False
        """Whether the work was cancelled already."""
        self.work: asyncio.Task[object] | None = None


class Sandbox:
    """Runs one call at a time on its own thread, which starts with the first call."""

    def __init__(
        self,
        name: str = "sandbox",
        *,
        grace: float = GRACE_SECONDS,
        finish: Callable[[Outcome], Outcome] = lambda outcome: outcome,
    ) -> None:
        """`grace`: seconds that platform code has to stop after a cancellation. `finish` runs on the thread, too."""
        self._name = name
        self._finish = finish
        self._grace = grace
        self._calls: SimpleQueue[_Call | None] = SimpleQueue()
        self._call: _Call | None = None
        self._thread: threading.Thread | None = None
        self._loop: _PlatformLoop | None = None
        """Created by the sandbox's thread for the first coroutine."""
        self._leaving = False
        self._gone = asyncio.Event()

    @property
    def is_free(self) -> bool:
        """Whether nothing is running and the next call may start."""
        return self._call is None and not self._leaving

    @property
    def is_stuck(self) -> bool:
        """Whether platform code still runs on one of its threads."""
        busy = self._loop is not None and self._loop.threads.unfinished > 0
        return busy or (self._thread is not None and self._thread.is_alive())

    # The caller's side

    async def run(self, scrape: Scrape, task: Task, timeout: float) -> Outcome | None:
        """Returns the outcome within `timeout` plus the grace, or None if the call was interrupted.

        Any exception of platform code becomes a Retry. If its code does not stop in time, the sandbox is not free
        afterwards and cannot be used again. Cancelling this cancels the work.
        """
        home = asyncio.get_running_loop()
        call = self._call = _Call(scrape, task, home)
        call.timer = home.call_later(timeout, self._time_is_up, call)
        try:
            self._hand_over(call)
            outcome = await call.answer
        except BaseException:
            self._cancel(call)
            raise
        finally:
            call.timer.cancel()
        if call.cancelled and isinstance(outcome, Retry):
            return Retry(f"took longer than {timeout:g} s{'' if self.is_free else ' and did not stop'}")
        return outcome

    def interrupt(self) -> None:
        """Cancels the running call, if any; its caller gets None at once."""
        call = self._call
        if call is not None and not call.answer.done():
            self._cancel(call)
            call.answer.set_result(None)

    async def close(self) -> bool:
        """Stops the running call and ends the thread. Returns False if it does not end within twice the grace."""
        self.interrupt()
        if self._thread is None:
            self._leaving = True
            return True
        self._calls.put(None)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._gone.wait(), 2 * self._grace)
        self._leave()
        if self._gone.is_set():
            self._thread.join(self._grace)
        return not self.is_stuck

    def _hand_over(self, call: _Call) -> None:
        if self._thread is None:
            thread = threading.Thread(target=self._main, args=(call.home,), name=self._name, daemon=True)
            thread.start()
            self._thread = thread
        self._calls.put(call)

    def _time_is_up(self, call: _Call) -> None:
        self._cancel(call)
        call.timer = call.home.call_later(self._grace, self._abandon, call)

    def _abandon(self, call: _Call) -> None:
        self._leave()
        if not call.answer.done():
            call.answer.set_result(Retry(""))

    def _leave(self) -> None:
        """Lets the thread end as soon as platform code returns."""
        self._leaving = True
        self._calls.put(None)
        if self._loop is not None:
            self._loop.call_soon(self._loop.stop)

    def _cancel(self, call: _Call) -> None:
        call.cancelled = True
        if self._loop is not None:
            self._loop.call_soon(_pass_on, call)

    def _ended(self, call: _Call, outcome: Outcome, left_running: bool) -> None:
        self._call = None if self._call is call else self._call
        if left_running:
            self._leave()
        if not call.answer.done():
            call.answer.set_result(outcome)

    # The sandbox's thread

    def _main(self, home: asyncio.AbstractEventLoop) -> None:
        while not self._leaving and (call := self._calls.get()) is not None:
            outcome = self._outcome(call)
            left_running = self._loop is not None and not self._loop.clear(self._grace)
            _tell(home, self._ended, call, outcome, left_running)
            del call, outcome  # the page may be large, and the next call may take a while to come
        if self._loop is not None:
            self._loop.end(self._grace)
        _tell(home, self._gone.set)

    def _outcome(self, call: _Call) -> Outcome:
        if call.cancelled:
            return Retry("")
        try:
            returned: object = Context().run(call.scrape, call.task)
            return self._finish(checked(self._result(call, returned) if isinstance(returned, Awaitable) else returned))
        except BaseException as error:  # noqa: BLE001 - platform code may raise anything
            return from_exception(error)

    def _result(self, call: _Call, returned: Awaitable[object]) -> object:
        loop = self._loop = self._loop or _PlatformLoop()
        call.work = work = loop.start(returned)
        if call.cancelled:  # after its first step: a coroutine that never runs never closes the ones it would await
            loop.call_soon(_pass_on, call)
        loop.run(work)
        while not work.done() and not self._leaving:
            loop.run(work)
        return work.result()


_MAX_WAIT_SECONDS = 1.0


class Sandboxes:
    """As many sandboxes as calls run at a time. A sandbox whose code does not stop is left behind."""

    def __init__(self, new_sandbox: Callable[[], Sandbox], limit: int) -> None:
        """At most `limit` calls run at a time; one that has waited for a second for others that hang runs, too."""
        self._new_sandbox = new_sandbox
        self._sandboxes: set[Sandbox] = set()
        self._unused: list[Sandbox] = []
        self._free = asyncio.Semaphore(limit)

    async def run(self, scrape: Scrape, task: Task, timeout: float) -> tuple[Outcome | None, Sandbox | None]:
        """Returns the outcome (None: it was interrupted), and the sandbox if its code did not stop in time."""
        is_counted = await self._wait_until_free()
        try:
            sandbox = self._unused.pop() if self._unused else self._new_sandbox()
            self._sandboxes.add(sandbox)
            outcome = await sandbox.run(scrape, task, timeout)
            if sandbox.is_free:
                self._unused.append(sandbox)
        finally:
            if is_counted:
                self._free.release()
        if outcome is None or sandbox.is_free:
            return outcome, None
        self._sandboxes.remove(sandbox)
        return outcome, sandbox

    def interrupt(self) -> None:
        for sandbox in self._sandboxes:
            sandbox.interrupt()

    async def close(self) -> None:
        """Ends all threads, unless platform code does not return."""
        await asyncio.gather(*(sandbox.close() for sandbox in self._sandboxes))

    async def _wait_until_free(self) -> bool:
        if not self._free.locked():
            return await self._free.acquire()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_MAX_WAIT_SECONDS):
                return await self._free.acquire()
        return False


class _PlatformLoop:
    """A sandbox's event loop. Platform code may do anything on it."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _loop, _context: None)  # errors of abandoned tasks are not reported
        self._loop.set_task_factory(self._count)
        self._started = 0
        self.threads = DaemonThreads()
        self._loop.set_default_executor(self.threads)
        self.stop = self._loop.stop

    def call_soon(self, callback: Callable[..., object], *args: object) -> None:
        """May be called from any thread."""
        _tell(self._loop, callback, *args)

    def start(self, returned: Awaitable[object]) -> asyncio.Task[object]:
        return self._loop.create_task(returned if isinstance(returned, Coroutine) else _awaited(returned))

    def run(self, work: asyncio.Task[Any]) -> None:
        """Runs until the work is done, a callback or another task raises SystemExit, or the loop is stopped."""
        with contextlib.suppress(BaseException):
            self._loop.run_until_complete(work)

    def clear(self, grace: float) -> bool:
        """Ends tasks that an attempt left running. Returns False if something does not stop."""
        ended = self._started <= 1 or self._cancel_all(grace)
        self._started = 0
        return ended and not self.threads.unfinished

    def end(self, grace: float) -> None:
        """Closes the loop, even if tasks are left on it."""
        self._cancel_all(grace)
        self._finish(asyncio.wait_for(self._loop.shutdown_asyncgens(), grace))
        with contextlib.suppress(BaseException):
            self._loop.close()

    def _cancel_all(self, grace: float) -> bool:
        leftovers = asyncio.all_tasks(self._loop)
        for task in leftovers:
            task.cancel()
        if leftovers:
            self._finish(asyncio.wait(leftovers, timeout=grace))
        return all(task.done() for task in leftovers)

    def _finish(self, coroutine: Coroutine[Any, Any, Any]) -> None:
        work = self._loop.create_task(coroutine)
        for _ in range(3):  # a pending stop may end a run early
            if not work.done():
                self.run(work)

    def _count(self, loop: asyncio.AbstractEventLoop, coroutine: Any, **kwargs: Any) -> asyncio.Task[Any]:
        self._started += 1
        return asyncio.Task(coroutine, loop=loop, **kwargs)


def _pass_on(call: _Call) -> None:
    """Cancels the work, once: a second cancellation would interrupt its clean-up."""
    if call.work is not None and not call.is_notified:
        call.is_notified = True
        call.work.cancel()


def _tell(loop: asyncio.AbstractEventLoop, callback: Callable[..., object], *args: object) -> None:
    with contextlib.suppress(RuntimeError):  # the loop is closed
        loop.call_soon_threadsafe(callback, *args)


async def _awaited(returned: Awaitable[object]) -> object:
    return await returned


def _capture(call: Callable[[], Any]) -> tuple[Any, BaseException | None]:
    """Makes a call and returns its result, or what it raised."""
    try:
        return call(), None
    except BaseException as error:  # noqa: BLE001 - platform code may raise anything
        return None, error
