"""Everything that is done to a run. A fault ends what it began: when it returns, the process or the disk is healed."""

from __future__ import annotations

import asyncio
import contextlib
import os
import random
import shutil
import signal
import sqlite3
from collections.abc import Awaitable, Callable, Mapping
from urllib.request import urlopen

import psutil
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.chaos import disks
from parcelpost.chaos.breaks import BREAKS
from parcelpost.chaos.disks import LoopDisk
from parcelpost.chaos.judge import BrokenInvariant, Judge, Violation, read_only
from parcelpost.chaos.processes import Member, wait_until
from parcelpost.chaos.proxy import Trouble
from parcelpost.chaos.schedule import PHASES_AT_A_START, PHASES_IN_A_COMMAND, Step
from parcelpost.chaos.topology import LEASE_SECONDS, Store, Topology
from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError

_SITE_RATES = {"challenge": 0.05, "429": 0.2, "redesign": 1.0, "charset": 1.0}
_PHASE_SECONDS = 6.0
_COMMAND_SECONDS = 30.0
_READY_TASKS = 20
_SUPPLY_SECONDS = 6.0
_BUSY_SECONDS = 10.0
_LAST_SAVES_SECONDS = 3.0
"""What was in progress when the gateway went away is saved by then."""


class Target(Struct, kw_only=True):
    """What faults work on."""

    topology: Topology
    judge: Judge
    clock: Clock
    chance: random.Random
    kills: int = 0
    power_cuts: int = 0
    full_disks: int = 0
    disk_locks: dict[str, asyncio.Lock] = {}
    away_until: float = 0.0
    """Until when the gateways cannot be reached, and for how long afterwards they stay."""
    troubled: dict[str, float] = {}
    """When a store was last hit by something that may end its workers or keep them from scraping."""

    async def kill(self, member: Member, number: int = signal.SIGKILL, why: str = "killed") -> None:
        """The run starts it again."""
        if not member.runs:
            return
        member.expects_exit = why
        self.judge.dead.setdefault(member.pid, self.clock.monotonic())
        self.kills += number == signal.SIGKILL
        self.trouble(member.name)
        if member.is_stopped and number != signal.SIGKILL:
            member.resume()
        member.send(number)
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(20.0):
                await member.wait()
        if member.runs:
            member.send(signal.SIGKILL)
            await member.wait()

    def trouble(self, name: str) -> None:
        self.troubled[name] = self.clock.monotonic()

    def quiet_since(self, store: Store, began: float) -> bool:
        """Whether nothing but the gateway troubled the store's workers since then."""
        names = (store.name, "county", *(worker.name for worker in store.workers))
        return all(self.troubled.get(name, -1.0) < began for name in names)


def _worker(target: Target, step: Step) -> Member:
    return target.topology.workers[step.target]


async def kill(target: Target, step: Step) -> None:
    await target.kill(_worker(target, step))


async def kill_in_phase(target: Target, step: Step) -> None:
    phase, number = step.detail.split()
    worker = _worker(target, step)
    if phase in PHASES_IN_A_COMMAND:
        words = [
            "store",
            "backup" if phase == "backup" else "clean",
            "--store",
            str(target.topology.store_of(worker.name).path),
        ]
        await _in_a_command(target, step, words, phase, number)
        return
    file = worker.folder / "phase"
    file.write_text(f"{phase} {number}")
    if phase in PHASES_AT_A_START:
        await target.kill(worker)
    elif phase == "drain":
        worker.expects_exit = "terminated"
        worker.send(signal.SIGTERM)
    if number == "SIGKILL":
        worker.expects_exit = "killed"
    elif number == "SIGTERM":
        worker.expects_exit = "terminated"
    target.trouble(worker.name)
    if await wait_until(lambda: not file.exists(), target.clock, seconds=_PHASE_SECONDS):
        target.kills += number == "SIGKILL"
        if number == "SIGSTOP":
            await _resume_later(target, worker, 4.0)
    file.unlink(missing_ok=True)


async def _resume_later(target: Target, worker: Member, seconds: float) -> None:
    """It has stopped itself."""
    pid, began = worker.pid, target.clock.monotonic()
    target.judge.paused.setdefault(pid, []).append((began - 1.0, began + seconds + 2.0))
    await target.clock.sleep(seconds)
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGCONT)
    target.trouble(worker.name)


