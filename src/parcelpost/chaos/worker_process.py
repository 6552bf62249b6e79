"""Runs a parcelpost command as the harness starts it: watched, mortal in a chosen phase, and on request faulty.

`python -m parcelpost.chaos.worker_process FOLDER TOLD BREAKS COMMAND...`. The product is not changed: the functions
that matter are wrapped in this process before the command runs.

TOLD is a file outside the store. A line in it was written when the store had returned: it outlives every kill. It ends
with the process's wall clock, which the run may have moved. FOLDER may have a file `phase` with a phase and a signal:
the process sends it to itself when it gets there.
"""

from __future__ import annotations

import functools
import hashlib
import os
import runpy
import signal
import sys
import threading
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from parcelpost.chaos.breaks import BREAKS
from parcelpost.clock import SystemClock
from parcelpost.model import Claim, Encoded, Result, Task
from parcelpost.storage import locks, migrations, outbox, recovery, results, snapshot, tasks
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.storage.raw_files import RawFiles
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.worker.executor import Executor


class Told:
    """Appends what this process was told: one line per event, in one write."""

    def __init__(self, path: Path) -> None:
        self._file = os.open(path, os.O_CREAT | os.O_WRONLY | os.O_APPEND, 0o600)
        self._clock = SystemClock()

    def __call__(self, event: str, **facts: Any) -> None:
        line = (self._clock.monotonic(), os.getpid(), event, facts, self._clock.now().timestamp())
        os.write(self._file, msgspec.json.encode(line) + b"\n")


class Phases:
    """Sends this process the signal in the file `phase` when it gets there. Each is sent once, and told first."""

    def __init__(self, folder: Path, told: Told) -> None:
        self._file = folder / "phase"
        self._told = told

    def reached(self, phase: str) -> None:
        try:
            wanted, name = self._file.read_text().split()
        except (OSError, ValueError):
            return
        if wanted == phase:
            try:
                self._file.unlink()
            except FileNotFoundError:
                return  # a peer thread was quicker
            self._told("struck", phase=phase, signal=name)
            os.kill(os.getpid(), signal.Signals[name])

    def at(self, owner: Any, name: str, phase: str, *, after: bool = False) -> None:
        """Wraps a function, or one that returns an awaitable: the phase is reached when it is called, or has ended."""
        original = getattr(owner, name)

        @functools.wraps(original)
        def reaching(*args: Any, **kwargs: Any) -> Any:
            if not after:
                self.reached(phase)
            answer = original(*args, **kwargs)
            if after:
                self.reached(phase)
            return answer

        setattr(owner, name, reaching)


def watch(told: Told) -> None:
    """Writes down what the store tells the worker, once it has returned."""
    lpm: Any = LocalPersistenceManager
    add_tasks, claim, save = lpm.add_tasks, lpm.claim, lpm.save_result

    async def watched_add(self: Any, new_tasks: Sequence[Task], **how: Any) -> Any:
        given = list(new_tasks)
        added = await add_tasks(self, given, **how)
        refused = {task_id for task_id, _ in added.refusals}
        told("stored", tasks=[task.task_id for task in given if task.task_id not in refused])
        return added

    async def watched_claim(self: Any, *args: Any, **kwargs: Any) -> Any:
        claims = await claim(self, *args, **kwargs)
        for one in claims:
            told("claimed", task=one.task.task_id, token=one.token, owner=self.owner_id)
        return claims

    async def watched_save(self: Any, one: Claim, result: Result) -> Any:
        result_id = await save(self, one, result)
        data = result.data.json if isinstance(result.data, Encoded) else msgspec.json.encode(result.data)
        page = result.page and hashlib.sha256(result.page.body).hexdigest()
        key = f"{one.task.task_id}:{hashlib.sha256(data).hexdigest()}"
        told(
            "stale" if result_id is None else "saved",
            task=one.task.task_id,
            token=one.token,
            result=result_id,
            key=key,
            page=page,
            scraped=result.scraped_at.timestamp(),
        )
        return result_id

    lpm.add_tasks, lpm.claim, lpm.save_result = watched_add, watched_claim, watched_save
    for name in ("finish", "give_up", "retry_later", "release"):
        setattr(lpm, name, _watched_end(told, name, getattr(lpm, name)))
    release_later, release_all = lpm.release_later, lpm._release_all

    def watched_release_later(self: Any, one: Claim) -> Any:
        told("ending", task=one.task.task_id, token=one.token)
        return release_later(self, one)

    async def watched_release_all(self: Any) -> None:
        told("closing")
        await release_all(self)

    lpm.release_later, lpm._release_all = watched_release_later, watched_release_all
    opened = recovery.OpenStore

    def open_store(*parts: Any) -> Any:
        store = opened(*parts)
        told("opened", owner=store.owner.id)
        return store

    recovery.OpenStore = open_store  # type: ignore[misc, assignment]


def _watched_end(told: Told, name: str, original: Callable[..., Any]) -> Callable[..., Any]:
    async def watched(self: Any, one: Claim, *args: Any, **kwargs: Any) -> Any:
        told("ending", task=one.task.task_id, token=one.token)  # a peer may have the task before this returns
        answer = await original(self, one, *args, **kwargs)
        changed = answer is not None and answer is not False
        told(name if changed else "stale", task=one.task.task_id, token=one.token, to=str(answer))
        return answer

    return watched


def set_phases(phases: Phases) -> None:
    phases.at(locks.Owner, "take", "start-up", after=True)
    phases.at(migrations, "_apply_one", "migration", after=True)
    phases.at(tasks, "recover", "recovery", after=True)
    phases.at(tasks, "claim_each", "claim", after=True)
    phases.at(results, "save_each", "save", after=True)
    phases.at(outbox, "mark_synced", "receipt", after=True)
    phases.at(GatewayClient, "upload_raw_file", "upload")
    phases.at(GatewayClient, "submit_results", "submit")
    phases.at(GatewayClient, "report_end", "report")
    phases.at(snapshot, "_copy", "backup", after=True)
    phases.at(RawFiles, "discard", "cleaning")  # the rows are deleted, their files are not
    phases.at(Executor, "drain", "drain")
    lpm: Any = LocalPersistenceManager
    save = lpm.save_result

    async def saved(self: Any, *args: Any) -> Any:
        answer = await save(self, *args)
        phases.reached("saved")
        return answer

    lpm.save_result = saved


def shift_clock(file: Path) -> None:
    """Without libfaketime: the program's wall clock is ahead by the seconds in the file, if there is one."""
    now = SystemClock.now

    def shifted(self: SystemClock) -> datetime:
        try:
            return now(self) + timedelta(seconds=float(file.read_text()))
        except (OSError, ValueError):
            return now(self)

    SystemClock.now = shifted  # type: ignore[method-assign]


def _end_with_parent() -> None:
    os.read(0, 1)  # returns when the harness has ended, however it did
    os.kill(os.getpid(), signal.SIGKILL)


def main(folder: Path, told_file: Path, breaks: str, command: list[str]) -> None:
    threading.Thread(target=_end_with_parent, daemon=True).start()
    if breaks:
        BREAKS[breaks].apply()
    if command[0] not in ("gateway", "simulate"):
        told = Told(told_file)
        watch(told)
        set_phases(Phases(folder, told))
    if "FAKETIME_TIMESTAMP_FILE" not in os.environ:
        shift_clock(folder / "clock")
    sys.argv = ["parcelpost", *command]
    runpy.run_module("parcelpost", run_name="__main__", alter_sys=True)


if __name__ == "__main__":
    main(Path(sys.argv[1]), Path(sys.argv[2]), sys.argv[3], sys.argv[4:])
