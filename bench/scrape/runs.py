"""Runs of the contenders: the site's process, a whole run with its cost, and a run that is killed in the middle."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from urllib.request import urlopen

import psutil

from bench.scrape.contenders import LEASE_SECONDS, Contender, Job, environment
from bench.scrape.site import COUNTS, HOST, Counts

_POLL_SECONDS = 0.05
_MOST_SECONDS = 900


@dataclass(frozen=True, slots=True)
class Cost:
    """Of a whole run: adding the tasks, starting, scraping and ending."""

    pages: int
    cpu_seconds: float
    scraping_seconds: float
    """From the first page that the site served to the last."""
    peak_bytes: int
    lost: int

    @property
    def rate(self) -> float:
        return (self.pages - 1) / self.scraping_seconds

    @property
    def cpu_per_page(self) -> float:
        """Milliseconds."""
        return self.cpu_seconds / self.pages * 1000


@dataclass(frozen=True, slots=True)
class Killed:
    """After `kill -9` when half of the pages had been served, and a restart."""

    pages: int
    lost: int
    twice: int


@dataclass(frozen=True, slots=True)
class Part:
    """Of a run, without its start and its end."""

    cpu_per_page: float
    """Milliseconds."""
    peak_bytes: int


@contextmanager
def site(pages: int, size: int, delay: float = 0.0, sites: int = 1) -> Iterator[Sequence[int]]:
    """Yields the ports of sites with that many pages of that many bytes each."""
    options = ["--pages", str(pages), "--bytes", str(size), "--delay", str(delay), "--sites", str(sites)]
    command = [sys.executable, "-m", "bench.scrape.site", *options]
    with subprocess.Popen(command, env=environment(), stdout=subprocess.PIPE) as process:
        try:
            assert process.stdout is not None
            yield json.loads(process.stdout.readline())
        finally:
            process.kill()


def counts(ports: Sequence[int]) -> Counts:
    with urlopen(f"http://{HOST}:{ports[0]}{COUNTS}", timeout=10) as answer:
        counted = Counts(**json.load(answer))
    if counted.before_robots:
        raise RuntimeError(f"{counted.before_robots} pages were asked for before robots.txt")
    return counted


@contextmanager
def job(parent: Path, ports: Sequence[int], pages: int, contender: Contender) -> Iterator[Job]:
    with tempfile.TemporaryDirectory(dir=parent) as name:
        os.sync()
        made = Job(Path(name), ports, pages)
        with contender.beside(made):
            yield made


def run(contender: Contender, parent: Path, ports: Sequence[int], pages: int) -> Cost:
    """The site must not have served a page before."""
    with job(parent, ports, pages, contender) as made:
        used = [finish(command, made) for command in contender.commands(made)]
        served = counts(ports)
        if served.distinct != made.total:
            raise RuntimeError(f"{contender.name} asked for {served.distinct} of {made.total} pages: {_log(made)}")
        return Cost(
            made.total,
            sum(cpu for cpu, _ in used),
            served.ended - served.began,
            max(peak for _, peak in used),
            made.total - contender.stored(made),
        )


def kill_in_the_middle(contender: Contender, parent: Path, ports: Sequence[int], pages: int) -> Killed:
    with job(parent, ports, pages, contender) as made:
        *before, scrape = contender.commands(made)
        for command in before:
            finish(command, made)
        with _started(scrape, made) as process:
            wait_until(lambda: counts(ports).pages >= made.total // 2, process, made)
            process.kill()
        time.sleep(LEASE_SECONDS)
        finish(scrape, made)
        served = counts(ports)
        return Killed(made.total, made.total - contender.stored(made), served.pages - served.distinct)


def cost_of_part(command: Sequence[str], made: Job, first: int, last: int) -> Part:
    """Starts a command that scrapes, measures it between two numbers of served pages, and kills it."""
    with _started(command, made) as process:
        measured = psutil.Process(process.pid)
        wait_until(lambda: counts(made.ports).pages >= first, process, made)
        began, began_pages = _cpu(measured), counts(made.ports).pages
        wait_until(lambda: counts(made.ports).pages >= last, process, made)
        ended, ended_pages = _cpu(measured), counts(made.ports).pages
        peak = _peak(process.pid)
        process.kill()
    return Part((ended - began) / (ended_pages - began_pages) * 1000, peak)


def _cpu(process: psutil.Process) -> float:
    """With its children: `--processes` starts some."""
    times = [process.cpu_times(), *(child.cpu_times() for child in process.children(recursive=True))]
    return sum(part.user + part.system for part in times)


@contextmanager
def _started(command: Sequence[str], made: Job) -> Iterator[subprocess.Popen[bytes]]:
    with (made.folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=made.folder, env=environment(), stdout=log, stderr=log)
        try:
            yield process
        finally:
            process.kill()
            process.wait()


def finish(command: Sequence[str], made: Job) -> tuple[float, int]:
    """Returns the processor time with that of its children in seconds, and the peak memory."""
    with (made.folder / "log").open("ab") as log:
        process = subprocess.Popen(command, cwd=made.folder, env=environment(), stdout=log, stderr=log)
    peak, ended = 0, threading.Event()

    def watch() -> None:
        nonlocal peak
        while not ended.wait(_POLL_SECONDS):
            peak = max(peak, _peak(process.pid))

    watcher = threading.Thread(target=watch)
    watcher.start()
    timer = threading.Timer(_MOST_SECONDS, process.kill)
    timer.start()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    timer.cancel()
    ended.set()
    watcher.join()
    if process.returncode:
        raise RuntimeError(f"exit code {process.returncode} of {' '.join(command)}: {_log(made)}")
    return usage.ru_utime + usage.ru_stime, peak


def _peak(pid: int) -> int:
    """Sum of the peaks of the process and its children; 0 if it has ended or the system does not tell."""
    try:
        process = psutil.Process(pid)
        family = [process, *process.children(recursive=True)]
        return sum(_own_peak(member) for member in family)
    except psutil.NoSuchProcess:
        return 0


def _own_peak(process: psutil.Process) -> int:
    status = Path(f"/proc/{process.pid}/status")
    try:
        lines = status.read_text().splitlines()
    except OSError:
        return int(process.memory_info().rss)
    return next((int(line.split()[1]) * 1024 for line in lines if line.startswith("VmHWM:")), 0)


def wait_until(reached: Callable[[], bool], process: subprocess.Popen[bytes], made: Job) -> None:
    deadline = time.monotonic() + _MOST_SECONDS
    while not reached():
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"it ended too early, or hangs: {_log(made)}")
        time.sleep(_POLL_SECONDS)


def _log(made: Job) -> str:
    return (made.folder / "log").read_text("utf-8", "replace")[-2000:]