async def _in_a_command(target: Target, step: Step, words: list[str], phase: str, number: str) -> None:
    """A command that is killed on the way; then again, to its end."""
    for attempt in (1, 2):
        name = f"{phase}-{step.at}-{attempt}"
        member = target.topology.command(name, words)
        if attempt == 1:
            (member.folder / "phase").write_text(f"{phase} {number if number != 'SIGSTOP' else 'SIGKILL'}")
        await member.start()
        member.is_wanted = False
        await _ended(member)
        target.kills += attempt == 1 and member.exit_code == -signal.SIGKILL
        if "Traceback" in member.log.read_text(errors="replace"):
            _fail("I9", f"'parcelpost {' '.join(words[:2])}' crashed: {member.last_lines(1)}")


async def _ended(member: Member) -> None:
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            await member.wait()
    except TimeoutError:
        await member.kill()


def _fail(invariant: str, text: str, kind: str = "stuck") -> None:
    raise BrokenInvariant(Violation(invariant=invariant, kind=kind, text=text))


async def pause(target: Target, step: Step) -> None:
    worker = _worker(target, step)
    store = target.topology.store_of(worker.name)
    if not worker.runs or any(one.is_stopped for one in store.workers):
        return
    pid, began = worker.pid, target.clock.monotonic()
    target.judge.paused.setdefault(pid, []).append((began, began + step.seconds + 2.0))
    target.trouble(worker.name)
    target.trouble(store.name)  # it may be stopped in the middle of a write
    worker.pause()
    await target.clock.sleep(step.seconds)
    if worker.pid == pid:
        worker.resume()
    target.trouble(worker.name)
    target.trouble(store.name)


async def terminate(target: Target, step: Step) -> None:
    await target.kill(_worker(target, step), signal.SIGTERM, "terminated")


async def kill_gateway(target: Target, step: Step) -> None:
    gateway = next(one for one in target.topology.gateways if one.name == step.target)
    gateway.expects_exit = "killed"
    gateway.holds_until = target.clock.monotonic() + step.seconds
    gateway.send(signal.SIGKILL)
    target.kills += 1
    await gateway.wait()


async def network(target: Target, step: Step) -> None:
    """A share of the requests of one store's workers, and perhaps of those to the county, for some seconds."""
    seconds = target.chance.uniform(0.1, 5.0)
    trouble = Trouble(kind=step.detail, rate=target.chance.choice((0.3, 0.7, 1.0)), seconds=seconds, worker=step.target)
    proxies = list(target.topology.gateway_proxies)
    if step.detail in ("delayed", "cut", "refused") and target.chance.random() < 0.3:
        target.trouble("county")
        target.topology.county_proxy.troubles[step] = replace(trouble, worker="")
        proxies.append(target.topology.county_proxy)
    for proxy in target.topology.gateway_proxies:
        proxy.troubles[step] = trouble
    try:
        await target.clock.sleep(step.seconds)
    finally:
        for proxy in proxies:
            proxy.troubles.pop(step, None)


async def gateway_away(target: Target, step: Step) -> None:
    """All gateways refuse every connection. Stores that nothing else troubles must go on scraping (I7)."""
    began = target.clock.monotonic()
    if began < target.away_until:
        return  # the workers need new tasks first
    target.away_until = began + step.seconds + _SUPPLY_SECONDS
    for proxy in target.topology.gateway_proxies:
        proxy.troubles[step] = Trouble(kind="refused")
    try:
        await target.clock.sleep(_LAST_SAVES_SECONDS)
        target.judge.read_told()
        saves = dict(target.judge.saves_of)
        able = [store for store in target.topology.stores.values() if _can_scrape(target, store, began)]
        await target.clock.sleep(step.seconds - _LAST_SAVES_SECONDS)
        for store in able:
            await _check_scraping(target, store, saves.get(store.name, 0), began)
    finally:
        for proxy in target.topology.gateway_proxies:
            proxy.troubles.pop(step, None)


def _can_scrape(target: Target, store: Store, began: float) -> bool:
    """Whether a worker of the store has scraped before, and has enough tasks."""
    first = target.judge.first_save
    has_saved = any(one.runs and not one.is_stopped and first.get(one.pid, began) < began for one in store.workers)
    ready, is_quiet = _ready_tasks(store), target.quiet_since(store, began - 3.0)
    target.judge.note("gateway-away", target=store.name, has_saved=has_saved, ready=ready, is_quiet=is_quiet)
    return has_saved and ready > _READY_TASKS


async def _check_scraping(target: Target, store: Store, saves: int, began: float) -> None:
    """Waits somewhat longer on a machine that is busy with something else."""

    def has_scraped() -> bool:
        target.judge.read_told()
        return target.judge.saves_of[store.name] > saves or not target.quiet_since(store, began - 3.0)

    await wait_until(has_scraped, target.clock, seconds=_BUSY_SECONDS)
    if target.quiet_since(store, began - 3.0):
        seconds = target.clock.monotonic() - began - _LAST_SAVES_SECONDS
        target.judge.check_offline(store, target.judge.saves_of[store.name] - saves, seconds)


