"""Tasks that failed, in words: for a status, a probe, and the end of a run."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from parcelpost.cli.options import command_line
from parcelpost.cli.output import count

if TYPE_CHECKING:
    from parcelpost.storage.queries import Failures

LATELY = timedelta(days=1)
_MOST_REASON_CHARS = 200


def failures_text(found: Failures, when: str) -> str:
    """`when`: `in the last 24 h`."""
    which = ""
    if found.hopeless and found.failed < found.ended:
        which = f", among them all of {', '.join(found.hopeless)}"
    reason = found.commonest[:_MOST_REASON_CHARS] or "no reason was given"
    return f"{found.failed:,} of {count(found.ended, 'task')} {when} failed{which}, most often: {reason}"


def failures_remedy(store: Path) -> str:
    see = command_line("tasks list --status failed", store)
    return f"see them with '{see}', and once the cause is mended try them again with '{failures_command(store)}'"


def failures_command(store: Path) -> str:
    return command_line("tasks retry --status failed", store)
