"""Filter options of `tasks` and `results`, and the Selection they make."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer
from typer.core import TyperGroup

from parcelpost.errors import InvalidInput
from parcelpost.model import Priority, Source, TaskStatus

if TYPE_CHECKING:
    from parcelpost.storage.admin import Selection


TaskIds = Annotated[list[str] | None, typer.Argument(help="These, by their tasks.", metavar="TASK_ID")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Unsynced = Annotated[
    bool, typer.Option("--unsynced", help="Also records that were never delivered: they are lost for good.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who look.")]


class DefaultListGroup(TyperGroup):
    """`parcelpost tasks --status failed` is `parcelpost tasks list --status failed`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args:
            is_list = not ctx.resilient_parsing  # a shell that completes the line wants to know the commands
        else:
            is_list = args[0].startswith("-") and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["list", *args] if is_list else args)


class PriorityOption(StrEnum):
    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    BATCH = "batch"


class DeliveryState(StrEnum):
    UNSYNCED = "unsynced"
    SYNCED = "synced"
    REJECTED = "rejected"


def _text_option(option: str, metavar: str, words: str) -> Any:
    return Annotated[str | None, typer.Option(option, metavar=metavar, help=words)]


_FILTER_OPTIONS = {
    "status": Annotated[
        list[TaskStatus] | None, typer.Option("--status", help="Only of tasks in this status. May be repeated.")
    ],
    "platform": _text_option("--platform", "NAME", "Only of this platform."),
    "state": _text_option("--state", "STATE", "Only of this state, such as CT."),
    "county": _text_option("--county", "COUNTY", "Only of this county."),
    "parcel": _text_option("--parcel", "ID", "Only of this parcel id."),
    "source": Annotated[Source | None, typer.Option("--source", help="Only from this source.")],
    "priority": Annotated[PriorityOption | None, typer.Option("--priority", help="Only of this priority.")],
    "delivery": Annotated[
        DeliveryState | None, typer.Option("--delivery", help="Only with a result in this state of delivery.")
    ],
    "error": _text_option("--error", "TEXT", "Only where what went wrong holds this text."),
    "since": _text_option("--since", "WHEN", "Only what is new since then: 2026-11-15, 2h, 3d."),
}


def with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """The command is given `which`, a Selection, in place of the options."""

    @wraps(command)
    def taking(**given: Any) -> None:
        said = {name: given.pop(name, None) for name in _FILTER_OPTIONS}
        command(which=_selection(said), **given)

    # Where a command is defined, Selection is known to the type checker only: the store is loaded when a command runs.
    whole = signature(command, eval_str=True, locals={"Selection": object})
    own = [one for one in whole.parameters.values() if one.name != "which"]
    added = [
        Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _FILTER_OPTIONS.items()
    ]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own] + added
    taking.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {one.name: one.annotation for one in parameters}
    return taking


def require_selection(which: Selection, task_ids: list[str] | None, *, everything: bool, what: str) -> Selection:
    """By ids, or by filters, or all of them. Raises InvalidInput where nobody has said which."""
    from msgspec.structs import replace

    from parcelpost.storage.admin import Selection

    is_filtered = which != Selection()
    if task_ids:
        if is_filtered or everything:
            raise InvalidInput("task ids do not go together with filters or --all", hint="give one or the other")
        return replace(which, task_ids=tuple(dict.fromkeys(task_ids)))
    if is_filtered and everything:
        raise InvalidInput("--all does not go together with filters", hint="leave --all out")
    if not is_filtered and not everything:
        raise InvalidInput(
            f"which {what}s?", hint=f"name task ids, or filter (see --help), or add --all for all {what}s"
        )
    return which


def _selection(said: dict[str, Any]) -> Selection:
    from parcelpost.cli.context import CLOCK
    from parcelpost.cli.options import parse_moment
    from parcelpost.storage.admin import Delivery, Selection

    return Selection(
        statuses=tuple(said["status"] or ()),
        platform=said["platform"],
        state=said["state"],
        county=said["county"],
        parcel_id=said["parcel"],
        source=said["source"],
        priority=Priority[said["priority"].name] if said["priority"] else None,
        delivery=Delivery(said["delivery"]) if said["delivery"] else None,
        error=said["error"] or None,
        since=parse_moment(said["since"], CLOCK.now()) if said["since"] else None,
    )
