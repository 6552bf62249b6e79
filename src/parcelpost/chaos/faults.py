"""Everything that is done to a run. A fault ends what it began: when it returns, the process or the disk is healed."""

from __future__ import annotations

import asyncio
import contextlib
import random
import shutil
import signal
import sqlite3
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import NoReturn
from urllib.request import urlopen

import psutil
from msgspec import Struct
from msgspec.structs import replace

from parcelpost.chaos import disks
from parcelpost.chaos.disks import DiskError, LoopDisk
from parcelpost.chaos.judge import BrokenInvariant, Judge, Violation, may_grow
from parcelpost.chaos.processes import Member, wait_until
from parcelpost.chaos.proxy import Trouble
from parcelpost.chaos.schedule import PHASES_AT_A_START, PHASES_IN_A_COMMAND, Step
from parcelpost.chaos.topology import Store, Topology, read_only
from parcelpost.clock import Clock
from parcelpost.storage import durable_files

_SITE_RATES = {"challenge": 0.05, "429": 0.2, "redesign": 1.0, "charset": 1.0}
_PHASE_SECONDS = 10.0
_COMMAND_SECONDS = 30.0
_DRAIN_SECONDS = 20.0
_GRACE_SECONDS = 40.0
"""A gateway gives open requests 30 s."""
_STOPPED_SECONDS = 4.0
_CLAIM_SECONDS = 5.0
_TAKE_OVER_SECONDS = 30.0
"""A peer looks for hung ones every 15 s."""
_EXCUSED_SECONDS = 30.0
_UNMOUNT_ATTEMPTS = 300
READY_TASKS = 20
_SUPPLY_SECONDS = 6.0
_BUSY_SECONDS = 10.0
_COMMANDS = {
    "migration": ("add", "echo", "1", "--state", "CT", "--county", "hartford"),
    "backup": ("store", "backup"),
    "cleaning": ("store", "clean", "--free-space"),
}
_LAST_SAVES_SECONDS = 3.0
"""What was in progress when the gateway went away is saved by then."""


class Missed(Exception):
    """A fault that found nothing to hurt, and why."""


class Target(Struct, kw_only=True):
    """What faults work on."""

    topology: Topology
    judge: Judge
    clock: Clock
    power_cuts: int = 0
    full_disks: int = 0
    disk_locks: dict[str, asyncio.Lock] = {}
    away_until: float = 0.0
    """Until when the gateways cannot be reached, and for how long afterwards they stay."""
    troubled: dict[str, float] = {}
    """When a worker, a store or the county was last hit by something that may keep workers from scraping."""
    hurt: dict[str, tuple[float, str]] = {}
    """When a store was last hit by what may end its workers, and what it was: its disk, a limit or a lock."""

    async def kill(self, member: Member, number: int = signal.SIGKILL) -> None:
        """The run starts it again."""
        began = self.clock.monotonic()
        if not member.runs:
            raise Missed("it does not run")
        self.judge.dead.setdefault(member.pid, began)
        self.trouble(member.name)
        if member.is_stopped and number != signal.SIGKILL:
            member.resume()
        member.send(number)
        await self.ends(member, began)

    async def ends(self, member: Member, began: float) -> None:
        """Waits until it has ended, as it was told to."""
        most = _GRACE_SECONDS if member in self.topology.gateways else _DRAIN_SECONDS
        try:
            async with asyncio.timeout(most):
                await member.wait()
        except TimeoutError:
            is_quiet = not member.is_stopped and self.troubled.get(member.name, -1.0) <= began
            member.send(signal.SIGKILL)
            await member.wait()
            if is_quiet and not self.hurt_by(member):
                _fail("I1", f"{member.name} did not end within {most:.0f} s of SIGTERM")

    def trouble(self, name: str, hurt_by: str = "") -> None:
        self.troubled[name] = self.clock.monotonic()
        if hurt_by:
            self.hurt[name] = self.troubled[name], hurt_by

    def hurt_by(self, member: Member) -> str:
        """What explains that it ended, or that a command on its store failed; '' if nothing does."""
        stores = [store for store in self.topology.stores.values() if member in store.workers]
        return next((found for store in stores if (found := self.store_hurt_by(store))), "")

    def store_hurt_by(self, store: Store) -> str:
        at, fault = self.hurt.get(store.name, (-1e9, ""))
        return fault if self.clock.monotonic() - at < _EXCUSED_SECONDS else ""

    def quiet_since(self, store: Store, began: float) -> bool:
        """Whether nothing but the gateway troubled the store's workers since then."""
        names = (store.name, "county", *(worker.name for worker in store.workers))
        return all(self.troubled.get(name, -1.0) < began for name in names)


