"""Who has the store open, who of them is alive, and leader locks: jobs that one process of several does."""

from __future__ import annotations

import contextlib
import fcntl
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
_Touched = tuple[int, int]
"""A file's inode and the moment of its last touch: compared for equality, never with a clock."""
_OWNER_ID = re.compile(r"[A-Za-z0-9_.-]+-\d+-[0-9a-f]{8}")


class OwnerFacts(msgspec.Struct, frozen=True):
    """What a lock file says about its owner."""

    pid: int
    worker: str
    synchronous: str
    since: str


class Owner:
    """This opener's own lock. `id` is what a claimed task names as its holder (I9)."""

    def __init__(self, folder: Path, owner_id: str, lock: int) -> None:
        self.id = owner_id
        self._folder = folder
        self._lock = lock

    @classmethod
    def take(cls, folder: Path, worker: str, synchronous: str, clock: Clock) -> Owner:
        """Call with the gate held: nobody may look for the dead between the file's making and its lock."""
        name = re.sub(r"[^A-Za-z0-9_.-]", "_", worker)[:40] or "worker"
        owner_id = f"{name}-{os.getpid()}-{secrets.token_hex(4)}"
        lock = os.open(_lock_path(folder, owner_id), os.O_CREAT | os.O_EXCL | os.O_RDWR, 0o600)
        owner = cls(folder, owner_id, lock)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            facts = OwnerFacts(os.getpid(), worker, synchronous, iso(clock.now()))
            os.write(lock, msgspec.json.encode(facts))
            os.fsync(lock)
        except OSError:
            owner.leave()
            raise
        return owner

    def beat(self) -> None:
        """A sign of life."""
        touch(self._lock)

    def leave(self) -> None:
        """A file that cannot be removed is taken for a dead owner's by the next opener."""
        with contextlib.suppress(OSError):
            _lock_path(self._folder, self.id).unlink(missing_ok=True)
        os.close(self._lock)


class PeerWatch:
    """How long the files of peers have not been touched, by this process's own monotonic clock.

    The clocks of two processes are never compared. What one look adds is bounded, so that a time in which this process
    was stopped itself, or in which the machine slept, does not count against its peers.
    """

    def __init__(self, folder: Path, own_id: str, hung_after: float, monotonic: Callable[[], float]) -> None:
        self._folder = folder
        self._own = f"{own_id}.lock"
        self._hung_after = hung_after
        self._monotonic = monotonic
        self._looked_at = monotonic()
        self._seen: dict[str, tuple[_Touched, float]] = {}
        """File -> how it was, and for how long it has been so."""
        self.beat_seconds = min(_BEAT_SECONDS, hung_after / 20)
        """How often to beat and to look."""

    def look(self) -> None:
        now = self._monotonic()
        passed = min(now - self._looked_at, 2 * self.beat_seconds)
        self._looked_at = now
        seen: dict[str, tuple[_Touched, float]] = {}
        for path in (*self._folder.glob("*.lock"), *self._folder.glob("*.duty")):
            touched = _touched(path)
            if path.name != self._own and touched is not None:
                before, silent = self._seen.get(path.name, (touched, 0.0))
                seen[path.name] = (touched, silent + passed if touched == before else 0.0)
        self._seen = seen

    def is_hung(self, file: str) -> bool:
        """Whether the process that holds the lock on that file gives no sign of life. Ask only where one holds it."""
        seen = self._seen.get(file)
        return seen is not None and seen[1] >= self._hung_after and _touched(self._folder / file) == seen[0]

    def hung_owners(self) -> list[str]:
        """Openers that are alive, and give no sign of it."""
        silent = [file.removesuffix(".lock") for file in self._seen if file.endswith(".lock") and self.is_hung(file)]
        return [owner_id for owner_id in silent if is_alive(self._folder, owner_id)]


def touch(lock: int) -> None:
    with contextlib.suppress(OSError):  # a disk that does not take it: then peers think that this process hangs
        os.utime(lock)


def last_beat(folder: Path, owner_id: str) -> float | None:
    """When it last gave a sign of life, in seconds since 1970 by the machine's clock; None where it has no file."""
    touched = _touched(_lock_path(folder, owner_id))
    return touched[1] / 1e9 if touched else None


def silent_pids(folder: Path, since: float) -> list[int]:
    """Process ids of openers that are alive, and have given no sign of it since that moment (seconds since 1970)."""
    silent = [one for one in openers(folder)[0] if (last_beat(folder, one) or since) < since]
    return [found.pid for one in silent if (found := facts(folder, one)) is not None]


