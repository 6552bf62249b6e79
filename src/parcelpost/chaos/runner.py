"""One run: starts the processes, follows the schedule, restarts what ended, and compares all the while."""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import signal
import sqlite3
from collections import Counter
from collections.abc import Callable, Sequence
from pathlib import Path

from msgspec import Struct, field
from msgspec.structs import replace

from parcelpost.chaos.disks import DiskError
from parcelpost.chaos.faults import FAULTS, READY_TASKS, Missed, Target, attackers, ready_tasks, why_not
from parcelpost.chaos.judge import RECOVERED_SECONDS, BrokenInvariant, Journal, Judge, Violation, may_grow
from parcelpost.chaos.processes import Member, wait_until
from parcelpost.chaos.schedule import PROFILES, Step, make_schedule
from parcelpost.chaos.topology import Store, Topology, read_only
from parcelpost.clock import Clock
from parcelpost.errors import ParcelpostError

_POLL_SECONDS = 0.2
_CHECK_SECONDS = 3.0
_PAGES_SECONDS = 15.0
_GATEWAY_SECONDS = 10.0
_FEED_BELOW = 80
"""Tasks that the gateways have for each worker."""
_SETTLE_SECONDS = 180.0
_LOCKED_SECONDS = 30.0
_DOWN_SECONDS = 0.3
_HISTORIES = 10


class Recovery(Struct, frozen=True):
    at: float
    worker: str
    why: str
    seconds: float
    """From the new start to the first result that was saved."""
    from_end: float
    """From the end of the process that had saved one: also when others were killed in between."""
    history: str = ""
    """Its name in the histories."""


class Done(Struct):
    """A step that was taken, or why it was not."""

    step: Step
    began: float
    skipped: str = ""


class Outcome(Struct, kw_only=True):
    profile: str
    seed: int
    minutes: float
    breaks: str
    attack: str
    folder: str
    seconds: float = 0.0
    found_after: float = 0.0
    """Seconds of faults until the violation."""
    gateways: str = ""
    clocks: str = ""
    """How clocks are made to jump."""
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
    """How many facts were compared, by invariant and kind: 'I2 lost'."""
    struck: dict[str, int] = field(default_factory=dict)
    """Phases in which a process was hit, and how: 'save SIGKILL'."""
    rejected: int = 0
    """Results of deleted pages and poison that wait for an operator, each with its reason."""
    per_second: list[tuple[int, int]] = field(default_factory=list)
    """Results saved, and acknowledged by a gateway, in each second."""
    recoveries: list[Recovery] = field(default_factory=list)
    violation: Violation | None = None
    histories: dict[str, list[str]] = field(default_factory=dict)
    """Of the violation's task, and of the slowest recoveries."""
    missing: dict[str, str] = field(default_factory=dict)
    """What of the profile there was not, and why."""

    @property
    def skipped(self) -> dict[str, str]:
        """Faults that never struck, and what there was not, with the reason."""
        return self.missing | {
            done.step.fault: done.skipped
            for done in self.steps
            if done.skipped and not by_fault(self.steps)[done.step.fault]
        }

    def compared(self, part: str) -> int:
        """Of an invariant, or of a kind of violation."""
        return sum(count for name, count in self.checked.items() if part in name.split(" ", 1))

    def attacked(self, part: str) -> int:
        """How many faults struck that attack an invariant, or those that a kind of violation breaks."""
        invariants = {name.split(" ", 1)[0] for name in self.checked if part in name.split(" ", 1)}
        counts = by_fault(self.steps)
        return sum(counts[name] for name, fault in FAULTS.items() if invariants & set(fault.attacks.split()))

    def state(self, part: str) -> str:
        if self.violation and part in (self.violation.invariant, self.violation.kind):
            return "broken"
        return "holds" if self.compared(part) else "not tried"

    @property
    def again(self) -> str:
        """The command with the same schedule."""
        how = {"profile": self.profile, "seed": self.seed, "minutes": f"{self.minutes:g}"}
        how |= {"break": self.breaks} if self.breaks else {"attack": self.attack} if self.attack else {}
        return " ".join(["parcelpost chaos run", *(f"--{name} {value}" for name, value in how.items())])


