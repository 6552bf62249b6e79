"""What the commands print: tables, JSON, sizes, ages."""

from __future__ import annotations

import re
import shutil
import sys
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any

from parcelpost.errors import ParcelpostError
from parcelpost.health_checks import Finding
from parcelpost.model import QueueDepth, TaskStatus
from parcelpost.units import age as age  # noqa: PLC0414 - re-exported for commands
from parcelpost.units import count as count  # noqa: PLC0414
from parcelpost.units import size as size  # noqa: PLC0414

if TYPE_CHECKING:
    from parcelpost.cli.context import Opener
    from parcelpost.storage.claims import Pause
    from parcelpost.storage.health import Usage


Cell = str | int | None

_NARROWEST = 40


def table(headers: Sequence[str], rows: Iterable[Sequence[Cell]]) -> list[str]:
    """Returns aligned lines, numbers right-aligned. Nothing is truncated."""
    body = list(rows)
    texts = [list(headers), *([_text(cell) for cell in row] for row in body)]
    widths = [max(map(len, column)) for column in zip(*texts, strict=True)]
    numeric = [any(isinstance(row[i], int) for row in body) for i in range(len(headers))]
    lines = []
    for row in texts:
        cells = [
            cell.rjust(width) if right else cell.ljust(width)
            for cell, width, right in zip(row, widths, numeric, strict=True)
        ]
        lines.append("  ".join(cells).rstrip())
    return lines


def fields(pairs: Iterable[tuple[str, Cell]]) -> list[str]:
    """Returns one `name  value` line per pair; pairs without a value are omitted."""
    known = [(name, _text(value)) for name, value in pairs if value is not None]
    width = max((len(name) for name, _ in known), default=0)
    return [f"{name.ljust(width)}  {value}" for name, value in known]


def print_lines(lines: Iterable[str]) -> None:
    for line in lines:
        print(line)


def terminal_width() -> int | None:
    """The width of stdout, or None if it is not a terminal."""
    return max(shutil.get_terminal_size().columns, _NARROWEST) if sys.stdout.isatty() else None


def fitted(lines: Iterable[str], width: int | None) -> Iterator[str]:
    """Wraps long lines between words and indents the continuation to the value column."""
    for line in lines:
        if width is None or len(line) <= width:
            yield line
            continue
        column = re.match(r" *\S+( \S+)* {2,}(?=\S)", line)
        yield from wrapped("", line, " " * (column.end() if column else 2), width)


def wrapped(begin: str, text: str, indent: str, width: int) -> list[str]:
    return textwrap.wrap(
        text, width, initial_indent=begin, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False
    )


def print_json(document: Any) -> None:
    """Prints one document on one line, always in UTF-8."""
    from msgspec.json import encode

    sys.stdout.flush()
    sys.stdout.buffer.write(encode(document) + b"\n")


def printable(text: str) -> str:
    """Escapes control characters, so that external text cannot move the cursor or break the line."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def moment(value: datetime | None) -> str | None:
    return None if value is None else f"{value:%Y-%m-%d %H:%M:%S} UTC"


def percentage(share: float | None) -> str:
    """`99.9 %`; never 100 % while a part is missing. '' for None."""
    return "" if share is None else f"{int(share * 1_000) / 10:g} %"


def record_noun(record_type: str, number: int) -> str:
    """The noun for that many records of a sync round: `raw_files` is `raw file` for 1, else `raw files`."""
    words = record_type.replace("_", " ")
    return words.removesuffix("s") if number == 1 else words


def confirm(question: str) -> None:
    """Asks on stderr. Raises ParcelpostError for any answer but yes, and at end of input."""
    print(f"{question} [y/N] ", end="", file=sys.stderr, flush=True)
    answer = sys.stdin.readline()
    if not answer:
        print(file=sys.stderr)
    if answer.strip().lower() not in ("y", "yes"):
        raise ParcelpostError("not confirmed: nothing was changed", hint="answer y, or add --yes to skip the question")


def _text(cell: Cell) -> str:
    if cell is None:
        return "-"
    return f"{cell:,}" if isinstance(cell, int) else printable(cell)


def examples(*commands: str) -> str:
    """The epilog of a command's help: `\\b` keeps its lines as they are."""
    return "\n".join(("", "Examples:", "", "\b", *(f"  {command}" for command in commands), ""))


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
