"""Browser processes of this machine: identified, watched, measured and killed, with the folders they leave behind."""

from __future__ import annotations

import asyncio
import os
import re
import shutil
import signal
import sys
from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct

from parcelpost.clock import Clock

_IS_LINUX = sys.platform == "linux"
_PROC = Path("/proc")
_GONE = (OSError, psutil.Error)


class Process(Struct, frozen=True, gc=False):
    pid: int
    started: str
    """As the system counts: the same for as long as the process lives."""
    parent: int
    group: int
    session: int


def current_boot() -> str:
    """Where and until when a process id means what it means here: this boot, and this namespace of ids."""
    if not _IS_LINUX:
        return f"{psutil.boot_time():.0f}"
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id} {(_PROC / 'self/ns/pid').readlink()}"


def find_process(pid: int) -> Process | None:
    """None: it is gone, or waits only for somebody to notice that it is."""
    try:
        return _find_linux(pid) if _IS_LINUX else _find_elsewhere(pid)
    except _GONE:
        return None


def all_processes() -> list[Process]:
    return [found for pid in psutil.pids() if (found := find_process(pid)) is not None]


def is_running(pid: int, started: str) -> bool:
    found = find_process(pid)
    return found is not None and found.started == started


def command_line(pid: int) -> str:
    """Its words, separated by spaces; '' if it is gone or nobody may know."""
    try:
        return " ".join(psutil.Process(pid).cmdline())
    except _GONE:
        return ""


def executable(pid: int) -> str:
    try:
        return psutil.Process(pid).exe()
    except _GONE:
        return ""


def leaders_with(word: str) -> list[Process]:
    """Leaders of process groups in whose command line it stands."""
    return [one for one in all_processes() if one.pid == one.group and word in command_line(one.pid)]


def group_of(pid: int, started: str, program: str) -> list[Process]:
    """Who lives of the group and session that the process led, if it is that process and no later one.

    The kernel gives a leader's id to nobody while its group lives. So if the leader is gone, the group is still its
    own, unless all of it was gone once: then those that have the id now are of another program, or began before.
    """
    found = [one for one in all_processes() if pid in (one.pid, one.group, one.session)]
    leader = next((one for one in found if one.pid == pid), None)
    if leader is not None:
        return found if leader.started == started else []
    beginning = _installed_in(program)
    return [one for one in found if _began_after(one, started) and command_line(one.pid).startswith(beginning)]


def kill(some: Iterable[Process]) -> int:
    """At once. Answers how many there were."""
    count = 0
    for one in some:
        with suppress(ProcessLookupError, PermissionError):
            os.kill(one.pid, signal.SIGKILL)
            count += 1
    return count


def reap(some: Iterable[Process]) -> None:
    """What became our own child when its parent died would stay in the system's table: takes note of its end."""
    for one in some:
        with suppress(ChildProcessError):
            os.waitpid(one.pid, os.WNOHANG)


def memory(some: Iterable[Process]) -> int:
    """Bytes: what each has for itself, and its share of what several have (PSS), where the system tells."""
    return sum(_memory(one.pid) for one in some)


def _memory(pid: int) -> int:
    with suppress(*_GONE):
        if not _IS_LINUX:
            return int(psutil.Process(pid).memory_full_info().uss)
        try:
            return _pss(pid)
        except PermissionError:  # a sandboxed process may hide its maps: what it has for itself is told to all
            resident, shared = (_PROC / f"{pid}/statm").read_text(encoding="ascii").split()[1:3]
            return (int(resident) - int(shared)) * os.sysconf("SC_PAGE_SIZE")
    return 0


def _pss(pid: int) -> int:
    for line in (_PROC / f"{pid}/smaps_rollup").read_text(encoding="ascii").splitlines():
        if line.startswith("Pss:"):
            return int(line.split()[1]) * 1024
    return 0


def _find_linux(pid: int) -> Process | None:
    # The name, in brackets, may hold anything, brackets and spaces too.
    stat = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if stat[0] in "ZX":
        return None
    return Process(pid, stat[19], int(stat[1]), int(stat[2]), int(stat[3]))


def _find_elsewhere(pid: int) -> Process | None:
    found = psutil.Process(pid)
    if found.status() == psutil.STATUS_ZOMBIE:
        return None
    return Process(pid, f"{found.create_time():.6f}", found.ppid(), os.getpgid(pid), os.getsid(pid))


def _installed_in(program: str) -> str:
    """The folder of its own that a program has with its helpers; where it shares one with others, the program."""
    application, is_one, _ = program.partition(".app/")
    if is_one:
        return application
    folder = Path(program).parent
    return program if folder.name in ("bin", "sbin", "") else f"{folder}/"


def _began_after(one: Process, started: str) -> bool:
    return bool(started) and float(one.started) >= float(started)


_LOOK_EVERY_SECONDS = 0.1


class ProcessWatch:
    """Calls `on_death` once, as soon as the process is gone, unless it is stopped before."""

    def __init__(self, process: Process, on_death: Callable[[], None], clock: Clock) -> None:
        self._process = process
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._handle = -1
        self._looking: asyncio.Task[None] | None = None
        try:
            self._handle = os.pidfd_open(process.pid)
        except (AttributeError, OSError):  # another system, an old kernel, or it is gone already
            self._looking = self._loop.create_task(self._look(clock))
            return
        self._loop.add_reader(self._handle, self._died)
        if not is_running(process.pid, process.started):
            self._loop.call_soon(self._died)

    def stop(self) -> None:
        if self._handle >= 0:
            self._loop.remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1
        if self._looking is not None:
            self._looking.cancel()
            self._looking = None

    async def _look(self, clock: Clock) -> None:
        while is_running(self._process.pid, self._process.started):
            await clock.sleep(_LOOK_EVERY_SECONDS)
        self._looking = None
        self._on_death()

    def _died(self) -> None:
        if self._handle >= 0:
            self.stop()
            self._on_death()


MARKER_SWITCH = "--parcelpost-browser="


class MarkedProcesses:
    """Of the browsers that were started with this marker, or with one that begins so.

    The marker stands in the command line of the browser itself; its other processes are of the same group, which is
    remembered once it was seen.
    """

    def __init__(self, marker: str) -> None:
        self._marker = marker
        self._groups: dict[int, tuple[str, str]] = {}

    def remember(self, pid: int, started: str, program: str) -> None:
        self._groups[pid] = (started, program)

    def left(self) -> list[Process]:
        """Those that run now."""
        for leader in leaders_with(f"{MARKER_SWITCH}{self._marker}") if self._marker else ():
            self.remember(leader.pid, leader.started, executable(leader.pid))
        return [one for pid, (started, program) in self._groups.items() for one in group_of(pid, started, program)]


_PROFILE = "playwright_chromiumdev_profile-"
_SOCKETS = re.compile(r"\.?(org\.chromium|com\.google|com\.microsoft|com\.brave)\.")


def profile_of(pid: int) -> str:
    """Where the browser keeps what it has, by its command line; '' where that does not say."""
    found = re.search(r"--user-data-dir=(\S+)", command_line(pid))
    return found[1] if found else ""


def profile_folders(profile: str) -> list[Path]:
    """The profile that Playwright made, and Chromium's own folder to which there is a link in it. None other."""
    folder = Path(profile)
    if not folder.name.startswith(_PROFILE) or folder.is_symlink():
        return []
    found = [folder]
    with suppress(OSError):
        sockets = (folder / "SingletonSocket").readlink().parent
        if sockets.parent == folder.parent and _SOCKETS.match(sockets.name):
            found.append(sockets)
    return found


def remove_folders(folders: Sequence[Path]) -> None:
    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)
