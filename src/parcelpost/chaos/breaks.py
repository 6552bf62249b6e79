"""Known faults that `--break` puts into the workers, to show that the harness finds them. None is in the product."""

from __future__ import annotations

import os
import secrets
import sqlite3
import threading
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

from msgspec import Struct
from msgspec.structs import replace

from parcelpost.clock import SystemClock
from parcelpost.model import Claim, OutboxEntry, Result
from parcelpost.storage import health, locks, outbox, results, tasks, writer
from parcelpost.storage.lpm import LocalPersistenceManager
from parcelpost.upstream.gateway import GatewayClient
from parcelpost.worker.batch_delivery import Delivery
from parcelpost.worker.executor import Executor


class Break(Struct, frozen=True):
    invariant: str
    """The one that it breaks."""
    summary: str
    apply: Callable[[], None]
    also: str = ""
    """Invariants that show it first at times."""
    needs_root: bool = False


def _acknowledge_before_commit() -> None:
    lpm: Any = LocalPersistenceManager
    save = lpm.save_result

    async def saving(self: Any, claim: Claim, result: Result) -> str:
        async def commit() -> None:
            await SystemClock().sleep(1.0)
            await save(self, claim, result)

        self._in_background(commit())
        return secrets.token_hex(16)

    lpm.save_result = saving


def _skip_fsync() -> None:
    def set_level(self: writer.GroupWriter, db: sqlite3.Connection, durable: bool) -> None:
        db.execute("PRAGMA synchronous = OFF")

    writer.GroupWriter._set_level = set_level  # type: ignore[method-assign]
    os.fsync = os.fdatasync = lambda fd: None


def _mark_before_receipt() -> None:
    send: Any = Delivery.send

    async def marking(self: Any, entries: Sequence[OutboxEntry]) -> None:
        ids = [entry.result_id for entry in entries]
        await self._lpm.mark_raw_synced(ids)
        await self._lpm.mark_synced(ids)
        await send(self, entries)

    Delivery.send = marking  # type: ignore[method-assign]


def _forget_report() -> None:
    outbox.report = lambda db, seqs: None


def _split_save() -> None:
    """The task is completed in one transaction, its result stored in the next."""

    def save_each(db: sqlite3.Connection, requests: list[results.SaveRequest]) -> list[list[str] | None]:
        now = requests[0].row.created_at
        ended = [tasks.end(db, request.seq, request.token, "completed", now, None) for request in requests]
        db.execute("COMMIT")
        threading.Event().wait(0.1)
        db.execute("BEGIN IMMEDIATE")
        return [results.insert(db, one.row) if is_own else None for one, is_own in zip(requests, ended, strict=True)]

    results.save_each = save_each


def _forget_claim_token() -> None:
    tasks._END = tasks._END.replace("AND claim_token = ?", "AND ? <> ''")
    tasks._RETRY = tasks._RETRY.replace("AND claim_token = ?", "AND ? <> ''")

    def complete_each(db: sqlite3.Connection, tokens: Mapping[int, str], now: str) -> bool:
        return all(tasks.end(db, seq, token, "completed", now, None) for seq, token in tokens.items())

    tasks.complete_each = complete_each


def _new_key_on_resend() -> None:
    submit: Any = GatewayClient.submit_results

    async def submit_results(self: Any, entries: Sequence[OutboxEntry]) -> Any:
        changed = [replace(one, idempotency_key=f"{one.task_id}:{secrets.token_hex(32)}") for one in entries]
        return await submit(self, changed)

    GatewayClient.submit_results = submit_results  # type: ignore[method-assign]


def _result_before_page() -> None:
    async def send_pages(self: Any, entries: Sequence[OutboxEntry]) -> list[OutboxEntry]:
        self.raw_stored += [entry for entry in entries if entry.html_path is not None]
        return list(entries)

    Delivery._send_pages = send_pages  # type: ignore[method-assign]


def _offline_stops_work() -> None:
    next_claim: Any = Executor.next_claim

    async def waiting(self: Any, slot: str) -> Any:
        return 1.0 if self.context.upstream_state.outages else await next_claim(self, slot)

    Executor.next_claim = waiting  # type: ignore[method-assign]


def _ignore_cap() -> None:
    health._level = lambda total, room, options: health.Level.FINE


def _recover_live_peers() -> None:
    def owners(folder: Path, own_id: str = "") -> tuple[list[str], list[str]]:
        return [], sorted(file.stem for file in folder.glob("*.lock") if file.stem != own_id)

    locks.owners, locks.is_alive = owners, lambda folder, owner_id: False
    locks.reap = lambda folder, owner_id: None


def _forget_recovery() -> None:
    tasks.recover = lambda db, crashed, now, max_recoveries: (0, 0)


BREAKS: Mapping[str, Break] = {
    "forget-report": Break("I1", "the end of a task without a record is not reported", _forget_report),
    "acknowledge-before-commit": Break("I2", "a save returns before its commit", _acknowledge_before_commit),
    "mark-before-receipt": Break("I2", "results leave the outbox before they are sent", _mark_before_receipt),
    "skip-fsync": Break("I2", "nothing waits for the disk", _skip_fsync, "I1 I4 I6", needs_root=True),
    "split-save": Break("I3", "a task and its result are two transactions", _split_save),
    "forget-claim-token": Break("I4", "any claim can end a task", _forget_claim_token),
    "new-key-on-resend": Break("I5", "each delivery has another idempotency key", _new_key_on_resend),
    "result-before-page": Break("I6", "results are sent without their pages", _result_before_page),
    "offline-stops-work": Break("I7", "no task is started while the gateway is away", _offline_stops_work),
    "ignore-cap": Break("I8", "the store grows beyond its cap", _ignore_cap),
    "recover-live-peers": Break("I9", "start-up takes the tasks of live peers", _recover_live_peers),
    "forget-recovery": Break("I9", "start-up leaves the tasks of crashed processes", _forget_recovery),
}
