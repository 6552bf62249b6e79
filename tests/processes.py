"""`pytest --processes 4`: tests in several processes, forked when everything is imported and collected.

Those of pytest-xdist each import and collect everything themselves, which takes minutes of processor time. Tests of one
`xdist_group` run in one process here, too.
"""

from __future__ import annotations

import io
import itertools
import os
import signal
import warnings
from collections import deque
from collections.abc import Iterator
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption("--processes", type=int, default=0, metavar="N", help="run the tests in N forked processes")


def pytest_configure(config: pytest.Config) -> None:
    if config.option.processes and getattr(config.option, "numprocesses", None):
        raise pytest.UsageError("--processes and -n are two ways to do the same: give one of them")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    options = session.config.option
    if not options.processes or options.collectonly or options.usepdb or session.testsfailed:
        return None
    _Run(session).run()
    return True


class _Run:
    """The process that collected: it hands out groups of tests, and reports what the others found."""

    def __init__(self, session: pytest.Session) -> None:
        self._session = session
        self._hook = session.config.hook
        self._left = deque(_groups(session.items))
        self._forked: dict[Connection, _Forked] = {}
        self._numbers = itertools.count()

    def run(self) -> None:
        reporter = self._session.config.pluginmanager.get_plugin("terminalreporter")
        if reporter is not None:
            reporter.showfspath = False  # those of several files run at once
        self._session.config._tmp_path_factory.getbasetemp()  # type: ignore[attr-defined] # empties it
        try:
            for _ in range(min(self._session.config.option.processes, len(self._left))):
                self._start()
            while self._forked:
                for connection in wait(list(self._forked)):
                    assert isinstance(connection, Connection)
                    self._receive(connection)
        except BaseException:
            for forked in self._forked.values():
                os.kill(forked.pid, signal.SIGINT)
            raise
        finally:
            for connection, forked in self._forked.items():
                connection.close()
                os.waitpid(forked.pid, 0)
        for reason, ended in (
            (self._session.shouldfail, self._session.Failed),
            (self._session.shouldstop, self._session.Interrupted),
        ):
            if reason:
                raise ended(reason)

    def _start(self) -> None:
        number = next(self._numbers)
        ours, theirs = Pipe()
        capture: Any = self._session.config.pluginmanager.get_plugin("capturemanager")
        capture.stop_global_capturing()  # each process captures into files of its own
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # numpy has threads, which know what to do about a fork
            pid = os.fork()
        capture.start_global_capturing()
        capture.suspend_global_capture()
        if pid == 0:
            for connection in (ours, *self._forked):
                connection.close()
            _end_after(self._session, theirs, number)
        theirs.close()
        self._forked[ours] = _Forked(pid)

    def _receive(self, connection: Connection) -> None:
        forked = self._forked[connection]
        try:
            name, value = connection.recv()
        except (EOFError, ConnectionResetError):
            name, value = "gone", None
        if name == "gone":
            self._ended(connection)
        elif name == "next":
            stops = self._session.shouldfail or self._session.shouldstop
            group = [] if stops or not self._left else self._left.popleft()
            forked.given.extend(group)
            connection.send(group)
        elif name == "begun":
            item = self._session.items[value]
            self._hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        elif name == "report":
            report = self._hook.pytest_report_from_serializable(config=self._session.config, data=value)
            self._hook.pytest_runtest_logreport(report=report)
        else:
            item = self._session.items[forked.given.popleft()]
            self._hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)

    def _ended(self, connection: Connection) -> None:
        forked = self._forked.pop(connection)
        connection.close()
        _, status = os.waitpid(forked.pid, 0)
        if not forked.given:
            return
        item = self._session.items[forked.given.popleft()]
        said = f"the process that ran it ended with {os.waitstatus_to_exitcode(status)}"
        report = pytest.TestReport(item.nodeid, item.location, {}, "failed", said, "call")
        self._hook.pytest_runtest_logreport(report=report)
        if forked.given:
            self._left.appendleft(list(forked.given))
        if self._left and not (self._session.shouldfail or self._session.shouldstop):
            self._start()


class _Forked:
    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.given: deque[int] = deque()  # tests by their place, until they have ended; the first one runs


def _groups(items: list[pytest.Item]) -> list[list[int]]:
    """Tests by their place among all."""
    groups: dict[object, list[int]] = {}
    for place, item in enumerate(items):
        mark = item.get_closest_marker("xdist_group")
        groups.setdefault(mark.args[0] if mark else place, []).append(place)
    return list(groups.values())


def _end_after(session: pytest.Session, connection: Connection, number: int) -> None:
    """Run what is handed out in a process that was forked for that, which ends here."""
    code = 1
    try:
        _prepare(session.config, connection, number)
        places = _handed_out(connection)
        place = next(places, None)
        while place is not None:
            following = next(places, None)
            item, next_item = session.items[place], None if following is None else session.items[following]
            connection.send(("begun", place))
            session.config.hook.pytest_runtest_protocol(item=item, nextitem=next_item)
            connection.send(("ended", place))
            place = following
        code = 0
    except KeyboardInterrupt:
        session._setupstate.teardown_exact(None)
    finally:
        os._exit(code)


def _handed_out(connection: Connection) -> Iterator[int]:
    while True:
        connection.send(("next", None))
        group = connection.recv()
        if not group:
            return
        yield from group


def _prepare(config: pytest.Config, connection: Connection, number: int) -> None:
    reporter = config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None:
        reporter._tw._file = io.StringIO()  # the process that collected reports
    factory: Any = config._tmp_path_factory  # type: ignore[attr-defined]
    factory._basetemp = factory.mktemp(f"process-{number}", numbered=False)
    config.pluginmanager.register(_Sends(config, connection))


class _Sends:
    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))
