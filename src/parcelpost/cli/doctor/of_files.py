"""Who may read the store's files: nobody but their owner, who owns them all."""

from __future__ import annotations

import os
import pwd
import shlex
import stat
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path

from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.output import count
from parcelpost.cli.running import require_store
from parcelpost.cli.status_report import Problem
from parcelpost.errors import StoreError
from parcelpost.storage import locks, raw_files

_MOST = 20_000
_SHOWN = 3
_OTHERS = stat.S_IRWXG | stat.S_IRWXO


async def permissions(case: Case) -> list[Answer]:
    try:
        require_store(case.store)
    except (StoreError, OSError):  # that is told already, and another program's file is none of our business
        return []
    seen = list(islice(_parts(case.store), _MOST))
    problems = [*_open_to_others(case.store, seen), *_of_others(case.store, seen), *_open_folder(case.store)]
    return [
        Answer("store", f"{count(len(seen), 'file or folder', 'files and folders')} for their owner only", problems)
    ]


_Seen = tuple[Path, os.stat_result]


def _parts(store: Path) -> Iterator[_Seen]:
    """The store's own files and folders, as far as they are there. Links are not followed."""
    tops = [store, *(store.with_name(store.name + end) for end in ("-wal", "-shm"))]
    for top in (*tops, *_folders(store)):
        for path in (top, *_below(top)):
            try:
                yield path, path.lstat()
            except FileNotFoundError:
                continue


def _folders(store: Path) -> tuple[Path, ...]:
    return locks.live_folder(store), raw_files.raw_folder(store), store.parent / "backups"


def _below(top: Path) -> Iterator[Path]:
    for folder, folders, files in os.walk(top):
        yield from (Path(folder, name) for name in (*folders, *files))


def _open_to_others(store: Path, seen: Iterable[_Seen]) -> list[Problem]:
    wide = [path for path, about in seen if not stat.S_ISLNK(about.st_mode) and about.st_mode & _OTHERS]
    if not wide:
        return []
    tops = sorted({_top(store, path) for path in wide})
    own = f" {shlex.quote(str(store))}*" if any(_is_sqlites(store, path) for path in tops) else ""
    others = [shlex.quote(str(path)) for path in tops if not _is_sqlites(store, path)]
    command = " ".join((f"chmod -R go-rwx{own}", *others))
    what = f"others may use {count(len(wide), 'file or folder', 'files and folders')} of the store: {_names(wide)}"
    return [Problem(what, f"run '{command}'", "store", command)]


def _top(store: Path, path: Path) -> Path:
    """The folder of the store's that it is in, or itself."""
    return next((folder for folder in _folders(store) if folder == path or folder in path.parents), path)


def _is_sqlites(store: Path, path: Path) -> bool:
    """The file and what SQLite has beside it, which comes and goes."""
    return path.name in (store.name, f"{store.name}-wal", f"{store.name}-shm")


def _names(paths: list[Path]) -> str:
    more = f" and {len(paths) - _SHOWN:,} more" if len(paths) > _SHOWN else ""
    return ", ".join(map(str, paths[:_SHOWN])) + more


def _of_others(store: Path, seen: Iterable[_Seen]) -> list[Problem]:
    """As after a command that was run as root."""
    owner = store.stat().st_uid
    strange = [path for path, about in seen if about.st_uid != owner]
    if not strange:
        return []
    what = f"{count(len(strange), 'file')} of the store belong to another user than the store: {_names(strange)}"
    tops = " ".join(shlex.quote(str(path)) for path in sorted({_top(store, path) for path in strange}))
    command = f"sudo chown -R {_user(owner)} {tops}"
    return [Problem(what, f"run '{command}', and commands as {_user(owner)}", "store", command)]


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:
        return str(number)


def _open_folder(store: Path) -> list[Problem]:
    """Where everybody may write, everybody may put another file in the store's place."""
    folder = store.resolve().parent
    mode = folder.stat().st_mode
    if not mode & stat.S_IWOTH or mode & stat.S_ISVTX:
        return []
    command = f"chmod o-w {shlex.quote(str(folder))}"
    return [Problem(f"every user may replace files in {folder}", f"run '{command}'", "store", command)]
