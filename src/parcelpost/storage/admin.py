"""Operator actions on tasks and results: retry, reject, delete, with what each would do to every row."""

from __future__ import annotations

import asyncio
import sqlite3
from collections import Counter
from collections.abc import Callable, Collection, Coroutine, Sequence
from enum import StrEnum
from typing import Any, NamedTuple

from msgspec.json import encode

from parcelpost.clock import Clock, iso
from parcelpost.storage import artifacts, by_person, outbox, tasks, validation
from parcelpost.storage.artifacts import Artifacts
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.filters import Names, Selection, from_results, from_tasks, of_results, of_tasks, values
from parcelpost.storage.raw_files import RawFiles


class Fate(StrEnum):
    DONE = "done"
    """As was asked."""
    REPORTED = "reported"
    """It was an upstream's order: it ends as failed, which the upstream is told."""
    BROUGHT = "brought"
    """It was an upstream's order, and is done again: it ends as failed here, and what it brought before stays."""
    HELD = "held"
    """A worker is at it."""
    CHILD = "child"
    """A further record of another task's page."""
    PENDING = "pending"
    ENDED = "ended"
    COMPLETED = "completed"
    UNDELIVERED = "undelivered"
    """Its record is nowhere else yet."""
    REPORT_WAITS = "report_waits"
    """Its upstream has not been told yet how it ended (I1)."""
    PAGE_SHARED = "page_shared"
    """Other results need its page."""
    DELIVERED = "delivered"
    WAITING = "waiting"
    REJECTED = "rejected"
    SET_ASIDE = "set_aside"
    """Rejected, by a person."""


ACTED_ON = frozenset({Fate.DONE, Fate.REPORTED, Fate.BROUGHT})


class Word(NamedTuple):
    """What a person says about tasks or results."""

    of_results: bool
    fate: str
    """SQL over `t` and `r`; {sharers} is a condition on other results of the page that stay."""
    records: str = "0"
    """SQL: how many records that were never delivered are lost with it."""


class Consent(NamedTuple):
    """What the person has agreed to."""

    unsynced: bool = False
    """Records that were not delivered may be lost."""
    completed: bool = False
    """Completed and not found ones may be scraped once more."""
    delayed: bool = False
    """Tasks that wait for another try may be tried now."""
    set_aside: bool = False
    """What a person has set aside may be sent after all."""


_ORDERED = "(t.source IN ('gateway', 'firestore') AND t.parent_id IS NULL)"
_OF_CHILDREN = """FROM tasks AS c INDEXED BY tasks_children
    JOIN results AS rc ON rc.task_id = c.task_id WHERE c.parent_id = t.task_id AND rc.synced = 0"""
_UNSENT_OF_CHILDREN = f"EXISTS (SELECT 1 {_OF_CHILDREN})"
_IS_RECORD = "(r.data IS NOT NULL AND r.synced = 0)"
# A consent is about what was known when it was asked for.
_MAY_NOT_GO = "(NOT :unsynced OR {0}.seq > :result_seq OR {0}.created_at > :result_at)"
_KEEPS_OWN = f"({_IS_RECORD} AND {_MAY_NOT_GO.format('r')})"
_KEEPS_OF_CHILDREN = f"EXISTS (SELECT 1 {_OF_CHILDREN} AND {_MAY_NOT_GO.format('rc')})"
_REPORT_WAITS = f"({_ORDERED} AND r.synced = 0 AND r.data IS NULL AND r.rejected_at IS NULL)"

