"""Short texts and tables about health that several commands print."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import TYPE_CHECKING

from parcelpost.cli.output import age, count, printable, size, table
from parcelpost.health import Finding
from parcelpost.model import QueueDepth, TaskStatus

if TYPE_CHECKING:
    from parcelpost.cli.context import Opener
    from parcelpost.cli.health.overview import Pause
    from parcelpost.storage.health import Usage


def finding_lines(findings: Iterable[Finding]) -> Iterator[str]:
    """One line for each finding, after `No problems found.` if all of them are notes."""
    findings = list(findings)
    if not any(finding.is_problem for finding in findings):
        yield "No problems found."
    yield from map(finding_line, findings)


def finding_line(finding: Finding) -> str:
    return printable(f"{finding.severity.capitalize()}: {finding.message}. Fix: {finding.fix}.")


def pause_lines(paused: dict[str, Pause]) -> Iterator[str]:
    """An empty line and a table, or nothing."""
    if paused:
        yield ""
        rows = [(name, pause.until or "until resumed", pause.reason) for name, pause in paused.items()]
        yield from table(("paused platform", "until", "reason"), rows)


def outbox_text(queue: QueueDepth) -> str:
    waiting = f", the oldest waiting for {age(queue.oldest_unsynced_seconds)}" if queue.unsynced else ""
    own = queue.rejected_by_operator
    by_operator = f", {own:,} of them by the operator" if own else ""
    return f"{count(queue.unsynced, 'result')} to deliver{waiting}; {queue.rejected:,} rejected{by_operator}"


def used_text(usage: Usage, percent: float) -> str:
    return f"{size(usage.total)}, {percent:g}% of {size(usage.max_bytes)}; {size(usage.disk_free)} free on disk"


def opener_text(opener: Opener) -> str:
    silent = f", silent for {age(opener.silent_seconds)}" if opener.silent_seconds else ""
    known = f" (process {opener.pid}, since {opener.since}{silent})" if opener.pid else ""
    return printable(opener.id) + known


def queue_lines(queue: QueueDepth, platforms: dict[str, dict[str, int]]) -> Iterator[str]:
    """Tasks by platform and status; pending includes delayed tasks."""
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
