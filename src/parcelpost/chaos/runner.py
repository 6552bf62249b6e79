"""One run: starts the processes, follows the schedule, restarts what ended, and compares all the while."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import random
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field

from parcelpost.chaos.faults import FAULTS, Target, attackers, why_not
from parcelpost.chaos.judge import BrokenInvariant, Journal, Judge, Violation, read_only
from parcelpost.chaos.processes import Member, wait_until
from parcelpost.chaos.schedule import PROFILES, Step, make_schedule
from parcelpost.chaos.topology import Store, Topology
from parcelpost.clock import Clock

_POLL_SECONDS = 0.2
_CHECK_SECONDS = 3.0
_PAGES_SECONDS = 15.0
_GATEWAY_SECONDS = 10.0
_FEED_BELOW = 500
_SETTLE_SECONDS = 180.0
_EXCUSED_SECONDS = 30.0
_DOWN_SECONDS = (0.05, 0.6)


class Recovery(Struct, frozen=True):
    at: float
    worker: str
    why: str
    seconds: float
    """From the new start to the first result that was saved."""


class Done(Struct, frozen=True):
    """A step that was taken, or why it was not."""

    step: Step
    began: float
    skipped: str = ""


class Outcome(Struct, kw_only=True):
    profile: str
    seed: int
    breaks: str
    folder: str
    seconds: float = 0.0
    gateways: str = ""
    steps: list[Done] = field(default_factory=list)
    kills: int = 0
    power_cuts: int = 0
    full_disks: int = 0
    network_faults: int = 0
    restarts: int = 0
    tasks: int = 0
    saved: int = 0
    delivered: int = 0
    checked: dict[str, int] = field(default_factory=dict)
    per_second: list[tuple[int, int]] = field(default_factory=list)
    """Results saved, and acknowledged by a gateway, in each second."""
    recoveries: list[Recovery] = field(default_factory=list)
    violation: Violation | None = None
    history: list[str] = field(default_factory=list)

    @property
    def skipped(self) -> dict[str, str]:
        return {done.step.fault: done.skipped for done in self.steps if done.skipped}


Say = Callable[[str], None]


class Runner:
    def __init__(
        self, profile: str, seed: int, seconds: float, folder: Path, clock: Clock, say: Say, breaks: str
    ) -> None:
        self._profile = PROFILES[profile]
        self._seconds = seconds
        self._folder = folder
        self._clock = clock
        self._say = say
        self.schedule: Sequence[Step] = make_schedule(self._profile, seed, seconds, attackers(breaks))
        self.outcome = Outcome(profile=profile, seed=seed, breaks=breaks, folder=str(folder))
        self._chance = random.Random(f"run/{seed}")  # noqa: S311 - no secrets
        self._began = 0.0
        self._waiting: dict[int, tuple[float, str, str]] = {}
        """Start, name and reason of restarted workers that have not saved a result yet."""
        self._is_ending = False

    async def run(self) -> Outcome:
        self._journal = Journal(self._folder / "journal.jsonl", self._clock)
        self._judge = Judge(self._journal, self._clock)
        observe = {"county": self._judge.saw_county, "gateway": self._judge.saw_gateway}
        topology = Topology(self._profile, self._folder, self.outcome.seed, self._clock, observe, self.outcome.breaks)
        self._judge.topology = self._topology = topology
        began = self._clock.monotonic()
        try:
            async with topology:
                self._began = self._clock.monotonic()
                self.outcome.gateways = "PostgreSQL" if topology.is_on_postgres else "SQLite"
                self._target = Target(topology=topology, judge=self._judge, clock=self._clock, chance=self._chance)
                await self._run()
        except BaseExceptionGroup as group:
            violations, others = group.split(BrokenInvariant)
            if others is not None:
                raise
            self._found(violations)
        except BrokenInvariant as error:
            self._found(error)
        finally:
            self._sum_up(began)
            self._journal.close()
        return self.outcome

    def _found(self, error: BaseException | None) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BrokenInvariant):
            self.outcome.violation = error.violation
            self.outcome.history = self._journal.history(error.violation.task) if error.violation.task else []

    async def _run(self) -> None:
        async with asyncio.TaskGroup() as group:
            background = [
                group.create_task(work) for work in (self._supervise(), self._watch(), self._compare(), self._feed())
            ]
            await self._until_all_scrape()
            await self._follow_schedule()
            self._is_ending = True
            self._say("All faults are over. Waiting until every task has ended and is delivered ...")
            await self._heal()
            unfinished = await self._settle()
            for task in background:
                task.cancel()
        await self._check_all(unfinished)

    async def _until_all_scrape(self) -> None:
        """The clock of the schedule starts when every store has saved a result."""
        stores = self._topology.stores
        await wait_until(lambda: all(self._judge.saves_of[name] for name in stores), self._clock)
        self._began = self._clock.monotonic()
        self.outcome.per_second.clear()

    async def _follow_schedule(self) -> None:
        async with asyncio.TaskGroup() as group:
            for step in self.schedule:
                await self._clock.sleep(max(0.0, self._began + step.at - self._clock.monotonic()))
                group.create_task(self._take(step))
            await self._clock.sleep(max(0.0, self._began + self._seconds - self._clock.monotonic()))

    async def _take(self, step: Step) -> None:
        reason = why_not(step.fault, self._topology)
        self.outcome.steps.append(Done(step, self._clock.monotonic() - self._began, reason))
        self._say(f"{step}{f'  (skipped: {reason})' if reason else ''}")
        if reason:
            return
        self._journal.note("fault", step.fault, target=step.target, seconds=step.seconds, detail=step.detail)
        try:
            await FAULTS[step.fault].apply(self._target, step)
        except (OSError, sqlite3.Error) as error:
            self._journal.note("fault", "failed", target=step.target, error=str(error))

    # What goes on all the while

    async def _supervise(self) -> None:
        """Starts whatever has ended, as a service manager would."""
        while True:
            for member in self._topology.members:
                if member.is_wanted and not member.runs and self._clock.monotonic() > member.holds_until:
                    self._check_exit(member)
                    why = member.expects_exit
                    await self._clock.sleep(self._chance.uniform(*_DOWN_SECONDS))
                    await member.start()
                    self.outcome.restarts += 1
                    self._journal.note(member.name, "started", pid=member.pid, after=why)
                    if member.name in self._topology.workers:
                        self._waiting[member.pid] = (member.started_at, member.name, why)
            await self._clock.sleep(_POLL_SECONDS / 2)

    def _check_exit(self, member: Member) -> None:
        now = self._clock.monotonic()
        self._judge.dead.setdefault(member.pid, now)
        self._journal.note(member.name, "exited", code=member.exit_code, expected=member.expects_exit)
        if member.exit_code == -signal.SIGKILL:
            member.expects_exit = member.expects_exit or "killed"  # nobody else sends it
        if member.expects_exit or member.name == "county":
            return
        names = {member.name, *(store.name for store in self._stores_of(member))}
        if any(now - self._target.troubled.get(name, -1e9) < _EXCUSED_SECONDS for name in names):
            return  # its disk or its store was hurt: it may end, and loses nothing
        code = member.exit_code or 0
        ended = signal.Signals(-code).name if code < 0 else f"code {code}"
        text = f"{member.name} ended by itself with {ended}: {member.last_lines(2)}"
        raise BrokenInvariant(Violation(invariant="I7", kind="stuck", text=text))

    def _stores_of(self, member: Member) -> list[Store]:
        return [store for store in self._topology.stores.values() if member in store.workers]

    async def _watch(self) -> None:
        delivered = saved = 0
        next_second = self._clock.monotonic() + 1.0
        while True:
            self._judge.raise_broken()
            self._judge.read_told()
            self._note_recoveries()
            if self._clock.monotonic() >= next_second:
                next_second += 1.0
                now_saved, now_delivered = self._judge.saves, len(self._judge.receipts)
                self.outcome.per_second.append((now_saved - saved, now_delivered - delivered))
                saved, delivered = now_saved, now_delivered
            await self._clock.sleep(_POLL_SECONDS)

    def _note_recoveries(self) -> None:
        for pid, (started, name, why) in list(self._waiting.items()):
            saved_at = self._judge.first_save.get(pid)
            if saved_at is not None:
                at = started - self._began
                self.outcome.recoveries.append(Recovery(at, name, why, saved_at - started))
            if saved_at is not None or pid in self._judge.dead:
                del self._waiting[pid]

    async def _compare(self) -> None:
        next_pages = next_gateway = 0.0
        while True:
            now = self._clock.monotonic()
            for store in self._topology.stores.values():
                await self._compare_store(store)
            if now >= next_pages:
                next_pages = now + _PAGES_SECONDS
                for store in self._topology.stores.values():
                    await self._compare_pages(store)
            if now >= next_gateway:
                next_gateway = now + _GATEWAY_SECONDS
                await self._compare_gateway()
            await self._clock.sleep(_CHECK_SECONDS)

    async def _compare_store(self, store: Store) -> None:
        with contextlib.suppress(sqlite3.Error, OSError):  # its disk is gone for now, or it is not made yet
            await self._judge.check_store(store)

    async def _compare_pages(self, store: Store) -> None:
        """After a power cut the next start restores pages: until all have started they may be missing."""
        is_quiet = self._clock.monotonic() - self._target.troubled.get(store.name, -1e9) > 10.0
        if is_quiet and all(one.runs and one.pid in self._judge.opened for one in store.workers):
            with contextlib.suppress(sqlite3.Error, OSError):
                await self._judge.check_pages(store)

    async def _compare_gateway(self, *, with_data: bool = False) -> None:
        acknowledged = {task: set(keys) for task, keys in self._judge.receipts.items()}
        with contextlib.suppress(sqlite3.OperationalError):  # it is locked for now
            self._judge.check_gateway(await self._ledger(_RESULTS_WITH_DATA if with_data else _RESULTS), acknowledged)

    async def _feed(self) -> None:
        while True:
            if not self._is_ending:
                (row,) = await self._ledger("SELECT count(*) FROM tasks WHERE state IN ('queued', 'leased')")
                if int(row[0]) < _FEED_BELOW:
                    await self._topology.add_wave()
            await self._clock.sleep(2.0)

    async def _ledger(self, query: str) -> list[tuple[str, ...]]:
        """Reads the gateways' database itself."""
        if self._topology.is_on_postgres:
            import asyncpg  # noqa: PLC0415 - an extra

            db = await asyncpg.connect(self._topology.database)
            try:
                return [_hashed(tuple(row)) for row in await db.fetch(query)]
            finally:
                await db.close()
        return await asyncio.to_thread(_read_ledger, Path(self._topology.database), query)

    # The end

    async def _heal(self) -> None:
        for proxy in (*self._topology.gateway_proxies, self._topology.county_proxy):
            proxy.troubles.clear()
            proxy.poison.clear()
        for worker in self._topology.workers.values():
            (worker.folder / "phase").unlink(missing_ok=True)
            worker.resume()

    async def _settle(self) -> list[tuple[str, str]]:
        """Waits until nothing is left to do, as long as something is done. Returns what is left at the gateway."""
        deadline, best = self._clock.monotonic() + _SETTLE_SECONDS, 1_000_000_000
        while True:
            left = [row for row in await self._ledger(_UNFINISHED) if row[0] not in self._judge.poison]
            waiting = sum([await asyncio.to_thread(_open_rows, store.path) for store in self._topology.stores.values()])
            if len(left) + waiting == 0:
                return []
            if len(left) + waiting < best:
                best, deadline = len(left) + waiting, self._clock.monotonic() + _SETTLE_SECONDS
            elif self._clock.monotonic() > deadline:
                return [(row[0], row[1]) for row in left]
            await self._clock.sleep(1.0)

    async def _check_all(self, unfinished: list[tuple[str, str]]) -> None:
        self._judge.read_told()
        for store in self._topology.stores.values():
            await self._judge.check_store(store)
            await self._judge.check_pages(store)
        await self._compare_gateway(with_data=True)
        self._judge.check_order([(row[0], row[1], row[2]) for row in await self._ledger(_ORDER)])
        self._judge.check_end(unfinished)

    def _sum_up(self, began: float) -> None:
        outcome, judge, target = self.outcome, self._judge, getattr(self, "_target", None)
        outcome.seconds = self._clock.monotonic() - began
        outcome.checked = dict(sorted(judge.checked.items()))
        outcome.tasks, outcome.saved, outcome.delivered = len(self._topology.tasks), judge.saves, len(judge.receipts)
        outcome.network_faults = sum(
            proxy.struck
            for proxy in (*self._topology.gateway_proxies, getattr(self._topology, "county_proxy", None))
            if proxy
        )
        if target is not None:
            outcome.kills, outcome.power_cuts, outcome.full_disks = target.kills, target.power_cuts, target.full_disks


