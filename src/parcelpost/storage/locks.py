"""Owner locks (which processes have the store open and are alive) and leader locks (one process does a job for all)."""

from __future__ import annotations

import contextlib
import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from parcelpost.clock import Clock, iso
from parcelpost.errors import StoreBusy
from parcelpost.storage.errors import os_error

_BEAT_SECONDS = 2.0
_Stamp = tuple[int, int]
"""A file's inode and mtime: compared for equality only, never with a clock."""


class OwnerInfo(msgspec.Struct, frozen=True):
    """The content of an owner's lock file."""

    pid: int
    worker: str
    synchronous: str
    since: str
    moved_from: str = ""
    """The path from which the store was moved away while this process had it open; '' if it was not."""


class Owner:
    """This process's own lock. Claimed tasks name its `id` in `claimed_by` (I9)."""

    def __init__(self, folder: Path, owner_id: str, lock: int, info: OwnerInfo) -> None:
        self.id = owner_id
        self._folder = folder
        self._lock = lock
        self._info = info
        self._notice: tuple[Path, int] | None = None
        """Path and handle of the notice left at the old place of a moved store."""

    @classmethod
    def take(cls, folder: Path, worker: str, synchronous: str, clock: Clock) -> Owner:
        """Call inside `gate`: nobody may look for crashed owners between the creation of the file and its lock."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", worker)[:40] or "worker"
        owner_id = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        lock = os.open(_lock_path(folder, owner_id), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        info = OwnerInfo(os.getpid(), worker, synchronous, iso(clock.now()))
        owner = cls(folder, owner_id, lock, info)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            os.write(lock, msgspec.json.encode(info))
            os.fsync(lock)
        except OSError:
            owner.release()
            raise
        return owner

    def beat(self) -> None:
        touch(self._lock)

    def note_moved(self, store: Path, *, is_missing: bool) -> None:
        """Tells other processes whether the store was moved away together with its locks.

        At the new place, the lock file says so. At the old place, which has no lock file any more, a locked notice in
        the nearest folder keeps commands from creating a second store.
        """
        is_moved = is_missing and not _lock_path(self._folder, self.id).exists()
        if is_moved == (self._notice is not None):
            return
        if not is_moved:
            self._remove_notice()
            self._write_info(self._lock)
            return
        self._write_info(self._lock, moved_from=str(store))
        with contextlib.suppress(OSError):  # without write access, nobody can create a store there either
            folder = next(folder for folder in store.parents if folder.is_dir())
            path = _lock_path(folder, _notice_prefix(store) + self.id)
            if (handle := _lock_file(path)) is not None:
                self._notice = path, handle
                self._write_info(handle, moved_from=str(store))

    def release(self) -> None:
        """Deletes the lock file. If that fails, the next process takes this one for crashed."""
        self._remove_notice()
        with contextlib.suppress(OSError):
            _lock_path(self._folder, self.id).unlink(missing_ok=True)
        os.close(self._lock)

    def _remove_notice(self) -> None:
        if self._notice is not None:
            path, handle = self._notice
            self._notice = None
            with contextlib.suppress(OSError):
                path.unlink(missing_ok=True)
            os.close(handle)

    def _write_info(self, handle: int, *, moved_from: str = "") -> None:
        with contextlib.suppress(OSError):
            os.ftruncate(handle, 0)
            os.pwrite(handle, msgspec.json.encode(msgspec.structs.replace(self._info, moved_from=moved_from)), 0)


class PeerWatch:
    """Measures by this process's monotonic clock how long peers have not touched their lock files.

    It never compares the clocks of two processes. A sample adds a bounded time, so that peers are not blamed while this
    process is suspended or the machine sleeps.
    """

    def __init__(self, folder: Path, own_id: str, hung_after: float, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._own = f"{own_id}.lock"
        self._hung_after = hung_after
        self._monotonic = monotonic
        self._sampled_at = monotonic()
        self._silence: dict[str, tuple[_Stamp, float]] = {}
        """File name -> its stamp, and the seconds since it last changed."""
        self.beat_seconds = min(_BEAT_SECONDS, hung_after / 20)
        """Interval of beats and samples."""

    def sample(self) -> None:
        now = self._monotonic()
        passed = min(now - self._sampled_at, 2 * self.beat_seconds)
        self._sampled_at = now
        silence: dict[str, tuple[_Stamp, float]] = {}
        for path in (*self._folder.glob("*.lock"), *self._folder.glob("*.leader")):
            stamp = _stamp(path)
            if path.name != self._own and stamp is not None:
                before, seconds = self._silence.get(path.name, (stamp, 0.0))
                silence[path.name] = (stamp, seconds + passed if stamp == before else 0.0)
        self._silence = silence

    def is_hung(self, file: str) -> bool:
        """Whether the process that has locked this file hangs."""
        known = self._silence.get(file)
        return known is not None and known[1] >= self._hung_after and _stamp(self._folder / file) == known[0]

    def hung_owners(self) -> list[str]:
        """Returns the owner ids of processes that are alive but do not touch their lock files."""
        silent = [file.removesuffix(".lock") for file in self._silence if file.endswith(".lock") and self.is_hung(file)]
        return [owner_id for owner_id in silent if is_alive(self._folder, owner_id)]


def touch(lock: int) -> None:
    with contextlib.suppress(OSError):  # on a read-only disk, peers will think that this process hangs
        os.utime(lock)


def last_beat(folder: Path, owner_id: str) -> float | None:
    """Returns the Unix time of its last beat, None if it has no lock file."""
    stamp = _stamp(_lock_path(folder, owner_id))
    return stamp[1] / 1e9 if stamp else None


def silent_pids(folder: Path, since: float) -> list[int]:
    """Returns the pids of live owners that have not beaten since that Unix time."""
    silent = [owner_id for owner_id in owners(folder)[0] if (last_beat(folder, owner_id) or since) < since]
    return [info.pid for owner_id in silent if (info := owner_info(folder, owner_id)) is not None]


def _stamp(path: Path) -> _Stamp | None:
    try:
        status = path.stat()
    except OSError:
        return None
    return status.st_ino, status.st_mtime_ns


def is_alive(folder: Path, owner_id: str) -> bool:
    try:
        lock = os.open(_lock_path(folder, owner_id), os.O_RDWR)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(lock)
    return False


def owners(folder: Path, own_id: str = "") -> tuple[list[str], list[str]]:
    """Returns the ids of the live and of the crashed owners."""
    alive: list[str] = []
    crashed: list[str] = []
    for file in sorted(folder.glob("*.lock")):
        if file.stem != own_id:
            (alive if is_alive(folder, file.stem) else crashed).append(file.stem)
    return alive, crashed


def owner_info(folder: Path, owner_id: str) -> OwnerInfo | None:
    """Returns None if the file is missing, or empty after a power cut."""
    try:
        return msgspec.json.decode(_lock_path(folder, owner_id).read_bytes(), type=OwnerInfo)
    except (OSError, msgspec.DecodeError):
        return None


def owners_of_moved(store: Path) -> list[OwnerInfo]:
    """Returns the live processes whose store was moved away from this path together with its locks."""
    prefix = _notice_prefix(store)
    stems: list[tuple[Path, str]] = []
    for folder in store.parents:
        with contextlib.suppress(OSError), os.scandir(folder) as files:
            names = [file.name for file in files if file.name.startswith(prefix) and file.name.endswith(".lock")]
            stems += [(folder, name.removesuffix(".lock")) for name in names]
    return [info for folder, stem in stems if is_alive(folder, stem) and (info := owner_info(folder, stem))]


def _notice_prefix(store: Path) -> str:
    return f".{store.name}-moved-{hashlib.sha256(os.fsencode(store)).hexdigest()[:12]}-"


def reap(folder: Path, owner_id: str) -> None:
    """Deletes a crashed owner's lock file, after its tasks were recovered."""
    _lock_path(folder, owner_id).unlink(missing_ok=True)