def _worker(target: Target, step: Step) -> Member:
    return target.topology.workers[step.target]


async def kill(target: Target, step: Step) -> None:
    await target.kill(_worker(target, step))


async def kill_in_phase(target: Target, step: Step) -> None:
    phase, name = step.detail.split()
    worker = _worker(target, step)
    if phase in PHASES_IN_A_COMMAND:
        await _in_a_command(target, step, target.topology.store_of(worker.name), phase, name)
        return
    if not worker.runs:
        raise Missed("it does not run")
    began, file = target.clock.monotonic(), worker.folder / "phase"
    if file.exists():
        raise Missed("it is about to be hit in another phase")
    file.write_text(f"{phase} {name}")
    target.trouble(worker.name)
    try:
        if phase in PHASES_AT_A_START:
            await target.kill(worker)
        elif phase == "drain":
            worker.send(signal.SIGTERM)
        if not await wait_until(lambda: not file.exists(), target.clock, seconds=_PHASE_SECONDS):
            raise Missed(f"it did not come to {phase}")
    finally:
        file.unlink(missing_ok=True)
    if name == "SIGSTOP":
        await _resume_later(target, worker)
    elif phase not in PHASES_AT_A_START:
        await target.ends(worker, began)


async def _resume_later(target: Target, worker: Member) -> None:
    """It has stopped itself, perhaps in the middle of a write."""
    pid, began = worker.pid, target.clock.monotonic()
    store = target.topology.store_of(worker.name)
    target.judge.paused.setdefault(pid, []).append((began - 1.0, began + _STOPPED_SECONDS + 2.0))
    worker.is_stopped = True
    target.trouble(store.name, hurt_by="pause")
    await target.clock.sleep(_STOPPED_SECONDS)
    if worker.pid == pid:
        worker.resume()
    target.trouble(worker.name)
    target.trouble(store.name, hurt_by="pause")


async def _in_a_command(target: Target, step: Step, store: Store, phase: str, name: str) -> None:
    """A command that is killed, stopped or ended on the way; then again, to its end: its work is whole."""
    path = target.topology.folder / f"new-{step.at}" / "parcelpost.db" if phase == "migration" else store.path
    words = [*_COMMANDS[phase], "--store", str(path)]
    first = target.topology.command(f"{phase}-{step.at}-1", words)
    file = first.folder / "phase"
    file.write_text(f"{phase} {name}")
    await first.start()
    first.is_wanted = False
    await wait_until(lambda: not file.exists() or not first.runs, target.clock)
    has_struck = not file.exists()
    if has_struck and name == "SIGSTOP":
        target.trouble(store.name, hurt_by="pause")
        await target.clock.sleep(1.0)
        first.resume()
        target.trouble(store.name, hurt_by="pause")
    file.unlink(missing_ok=True)
    await _check_command(target, first, store, {0, -signal.SIGKILL, -signal.SIGTERM, 128 + signal.SIGTERM})
    target.judge.read_told()
    saved = {task: facts["key"] for (place, task), facts in target.judge.saved.items() if place == store.name}
    second = target.topology.command(f"{phase}-{step.at}-2", words)
    await second.start()
    second.is_wanted = False
    if await _check_command(target, second, store, {0}):
        if phase == "migration":
            _check_new_store(path, 1 if has_struck and name == "SIGKILL" else 2)
        elif phase == "backup":
            await asyncio.to_thread(_check_backup, target, store, saved)
    if not has_struck:
        raise Missed(f"it did not come to {phase}")


