"""The filters of `tasks` and `results`: the same options everywhere, one Selection for the command."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from functools import wraps
from inspect import Parameter, signature
from typing import TYPE_CHECKING, Annotated, Any

import typer

from parcelpost.errors import InvalidInput
from parcelpost.model import Priority, Source, TaskStatus

if TYPE_CHECKING:
    from parcelpost.storage.admin import Selection


class Importance(StrEnum):
    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    BATCH = "batch"


class DeliveryState(StrEnum):
    UNSYNCED = "unsynced"
    SYNCED = "synced"
    REJECTED = "rejected"


def _text(option: str, metavar: str, words: str) -> Any:
    return Annotated[str | None, typer.Option(option, metavar=metavar, help=words)]


_OPTIONS = {
    "status": Annotated[
        list[TaskStatus] | None, typer.Option("--status", help="Only of tasks in this status. May be repeated.")
    ],
    "platform": _text("--platform", "NAME", "Only of this platform."),
    "state": _text("--state", "STATE", "Only of this state, such as CT."),
    "county": _text("--county", "COUNTY", "Only of this county."),
    "parcel": _text("--parcel", "ID", "Only of this parcel id."),
    "source": Annotated[Source | None, typer.Option("--source", help="Only from this source.")],
    "priority": Annotated[Importance | None, typer.Option("--priority", help="Only of this priority.")],
    "delivery": Annotated[
        DeliveryState | None, typer.Option("--delivery", help="Only with a result in this state of delivery.")
    ],
    "error": _text("--error", "TEXT", "Only where what went wrong holds this text."),
    "since": _text("--since", "WHEN", "Only what is new since then: 2026-11-15, 2h, 3d."),
}


def with_filters(command: Callable[..., None]) -> Callable[..., None]:
    """The command is given `which`, a Selection, in place of the options."""

    @wraps(command)
    def taking(**given: Any) -> None:
        said = {name: given.pop(name, None) for name in _OPTIONS}
        command(which=_selection(said), **given)

    # Where a command is defined, Selection is known to the type checker only: the store is loaded when a command runs.
    whole = signature(command, eval_str=True, locals={"Selection": object})
    own = [one for one in whole.parameters.values() if one.name != "which"]
    added = [Parameter(name, Parameter.KEYWORD_ONLY, default=None, annotation=kind) for name, kind in _OPTIONS.items()]
    parameters = [one.replace(kind=Parameter.KEYWORD_ONLY) for one in own] + added
    taking.__signature__ = whole.replace(parameters=parameters)  # type: ignore[attr-defined]
    taking.__annotations__ = {one.name: one.annotation for one in parameters}
    return taking


def meant(which: Selection, task_ids: list[str] | None, *, everything: bool, what: str) -> Selection:
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
    from parcelpost.cli.moments import moment
    from parcelpost.cli.running import CLOCK
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
        since=moment(said["since"], CLOCK.now()) if said["since"] else None,
    )
