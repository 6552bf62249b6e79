"""A store that cannot be opened, and the command that mends it."""

from __future__ import annotations

import os
import shlex
import stat
from collections.abc import Callable
from pathlib import Path

from parcelpost.cli.checking import damage_problem
from parcelpost.cli.options import store_command
from parcelpost.cli.status_report import Problem
from parcelpost.errors import (
    MigrationEdited,
    StoreCorrupt,
    StoreError,
    StoreNotFound,
    StoreOutdated,
    StoreReadOnly,
    StoreTooNew,
)
from parcelpost.settings.sources import DEFAULT
from parcelpost.storage import backup
from parcelpost.storage.snapshot import never

_MOST_TRIED = 10


def unopened(store: Path, error: StoreError, is_over: Callable[[], bool] = never) -> Problem:
    if isinstance(error, StoreOutdated):
        migrate = store_command("migrate", store)
        return Problem(str(error), f"stop the workers, then run '{migrate}': a backup is made first", "store", migrate)
    if isinstance(error, StoreCorrupt):
        return damaged(store, str(error), is_over)
    if isinstance(error, StoreNotFound | StoreTooNew | MigrationEdited):
        good = _newest_good(store, is_over)
        if good is not None:
            restore = _restore(store, good)
            what = "there are backups of one: " if isinstance(error, StoreNotFound) else f"{error.hint}: "
            return Problem(str(error), f"{what}'{restore}' goes back to the newest that can be used", "store", restore)
    if isinstance(error, StoreNotFound):
        start = "parcelpost run" if DEFAULT.exists() else "parcelpost init"
        return Problem(str(error), f"check the path; if all is new here, begin with '{start}'", "store", start)
    if isinstance(error, StoreReadOnly) and (allow := _allowing(store)):
        return Problem(str(error), f"run '{allow}'", "store", allow)
    return Problem(str(error), error.hint, "store")


def _allowing(store: Path) -> str:
    """What lets its owner in, who asks; '' where that is not what is wrong."""
    for path, needed in ((store.parent, stat.S_IRWXU), (store, stat.S_IRUSR | stat.S_IWUSR)):
        try:
            about = path.stat()
        except OSError:
            return ""
        if about.st_uid == os.geteuid() and about.st_mode & needed != needed:
            return f"chmod {'u+rwx' if path != store else 'u+rw'} {shlex.quote(str(path))}"
    return ""


def damaged(store: Path, what: str, is_over: Callable[[], bool] = never) -> Problem:
    """With the newest backup that is whole itself."""
    backups = backup.list_backups(store)
    good = _newest_good(store, is_over) if backups else None
    is_newest = good is None or good == backups[-1]
    return damage_problem(store, what, "" if good is None or is_newest else _restore(store, good))


def _restore(store: Path, source: Path) -> str:
    return store_command(f"restore {shlex.quote(str(source))} --force", store)


def _newest_good(store: Path, is_over: Callable[[], bool]) -> Path | None:
    for one in backup.candidates(store)[:_MOST_TRIED]:
        try:
            if not backup.problem(one, is_over=is_over):
                return one
        except TimeoutError:
            return None
    return None