async def _check_command(target: Target, member: Member, store: Store, codes: Collection[int]) -> bool:
    """Whether a command ended as it has to. Only what hurt its store explains anything else."""
    hung = False
    try:
        async with asyncio.timeout(_COMMAND_SECONDS):
            await member.wait()
    except TimeoutError:
        hung = True
        await member.kill()
    log = member.log.read_text(errors="replace")
    if not hung and member.exit_code in codes and "Traceback" not in log:
        return True
    if not target.store_hurt_by(store):
        ended = "hangs" if hung else f"ended with {member.exit_code}"
        _fail("I9", f"'parcelpost {' '.join(member.command.words[:2])}' {ended}: {member.last_lines(1)} ({member.log})")
    return False


def _check_new_store(path: Path, most: int) -> None:
    with contextlib.closing(read_only(path)) as db:
        count = db.execute("SELECT count(*) FROM tasks").fetchone()[0]
    if not 1 <= count <= most:
        _fail("I1", f"the new store has {count} tasks", "lost")


def _check_backup(target: Target, store: Store, saved: Mapping[str, str]) -> None:
    """The newest backup is whole, and has what was saved before it began, unless that is delivered and cleaned away."""
    stamp = "[0-9]" * 8 + "T" + "[0-9]" * 6
    newest = max((store.path.parent / "backups").glob(f"*_{stamp}.db"), default=None)
    if newest is None:
        _fail("I2", "'store backup' made none", "lost")
    with store.opened(newest) as db:
        problem = db.execute("PRAGMA integrity_check").fetchone()[0]
        keys = dict(db.execute("SELECT task_id, idempotency_key FROM results"))
    target.judge.compared("I2", "lost", len(saved))
    for task, key in saved.items():
        if keys.get(task) != key and key not in target.judge.receipts.get(task, ()):
            problem = f"it lacks the saved result of {task}"
            break
    if problem != "ok":
        _fail("I2", f"the backup {newest.name} is of no use: {problem}", "lost")


def _fail(invariant: str, text: str, kind: str = "stuck") -> NoReturn:
    raise BrokenInvariant(Violation(invariant=invariant, kind=kind, text=text))


async def pause(target: Target, step: Step) -> None:
    async with _paused(target, _worker(target, step), step.seconds):
        await target.clock.sleep(step.seconds)


async def take_over(target: Target, step: Step) -> None:
    """A worker is stopped with a claim until a peer has claimed its task. Then it goes on with what it was doing."""
    worker, judge = _worker(target, step), target.judge
    pid = worker.pid
    if not await wait_until(lambda: bool(judge.held_by(pid)), target.clock, seconds=_CLAIM_SECONDS):
        raise Missed("it has no task")
    async with _paused(target, worker, _TAKE_OVER_SECONDS + step.seconds):
        held = judge.held_by(pid)
        if not await wait_until(
            lambda: judge.is_any_taken(held, pid), target.clock, lambda: not worker.runs, _TAKE_OVER_SECONDS
        ):
            raise Missed("no peer claimed its tasks")
        await target.clock.sleep(step.seconds)


@contextlib.asynccontextmanager
async def _paused(target: Target, worker: Member, most: float) -> AsyncIterator[None]:
    store = target.topology.store_of(worker.name)
    if not worker.runs or any(one.is_stopped for one in store.workers):
        raise Missed("it does not run, or a peer is stopped, too")
    pid, began = worker.pid, target.clock.monotonic()
    pauses = target.judge.paused.setdefault(pid, [])
    pauses.append((began, began + most + 2.0))
    target.trouble(worker.name)
    target.trouble(store.name, hurt_by="pause")  # it may be stopped in the middle of a write
    worker.pause()
    try:
        yield
    finally:
        if worker.pid == pid:
            worker.resume()
        pauses.remove((began, began + most + 2.0))
        pauses.append((began, target.clock.monotonic() + 2.0))
        target.trouble(worker.name)
        target.trouble(store.name, hurt_by="pause")


