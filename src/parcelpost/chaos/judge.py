"""Compares what the processes were told with what the stores and the gateway hold: invariants I1 to I9.

The judge trusts nothing of the product. It knows what the proxies saw (pages that the county served, receipts that the
gateway gave), what each worker was told (`worker_process`), and reads both databases itself, by its own queries.
"""

from __future__ import annotations

import asyncio
import contextlib
import gzip
import hashlib
import json
import math
import re
import signal
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
from msgspec import Struct

from parcelpost.chaos.proxy import Message, entries, receipts
from parcelpost.chaos.topology import HUNG_AFTER_SECONDS, Store, Topology
from parcelpost.clock import Clock

INVARIANTS = {
    "I1": "every task ends, and its end is reported",
    "I2": "what was acknowledged is kept until the receipt",
    "I3": "a result and the end of its task are one",
    "I4": "only the current claim ends a task",
    "I5": "sending again changes nothing",
    "I6": "a page is there before its result",
    "I7": "scraping goes on while the gateway is away",
    "I8": "disk and memory are bounded",
    "I9": "crashed processes' tasks come back, others' stay",
}

KINDS = {
    "lost": "acknowledged, and in neither store nor gateway",
    "doubled": "two of what there may be one of",
    "stuck": "it does not go on, or does not end",
    "held by nobody": "a task of a process that has ended",
    "out of order": "a result before its page, or an older one over a newer",
    "half-written": "a task without its result, a record or a page that is not whole",
    "unreported": "an end that nobody is told of",
    "wrongly rejected": "refused, or said not to exist, for no reason",
    "too large": "more than its cap",
}

_MOST_MEMORY_BYTES = 700 * 1024**2
_STORE_SLACK = 1.05
_STORE_FIXED_BYTES = 1024**2
"""What a store may take beside its cap: what was in progress when it was reached."""
_WORKS_BELOW = 0.8
"""The share of its cap from which a store may make its workers wait."""
_UNHELD_SECONDS = 25.0
RECOVERED_SECONDS = 8.0
"""A process that has opened the store has recovered by then what others had left."""
_AT_WORK_SECONDS = 20.0
_UNTOLD_SECONDS = 5.0
"""A peer may have delivered a result before the worker is told of its save, but not much earlier."""
_MOST_LINES = 100
_MOST_SKEW_SECONDS = 0.5
_SAME_MOMENT_SECONDS = 0.002
"""Ledgers keep milliseconds: of two scrapes in the same one, either may be the newest."""
_SHA256 = re.compile(rb'"sha256": ?"([0-9a-f]{64})"')


class Violation(Struct, frozen=True, kw_only=True):
    invariant: str
    kind: str
    """One of `KINDS`."""
    text: str
    task: str = ""
    store: str = ""

    def __str__(self) -> str:
        where = " ".join(filter(None, (self.store and f"store {self.store}", self.task and f"task {self.task}")))
        return f"{self.invariant} {self.kind}: {self.text}{f' ({where})' if where else ''}"


class BrokenInvariant(Exception):
    def __init__(self, violation: Violation) -> None:
        super().__init__(str(violation))
        self.violation = violation


class _Told(NamedTuple):
    """A line of `worker_process`."""

    at: float
    pid: int
    event: str
    facts: dict[str, Any]
    wall: float
    """What the worker's wall clock showed."""


class _Claim(NamedTuple):
    at: float
    token: str
    worker: str
    pid: int


class _Scrape(NamedTuple):
    at: float
    """By the worker's clock."""
    by_wrong_clock: bool


class Journal:
    """Everything that happened, one line each, in a file that the product never sees."""

    def __init__(self, path: Path, clock: Clock) -> None:
        self.path = path
        self._file = path.open("a", encoding="utf-8")
        self._clock = clock
        self._began = clock.monotonic()

    def note(self, source: str, event: str, at: float | None = None, **facts: Any) -> None:
        seconds = (self._clock.monotonic() if at is None else at) - self._began
        self._file.write(json.dumps([round(seconds, 3), source, event, facts]) + "\n")

    def history(self, task: str) -> list[str]:
        """The lines of a task, and the faults during its life that touched the members that handled it."""
        lines = self._lines()
        return _shown(lines, [line for line in lines if _is_of(line, task)], lines[-1][0] if lines else 0.0, task)

    def around(self, worker: str, began: float, ended: float) -> list[str]:
        """The lines of a worker in some seconds of the run, and the faults that touched it."""
        lines = self._lines()
        own = [line for line in lines if line[1] == worker and began - self._began <= line[0] <= ended - self._began]
        return _shown(lines, own[:_MOST_LINES], ended - self._began)

    def _lines(self) -> list[list[Any]]:
        self._file.flush()
        return [json.loads(line) for line in self.path.read_text("utf-8").splitlines()]

    def close(self) -> None:
        self._file.close()


