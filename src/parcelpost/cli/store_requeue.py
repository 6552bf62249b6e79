"""`parcelpost store requeue`: the word of the first scripts for `parcelpost tasks retry`."""

from __future__ import annotations

from typing import Annotated

import typer

from parcelpost.cli.mending.options import TaskIds
from parcelpost.cli.options import DEFAULT_STORE, AsJson, Platform, StorePath, Yes
from parcelpost.errors import InvalidInput
from parcelpost.model import TaskStatus

EXAMPLES = """
Examples:

\b
  parcelpost store requeue 7f3a9c 81b2d0
  parcelpost store requeue --failed --platform vgsi
  parcelpost store requeue --failed --expired --yes
"""


def requeue(
    task_ids: TaskIds = None,
    failed: Annotated[bool, typer.Option("--failed", help="All failed tasks.")] = False,
    expired: Annotated[bool, typer.Option("--expired", help="All expired tasks.")] = False,
    completed: Annotated[
        bool, typer.Option("--completed", help="All completed tasks whose result was delivered; or, with ids, those.")
    ] = False,
    platform: Platform = None,
    yes: Yes = False,
    store: StorePath = DEFAULT_STORE,
    as_json: AsJson = False,
) -> None:
    """Let ended tasks start anew, as `parcelpost tasks retry` does. Asks first when more than one would change."""
    from parcelpost.cli.tasks import words
    from parcelpost.storage.admin import Selection

    flags = {TaskStatus.FAILED: failed, TaskStatus.EXPIRED: expired, TaskStatus.COMPLETED: completed and not task_ids}
    flags[TaskStatus.NOT_FOUND] = flags[TaskStatus.COMPLETED]
    statuses = tuple(status for status, is_wanted in flags.items() if is_wanted)
    if not task_ids and not statuses:
        raise InvalidInput("which tasks?", hint="name task ids, or add --failed, --expired or --completed")
    which = Selection(statuses=statuses, platform=platform)
    words.retry(which, task_ids, completed=completed, yes=yes, store=store, as_json=as_json)
