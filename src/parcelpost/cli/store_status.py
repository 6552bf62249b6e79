"""`parcelpost store status`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from parcelpost.cli.failing import failures_text
from parcelpost.cli.options import DEFAULT_STORE, AsJson, StorePath
from parcelpost.cli.output import age, count, fields, print_json, print_lines, printable, size, table
from parcelpost.model import QueueDepth, TaskStatus

if TYPE_CHECKING:
    from parcelpost.cli.running import Opener
    from parcelpost.cli.status_report import Pause, Problem, Status
    from parcelpost.storage.health import Usage
    from parcelpost.storage.queries import Failures

EXAMPLES = """
Examples:

\b
  parcelpost store status
  parcelpost store status --store /srv/parcelpost/parcelpost.db
  parcelpost store status --json | jq .queue.unsynced
"""


def status(store: StorePath = DEFAULT_STORE, as_json: AsJson = False) -> None:
    """Show how the store is: what waits, what takes room, what needs attention.

    The first line says that all is well, or what is wrong and what to do. Only looks: nothing is created or changed.
    """
    from parcelpost.cli import running, status_report

    found = running.run(store, status_report.gather(store))
    if as_json:
        print_json(found)
    else:
        print_lines(_lines(found))


def _lines(found: Status) -> Iterator[str]:
    yield from attention_lines(found.problems)
    yield ""
    yield from fields(_facts(found))
    yield ""
    yield from queue_lines(found.queue, found.platforms)
    yield from pause_lines(found.paused)


def attention_lines(problems: list[Problem], but: str = "") -> Iterator[str]:
    """That all is well, and what is no fault but worth a word; or what is wrong and what to do, one line each."""
    if not problems:
        yield printable(f"All is well{but}.")
    for problem in problems:
        yield printable(f"Attention: {problem.what}. What to do: {problem.remedy}.")


def pause_lines(paused: dict[str, Pause]) -> Iterator[str]:
    """An empty line and a table, or nothing."""
    if paused:
        yield ""
        rows = [(name, pause.until or "until resumed", pause.reason) for name, pause in paused.items()]
        yield from table(("paused platform", "until", "reason"), rows)


def outbox_text(queue: QueueDepth) -> str:
    waiting = f", the oldest for {age(queue.oldest_unsynced_seconds)}" if queue.unsynced else ""
    own = queue.rejected_by_operator
    by_operator = f", {own:,} of them by the operator" if own else ""
    return f"{count(queue.unsynced, 'result')} to deliver{waiting}; {queue.rejected:,} rejected{by_operator}"


def failed_text(failures: Failures) -> str | None:
    return failures_text(failures, "in the last 24 h") if failures.failed else None


def used_text(usage: Usage, percent: float) -> str:
    return f"{size(usage.total)}, {percent:g} % of {size(usage.max_bytes)}: {usage.level}"


def _facts(found: Status) -> Iterator[tuple[str, str | None]]:
    usage = found.usage
    yield "store", f"{found.path} (schema version {found.schema_version})"
    yield "last change", found.last_change or "none yet"
    yield "outbox", outbox_text(found.queue)
    yield "failed", failed_text(found.failures)
    yield "used", used_text(usage, found.used_percent)
    parts = (
        ("database", usage.database),
        ("WAL", usage.wal),
        ("raw files", usage.raw),
        ("journal", usage.journal),
        ("cache, within the database", found.cache_bytes),
        ("artifacts, within the raw files", found.artifact_bytes),
    )
    yield "of which", ", ".join(f"{name} {size(part)}" for name, part in parts)
    yield "disk", f"{size(usage.disk_free)} free (workers stop below {size(usage.min_free_bytes)})"
    if usage.lacks_inodes:
        yield "inodes", f"{usage.free_inodes:,} free (workers stop below {usage.min_free_inodes:,})"
    if found.newest_backup is not None and found.newest_backup_age_seconds is not None:
        yield "newest backup", f"{found.newest_backup}, {age(found.newest_backup_age_seconds)} old"
    yield "backups", f"{len(found.backups):,}"
    yield "open in", ", ".join(map(opener_text, found.open_in)) or "no process"
    yield "left by the dead", ", ".join(map(opener_text, found.left_by_dead)) or None


def opener_text(opener: Opener) -> str:
    silent = f", silent for {age(opener.silent_seconds)}" if opener.silent_seconds else ""
    known = f" (process {opener.pid}, since {opener.since}{silent})" if opener.pid else ""
    return printable(opener.id) + known


def queue_lines(queue: QueueDepth, platforms: dict[str, dict[str, int]]) -> Iterator[str]:
    """Tasks by platform and status; what is not yet due is part of pending."""
    headers = ("tasks", *(status.label for status in TaskStatus))
    rows: list[tuple[str | int, ...]] = []
    for platform, counts in sorted(platforms.items()):
        pending = counts.get("pending", 0) + counts.get("delayed", 0)
        rows.append((platform, pending, *(counts.get(status, 0) for status in list(TaskStatus)[1:])))
    total = ("all", queue.pending, *(getattr(queue, status) for status in list(TaskStatus)[1:]))
    yield from table(headers, [*rows, total])
    if queue.pending:
        due = f"; {queue.delayed:,} of them not yet due" if queue.delayed else ""
        yield f"The oldest pending task has waited {age(queue.oldest_pending_seconds)}{due}."