def _is_of(line: list[Any], task: str) -> bool:
    return line[3].get("task") == task or task in line[3].get("tasks", ())


def _shown(lines: list[list[Any]], own: list[list[Any]], ended: float, task: str = "") -> list[str]:
    if not own:
        return []
    members = {line[1] for line in own}
    stores = {member.rstrip("0123456789") for member in members}
    faults = [line for line in lines if line[1] == "fault" and line[3]["target"] in {"", *members, *stores}]
    during = [line for line in faults if line[0] <= ended and line[0] + line[3].get("seconds", 0.0) >= own[0][0]]
    return [_as_text(line, task) for line in sorted([*own, *during], key=lambda line: float(line[0]))]


def _as_text(line: list[Any], task: str) -> str:
    at, source, event, facts = line
    shown = {name: value for name, value in facts.items() if value not in (None, "", task) and name != "tasks"}
    return (
        f"{at:8.3f} s  {source:10} {event:12} {' '.join(f'{name}={value}' for name, value in shown.items())}".rstrip()
    )


class Judge:
    topology: Topology
    broken: Violation | None = None
    """Found while a proxy watched."""

    def __init__(self, journal: Journal, clock: Clock) -> None:
        self._journal = journal
        self._clock = clock
        self.checked: Counter[str] = Counter()
        """How many facts were compared, by invariant and kind: 'I2 lost'."""
        self.struck: Counter[str] = Counter()
        """Phases in which a process sent itself a signal: 'save SIGKILL'."""
        self.served: dict[str, str] = {}
        """The parcel of each page that the county served, by hash."""
        self.receipts: dict[str, set[str]] = {}
        """Idempotency keys that the gateway acknowledged, by task."""
        self.ends: set[str] = set()
        """Tasks whose end was reported and accepted, without a record."""
        self.pages: set[str] = set()
        """Hashes of the pages that the gateway acknowledged."""
        self.stored: dict[str, set[str]] = {}
        """Tasks that a store acknowledged."""
        self.saved: dict[tuple[str, str], dict[str, Any]] = {}
        """Saved results, by store and task."""
        self._untold: dict[tuple[str, str], tuple[str, float]] = {}
        """Keys that a gateway acknowledged, and when, before a worker was told of the save."""
        self._wall = clock.now().timestamp() - clock.monotonic()
        self.scrapes: dict[str, _Scrape] = {}
        """Of each result, by key."""
        self._last_skewed: dict[int, float] = {}  # when the clock of a process was wrong last
        self.saves = 0
        self.saves_of: Counter[str] = Counter()
        """By store."""
        self.last_save: dict[int, float] = {}  # by process
        self.first_save: dict[int, float] = {}
        self.opened: dict[int, tuple[str, float]] = {}
        """Owner and time by process that has opened a store."""
        self.poison: set[str] = set()
        self.lost_pages: set[str] = set()
        """Tasks whose page this run may have deleted."""
        self.loses_pages: set[str] = set()
        """Stores whose pages are being deleted."""
        # Stores of processes that were killed between the rows and their files, which go after a day.
        self.cut_cleanings: set[str] = set()
        self.rejected: set[str] = set()
        self.dead: dict[int, float] = {}
        """When processes were killed or told to end."""
        self.sent_itself: dict[int, tuple[int, str]] = {}
        """The signal that a process sent itself, and the phase, by process."""
        self.paused: dict[int, list[tuple[float, float]]] = {}
        self._claims: dict[tuple[str, str], list[_Claim]] = {}
        self._ending: dict[str, float] = {}
        """When the ending of a claim began, by task and token."""
        self._positions: dict[Path, int] = {}
        self._unheld: dict[tuple[str, str, str], float] = {}
        """Since when a task of a store is held by an owner that has ended."""
        self._last_told: dict[int, float] = {}

    def compared(self, invariant: str, kind: str, count: int = 1) -> None:
        self.checked[f"{invariant} {kind}"] += count

    # What the proxies see

    def saw_county(self, name: str, request: Message, answer: Message | None, trouble: str) -> None:
        number = re.search(r"[Pp]id=(\w+)", request.target)
        if answer is not None and number:
            digest = hashlib.sha256(answer.content).hexdigest()
            self.served[digest] = number[1]
            self._journal.note(name, "served", parcel=number[1], status=answer.status, page=digest, trouble=trouble)

    def saw_gateway(self, name: str, request: Message, answer: Message | None, trouble: str) -> None:
        try:
            self._saw_gateway(name, request, answer, trouble)
        except BrokenInvariant as error:
            self._is_broken(error.violation)

    def _saw_gateway(self, name: str, request: Message, answer: Message | None, trouble: str) -> None:
        path, worker = request.target.split("?")[0], request.headers.get("x-worker-id", "?")
        status = answer.status if answer else 0
        if path.endswith("/work"):
            given = [one["task_id"] for one in _json(answer).get("tasks", ())] if status == 200 else []
            if given:
                self._journal.note(name, "leased", worker=worker, tasks=given, trouble=trouble)
        elif path.endswith("/raw-files") and (found := _SHA256.search(request.body)):
            if status == 200:
                self.pages.add(found[1].decode())
            self._journal.note(name, "page", worker=worker, page=found[1].decode(), status=status, trouble=trouble)
        elif path.endswith("/results"):
            self._saw_results(name, request, answer, worker, trouble)
        elif "/tasks/" in path:
            task, _, end = path.rpartition("/tasks/")[2].rpartition("/")
            if status == 200:
                self.ends.add(task)
            self._journal.note(name, end, worker=worker, task=task, status=status, trouble=trouble)

    def _saw_results(self, name: str, request: Message, answer: Message | None, worker: str, trouble: str) -> None:
        sent = {str(entry.get("task_id")): entry for entry in entries(request)}
        given = receipts(answer) if answer is not None and answer.status == 200 else []
        outcomes = {one["task_id"]: one["status"] for one in given}
        for task, entry in sent.items():
            outcome = outcomes.get(task, f"status {answer.status}" if answer else "not reached")
            key, page = str(entry.get("idempotency_key")), entry.get("raw_html_hash")
            self._journal.note(name, outcome, worker=worker, task=task, key=key[-12:], trouble=trouble)
            if outcome in ("stored", "duplicate"):
                self.compared("I6", "out of order")
                self.compared("I5", "doubled")
                self.receipts.setdefault(task, set()).add(key)
                if page and str(page) not in self.pages:
                    text = f"the gateway has the result, but never acknowledged its page {page}"
                    self._is_broken(Violation(invariant="I6", kind="out of order", text=text, task=task))
                if self.saved.get((worker, task), {}).get("key", key) != key:
                    self.read_told()  # what happened before this tells more
                told = self.saved.get((worker, task))
                if told:
                    self._check_key(task, key, told["key"])
                else:
                    self._untold[worker, task] = key, self._clock.monotonic()
            elif outcome == "rejected" and task not in self.poison:
                text = f"the gateway rejected the result: {next(one for one in given if one['task_id'] == task)}"
                self._is_broken(Violation(invariant="I1", kind="wrongly rejected", text=text, task=task))

    def _is_broken(self, violation: Violation) -> None:
        """Found while a proxy watches: the run is told soon, and the rest of the answer counts."""
        self.broken = self.broken or violation

    def _check_key(self, task: str, sent: str, saved: str) -> None:
        if sent != saved:
            text = f"the result was sent under the key {sent}, and saved under {saved}"
            self._is_broken(Violation(invariant="I5", kind="doubled", text=text, task=task))

    # What the workers were told

    def read_told(self) -> None:
        """Reads new lines of all workers in the order of their times."""
        found: list[tuple[_Told, str]] = []
        for member in list(self.topology.everyone):
            found += [(line, member.name) for line in self._new_lines(member.told_file)]
        for (at, pid, event, facts, wall), worker_name in sorted(found, key=lambda line: line[0].at):
            self._journal.note(worker_name, event, at, **facts)
            self._last_told[pid] = at
            if abs(wall - at - self._wall) > _MOST_SKEW_SECONDS:
                self._last_skewed[pid] = at
            if event == "struck":
                self._struck(at, pid, facts, worker_name)
            elif worker_name in self.topology.workers:
                self._take(at, pid, event, facts, worker_name)

    def _new_lines(self, file: Path) -> Iterator[_Told]:
        try:
            with file.open("rb") as told:
                told.seek(self._positions.get(file, 0))
                content = told.read()
        except FileNotFoundError:
            return
        end = content.rfind(b"\n") + 1
        self._positions[file] = self._positions.get(file, 0) + end
        for line in content[:end].splitlines():
            yield msgspec.json.decode(line, type=_Told)

    def _struck(self, at: float, pid: int, facts: dict[str, Any], name: str) -> None:
        self.struck[f"{facts['phase']} {facts['signal']}"] += 1
        if facts["signal"] != "SIGSTOP":
            if facts["phase"] == "cleaning":
                member = next(one for one in self.topology.everyone if one.name == name)
                stores = self.topology.stores.values()
                self.cut_cleanings |= {store.name for store in stores if str(store.path) in member.command.words}
            self.dead.setdefault(pid, at)
            self.sent_itself[pid] = signal.Signals[facts["signal"]], facts["phase"]

    def _take(self, at: float, pid: int, event: str, facts: dict[str, Any], worker: str) -> None:
        store = self.topology.store_of(worker).name
        match event:
            case "opened":
                self.opened[pid] = (facts["owner"], at)
            case "stored":
                self.stored.setdefault(store, set()).update(facts["tasks"])
            case "claimed":
                self._claimed(store, facts["task"], _Claim(at, facts["token"], worker, pid))
            case "saved":
                self._saved(store, at, pid, facts)
            case "closing":
                self.dead.setdefault(pid, at)
            case "ending" | "stale":
                self._ending.setdefault(f"{facts['task']} {facts['token']}", at)
            case "finish" | "give_up" | "retry_later" | "release":
                began = self._ending.get(f"{facts['task']} {facts['token']}", at)
                self._check_claim(store, facts["task"], facts["token"], began)
            case _:
                pass

    def _claimed(self, store: str, task: str, claim: _Claim) -> None:
        earlier = self._claims.setdefault((store, task), [])
        self.compared("I9", "doubled")
        if earlier:
            last = earlier[-1]
            if f"{task} {last.token}" not in self._ending and self._was_responsive(last.pid, claim.at):
                if self._was_paused(claim.pid, claim.at):  # perhaps after its claim, and before it told of it
                    earlier.insert(len(earlier) - 1, claim._replace(at=last.at - 0.001))
                    return
                text = f"{claim.worker} was given the task while {last.worker} held it, alive and well"
                raise BrokenInvariant(Violation(invariant="I9", kind="doubled", text=text, task=task, store=store))
        earlier.append(claim)

    def _was_paused(self, pid: int, at: float) -> bool:
        """Until now, or shortly before."""
        return any(begin < at < end for begin, end in self.paused.get(pid, ()))

    def held_by(self, pid: int) -> set[tuple[str, str]]:
        """Store and task of the claims of this process that are the last ones of their tasks and have not ended."""
        self.read_told()
        last = {key: claims[-1] for key, claims in self._claims.items()}
        return {
            key for key, claim in last.items() if claim.pid == pid and f"{key[1]} {claim.token}" not in self._ending
        }

    def is_any_taken(self, held: set[tuple[str, str]], pid: int) -> bool:
        """Whether another process has claimed one of these tasks since."""
        self.read_told()
        return any(self._claims[key][-1].pid != pid for key in held)

    def _was_responsive(self, pid: int, at: float) -> bool:
        if self.dead.get(pid, at + 1) <= at or at - self._last_told.get(pid, 0.0) > 2.0:
            return False
        return not any(begin < at and end > at - 3 * HUNG_AFTER_SECONDS for begin, end in self.paused.get(pid, ()))

    def _saved(self, store: str, at: float, pid: int, facts: dict[str, Any]) -> None:
        task, token = facts["task"], facts["token"]
        self.saves += 1
        self.saves_of[store] += 1
        self.last_save[pid] = at
        self.first_save.setdefault(pid, at)
        self._ending.setdefault(f"{task} {token}", at)
        self._check_claim(store, task, token, at)
        if (store, task) in self.saved and facts["result"] != self.saved[store, task]["result"]:
            text = "two results of the task were acknowledged"
            raise BrokenInvariant(Violation(invariant="I4", kind="doubled", text=text, task=task, store=store))
        sent, seen_at = self._untold.pop((store, task), ("", 0.0))
        if sent and abs(at - seen_at) < _UNTOLD_SECONDS:
            self._check_key(task, sent, facts["key"])
        self.saved[store, task] = facts
        claimed_at = next((claim.at for claim in self._claims.get((store, task), ()) if claim.token == token), at)
        was_wrong = self._last_skewed.get(pid, -math.inf) >= claimed_at
        self.scrapes[facts["key"]] = _Scrape(facts["scraped"], was_wrong)
        if facts["page"]:
            self.compared("I6", "half-written")
            parcel = self.topology.tasks.get(task)
            if self.served.get(facts["page"]) != parcel:
                text = f"the saved page {facts['page'][:12]} is not one that the county served for parcel {parcel}"
                raise BrokenInvariant(Violation(invariant="I6", kind="half-written", text=text, task=task, store=store))

    def raise_broken(self) -> None:
        """Raises what was found while a proxy watched."""
        if self.broken:
            raise BrokenInvariant(self.broken)

    def _check_claim(self, store: str, task: str, token: str, at: float) -> None:
        """The claim has ended the task. At that time it must have been the last one."""
        self.compared("I4", "doubled")
        claims = self._claims.get((store, task), [])
        own = next((claim for claim in claims if claim.token == token), None)
        newer = [claim for claim in claims if own and claim.token != token and own.at < claim.at < at]
        if own and newer:
            text = f"{own.worker} ended the task with its old claim, after {newer[-1].worker} had claimed it"
            raise BrokenInvariant(Violation(invariant="I4", kind="doubled", text=text, task=task, store=store))

    # What the stores hold

    async def check_store(self, store: Store) -> None:
        """Compares a store with all that was told before. Raises sqlite3.Error if it cannot be read now."""
        self.read_told()
        saved = {task: facts for (name, task), facts in self.saved.items() if name == store.name}
        stored = set(self.stored.get(store.name, ()))
        content = await asyncio.to_thread(_read_store, store)
        self._check_tasks(store, stored, content.tasks)
        self._check_results(store, saved, content.tasks, content.results)
        self._check_held(store, content.held)
        self._check_size(store)

    def _check_tasks(self, store: Store, stored: set[str], tasks: dict[str, str]) -> None:
        self.compared("I1", "lost", len(stored))
        self.compared("I1", "wrongly rejected", len(tasks))
        for task, status in tasks.items():
            if status == "not_found" and self.topology.is_on_site(task):
                self._fail("I1", "wrongly rejected", "the task ended as not found, and the site has it", task, store)
        for task in sorted(stored - tasks.keys()):
            if not self._is_upstream(task):
                self._fail("I1", "lost", "the store acknowledged the task and does not have it any more", task, store)

    def _is_upstream(self, task: str) -> bool:
        return task in self.receipts or task in self.ends

    def _check_results(
        self, store: Store, saved: dict[str, dict[str, Any]], tasks: dict[str, str], results: dict[str, Any]
    ) -> None:
        self.compared("I2", "lost", len(saved))
        self.compared("I3", "half-written", len(tasks))
        self.compared("I1", "unreported", len(tasks))
        for task, facts in saved.items():
            if task not in results:
                if facts["key"] not in self.receipts.get(task, ()):
                    self._fail("I2", "lost", "the saved result is neither in the store nor at the gateway", task, store)
            elif results[task][0] != facts["key"]:
                self._fail("I2", "lost", f"another record than the saved one is stored: {results[task]}", task, store)
        for task, status in tasks.items():
            is_ended = status in _ENDED
            if is_ended and task not in results and not self._is_upstream(task):
                kind = "unreported" if status != "completed" else "half-written"
                invariant = "I1" if status != "completed" else "I3"
                self._fail(invariant, kind, f"the task is {status} and has neither result nor report", task, store)
        for task, (_key, success, synced, rejected, is_json, has_data) in results.items():
            if not synced and tasks.get(task) not in _ENDED:
                self._fail(
                    "I3", "half-written", f"the result is stored, but its task is {tasks.get(task)}", task, store
                )
            if has_data and not is_json:
                self._fail("I3", "half-written", "the record is not JSON", task, store)
            is_receipted = (
                saved[task]["key"] in self.receipts.get(task, ()) if task in saved else self._is_upstream(task)
            )
            if synced and not is_receipted:
                self._fail("I2", "lost", "the result left the outbox without a receipt", task, store)
            if rejected:
                self._check_rejected(store, task, str(rejected), is_record=bool(success))

    def _check_rejected(self, store: Store, task: str, reason: str, *, is_record: bool) -> None:
        self.rejected.add(task)
        is_told = "page" in reason and (task in self.lost_pages or store.name in self.loses_pages)
        if is_record and task not in self.poison and not is_told:
            self._fail("I1", "wrongly rejected", f"the result was rejected: {reason}", task, store)

    def _check_held(self, store: Store, held: Sequence[tuple[str, str]]) -> None:
        """A claim of a crashed process may wait for the next start, but not for long."""
        now = self._clock.monotonic()
        running = {worker.pid for worker in store.workers if worker.runs}
        owners = {owner for pid, (owner, _) in self.opened.items() if pid in running}
        has_opened = [
            at
            for pid, (_, at) in self.opened.items()
            if pid in running and not any(end > at for _, end in self.paused.get(pid, ()))
        ]
        unheld = {(task, owner) for task, owner in held if owner not in owners}
        self._unheld = {
            key: at for key, at in self._unheld.items() if key[0] != store.name or (key[1], key[2]) in unheld
        }
        self.compared("I9", "held by nobody", len(held))
        for task, owner in unheld:
            since = self._unheld.setdefault((store.name, task, owner), now)
            at_start = any(at > since and now - at > RECOVERED_SECONDS for at in has_opened)
            if at_start or (now - since > _UNHELD_SECONDS and any(now - at > _UNHELD_SECONDS for at in has_opened)):
                self._fail("I9", "held by nobody", f"the task is held by {owner}, which has ended", task, store)

    def _check_size(self, store: Store) -> None:
        self.compared("I8", "too large", 1 + len(store.workers))
        total = size_of(store) - (_unnamed_bytes(store) if store.name in self.cut_cleanings else 0)
        if total > store.cap_bytes * _STORE_SLACK + _STORE_FIXED_BYTES:
            text = f"the store takes {total:,} bytes; its cap is {store.cap_bytes:,}"
            self._fail("I8", "too large", text, "", store)
        for worker in store.workers:
            if (size := worker.memory_bytes()) > _MOST_MEMORY_BYTES:
                self._fail("I8", "too large", f"{worker.name} takes {size:,} bytes of memory", "", store)

    async def check_pages(self, store: Store) -> None:
        """I6 of every result in the store. Not after a power cut: the next start restores pages."""
        checked, missing = await asyncio.to_thread(_missing_pages, store)
        self.compared("I6", "lost", checked)
        for task, html_path in missing:
            if task in self.lost_pages:
                continue  # its result must be rejected, or its page be delivered from a journal
            self._fail("I6", "lost", f"the page {html_path} is missing or is another one", task, store)

    def notes_lost_pages(self, store: Store) -> bool:
        """All pages of the store were deleted: what it has by now. Returns False if it cannot be read now."""
        try:
            with store.opened() as db:
                rows = db.execute("SELECT task_id FROM results WHERE html_path IS NOT NULL").fetchall()
        except sqlite3.Error:
            return False
        self.lost_pages |= {row[0] for row in rows}
        self.loses_pages.discard(store.name)
        return True

    # What the gateway holds

    def check_gateway(self, rows: Sequence[tuple[str, ...]], acknowledged: dict[str, set[str]]) -> None:
        """`rows`, read after `acknowledged` was copied: task, key and perhaps the record's hash of each result."""
        told: dict[str, set[str]] = {}
        for (_store, task), facts in self.saved.items():
            told.setdefault(task, set()).add(facts["key"])
        counts = Counter(row[0] for row in rows)
        self.compared("I5", "doubled", len(rows))
        self.compared("I5", "half-written", sum(len(row) > 2 for row in rows))
        for task, count in counts.items():
            if count > 1:
                self._fail("I5", "doubled", f"the gateway has {count} results of the task", task)
        for task, key, *digest in rows:
            if task in told and key not in told[task] and not self._may_be_untold(task):
                self._fail("I5", "doubled", f"the gateway's key {key} is not one of the worker's", task)
            if digest and key != f"{task}:{digest[0]}" and task in told:
                self._fail("I5", "half-written", "the gateway's record is not the one of its key", task)
        self.compared("I2", "lost", len(acknowledged))
        newest = self._newest_scrapes(rows)
        for task in acknowledged.keys() - counts.keys():
            if not any(self._is_superseded(task, key, newest) for key in acknowledged[task]):
                self._fail("I2", "lost", "the gateway acknowledged the result and does not have it", task)

    def _may_be_untold(self, task: str) -> bool:
        """Whether a worker may have been killed after a commit and before it was told of it."""
        claims = (claim for (_store, name), made in self._claims.items() if name == task for claim in made)
        return any(f"{task} {claim.token}" not in self._ending for claim in claims)

    def _newest_scrapes(self, rows: Sequence[tuple[str, ...]]) -> dict[str, float]:
        """When the results that the gateway has of each parcel were scraped: the last one.

        A worker that was killed before it was told of a save did not say when that was: perhaps later than any other.
        """
        newest: dict[str, float] = {}
        for task, key, *_ in rows:
            parcel = self.topology.tasks.get(task, "")
            newest[parcel] = max(newest.get(parcel, 0.0), self.scrapes[key].at if key in self.scrapes else math.inf)
        return newest

    def _is_superseded(self, task: str, key: str, newest: Mapping[str, float]) -> bool:
        """A gateway drops scrapes that show nothing new, except the newest of a parcel."""
        last = newest.get(self.topology.tasks.get(task, ""))
        scrape = self.scrapes.get(key, _Scrape(0.0, by_wrong_clock=False))
        return last is not None and (scrape.by_wrong_clock or last > scrape.at - _SAME_MOMENT_SECONDS)

    def check_gateway_pages(self, folder: Path) -> None:
        """Each page that a gateway acknowledged is in its folder, whole."""
        self.compared("I6", "lost", len(self.pages))
        for digest in self.pages:
            if not _has(folder / digest[:2] / digest[2:4] / f"{digest}.html.gz", digest):
                self._fail("I6", "lost", f"the gateway acknowledged the page {digest} and does not have it")

    def check_order(self, parcels: int, rows: Sequence[tuple[str, str, str]]) -> None:
        """`rows`: parcels whose task is not the one that was scraped last: (parcel, its task, the last task)."""
        self.compared("I5", "out of order", parcels)
        for parcel, task, newest in rows:
            self._fail("I5", "out of order", f"parcel {parcel} shows {task}, but {newest} was scraped later", task)

    def is_refused(self, task: str) -> bool:
        """Whether its result may be rejected, and wait for an operator."""
        return task in self.poison or task in self.lost_pages

    def check_end(self, unfinished: Sequence[tuple[str, str]]) -> None:
        """`unfinished`: tasks and states at the gateway after everything was healed."""
        self.compared("I1", "stuck", len(self.topology.tasks))
        for task, state in unfinished:
            if not self.is_refused(task):
                self._fail("I1", "stuck", f"at the end the gateway still has the task as {state}", task)
        for store in self.topology.stores.values():
            with store.opened() as db:
                left = db.execute(_LEFT).fetchall()
            for task, problem in left:
                if task not in self.poison:
                    self._fail("I1", "stuck", f"at the end {problem}", task, store)

    def note(self, event: str, **facts: Any) -> None:
        self._journal.note("judge", event, **facts)

    def check_offline(self, store: Store, saves: int, seconds: float) -> None:
        """I7: the workers of the store have run in peace, and the gateway was away for that long."""
        self.compared("I7", "stuck")
        if not saves:
            text = f"no task was scraped in {seconds:.1f} s in which only the gateway was away"
            self._fail("I7", "stuck", text, "", store)

    def check_at_work(self, store: Store, worker: str, seconds: float, ready: int) -> None:
        """It has run in peace that long without a save."""
        self.compared("I7", "stuck")
        if seconds > _AT_WORK_SECONDS:
            text = f"{worker} saved nothing for {seconds:.0f} s, with {ready} tasks ready and nothing in its way"
            self._fail("I7", "stuck", text, "", store)

    def _fail(self, invariant: str, kind: str, text: str, task: str = "", store: Store | None = None) -> None:
        name = store.name if store else ""
        found = Violation(invariant=invariant, kind=kind, text=text, task=task, store=name)
        raise BrokenInvariant(self.broken or found)  # what a proxy saw came first


