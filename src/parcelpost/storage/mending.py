"""A person's word on tasks and results: try again, reject, forget. Some at a time: no other writer waits long."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from typing import NamedTuple

from msgspec.json import encode

from parcelpost.clock import Clock, iso
from parcelpost.storage import by_person, checks, evidence_rows, fates, outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.evidence import Evidence
from parcelpost.storage.fates import Consent, Fate, Fated, Word
from parcelpost.storage.filtering import Selection
from parcelpost.storage.raw_files import RawFiles

_BATCH = 200

Progress = Callable[[int], None]
"""Told how many are done."""

_ANEW = """
UPDATE tasks SET status = 'pending', retries = 0, recoveries = 0, available_at = NULL, lease_expires_at = NULL,
    lease_id = NULL, started_at = NULL, completed_at = NULL, error = NULL, ask_site = 1, updated_at = ?
WHERE seq = ? AND status <> 'pending'
"""
_NOW = "UPDATE tasks SET available_at = NULL, ask_site = 1, updated_at = ? WHERE seq = ? AND status = 'pending'"
_FAIL = "UPDATE tasks SET status = 'failed', completed_at = ?, updated_at = ?, error = ? WHERE seq = ?"
_REPORT_GONE = "DELETE FROM results WHERE task_id = ? AND success = 0 AND synced = 0"
_RESULT_GONE = "DELETE FROM results WHERE seq = ? RETURNING json_path, iif(json_path IS NULL, NULL, html_path)"
_CHILDREN = "(SELECT task_id FROM tasks INDEXED BY tasks_children WHERE parent_id = ?)"
_SEND_AGAIN = "UPDATE results SET rejected_at = NULL, sync_attempts = 0 WHERE seq = ?"
_SET_ASIDE = "UPDATE results SET rejected_at = ?, last_error = ? WHERE seq = ?"


class Gone(NamedTuple):
    """Files that no row names any more."""

    pages: list[str]
    evidence: list[str]


Change = Callable[[sqlite3.Connection, Sequence[Fated]], Gone]
_NOTHING = Gone([], [])


class Mending:
    """Each method answers how many had which fate. What has a fate that is not ACTED_ON is as it was."""

    def __init__(self, database: LocalDatabase, raw: RawFiles, evidence: Evidence, clock: Clock) -> None:
        self._db = database
        self._raw = raw
        self._evidence = evidence
        self._clock = clock

    async def retry_tasks(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """Ended tasks start anew, as if they had just come in; what waits for another try is tried now."""
        now = iso(self._clock.now())
        return await self._each(fates.RETRY_TASKS, which, consent, lambda db, rows: _retry(db, rows, now), progress)

    async def reject_tasks(self, which: Selection, reason: str, progress: Progress | None = None) -> Counter[Fate]:
        """Tasks that nobody has begun end as failed, with their reports (I1)."""
        now, why = iso(self._clock.now()), checks.message(by_person.said(reason))
        return await self._each(
            fates.REJECT_TASKS, which, Consent(), lambda db, rows: _fail(db, rows, now, why), progress
        )

    async def forget_tasks(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """They go with their results, children, pages and evidence.

        Of an upstream's orders those that it knows no end of stay for now: failed, and a report of it waits (I1).
        """
        now = iso(self._clock.now())
        return await self._each(
            fates.FORGET_TASKS, which, consent, lambda db, rows: _forget_tasks(db, rows, now), progress
        )

    async def retry_results(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """Rejected ones wait to be sent again."""
        return await self._each(fates.RETRY_RESULTS, which, consent, _send_again, progress)

    async def reject_results(self, which: Selection, reason: str, progress: Progress | None = None) -> Counter[Fate]:
        """What waits to be sent is set aside, by a person's word (I2): kept, and sent only after `retry_results`."""
        now, why = iso(self._clock.now()), checks.message(by_person.said(reason))
        return await self._each(
            fates.REJECT_RESULTS, which, Consent(), lambda db, rows: _set_aside(db, rows, now, why), progress
        )

    async def forget_results(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """They go with their pages; their tasks stay. An upstream's undelivered record gives way to a report (I1)."""
        now = iso(self._clock.now())

        def change(db: sqlite3.Connection, rows: Sequence[Fated]) -> Gone:
            return _forget_results(db, rows, now)

        # The owner of a page goes after those that share it.
        done: Counter[Fate] = Counter()
        for _ in ("sharers", "owners"):
            await self._each(fates.FORGET_RESULTS, which, consent, change, progress, done)
        return done

    async def _each(
        self,
        word: Word,
        which: Selection,
        consent: Consent,
        change: Change,
        progress: Progress | None,
        done: Counter[Fate] | None = None,
    ) -> Counter[Fate]:
        done = Counter() if done is None else done

        async def some(seqs: Sequence[int]) -> None:
            fated, gone = await self._db.write(_apply, word, which, seqs, consent, change)
            await self._raw.discard(gone.pages)
            await self._evidence.discard(gone.evidence)
            done.update(fated)
            if progress is not None:
                progress(done.total())

        after = 0
        while seqs := await self._db.read(fates.find, word, which, consent, fates.ACTED_ON, after, _BATCH):
            after = seqs[-1]
            await _to_its_end(some(seqs))
        return done


async def _to_its_end(work: Coroutine[None, None, None]) -> None:
    """Where it is cancelled, what has begun is done and told first."""
    task = asyncio.create_task(work)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await asyncio.wait([task])
        task.result()
        raise


def _apply(
    db: sqlite3.Connection, word: Word, which: Selection, seqs: Collection[int], consent: Consent, change: Change
) -> tuple[list[Fate], Gone]:
    now = fates.now_of(db, word, which, encode(list(seqs)).decode(), consent)
    fated = [one for one in now if one.fate in fates.ACTED_ON]
    return [one.fate for one in fated], change(db, fated)


def _retry(db: sqlite3.Connection, fated: Sequence[Fated], now: str) -> Gone:
    db.executemany(_REPORT_GONE, [(one.task_id,) for one in fated])
    seqs = [(now, one.seq) for one in fated]
    db.executemany(_NOW, seqs)
    db.executemany(_ANEW, seqs)
    return _NOTHING


def _fail(db: sqlite3.Connection, fated: Sequence[Fated], now: str, why: str) -> Gone:
    db.executemany(_FAIL, [(now, now, why, one.seq) for one in fated])
    outbox.report(db, [one.seq for one in fated])
    return _NOTHING


def _forget_tasks(db: sqlite3.Connection, fated: Sequence[Fated], now: str) -> Gone:
    gone = Gone([], [])
    for one in fated:
        if one.fate is Fate.DONE or one.status != "pending":  # what it brought before, its upstream has
            _forget_brought(db, one, gone)
    _fail(db, [one for one in fated if one.fate is not Fate.DONE], now, by_person.said("forgotten here"))
    db.executemany("DELETE FROM tasks WHERE seq = ?", [(one.seq,) for one in fated if one.fate is Fate.DONE])
    return gone


def _forget_brought(db: sqlite3.Connection, one: Fated, gone: Gone) -> None:
    """The task's result and evidence, and its children with theirs."""
    db.execute(f"DELETE FROM results WHERE task_id IN {_CHILDREN}", (one.task_id,))
    db.execute("DELETE FROM tasks WHERE parent_id = ?", (one.task_id,))
    gone.evidence.extend(evidence_rows.drop_of(db, one.task_id))
    if one.result_seq is not None:
        gone.pages.extend(_remove_result(db, one.result_seq))


def _remove_result(db: sqlite3.Connection, seq: int) -> list[str]:
    return [path for row in db.execute(_RESULT_GONE, (seq,)).fetchall() for path in row if path]


def _send_again(db: sqlite3.Connection, fated: Sequence[Fated]) -> Gone:
    db.executemany(_SEND_AGAIN, [(one.result_seq,) for one in fated])
    return _NOTHING


def _set_aside(db: sqlite3.Connection, fated: Sequence[Fated], now: str, why: str) -> Gone:
    db.executemany(_SET_ASIDE, [(now, why, one.result_seq) for one in fated])
    return _NOTHING


def _forget_results(db: sqlite3.Connection, fated: Sequence[Fated], now: str) -> Gone:
    pages = [path for one in fated for path in _remove_result(db, one.result_seq or 0)]
    _fail(db, [one for one in fated if one.fate is Fate.REPORTED], now, by_person.said("its record was forgotten here"))
    return Gone(pages, [])