RETRY_TASKS = Word(
    of_results=False,
    fate=f"""CASE WHEN t.parent_id IS NOT NULL THEN 'child'
        WHEN t.status = 'processing' THEN 'held'
        WHEN t.status = 'pending' THEN iif(:delayed AND t.available_at IS NOT NULL, 'done', 'pending')
        WHEN t.status <> 'completed' AND t.status <> 'not_found' THEN 'done'
        WHEN NOT :completed THEN 'completed'
        WHEN r.synced = 0 OR {_UNSENT_OF_CHILDREN} THEN 'undelivered'
        ELSE 'done' END""",
)
REJECT_TASKS = Word(
    of_results=False,
    fate="""CASE WHEN t.status = 'processing' THEN 'held' WHEN t.status = 'pending' THEN 'done' ELSE 'ended' END""",
)
FORGET_TASKS = Word(
    of_results=False,
    fate=f"""CASE WHEN t.parent_id IS NOT NULL THEN 'child'
        WHEN t.status = 'processing' THEN 'held'
        WHEN t.status = 'pending' AND {_ORDERED} THEN iif(r.success = 1, 'brought', 'reported')
        WHEN {_KEEPS_OWN} OR {_KEEPS_OF_CHILDREN} THEN 'undelivered'
        WHEN {_REPORT_WAITS} THEN 'report_waits'
        WHEN {_ORDERED} AND {_IS_RECORD} THEN 'reported'
        ELSE 'done' END""",
    records=f"iif(t.status = 'pending' AND {_ORDERED}, 0, {_IS_RECORD} + (SELECT count(*) {_OF_CHILDREN}))",
)
RETRY_RESULTS = Word(
    of_results=True,
    fate=f"""CASE WHEN r.synced = 1 THEN 'delivered' WHEN r.rejected_at IS NULL THEN 'waiting'
        WHEN NOT :set_aside AND {by_person.is_said("r.last_error")} THEN 'set_aside'
        ELSE 'done' END""",
)
REJECT_RESULTS = Word(
    of_results=True,
    fate="CASE WHEN r.synced = 1 THEN 'delivered' WHEN r.rejected_at IS NULL THEN 'done' ELSE 'rejected' END",
)
FORGET_RESULTS = Word(
    of_results=True,
    fate=f"""CASE WHEN {_REPORT_WAITS} THEN 'report_waits'
        WHEN {_KEEPS_OWN} THEN 'undelivered'
        WHEN r.json_path IS NOT NULL AND EXISTS (SELECT 1 FROM results AS s CROSS JOIN tasks AS u
            ON u.task_id = s.task_id WHERE s.html_path = r.html_path AND s.json_path IS NULL AND {{sharers}})
            THEN 'page_shared'
        WHEN {_ORDERED} AND {_IS_RECORD} THEN 'reported'
        ELSE 'done' END""",
    records=_IS_RECORD,
)


def counts(db: sqlite3.Connection, word: Word, which: Selection, consent: Consent) -> dict[Fate, int]:
    """How many would have which fate. What goes along with another one that is meant does not count."""
    query = f"SELECT {word.fate.format(sharers=_stays(which))} {_from(word, which)}"
    if not word.of_results:
        query += f""" AND NOT EXISTS (SELECT 1 FROM tasks AS p LEFT JOIN results AS rp ON rp.task_id = p.task_id
            WHERE p.task_id = t.parent_id AND {of_tasks(which, Names("p", "rp"))})"""
    # One by one: SQLite would sort a million of them in memory to group them.
    found = Counter(fate for (fate,) in db.execute(query, _values(which, consent)))
    return {Fate(fate): number for fate, number in found.items()}


def records_lost(db: sqlite3.Connection, word: Word, which: Selection) -> int:
    """How many records that were never delivered would go, if the person agreed to it."""
    fate = word.fate.format(sharers=_stays(which))
    each = f"SELECT {fate} AS fate, {word.records} AS records {_from(word, which)}"
    query = f"SELECT coalesce(sum(records), 0) FROM ({each}) WHERE fate IN ({_listed(ACTED_ON)})"
    return int(db.execute(query, _values(which, Consent(unsynced=True))).fetchone()[0])


def named(db: sqlite3.Connection, word: Word, which: Selection, consent: Consent) -> dict[str, tuple[Fate, str | None]]:
    """By task id: its fate, and who holds it. For a selection of a few."""
    query = f"SELECT t.task_id, {word.fate.format(sharers=_stays(which))}, t.claimed_by {_from(word, which)}"
    return {row[0]: (Fate(row[1]), row[2]) for row in db.execute(query, _values(which, consent))}


def find(
    db: sqlite3.Connection,
    word: Word,
    which: Selection,
    consent: Consent,
    fates: Collection[Fate],
    after: int,
    most: int,
) -> list[int]:
    """The next that have one of these fates, by seq. A look: to find few among many takes a while."""
    seq = "r.seq" if word.of_results else "t.seq"
    fate = f"SELECT {seq} AS seq, {word.fate.format(sharers='TRUE')} AS fate {_from(word, which)}"
    query = f"SELECT seq FROM ({fate}) WHERE fate IN ({_listed(fates)}) ORDER BY seq LIMIT :most"
    return [row[0] for row in db.execute(query, _values(which, consent) | {"after": after, "most": most})]


_TASKS_NOW = """FROM json_each(:seqs) AS meant CROSS JOIN tasks AS t ON t.seq = meant.value
    LEFT JOIN results AS r ON r.task_id = t.task_id"""
