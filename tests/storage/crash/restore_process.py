"""Restores a backup again and again, and is killed before another of its steps each time. Prints what was left.

A step is a call that Python's audit hooks report: a file opened, linked, renamed or removed, a database opened.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import signal
import sqlite3
import sys
from datetime import UTC, datetime
from itertools import count
from pathlib import Path

from parcelpost.storage import LocalPersistenceManager, backup
from parcelpost.storage.locks import live_folder
from tests.storage.factories import save_one

_STEPS = {"open", "os.rename", "os.link", "os.remove", "os.truncate", "os.mkdir", "sqlite3.connect"}


async def _make(store: Path) -> None:
    """One result in the backup; two more in the store, in its WAL only, as after a kill."""
    async with LocalPersistenceManager.open(store) as lpm:
        await save_one(lpm, "t1")
        await lpm.maintenance.backup()
        await lpm.maintenance.give_back()
        await save_one(lpm, "t2")
        await save_one(lpm, "t3")
        os.kill(os.getpid(), signal.SIGKILL)


def _restore(store: Path, step: int) -> None:
    steps = count(1)

    def killed_at_its_step(event: str, _arguments: object) -> None:
        if event in _STEPS and next(steps) == step:
            os.kill(os.getpid(), signal.SIGKILL)

    source = backup.list_backups(store)[-1]
    sys.addaudithook(killed_at_its_step)
    backup.restore(source, store, live_folder(store), datetime.now(UTC), force=True)


def _in_a_child(work: object, *arguments: object) -> bool:
    """Whether it came to its end."""
    child = os.fork()
    if not child:
        try:
            work(*arguments)  # type: ignore[operator]
        finally:
            os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _tasks(store: Path) -> list[str]:
    if not store.exists():
        return ["no store"]
    with sqlite3.connect(store) as db:
        whole = db.execute("PRAGMA integrity_check").fetchone()[0]
        found = [row[0] for row in db.execute("SELECT task_id FROM results ORDER BY seq")]
    db.close()
    return found if whole == "ok" else [whole]


def main(folder: Path) -> list[list[str]]:
    made = folder / "made" / "parcelpost.db"
    _in_a_child(lambda: asyncio.run(_make(made)))
    left = []
    for step in count(1):
        store = folder / f"{step}" / "parcelpost.db"
        shutil.copytree(made.parent, store.parent)
        ended = _in_a_child(_restore, store, step)
        left.append(_tasks(store))
        if ended:
            return left
        assert _in_a_child(_restore, store, 0), "it cannot be restored any more"
        left.append(_tasks(store))
        shutil.rmtree(store.parent)
    raise AssertionError


if __name__ == "__main__":
    sys.stdout.write(json.dumps(main(Path(sys.argv[1]))))