_RESULTS = "SELECT task_id, idempotency_key FROM results"
_RESULTS_WITH_DATA = "SELECT task_id, idempotency_key, data FROM results"
_UNFINISHED = "SELECT task_id, state FROM tasks WHERE state IN ('queued', 'leased')"
_ORDER = """
SELECT s.parcel_id, s.task_id, r.task_id FROM sources s JOIN results r ON r.source_no = s.source_no
WHERE r.scraped_at > s.scraped_at
"""


def _read_ledger(path: Path, query: str) -> list[tuple[str, ...]]:
    with contextlib.closing(read_only(path)) as db:
        return [_hashed(row) for row in db.execute(query)]


def _hashed(row: tuple[str, ...]) -> tuple[str, ...]:
    """Replaces a record by its hash."""
    if len(row) == 3 and row[2].startswith("{"):
        return (*row[:2], hashlib.sha256(row[2].encode()).hexdigest())
    return row


def _open_rows(path: Path) -> int:
    query = """SELECT (SELECT count(*) FROM tasks WHERE status IN ('pending', 'processing'))
        + (SELECT count(*) FROM results WHERE synced = 0 AND rejected_at IS NULL)"""
    try:
        with contextlib.closing(read_only(path)) as db:
            return int(db.execute(query).fetchone()[0])
    except sqlite3.Error:
        return 1


def slowest(recoveries: Sequence[Recovery], most: int = 10) -> list[Recovery]:
    return sorted(recoveries, key=lambda one: -one.seconds)[:most]


def by_fault(steps: Sequence[Done]) -> Counter[str]:
    return Counter(done.step.fault for done in steps if not done.skipped)