def _ready_tasks(store: Store) -> int:
    query = """SELECT (SELECT count(*) FROM tasks WHERE status = 'pending' AND available_at IS NULL)
        * NOT EXISTS (SELECT 1 FROM platform_pauses)"""
    try:
        with contextlib.closing(read_only(store.path)) as db:
            return int(db.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0


async def lease_expiry(target: Target, step: Step) -> None:
    """A worker is silent until its leases have ended and others have its tasks."""
    worker = target.chance.choice(list(target.topology.workers.values()))
    await pause(target, Step(at=step.at, fault="pause", target=worker.name, seconds=LEASE_SECONDS + 2.0))


async def poison(target: Target, step: Step) -> None:
    """A result that the gateway refuses, together with every batch that it is in."""
    candidates = [task for task in target.topology.tasks if task not in target.judge.receipts]
    if candidates:
        task = target.chance.choice(candidates)
        target.judge.poison.add(task)
        for proxy in target.topology.gateway_proxies:
            proxy.poison.add(task)


async def site(target: Target, step: Step) -> None:
    target.trouble("county")
    rate = _SITE_RATES.get(step.detail, 0.3)
    await _set_site_fault(target, step.detail, rate)
    try:
        await target.clock.sleep(step.seconds)
    finally:
        await _set_site_fault(target, step.detail, 0.0)
        target.trouble("county")


async def _set_site_fault(target: Target, name: str, rate: float) -> None:
    address = f"{target.topology.county_url}/_control/faults?name={name}&rate={rate}"
    with contextlib.suppress(OSError):
        await asyncio.to_thread(lambda: urlopen(address, timeout=5.0).close())  # noqa: S310 - our own simulator


def _store(target: Target, step: Step) -> Store:
    return target.topology.stores[step.target]


async def lock_store(target: Target, step: Step) -> None:
    """Another program holds the write lock."""
    store = _store(target, step)
    target.trouble(store.name)
    try:
        with contextlib.closing(sqlite3.connect(store.path, timeout=1.0, isolation_level=None)) as db:
            db.execute("BEGIN EXCLUSIVE")
            await target.clock.sleep(step.seconds)
            db.execute("ROLLBACK")
    except sqlite3.Error:
        pass  # a worker holds it, or the disk is gone
    target.trouble(store.name)


async def raw_folder_away(target: Target, step: Step) -> None:
    """Moved away, as by somebody who tidies up, and put back. What was made meanwhile is put beside it."""
    store = _store(target, step)
    away = store.raw_folder.with_name("data.away")
    target.trouble(store.name)
    try:
        store.raw_folder.rename(away)
    except OSError:
        return
    try:
        await target.clock.sleep(step.seconds)
    finally:
        if store.raw_folder.exists():
            shutil.copytree(away, store.raw_folder, dirs_exist_ok=True)
            shutil.rmtree(away)
        elif away.exists():
            away.rename(store.raw_folder)
    target.trouble(store.name)


async def corrupt_copy(target: Target, step: Step) -> None:
    """A copy of the store with wrong bytes in it: `store check` says so, `store salvage` invents nothing."""
    store = _store(target, step)
    folder = target.topology.folder / f"copy-{step.at}"
    folder.mkdir()
    copy = folder / "copy.db"
    try:
        with (
            contextlib.closing(read_only(store.path)) as source,
            contextlib.closing(sqlite3.connect(copy)) as made,
        ):
            source.backup(made)
    except sqlite3.Error:
        return
    content = bytearray(copy.read_bytes())
    for _ in range(30):
        place = target.chance.randrange(4096, max(len(content), 4097 + 64) - 64)
        content[place : place + 64] = target.chance.randbytes(64)
    copy.write_bytes(content)
    for words in (["store", "check", "--store", str(copy)], ["tasks", "list", "--store", str(copy)]):
        member = target.topology.command(f"{words[0]}-{words[1]}-{step.at}", words)
        await member.start()
        member.is_wanted = False
        await _ended(member)
        if "Traceback" in member.log.read_text(errors="replace"):
            _fail(
                "I3", f"'parcelpost {' '.join(words[:2])}' crashed on a damaged copy: see {member.log}", "half-written"
            )
    shutil.rmtree(folder, ignore_errors=True)


async def new_store(target: Target, step: Step) -> None:
    """A store whose making is killed half-way opens the next time, with the task that it is then given."""
    store = target.topology.folder / f"new-{step.at}" / "parcelpost.db"
    words = ["add", "echo", "1", "--state", "CT", "--county", "hartford", "--store", str(store)]
    await _in_a_command(target, step, words, "migration", "SIGKILL")
    with contextlib.closing(sqlite3.connect(store)) as db:
        count = db.execute("SELECT count(*) FROM tasks").fetchone()[0]
    if count != 1:
        _fail("I1", f"the new store has {count} tasks instead of 1", "lost")
    shutil.rmtree(store.parent)


async def clock_jump(target: Target, step: Step) -> None:
    """One worker's wall clock, and back."""
    worker = _worker(target, step)
    file = worker.folder / "clock"
    target.trouble(worker.name)
    file.write_text(step.detail)
    await target.clock.sleep(step.seconds)
    file.unlink(missing_ok=True)
    target.trouble(worker.name)


async def memory_limit(target: Target, step: Step) -> None:
    """Hardly any memory more than the worker has by now."""
    await _limited(target, step, psutil.RLIMIT_AS if hasattr(psutil, "RLIMIT_AS") else None, memory=True)


async def file_size_limit(target: Target, step: Step) -> None:
    """No file of the worker may grow beyond what the largest one has: writes fail half-way."""
    await _limited(target, step, psutil.RLIMIT_FSIZE if hasattr(psutil, "RLIMIT_FSIZE") else None, memory=False)


async def _limited(target: Target, step: Step, limit: int | None, *, memory: bool) -> None:
    worker = _worker(target, step)
    store = target.topology.store_of(worker.name)
    if not worker.runs or limit is None:
        return
    process = psutil.Process(worker.pid)
    wal = store.path.with_name(f"{store.path.name}-wal")
    try:
        most = process.memory_info().vms + 8 * 1024**2 if memory else wal.stat().st_size + 64 * 1024
        _, hard = process.rlimit(limit)
        target.trouble(worker.name)
        target.trouble(store.name)
        worker.expects_exit = "limited"
        process.rlimit(limit, (most, hard))
        await target.clock.sleep(step.seconds)
        process.rlimit(limit, (hard, hard))
    except (OSError, psutil.Error):
        pass
    target.trouble(store.name)
    await target.clock.sleep(3.0)
    if worker.expects_exit == "limited":
        worker.expects_exit = ""


# Disks


def _on_disk(target: Target, step: Step) -> tuple[Store, LoopDisk]:
    store = _store(target, step)
    if store.disk is None:
        raise ParcelpostError(f"store {store.name} has no disk of its own")
    return store, store.disk


async def power_cut(target: Target, step: Step) -> None:
    await _cut_power(target, step, "power cut")


async def disk_fails(target: Target, step: Step) -> None:
    """Every fsync and every write fails under running workers. Then the disk is mounted again."""
    await _cut_power(target, step, "disk failed")


async def _cut_power(target: Target, step: Step, exit_reason: str) -> None:
    """Cuts off the disk and mounts it again after the step's seconds: at once after a power cut."""
    store, disk = _on_disk(target, step)
    for worker in store.workers:
        worker.expects_exit = exit_reason
        worker.holds_until = target.clock.monotonic() + 60.0
    target.trouble(store.name)
    disk.cut_power()
    target.power_cuts += 1
    await target.clock.sleep(step.seconds)
    await _remount(target, store, disk)


async def _remount(target: Target, store: Store, disk: LoopDisk) -> None:
    for worker in store.workers:
        await target.kill(worker, why="power cut")
    for attempt in range(50):
        try:
            await asyncio.to_thread(disk.unmount)
            break
        except disks.DiskError:
            if attempt == 49:
                raise
            await target.clock.sleep(0.1)  # a command or the judge has a file open
    await asyncio.to_thread(disk.mount)
    for worker in store.workers:
        worker.holds_until = 0.0
    target.trouble(store.name)


async def disk_full(target: Target, step: Step) -> None:
    store, disk = _on_disk(target, step)
    target.trouble(store.name)
    for worker in store.workers:
        worker.expects_exit = "disk full"
    filler = await asyncio.to_thread(disk.fill)
    target.full_disks += 1
    try:
        await target.clock.sleep(step.seconds)
    finally:
        with contextlib.suppress(OSError):
            filler.unlink(missing_ok=True)
    await _settle(target, store, "disk full")


async def disk_read_only(target: Target, step: Step) -> None:
    store, disk = _on_disk(target, step)
    target.trouble(store.name)
    for worker in store.workers:
        worker.expects_exit = "disk read-only"
    try:
        await asyncio.to_thread(disk.make_read_only, True)
    except disks.DiskError:
        # Busy: the kernel refuses while a file is open for writing. A disk that turns read-only by itself does not ask.
        for worker in store.workers:
            worker.holds_until = target.clock.monotonic() + 60.0
            await target.kill(worker, why="disk read-only")
        with contextlib.suppress(disks.DiskError):
            await asyncio.to_thread(disk.make_read_only, True)
        for worker in store.workers:
            worker.holds_until = 0.0
    await target.clock.sleep(step.seconds)
    try:
        await asyncio.to_thread(disk.make_read_only, False)
    except disks.DiskError:  # the file system has given itself up meanwhile
        await _remount(target, store, disk)
    await _settle(target, store, "disk read-only")


async def _settle(target: Target, store: Store, why: str) -> None:
    target.trouble(store.name)
    await target.clock.sleep(4.0)
    for worker in store.workers:
        if worker.expects_exit == why:
            worker.expects_exit = ""


def _one_at_a_time(fault: Callable[[Target, Step], Awaitable[None]]) -> Callable[[Target, Step], Awaitable[None]]:
    """Of the faults of a disk: the second one waits for the first."""

    async def apply(target: Target, step: Step) -> None:
        async with target.disk_locks.setdefault(step.target, asyncio.Lock()):
            await fault(target, step)

    return apply


class Fault(Struct, frozen=True):
    apply: Callable[[Target, Step], Awaitable[None]]
    summary: str
    attacks: str
    """The invariants."""
    needs_disks: bool = False


FAULTS: Mapping[str, Fault] = {
    "kill": Fault(kill, "SIGKILL of a worker at any moment", "I1 I2 I3 I9"),
    "kill-in-phase": Fault(kill_in_phase, "SIGKILL, SIGSTOP or SIGTERM in a chosen phase", "I1 I2 I3 I6 I9"),
    "pause": Fault(pause, "SIGSTOP of a worker, shorter or longer than its peers wait for it", "I4 I9"),
    "terminate": Fault(terminate, "SIGTERM of a worker, which drains", "I1 I9"),
    "kill-gateway": Fault(kill_gateway, "SIGKILL of a gateway, which is down for some seconds", "I2 I5"),
    "network": Fault(network, "answers refused, swallowed, delayed, cut, doubled, misdirected or garbled", "I2 I5 I6"),
    "gateway-away": Fault(gateway_away, "no gateway can be reached", "I7"),
    "lease-expiry": Fault(lease_expiry, "a worker is silent until its leases have ended", "I1 I4 I5"),
    "poison": Fault(poison, "a result that the gateway refuses with every batch that it is in", "I1 I2"),
    "site": Fault(site, "the county is slow, fails, blocks, hangs, redesigns or answers garbage", "I1 I6"),
    "lock-store": Fault(lock_store, "another program locks the database", "I2 I3"),
    "raw-folder-away": Fault(raw_folder_away, "the raw folder is moved away and put back", "I2 I6"),
    "corrupt-copy": Fault(corrupt_copy, "wrong bytes in a copy of the store", "I3"),
    "new-store": Fault(new_store, "the making of a store is killed half-way", "I1 I9"),
    "clock-jump": Fault(clock_jump, "a worker's wall clock jumps, and back", "I1 I9"),
    "memory-limit": Fault(memory_limit, "a worker gets no more memory", "I2 I8"),
    "file-size-limit": Fault(file_size_limit, "a worker's files cannot grow: writes fail half-way", "I2 I3 I8"),
    "power-cut": Fault(
        _one_at_a_time(power_cut),
        "a disk loses its power with all that was not synced",
        "I2 I3 I6 I9",
        needs_disks=True,
    ),
    "disk-full": Fault(_one_at_a_time(disk_full), "a disk is full", "I2 I8", needs_disks=True),
    "disk-read-only": Fault(_one_at_a_time(disk_read_only), "a disk turns read-only", "I2 I8", needs_disks=True),
    "disk-fails": Fault(
        _one_at_a_time(disk_fails), "every fsync fails under running workers", "I2 I3 I6", needs_disks=True
    ),
}


def attackers(breaks: str) -> list[str]:
    """Returns the faults that attack the invariant that a break breaks."""
    return [name for name, fault in FAULTS.items() if breaks and BREAKS[breaks].invariant in fault.attacks.split()]


def why_not(fault: str, topology: Topology) -> str:
    """Returns why a fault is skipped, '' if it is not."""
    if FAULTS[fault].needs_disks and not topology.is_on_disks:
        return disks.why_not() or "this profile has no disks of its own"
    return ""