_ENDED = ("completed", "not_found", "failed", "expired")
_RESULTS = """
SELECT task_id, idempotency_key, success, synced, iif(rejected_at IS NULL, NULL, coalesce(last_error, '?')),
    data IS NULL OR json_valid(data), data IS NOT NULL FROM results
"""


class _Content(NamedTuple):
    tasks: dict[str, str]
    results: dict[str, Any]
    held: list[tuple[str, str]]


def _read_store(store: Store) -> _Content:
    """One snapshot."""
    with store.opened() as db:
        db.execute("BEGIN")
        tasks = dict(db.execute("SELECT task_id, status FROM tasks"))
        results = {row[0]: row[1:] for row in db.execute(_RESULTS)}
        held = db.execute("SELECT task_id, claimed_by FROM tasks WHERE status = 'processing'").fetchall()
    return _Content(tasks, results, held)


_LEFT = """
SELECT task_id, 'the store has the task as ' || status FROM tasks WHERE status IN ('pending', 'processing')
UNION ALL
SELECT task_id, 'its result is not delivered: ' || coalesce(last_error, '') FROM results
WHERE synced = 0 AND rejected_at IS NULL
"""


def _json(message: Message | None) -> dict[str, Any]:
    try:
        found = json.loads(message.content) if message else {}
    except ValueError:
        return {}
    return found if isinstance(found, dict) else {}