async def terminate(target: Target, step: Step) -> None:
    await target.kill(_worker(target, step), signal.SIGTERM)


async def kill_gateway(target: Target, step: Step) -> None:
    """It is away for the step's seconds: killed, ended or stopped."""
    gateway = next(one for one in target.topology.gateways if one.name == step.target)
    if not gateway.runs or gateway.is_stopped:
        raise Missed("it does not run")
    began, number = target.clock.monotonic(), signal.Signals[step.detail]
    if number == signal.SIGSTOP:
        gateway.pause()
        await target.clock.sleep(step.seconds)
        gateway.resume()
        return
    gateway.holds_until = began + step.seconds
    gateway.send(number)
    await target.ends(gateway, began)


async def network(target: Target, step: Step) -> None:
    """A share of the requests of one store's workers, and perhaps of those to the county, for some seconds."""
    chance = random.Random(step.number)  # noqa: S311 - no secrets
    trouble = Trouble(kind=step.detail, rate=step.rate, seconds=step.delay, worker=step.target, chance=chance)
    proxies = list(target.topology.gateway_proxies)
    for proxy in proxies:
        proxy.troubles[step] = trouble
    if step.with_county:
        target.trouble("county")
        target.topology.county_proxy.troubles[step] = replace(trouble, worker="")
        proxies.append(target.topology.county_proxy)
    try:
        await target.clock.sleep(step.seconds)
    finally:
        for proxy in proxies:
            proxy.troubles.pop(step, None)
        if step.with_county:
            target.trouble("county")


async def gateway_away(target: Target, step: Step) -> None:
    """All gateways refuse every connection. Stores that nothing else troubles must go on scraping (I7)."""
    began = target.clock.monotonic()
    if began < target.away_until:
        raise Missed("the workers need new tasks first")
    target.away_until = began + step.seconds + _SUPPLY_SECONDS
    for proxy in target.topology.gateway_proxies:
        proxy.troubles[step] = Trouble(kind="refused", chance=random.Random(0))  # noqa: S311 - no secrets
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
    ready, is_quiet = ready_tasks(store), target.quiet_since(store, began - 3.0)
    target.judge.note("gateway-away", target=store.name, has_saved=has_saved, ready=ready, is_quiet=is_quiet)
    return has_saved and ready > READY_TASKS and may_grow(store)


async def _check_scraping(target: Target, store: Store, saves: int, began: float) -> None:
    """Waits somewhat longer on a machine that is busy with something else."""

    def has_scraped() -> bool:
        target.judge.read_told()
        has_saved = target.judge.saves_of[store.name] > saves
        return has_saved or not may_grow(store) or not target.quiet_since(store, began - 3.0)

    await wait_until(has_scraped, target.clock, seconds=_BUSY_SECONDS)
    if may_grow(store) and target.quiet_since(store, began - 3.0):
        seconds = target.clock.monotonic() - began - _LAST_SAVES_SECONDS
        target.judge.check_offline(store, target.judge.saves_of[store.name] - saves, seconds)