def _lock_path(folder: Path, owner_id: str) -> Path:
    return folder / f"{owner_id}.lock"


class LeaderLocks:
    """Named locks. The process that has one does the job of that name for all processes on the store."""

    def __init__(self, live: Path, owner_id: str, watch: PeerWatch) -> None:
        self._live = live
        self._owner_id = owner_id
        self._watch = watch
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Returns whether this process has the lock, which it keeps until it releases it or hangs. Cheap to call.

        Raises a StoreError if the lock file cannot be created.
        """
        path = self._path(name)
        if self.has(name):
            return True
        if name in self._held:
            os.close(self._held.pop(name))
        if not _lock_path(self._live, self._owner_id).exists():
            return False  # the store was moved away with its locks
        try:
            handle = _lock_file(path)
            if handle is None and self._watch.is_hung(path.name):
                handle = self._take_over(path)
        except OSError as error:
            raise os_error(error, path) from error
        if handle is None:
            return False
        self._held[name] = handle
        return True

    def has(self, name: str) -> bool:
        """Whether this process still has the lock. A process that hung may have lost it."""
        return name in self._held and _is_at(self._path(name), self._held[name])

    def beat(self) -> None:
        for handle in self._held.values():
            touch(handle)

    def release(self, prefix: str = "") -> None:
        """Releases the locks whose names start with `prefix`."""
        for name in [name for name in self._held if name.startswith(prefix)]:
            os.close(self._held.pop(name))

    def is_any_held(self, prefix: str) -> bool:
        """Whether another process has a lock whose name starts with `prefix`."""
        for path in self._live.glob(f"{prefix}*.leader"):
            if path.stem not in self._held:
                handle = _lock_file(path)
                if handle is None:
                    return True
                os.close(handle)
        return False

    def _path(self, name: str) -> Path:
        return self._live / f"{name}.leader"

    def _take_over(self, path: Path) -> int | None:
        """Replaces the lock file of a hung process. Returns None if a peer was faster or the process is back."""
        gate = _lock_file(self._live / "takeover")
        if gate is None:
            return None
        try:
            if not self._watch.is_hung(path.name):
                return None
            new = path.with_name(f"{path.name}.{self._owner_id}")
            new.unlink(missing_ok=True)
            handle = _lock_file(new)
            new.replace(path)
            return handle
        finally:
            os.close(gate)


def _lock_file(path: Path) -> int | None:
    """Creates, locks and touches the file. Returns None if another process has locked it."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):  # not replaced since it was opened
            touch(handle)
            return handle
    except BlockingIOError:
        pass
    except OSError:
        os.close(handle)
        raise
    os.close(handle)
    return None


def _is_at(path: Path, handle: int) -> bool:
    """Whether the path still names the open file."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


_RETRY_SECONDS = 0.01


def live_folder(store: Path) -> Path:
    """Returns the folder of locks and journals, next to the store (the target, if the path is a symbolic link)."""
    store = store.resolve()
    return store.with_name(store.name + "-live")


@asynccontextmanager
async def gate(live: Path, clock: Clock, timeout: float) -> AsyncIterator[None]:
    """One process at a time opens a store or recovers crashed owners. Raises StoreBusy after `timeout` seconds."""
    handle = os.open(live / "gate", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        give_up_at = clock.monotonic() + timeout
        while not _locked(handle):
            if clock.monotonic() > give_up_at:
                silent = silent_pids(live, clock.now().timestamp() - timeout)
                hint = f"process {silent[0]} does not respond: resume it, or end it" if silent else ""
                message = f"another process has been opening {live} for {timeout:g} s"
                raise StoreBusy(message, hint=hint or "try again later")
            await clock.sleep(_RETRY_SECONDS)
        yield
    finally:
        os.close(handle)


def _locked(handle: int) -> bool:
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