def size_of(store: Store) -> int:
    """In bytes, without the backups, the reserve, and free pages in the file, which the next rows take."""
    with store.opened() as db:
        free, page = (int(db.execute(f"PRAGMA {name}").fetchone()[0]) for name in ("freelist_count", "page_size"))
    total = -free * page
    for path in store.path.parent.rglob("*"):
        with contextlib.suppress(OSError):
            if not {"backups", "reserve"} & set(path.parts) and path.is_file():
                total += path.stat().st_size
    return total


def _unnamed_bytes(store: Store) -> int:
    """Of pages and records that no result names."""
    with store.opened() as db:
        named = {name for row in db.execute("SELECT html_path, json_path FROM results") for name in row}
    total = 0
    for path in store.raw_folder.rglob("*.*"):
        with contextlib.suppress(OSError):
            if path.is_file() and path.relative_to(store.raw_folder).as_posix() not in named:
                total += path.stat().st_size
    return total


def may_grow(store: Store) -> bool:
    """Whether it is not so near its cap that its workers wait."""
    try:
        return size_of(store) < store.cap_bytes * _WORKS_BELOW
    except sqlite3.Error:
        return False


def _missing_pages(store: Store) -> tuple[int, list[tuple[str, str]]]:
    """Returns how many pages results name, and those that are not there, unless they were cleaned away meanwhile."""
    query = "SELECT task_id, html_path, raw_sha256 FROM results WHERE html_path IS NOT NULL"
    with store.opened() as db:
        named = db.execute(query).fetchall()
        missing = [(task, path, digest) for task, path, digest in named if not _has(store.raw_folder / path, digest)]
        still = set(db.execute(query)) if missing else set()
    return len(named), [(row[0], row[1]) for row in missing if row in still]


def _has(file: Path, digest: str) -> bool:
    return _hash_of(file) == digest


def _hash_of(file: Path) -> str:
    try:
        return hashlib.sha256(gzip.decompress(file.read_bytes())).hexdigest()
    except (OSError, EOFError):
        return ""