def ready_tasks(store: Store) -> int:
    query = """SELECT (SELECT count(*) FROM tasks WHERE status = 'pending' AND available_at IS NULL)
        * NOT EXISTS (SELECT 1 FROM platform_pauses)"""
    try:
        with store.opened() as db:
            return int(db.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 0


async def poison(target: Target, step: Step) -> None:
    """A parcel's newest result, which the gateway refuses, to the end, together with every batch that it is in."""
    task = f"w{target.topology.waves}-{step.number}"
    if task in target.judge.receipts:
        raise Missed("it is delivered")
    target.judge.poison.add(task)
    target.judge.note("poisoned", task=task)
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
    with (
        store.in_use(),
        contextlib.closing(sqlite3.connect(store.path, timeout=1.0, isolation_level=None)) as db,
    ):
        db.execute("BEGIN EXCLUSIVE")
        target.trouble(store.name, hurt_by="lock")
        await target.clock.sleep(step.seconds)
        db.execute("ROLLBACK")
    target.trouble(store.name, hurt_by="lock")


async def raw_folder_away(target: Target, step: Step) -> None:
    """Moved away, as by somebody who tidies up, and put back. What was made meanwhile is put beside it."""
    store = _store(target, step)
    away = store.raw_folder.with_name("data.away")
    target.trouble(store.name, hurt_by="raw folder")
    store.raw_folder.rename(away)
    try:
        await target.clock.sleep(step.seconds)
    finally:
        if store.raw_folder.exists():
            shutil.copytree(away, store.raw_folder, dirs_exist_ok=True)
            shutil.rmtree(away)
        elif away.exists():
            away.rename(store.raw_folder)
        target.trouble(store.name, hurt_by="raw folder")


async def raw_folder_deleted(target: Target, step: Step) -> None:
    """Deleted with all pages. Then the operator puts an empty one in its place, which the store knows by its label.

    Pages that no journal has any more are lost: their results must be rejected with that reason, not lost in silence.
    """
    store = _store(target, step)
    label = (store.raw_folder / ".store").read_bytes()
    target.trouble(store.name, hurt_by="raw folder")
    target.judge.loses_pages.add(store.name)
    try:
        await asyncio.to_thread(shutil.rmtree, store.raw_folder, ignore_errors=True)
        await target.clock.sleep(step.seconds)
        await asyncio.to_thread(shutil.rmtree, store.raw_folder, ignore_errors=True)
        while not await asyncio.to_thread(target.judge.notes_lost_pages, store):
            await target.clock.sleep(0.2)
    finally:
        store.raw_folder.mkdir(exist_ok=True)
        (store.raw_folder / ".store").write_bytes(label)
        for path in (store.raw_folder / ".store", store.raw_folder, store.raw_folder.parent):
            await asyncio.to_thread(durable_files.sync_path, path)
        target.trouble(store.name, hurt_by="raw folder")


async def corrupt_copy(target: Target, step: Step) -> None:
    """A copy of the store with wrong bytes in it: `store check` says so, `store salvage` saves what it can."""
    store = _store(target, step)
    folder = target.topology.folder / f"copy-{step.at}"
    folder.mkdir()
    copy, salvaged = folder / "copy.db", folder / "salvaged.db"
    with store.opened() as source, contextlib.closing(sqlite3.connect(copy)) as made:
        source.backup(made)
        made.execute("PRAGMA journal_mode = DELETE")
        keys = set(made.execute(_KEYS))
    content, chance = bytearray(copy.read_bytes()), random.Random(step.number)  # noqa: S311 - no secrets
    for _ in range(30):
        place = chance.randrange(4096, max(len(content), 4097 + 64) - 64)
        content[place : place + 64] = chance.randbytes(64)
    copy.write_bytes(content)
    is_damaged = await asyncio.to_thread(_is_damaged, copy)
    check = await _on_a_copy(target, step, ["store", "check", "--deep", "--json", "--store", str(copy)])
    if is_damaged and check.exit_code == 0:
        _fail("I3", f"'store check' finds nothing in a damaged file: {copy}", "half-written")
    words = ["store", "salvage", "--to", str(salvaged), "--json", "--store", str(copy)]
    salvage = await _on_a_copy(target, step, words)
    if not await asyncio.to_thread(has_schema, copy):
        if salvage.exit_code != 1 or "nothing can be salvaged" not in salvage.last_lines():
            _fail("I3", f"'store salvage' does not say that nothing can be salvaged: {salvage.log}", "half-written")
        shutil.rmtree(folder)
        return
    if salvage.exit_code != 0:
        _fail("I3", f"'store salvage' ended with {salvage.exit_code}: {salvage.last_lines(1)}", "half-written")
    with contextlib.closing(read_only(salvaged)) as db:
        found = set(db.execute(_KEYS))
    target.judge.compared("I3", "half-written", len(found))
    if invented := found - keys:
        _fail("I3", f"'store salvage' made results up: {sorted(invented)[0]}", "half-written")
    lost = salvage.printed_json()["salvaged"]["lost_rows"]
    if len(keys - found) > lost:
        _fail("I2", f"'store salvage' lost {len(keys - found)} results and says {lost} rows", "lost")
    shutil.rmtree(folder)


_KEYS = "SELECT task_id, idempotency_key FROM results WHERE data IS NOT NULL"  # a lost report is made again


def _is_damaged(file: Path) -> bool:
    try:
        with contextlib.closing(read_only(file)) as db:
            return bool(db.execute("PRAGMA integrity_check").fetchone()[0] != "ok")
    except sqlite3.DatabaseError:
        return True


def has_schema(file: Path) -> bool:
    """Whether the pages that say where all tables are can be read."""
    try:
        with contextlib.closing(read_only(file)) as db:
            return bool(db.execute("SELECT count(sql) FROM sqlite_schema").fetchone())
    except sqlite3.DatabaseError:
        return False


async def _on_a_copy(target: Target, step: Step, words: list[str]) -> Member:
    member = target.topology.command(f"{words[1]}-{step.at}", words)
    await member.start()
    member.is_wanted = False
    if await member.wait() not in (0, 1) or "Traceback" in member.log.read_text(errors="replace"):
        _fail("I3", f"'parcelpost store {words[1]}' crashed on a damaged copy: see {member.log}", "half-written")
    return member


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
        raise Missed("it does not run, or there are no such limits here")
    process = psutil.Process(worker.pid)
    wal = store.path.with_name(f"{store.path.name}-wal")
    try:
        most = process.memory_info().vms + 8 * 1024**2 if memory else wal.stat().st_size + 64 * 1024
        _, hard = process.rlimit(limit)
        target.trouble(store.name, hurt_by="limit")
        process.rlimit(limit, (most, hard))
        await target.clock.sleep(step.seconds)
        process.rlimit(limit, (hard, hard))
    except psutil.NoSuchProcess:
        pass  # killed meanwhile
    target.trouble(store.name, hurt_by="limit")


# Disks


def _on_disk(target: Target, step: Step) -> tuple[Store, LoopDisk]:
    store = _store(target, step)
    if store.disk is None:
        raise Missed(f"store {store.name} has no disk of its own")
    return store, store.disk


async def power_cut(target: Target, step: Step) -> None:
    store, disk = _on_disk(target, step)
    for worker in store.workers:
        worker.holds_until = target.clock.monotonic() + 60.0
    target.trouble(store.name, hurt_by="power cut")
    disk.cut_power()
    target.power_cuts += 1
    await _remount(target, store, disk, "power cut")


async def disk_fails(target: Target, step: Step) -> None:
    """The device takes no new blocks: writes that the file system had taken, and their fsync, fail. Then it does."""
    store, disk = _on_disk(target, step)
    target.trouble(store.name, hurt_by="failing fsync")
    try:
        await asyncio.to_thread(disk.exhaust)
        await target.clock.sleep(step.seconds)
    finally:
        disk.replenish()
        target.trouble(store.name, hurt_by="failing fsync")
        try:
            (disk.path / "probe").write_bytes(b"")
        except OSError:  # the file system has given itself up meanwhile
            await _remount(target, store, disk, "failing fsync")


async def _remount(target: Target, store: Store, disk: LoopDisk, why: str) -> None:
    for worker in store.workers:
        worker.holds_until = target.clock.monotonic() + 60.0
        with contextlib.suppress(Missed):
            await target.kill(worker)
    for attempt in range(_UNMOUNT_ATTEMPTS):
        try:
            await asyncio.to_thread(disk.unmount)
            break
        except DiskError:
            if attempt + 1 == _UNMOUNT_ATTEMPTS:
                raise
            await target.clock.sleep(0.1)  # a command or the judge has a file open
    await asyncio.to_thread(disk.mount)
    await asyncio.to_thread(disk.make_room)
    for worker in store.workers:
        worker.holds_until = 0.0
    target.trouble(store.name, hurt_by=why)


async def disk_full(target: Target, step: Step) -> None:
    store, disk = _on_disk(target, step)
    target.trouble(store.name, hurt_by="full disk")
    await asyncio.to_thread(disk.readers.send_away)
    try:
        await asyncio.to_thread(disk.fill)
        target.full_disks += 1
        await target.clock.sleep(step.seconds)
    finally:
        with contextlib.suppress(OSError):
            await asyncio.to_thread(disk.make_room)
        disk.readers.let_in()
        target.trouble(store.name, hurt_by="full disk")


async def disk_read_only(target: Target, step: Step) -> None:
    store, disk = _on_disk(target, step)
    target.trouble(store.name, hurt_by="read-only disk")
    try:
        await asyncio.to_thread(disk.make_read_only, True)
    except DiskError:
        # Busy: the kernel refuses while a file is open for writing. A disk that turns read-only by itself does not ask.
        for worker in store.workers:
            worker.holds_until = target.clock.monotonic() + 60.0
            with contextlib.suppress(Missed):
                await target.kill(worker)
        try:
            await asyncio.to_thread(disk.make_read_only, True)
        finally:
            for worker in store.workers:
                worker.holds_until = 0.0
    await target.clock.sleep(step.seconds)
    try:
        await asyncio.to_thread(disk.make_read_only, False)
    except DiskError:  # the file system has given itself up meanwhile
        await _remount(target, store, disk, "read-only disk")
    target.trouble(store.name, hurt_by="read-only disk")


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
    "pause": Fault(pause, "SIGSTOP of a worker, shorter than its peers wait for it", "I9"),
    "take-over": Fault(take_over, "SIGSTOP of a worker with a task until a peer has it, too", "I4 I9"),
    "terminate": Fault(terminate, "SIGTERM of a worker, which drains", "I1 I9"),
    "kill-gateway": Fault(kill_gateway, "a gateway is killed, ended or stopped, and away for some seconds", "I2 I5"),
    "network": Fault(
        network,
        "requests refused, swallowed or doubled, answers delayed, cut, doubled, misdirected or garbled",
        "I2 I5 I6",
    ),
    "gateway-away": Fault(gateway_away, "no gateway can be reached", "I7"),
    "lease-expiry": Fault(pause, "a worker is silent until its leases have ended", "I1 I5"),
    "poison": Fault(poison, "a result that the gateway refuses with every batch that it is in", "I1 I2"),
    "site": Fault(site, "the county is slow, fails, blocks, hangs, redesigns or answers garbage", "I1 I6"),
    "lock-store": Fault(lock_store, "another program locks the database", "I2 I3"),
    "raw-folder-away": Fault(raw_folder_away, "the raw folder is moved away and put back", "I2 I6"),
    "raw-folder-deleted": Fault(raw_folder_deleted, "the raw folder is deleted with all pages", "I1 I2 I6"),
    "corrupt-copy": Fault(corrupt_copy, "wrong bytes in a copy of the store, which is checked and salvaged", "I2 I3"),
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
    "disk-fails": Fault(_one_at_a_time(disk_fails), "fsync fails under running workers", "I2 I3 I6", needs_disks=True),
}


def attackers(invariant: str) -> list[str]:
    """Returns the faults that attack an invariant; none of ''."""
    return [name for name, fault in FAULTS.items() if invariant in fault.attacks.split()]


def why_not(fault: str, topology: Topology) -> str:
    """Returns why a fault is skipped, '' if it is not."""
    if FAULTS[fault].needs_disks and not topology.is_on_disks:
        return disks.why_not() or "this profile has no disks of its own"
    return ""
