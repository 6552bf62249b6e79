"""Processes of this machine: told from later ones with the same id, watched, measured, killed.

A process id is used again after its process is gone, so that an id alone says nothing: what counts is the id with the
moment at which the process started, as the kernel counts it, within one boot and one namespace of ids.
"""

from __future__ import annotations

import os
import signal
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

import psutil
from msgspec import Struct

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


def boot() -> str:
    """Where and until when a process id means what it means here: this boot, and this namespace of ids."""
    if not _IS_LINUX:
        return f"{psutil.boot_time():.0f}"
    boot_id = (_PROC / "sys/kernel/random/boot_id").read_text(encoding="ascii").strip()
    return f"{boot_id} {(_PROC / 'self/ns/pid').readlink()}"


def look(pid: int) -> Process | None:
    """None: it is gone, or waits only for somebody to notice that it is."""
    try:
        return _look_linux(pid) if _IS_LINUX else _look_elsewhere(pid)
    except _GONE:
        return None


def everyone() -> list[Process]:
    return [found for pid in psutil.pids() if (found := look(pid)) is not None]


def is_running(pid: int, started: str) -> bool:
    found = look(pid)
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
    return [one for one in everyone() if one.pid == one.group and word in command_line(one.pid)]


def group_of(pid: int, started: str, program: str) -> list[Process]:
    """Who lives of the group and session that the process led, if it is that process and no later one.

    The kernel gives a leader's id to nobody while its group lives. So if the leader is gone, the group is still its
    own, unless all of it was gone once: then those that have the id now are of another program, or began before.
    """
    found = [one for one in everyone() if pid in (one.pid, one.group, one.session)]
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


def _look_linux(pid: int) -> Process | None:
    # The name, in brackets, may hold anything, brackets and spaces too.
    stat = (_PROC / f"{pid}/stat").read_text(encoding="utf-8", errors="replace").rpartition(")")[2].split()
    if stat[0] in "ZX":
        return None
    return Process(pid, stat[19], int(stat[1]), int(stat[2]), int(stat[3]))


def _look_elsewhere(pid: int) -> Process | None:
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