Say = Callable[[str], None]


class Runner:
    def __init__(self, outcome: Outcome, clock: Clock, say: Say) -> None:
        self.outcome = outcome
        self._profile = PROFILES[outcome.profile]
        self._seconds = outcome.minutes * 60
        self._folder = Path(outcome.folder)
        self._clock = clock
        self._say = say
        self._schedule = make_schedule(self._profile, outcome.seed, self._seconds, attackers(outcome.attack))
        self._began = 0.0
        self._waiting: dict[str, tuple[float, float, int, str]] = {}
        """Restarted workers that have not saved a result yet: end of the one before, start, process and reason."""
        self._free_since: dict[str, float] = {}
        """Since when a worker has had tasks and nothing in its way."""
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
                self.outcome.clocks = "libfaketime" if topology.faketime else "a shift of the program's own clock"
                self._target = Target(topology=topology, judge=self._judge, clock=self._clock)
                try:
                    await self._run()
                finally:
                    self._sum_up(began)
        except BaseExceptionGroup as group:
            violations, others = group.split(BrokenInvariant)
            if others is not None:
                raise
            self._found(violations)
        except BrokenInvariant as error:
            self._found(error)
        finally:
            self._journal.close()
        return self.outcome

    def _found(self, error: BaseException | None) -> None:
        while isinstance(error, BaseExceptionGroup):
            error = error.exceptions[0]
        if isinstance(error, BrokenInvariant):
            self.outcome.violation = error.violation
            if task := error.violation.task:
                self.outcome.histories[task] = self._journal.history(task)

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
            for step in self._schedule:
                await self._clock.sleep(max(0.0, self._began + step.at - self._clock.monotonic()))
                group.create_task(self._take(step))
            await self._clock.sleep(max(0.0, self._began + self._seconds - self._clock.monotonic()))

    async def _take(self, step: Step) -> None:
        reason = why_not(step.fault, self._topology)
        done = Done(step, self._clock.monotonic() - self._began, reason)
        self.outcome.steps.append(done)
        self._say(f"{step}{f'  (skipped: {reason})' if reason else ''}")
        if reason:
            return
        self._journal.note("fault", step.fault, target=step.target, seconds=step.seconds, detail=step.detail)
        try:
            await FAULTS[step.fault].apply(self._target, step)
        except (Missed, OSError, sqlite3.Error, DiskError, ParcelpostError) as error:
            done.skipped = str(error) or type(error).__name__
            self._journal.note("judge", "missed", fault=step.fault, target=step.target, error=done.skipped)

    # What goes on all the while

    async def _supervise(self) -> None:
        """Starts whatever has ended, as a service manager would."""
        while True:
            for member in self._topology.members:
                if member.is_wanted and not member.runs and self._clock.monotonic() > member.holds_until:
                    why, ended = self._why_ended(member), self._clock.monotonic()
                    await self._clock.sleep(_DOWN_SECONDS)
                    await member.start()
                    self.outcome.restarts += 1
                    self._journal.note(member.name, "started", pid=member.pid, after=why)
                    if member.name in self._topology.workers:
                        ended = self._waiting.get(member.name, (ended,))[0]
                        self._waiting[member.name] = ended, member.started_at, member.pid, why
            await self._clock.sleep(_POLL_SECONDS / 2)

    def _why_ended(self, member: Member) -> str:
        """Raises BrokenInvariant if the run has not done it."""
        self._judge.read_told()
        ended = self._judge.dead.setdefault(member.pid, self._clock.monotonic())
        code = member.exit_code or 0
        self._journal.note(member.name, "exited", ended, code=code)
        number, phase = self._judge.sent_itself.get(member.pid, (0, ""))
        sent = member.sent | {number}
        if code == -signal.SIGKILL and signal.SIGKILL in sent:
            return f"SIGKILL {phase and f'at {phase}'}".rstrip()
        if code in _TERMINATED and signal.SIGTERM in sent:
            return "SIGTERM"
        if code != -signal.SIGKILL and (fault := self._target.hurt_by(member)):
            return fault
        name = signal.Signals(-code).name if code < 0 else f"code {code}"
        text = f"{member.name} ended with {name}, which nobody told it to: {member.last_lines(2)}"
        if code == -signal.SIGKILL:
            raise BrokenInvariant(Violation(invariant="I8", kind="too large", text=f"{text} (out of memory?)"))
        raise BrokenInvariant(Violation(invariant="I7", kind="stuck", text=text))

    def _read_logs(self) -> None:
        for member in (*self._topology.gateways, *self._topology.workers.values()):
            lines = [line for line in member.new_log().splitlines() if "Traceback" in line]
            if lines and not self._target.hurt_by(member):
                text = f"{member.name} logged an error that nobody expected, see {member.log}: {lines[0][:300]}"
                raise BrokenInvariant(Violation(invariant="I7", kind="stuck", text=text))

    async def _watch(self) -> None:
        delivered = saved = 0
        next_second = self._clock.monotonic() + 1.0
        while True:
            if self._judge.broken:
                await self._clock.sleep(_POLL_SECONDS / 4)  # what a worker is told may come just after what a proxy saw
            self._judge.read_told()
            self._judge.raise_broken()
            self._note_recoveries()
            if self._clock.monotonic() >= next_second:
                next_second += 1.0
                now_saved, now_delivered = self._judge.saves, len(self._judge.receipts)
                self.outcome.per_second.append((now_saved - saved, now_delivered - delivered))
                saved, delivered = now_saved, now_delivered
                self._read_logs()
                if not self._is_ending:
                    await self._check_at_work()
            await self._clock.sleep(_POLL_SECONDS)

    def _note_recoveries(self) -> None:
        for name, (ended, started, pid, why) in list(self._waiting.items()):
            if (saved_at := self._judge.first_save.get(pid)) is not None:
                at = started - self._began
                self.outcome.recoveries.append(Recovery(at, name, why, saved_at - started, saved_at - ended))
                del self._waiting[name]

    async def _check_at_work(self) -> None:
        """Each worker by itself: a peer that does all the work hides nothing."""
        for store in self._topology.stores.values():
            ready = await asyncio.to_thread(ready_tasks, store)
            may_work = ready > READY_TASKS and may_grow(store)
            for worker in store.workers:
                now = self._clock.monotonic()
                if not may_work or not worker.runs or worker.is_stopped:
                    self._free_since[worker.name] = now
                    continue
                troubles = (self._target.troubled.get(name, 0.0) for name in (worker.name, store.name, "county"))
                last = self._judge.last_save.get(worker.pid, 0.0)
                since = max(self._free_since.get(worker.name, now), worker.started_at, last, *troubles)
                self._judge.check_at_work(store, worker.name, now - since, ready)

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
                with contextlib.suppress(sqlite3.OperationalError):  # it is locked for now
                    await self._compare_gateway()
            await self._clock.sleep(_CHECK_SECONDS)

    async def _compare_store(self, store: Store) -> None:
        with contextlib.suppress(sqlite3.Error, OSError):  # its disk is gone for now, or it is not made yet
            await self._judge.check_store(store)

    async def _compare_pages(self, store: Store) -> None:
        """After a power cut the next start restores pages: until all have started they may be missing."""
        now = self._clock.monotonic()
        opened = [self._judge.opened.get(one.pid, ("", now))[1] for one in store.workers if one.runs]
        is_quiet = now - self._target.troubled.get(store.name, -1e9) > 10.0
        if is_quiet and len(opened) == len(store.workers) and now - max(opened) > RECOVERED_SECONDS:
            with contextlib.suppress(sqlite3.Error, OSError):
                await self._judge.check_pages(store)

    async def _compare_gateway(self, *, with_data: bool = False) -> None:
        acknowledged = {task: set(keys) for task, keys in self._judge.receipts.items()}
        self._judge.check_gateway(await self._ledger(_RESULTS_WITH_DATA if with_data else _RESULTS), acknowledged)

    async def _feed(self) -> None:
        while True:
            if not self._is_ending:
                (row,) = await self._ledger("SELECT count(*) FROM tasks WHERE state IN ('queued', 'leased')")
                if int(row[0]) < _FEED_BELOW * len(self._topology.workers):
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
        for worker in self._topology.workers.values():
            (worker.folder / "phase").unlink(missing_ok=True)
            worker.resume()

    async def _settle(self) -> list[tuple[str, str]]:
        """Waits until nothing is left to do, as long as something is done. Returns what is left at the gateway."""
        deadline, best = self._clock.monotonic() + _SETTLE_SECONDS, 1_000_000_000
        while True:
            left = [row for row in await self._ledger(_UNFINISHED) if not self._judge.is_refused(row[0])]
            opened = [await asyncio.to_thread(_open_tasks, store) for store in self._topology.stores.values()]
            waiting = sum(task not in self._judge.poison for tasks in opened for task in tasks)
            if len(left) + waiting == 0:
                return []
            if len(left) + waiting < best:
                best, deadline = len(left) + waiting, self._clock.monotonic() + _SETTLE_SECONDS
            elif self._clock.monotonic() > deadline:
                return [(row[0], row[1]) for row in left]
            await self._clock.sleep(1.0)

    async def _check_all(self, unfinished: list[tuple[str, str]]) -> None:
        self._judge.read_told()
        self._judge.raise_broken()
        self._read_logs()
        for store in self._topology.stores.values():
            await self._judge.check_store(store)
            await self._judge.check_pages(store)
        await self._check_ledger()
        self._judge.check_end(unfinished)
        self._judge.raise_broken()

    async def _check_ledger(self) -> None:
        """Waits while the gateways' database is locked. Raises sqlite3.OperationalError if it stays so."""
        deadline = self._clock.monotonic() + _LOCKED_SECONDS
        while True:
            try:
                return await self._check_gateways()
            except sqlite3.OperationalError:
                if self._clock.monotonic() > deadline:
                    raise
            await self._clock.sleep(_POLL_SECONDS)

    async def _check_gateways(self) -> None:
        await self._compare_gateway(with_data=True)
        await asyncio.to_thread(self._judge.check_gateway_pages, self._topology.gateway_raw)
        (row,) = await self._ledger("SELECT count(*) FROM sources")
        self._judge.check_order(int(row[0]), [(row[0], row[1], row[2]) for row in await self._ledger(_ORDER)])

    def _sum_up(self, began: float) -> None:
        outcome, judge, target, topology = self.outcome, self._judge, self._target, self._topology
        now = self._clock.monotonic()
        outcome.seconds, outcome.found_after = now - began, now - self._began
        outcome.checked, outcome.struck = dict(sorted(judge.checked.items())), dict(sorted(judge.struck.items()))
        outcome.tasks, outcome.saved, outcome.delivered = len(topology.tasks), judge.saves, len(judge.receipts)
        outcome.rejected = len(judge.rejected)
        outcome.network_faults = sum(proxy.struck for proxy in (*topology.gateway_proxies, topology.county_proxy))
        outcome.kills = sum(member.kills for member in topology.everyone)
        outcome.power_cuts, outcome.full_disks = target.power_cuts, target.full_disks
        outcome.missing = dict(topology.skipped)
        for number, one in enumerate(slowest(outcome.recoveries, _HISTORIES), 1):
            name = f"recovery {number}"
            started = self._began + one.at
            lines = self._journal.around(one.worker, started + one.seconds - one.from_end - 0.2, started + one.seconds)
            outcome.histories[name] = lines
            outcome.recoveries[outcome.recoveries.index(one)] = replace(one, history=name)


_TERMINATED = (0, -signal.SIGTERM, 128 + signal.SIGTERM)
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


def _open_tasks(store: Store) -> list[str]:
    query = """SELECT task_id FROM tasks WHERE status IN ('pending', 'processing')
        UNION ALL SELECT task_id FROM results WHERE synced = 0 AND rejected_at IS NULL"""
    try:
        with store.opened() as db:
            return [row[0] for row in db.execute(query)]
    except sqlite3.Error:
        return [""]


def slowest(recoveries: Sequence[Recovery], most: int = 10) -> list[Recovery]:
    return sorted(recoveries, key=lambda one: -one.from_end)[:most]


def by_fault(steps: Sequence[Done]) -> Counter[str]:
    return Counter(done.step.fault for done in steps if not done.skipped)
