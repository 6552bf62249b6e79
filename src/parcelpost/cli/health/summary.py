"""Short texts and tables about a store's health that several commands print."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import timedelta
from typing import TYPE_CHECKING

from parcelpost.cli.options import (
    StoreContext,
    command_line,
)
from parcelpost.cli.output import age, count, printable, size, table
from parcelpost.model import QueueDepth, TaskStatus

if TYPE_CHECKING:
    from parcelpost.cli.context import Opener
    from parcelpost.cli.health.store_status import Pause, Problem
    from parcelpost.storage.health import Usage
    from parcelpost.storage.queries import Failures


RECENT_FAILURES = timedelta(days=1)
_MOST_REASON_CHARS = 200


def failures_text(found: Failures, when: str) -> str:
    """`when`: `in the last 24 h`."""
    which = ""
    if found.hopeless and found.failed < found.ended:
        which = f", among them all of {', '.join(found.hopeless)}"
    reason = found.commonest[:_MOST_REASON_CHARS] or "no reason was given"
    return f"{found.failed:,} of {count(found.ended, 'task')} {when} failed{which}, most often: {reason}"


def failures_remedy(store: StoreContext) -> str:
    see = command_line("tasks list --status failed", store)
    return f"see them with '{see}', and once the cause is mended try them again with '{failures_command(store)}'"


def failures_command(store: StoreContext) -> str:
    return command_line("tasks retry --status failed", store)


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