def _touched(path: Path) -> _Touched | None:
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns


def is_alive(folder: Path, owner_id: str) -> bool:
    if not _OWNER_ID.fullmatch(owner_id):
        return False
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


def openers(folder: Path, own_id: str = "") -> tuple[list[str], list[str]]:
    """The owners alive and the owners dead without a goodbye, by id."""
    alive: list[str] = []
    dead: list[str] = []
    for file in sorted(folder.glob("*.lock")):
        if file.stem != own_id:
            (alive if is_alive(folder, file.stem) else dead).append(file.stem)
    return alive, dead


def facts(folder: Path, owner_id: str) -> OwnerFacts | None:
    """None when a power cut took the file's content."""
    if not _OWNER_ID.fullmatch(owner_id):
        return None
    try:
        return msgspec.json.decode(_lock_path(folder, owner_id).read_bytes(), type=OwnerFacts)
    except (OSError, msgspec.DecodeError):
        return None


def reap(folder: Path, owner_id: str) -> None:
    """Forgets a dead owner, once all it held was brought back."""
    if _OWNER_ID.fullmatch(owner_id):
        _lock_path(folder, owner_id).unlink(missing_ok=True)


def _lock_path(folder: Path, owner_id: str) -> Path:
    return folder / f"{owner_id}.lock"


class LeaderLocks:
    def __init__(self, live: Path, owner_id: str, watch: PeerWatch) -> None:
        self._live = live
        self._owner_id = owner_id
        self._watch = watch
        self._held: dict[str, int] = {}

    def take(self, name: str) -> bool:
        """Whether this opener has the duty now, until it leaves or hangs. Cheap to ask again and again.

        Raises a StoreError where the lock's file cannot be made.
        """
        path = self._path(name)
        if self.has(name):
            return True
        if name in self._held:
            os.close(self._held.pop(name))
        if not _lock_path(self._live, self._owner_id).exists():
            return False  # the store was moved away with its locks: what is at its path is gone, or another store's
        try:
            handle = _lock_file(path)
            if handle is None and self._watch.is_hung(path.name):
                handle = self._taken_over(path)
        except OSError as error:
            raise os_error(error, path) from error
        if handle is None:
            return False
        self._held[name] = handle
        return True

    def has(self, name: str) -> bool:
        """Whether it was taken, and not lost since: a process that was stopped may have lost it."""
        return name in self._held and _is_at(self._path(name), self._held[name])

    def beat(self) -> None:
        """A sign of life."""
        for handle in self._held.values():
            touch(handle)

    def leave(self, prefix: str = "") -> None:
        """Gives up those whose names begin with that."""
        for name in [name for name in self._held if name.startswith(prefix)]:
            os.close(self._held.pop(name))

    def is_any_held(self, prefix: str) -> bool:
        """Whether another opener has one whose name begins with that."""
        for path in self._live.glob(f"{prefix}*.duty"):
            if path.stem not in self._held:
                handle = _lock_file(path)
                if handle is None:
                    return True
                os.close(handle)
        return False

    def _path(self, name: str) -> Path:
        return self._live / f"{name}.duty"

    def _taken_over(self, path: Path) -> int | None:
        """A lock of our own in the place of that of a process that hangs. None: a peer was quicker, or it is back."""
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
    """The file, made if it is not there, locked and touched; None: another has it."""
    handle = os.open(path, os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
        if _is_at(path, handle):  # and was not replaced since it was opened
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
    """Whether the open file is still the one of that name."""
    try:
        return os.path.samestat(path.stat(), os.fstat(handle))
    except FileNotFoundError:
        return False


_RETRY_SECONDS = 0.01


def live_folder(store: Path) -> Path:
    """Locks and journals of those who have the store open, beside the file that a link leads to."""
    store = store.resolve()
    return store.with_name(store.name + "-live")


@asynccontextmanager
async def gate(live: Path, clock: Clock, timeout: float) -> AsyncIterator[None]:
    """Held while a store is opened or searched for the dead. Raises StoreBusy after `timeout` seconds."""
    handle = os.open(live / "gate", os.O_CREAT | os.O_RDWR | os.O_NOFOLLOW, 0o600)
    try:
        give_up_at = clock.monotonic() + timeout
        while not _locked(handle):
            if clock.monotonic() > give_up_at:
                silent = silent_pids(live, clock.now().timestamp() - timeout)
                hint = f"process {silent[0]} gives no sign of life: let it go on, or end it" if silent else ""
                what = f"another process has been opening {live} for {timeout:g} s"
                raise StoreBusy(what, hint=hint or "try again later")
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
