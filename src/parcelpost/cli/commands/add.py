"""`parcelpost add`."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import age, examples, print_json, printable
from parcelpost.cli.settings_options import (
    AnyPlatform,
    AsJson,
    ConfigOption,
    SetOption,
    StoreContext,
    StoreOption,
    command_line,
    store_context,
)
from parcelpost.cli.task_filters import PriorityOption
from parcelpost.errors import InvalidInput
from parcelpost.model import Json, Source, Task, TaskInfo, TaskStatus

if TYPE_CHECKING:
    from datetime import datetime


EXAMPLES = examples(
    "parcelpost add grizzly_gis 11-2S-15-00010-001 --state FL --county columbia",
    "parcelpost add beacon 07-31-200-011 --state IN --county lake --url https://example.org/07-31 --priority urgent",
    "parcelpost add echo 1 --state CT --county hartford --extra note=first --extra delay_ms:=200",
)


def add(
    platform: Annotated[str, typer.Argument(help="Platform that scrapes the parcel.", metavar="PLATFORM")],
    parcel_id: Annotated[str, typer.Argument(help="Parcel ID, as the county writes it.", metavar="PARCEL_ID")],
    state: Annotated[str, typer.Option("--state", help="State, such as CT.")],
    county: Annotated[str, typer.Option("--county", help="County.")],
    url: Annotated[str, typer.Option("--url", help="URL of the parcel's page, if the platform needs it.")] = "",
    priority: Annotated[
        PriorityOption, typer.Option("--priority", help="Priority of the task.")
    ] = PriorityOption.NORMAL,
    max_retries: Annotated[
        int, typer.Option("--max-retries", min=0, max=1_000, help="Retries after the first attempt.")
    ] = 3,
    extra: Annotated[
        list[str] | None,
        typer.Option(
            "--extra", metavar="KEY=VALUE", help="Extra data for the platform; KEY:=JSON for numbers. Repeatable."
        ),
    ] = None,
    task_id: Annotated[str, typer.Option("--id", help="Task ID. By default, derived from the parcel.")] = "",
    any_platform: AnyPlatform = False,
    store_path: StoreOption = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Add a task for one parcel. Adding the same task again has no effect. Creates the store if it does not exist."""
    from parcelpost.cli import context, platform_names
    from parcelpost.cli.importer import task_rows

    store = store_context(store_path, config, set_)
    texts = {
        "platform": platform, "parcel_id": parcel_id, "state": state, "county": county, "url": url,
        "priority": priority.value, "max_retries": str(max_retries), "task_id": task_id,
    }  # fmt: skip
    clean = {field: task_rows.field_text(field, value) for field, value in texts.items()}
    known = None if any_platform else platform_names.KnownPlatforms(store.settings)
    if clean["platform"] and known is not None:
        clean["platform"] = known.spelled(clean["platform"])
    task = task_rows.make_task(clean, parse_extra(extra or ()), Source.CLI)
    if known is not None:
        known.check(task)
    is_new, info = context.run_async(store, _add(store, task))
    if as_json:
        print_json({"task_id": task.task_id, "new": is_new, "status": info.status})
    elif is_new:
        target = task.target
        place = f"{target.county}, {target.state}"
        print(printable(f"Added task {task.task_id}: parcel {target.parcel_id} in {place}, on {task.platform}."))
    else:
        print(printable(f"Task {task.task_id} {_describe_existing(info, context.CLOCK.now(), store)}."))


async def _add(store: StoreContext, task: Task) -> tuple[bool, TaskInfo]:
    """Raises InvalidInput if the task ID already belongs to another parcel."""
    from parcelpost.cli.context import open_or_create
    from parcelpost.cli.importer import task_rows

    async with open_or_create(store) as lpm:
        is_new = await lpm.add_task(task)
        info = await lpm.get_task(task.task_id)
    if info is None:
        raise InvalidInput(f"task {task.task_id!r} was removed while it was being added", hint="add it again")
    if not task_rows.is_same_parcel(info.task, task):
        raise InvalidInput(
            f"task ID {task.task_id!r} already belongs to parcel {info.task.target.parcel_id!r}",
            hint="omit --id or use another ID; nothing was changed",
        )
    return is_new, info


def _describe_existing(info: TaskInfo, now: datetime, store: StoreContext) -> str:
    """Describes the state of a task that already existed."""
    since = age((now - (info.completed_at or info.created_at)).total_seconds())
    if info.status is TaskStatus.PENDING:
        return f"already exists, pending for {since}: a worker will pick it up"
    if info.status is TaskStatus.PROCESSING:
        return "already exists: a worker is processing it"
    option = "--completed " if info.status in (TaskStatus.COMPLETED, TaskStatus.NOT_FOUND) else ""
    again = command_line(f"tasks retry {option}{shlex.quote(info.task.task_id)}", store)
    return f"already exists, {info.status.label} {since} ago; use '{again}' to scrape it again"


def parse_extra(pairs: Sequence[str]) -> dict[str, Json]:
    import msgspec

    values: dict[str, Json] = {}
    for pair in pairs:
        key, sign, value = pair.partition("=")
        if not sign or not key.rstrip(":"):
            raise InvalidInput(f"--extra {pair!r} is not KEY=VALUE", hint="for example: --extra owner=Smith")
        try:
            values[key.rstrip(":")] = msgspec.json.decode(value) if key.endswith(":") else value
        except msgspec.DecodeError as error:
            raise InvalidInput(
                f"--extra {pair!r} is not valid JSON: {error}", hint="use KEY=VALUE for plain text"
            ) from None
    return values