_RESULTS_NOW = """FROM json_each(:seqs) AS meant CROSS JOIN results AS r ON r.seq = meant.value
    CROSS JOIN tasks AS t ON t.task_id = r.task_id"""


class Fated(NamedTuple):
    seq: int
    """Of the task."""
    task_id: str
    status: str
    """Of the task."""
    result_seq: int | None
    fate: Fate


def now_of(db: sqlite3.Connection, word: Word, which: Selection, seqs: str, consent: Consent) -> list[Fated]:
    """Of those that are meant still, the fates at this moment, in the transaction that does it.

    Others have written since they were found.
    """
    meant = f"{_RESULTS_NOW} WHERE {of_results(which)}" if word.of_results else f"{_TASKS_NOW} WHERE {of_tasks(which)}"
    query = f"SELECT t.seq, t.task_id, t.status, r.seq, {word.fate.format(sharers='TRUE')} {meant}"
    found = db.execute(query, _values(which, consent) | {"seqs": seqs}).fetchall()
    return [Fated(seq, task_id, status, result, Fate(fate)) for seq, task_id, status, result, fate in found]


def _from(word: Word, which: Selection) -> str:
    return from_results(which) if word.of_results else from_tasks(which)


def _stays(which: Selection) -> str:
    return f"NOT ({of_results(which, Names('u', 's'))} AND (:unsynced OR s.synced = 1))"


def _listed(fates: Collection[Fate]) -> str:
    return ", ".join(f"'{one}'" for one in sorted(fates))


def _values(which: Selection, consent: Consent) -> dict[str, Any]:
    return values(which) | consent._asdict() | {"after": 0}


_BATCH = 200

Progress = Callable[[int], None]
"""Told how many are done."""

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


class Admin:
    """Each method answers how many had which fate. What has a fate that is not ACTED_ON is as it was."""

    def __init__(self, database: LocalDatabase, raw: RawFiles, evidence: Artifacts, clock: Clock) -> None:
        self._db = database
        self._raw = raw
        self._evidence = evidence
        self._clock = clock

    async def retry_tasks(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """Ended tasks start anew, as if they had just come in; what waits for another try is tried now."""
        now = iso(self._clock.now())
        return await self._each(RETRY_TASKS, which, consent, lambda db, rows: _retry(db, rows, now), progress)

    async def reject_tasks(self, which: Selection, reason: str, progress: Progress | None = None) -> Counter[Fate]:
        """Tasks that nobody has begun end as failed, with their reports (I1)."""
        now, why = iso(self._clock.now()), validation.message(by_person.said(reason))
        return await self._each(REJECT_TASKS, which, Consent(), lambda db, rows: _fail(db, rows, now, why), progress)

    async def forget_tasks(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """They go with their results, children, pages and evidence.

        Of an upstream's orders those that it knows no end of stay for now: failed, and a report of it waits (I1).
        """
        now = iso(self._clock.now())
        return await self._each(FORGET_TASKS, which, consent, lambda db, rows: _forget_tasks(db, rows, now), progress)

    async def retry_results(
        self, which: Selection, consent: Consent = Consent(), progress: Progress | None = None
    ) -> Counter[Fate]:
        """Rejected ones wait to be sent again."""
        return await self._each(RETRY_RESULTS, which, consent, _send_again, progress)

    async def reject_results(self, which: Selection, reason: str, progress: Progress | None = None) -> Counter[Fate]:
        """What waits to be sent is set aside, by a person's word (I2): kept, and sent only after `retry_results`."""
        now, why = iso(self._clock.now()), validation.message(by_person.said(reason))
        return await self._each(
            REJECT_RESULTS, which, Consent(), lambda db, rows: _set_aside(db, rows, now, why), progress
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
            await self._each(FORGET_RESULTS, which, consent, change, progress, done)
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
        while seqs := await self._db.read(find, word, which, consent, ACTED_ON, after, _BATCH):
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
    now = now_of(db, word, which, encode(list(seqs)).decode(), consent)
    fated = [one for one in now if one.fate in ACTED_ON]
    return [one.fate for one in fated], change(db, fated)


def _retry(db: sqlite3.Connection, fated: Sequence[Fated], now: str) -> Gone:
    db.executemany(_REPORT_GONE, [(one.task_id,) for one in fated])
    tasks.restart(db, [one.seq for one in fated], now)
    return _NOTHING


def _fail(db: sqlite3.Connection, fated: Sequence[Fated], now: str, why: str) -> Gone:
    tasks.fail(db, [one.seq for one in fated], now, why)
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
    gone.evidence.extend(artifacts.drop_of(db, one.task_id))
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
