"""The filter options of `tasks` and `results`, and the commands that both have: list, retry, reject, delete."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import TYPE_CHECKING, Annotated, NamedTuple

import typer
from typer.core import TyperGroup

from parcelpost.cli.settings_options import (
    After,
    AsJson,
    ConfigOption,
    Limit,
    Platform,
    SetOption,
    StoreOption,
    Yes,
    store_context,
)
from parcelpost.errors import InvalidInput
from parcelpost.model import DeliveryState, Priority, Source, TaskStatus

if TYPE_CHECKING:
    from parcelpost.cli.bulk_actions import BulkAction
    from parcelpost.cli.paging import ListSpec
    from parcelpost.storage.operator_actions import Flags, Selection


class PriorityOption(StrEnum):
    URGENT = "urgent"
    HIGH = "high"
    NORMAL = "normal"
    BATCH = "batch"


TaskIds = Annotated[list[str] | None, typer.Argument(help="Task IDs.", metavar="TASK_ID")]
Everything = Annotated[bool, typer.Option("--all", help="Select all of them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only print what would change.")]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Reason, shown with each of them.")]
Status = Annotated[list[TaskStatus] | None, typer.Option("--status", help="Only tasks in this status. Repeatable.")]
State = Annotated[str | None, typer.Option("--state", metavar="STATE", help="Only this state, such as CT.")]
County = Annotated[str | None, typer.Option("--county", metavar="COUNTY", help="Only this county.")]
Parcel = Annotated[str | None, typer.Option("--parcel", metavar="ID", help="Only this parcel ID.")]
FromSource = Annotated[Source | None, typer.Option("--source", help="Only tasks from this source.")]
WithPriority = Annotated[PriorityOption | None, typer.Option("--priority", help="Only this priority.")]
WithDelivery = Annotated[DeliveryState | None, typer.Option("--delivery", help="Only results in this delivery state.")]
Error = Annotated[str | None, typer.Option("--error", metavar="TEXT", help="Only where the error contains this text.")]
Since = Annotated[
    str | None,
    typer.Option("--since", metavar="WHEN", help="Only those changed since this time, such as 2026-11-15, 2h or 3d."),
]


class Filters(NamedTuple):
    """The filter options of a command, as given."""

    status: list[TaskStatus] | None
    platform: str | None
    state: str | None
    county: str | None
    parcel: str | None
    source: Source | None
    priority: PriorityOption | None
    delivery: DeliveryState | None
    error: str | None
    since: str | None

    def selection(self) -> Selection:
        """Raises InvalidInput."""
        from parcelpost.cli.context import CLOCK
        from parcelpost.cli.settings_options import parse_moment
        from parcelpost.storage.operator_actions import Selection

        return Selection(
            statuses=tuple(self.status or ()),
            platform=self.platform,
            state=self.state,
            county=self.county,
            parcel_id=self.parcel,
            source=self.source,
            priority=Priority[self.priority.name] if self.priority else None,
            delivery=self.delivery,
            error=self.error or None,
            since=parse_moment(self.since, CLOCK.now()) if self.since else None,
        )

    def require(self, noun: str, task_ids: list[str] | None, *, everything: bool) -> Selection:
        """The tasks with these ids, or what the filters select, or all. Raises InvalidInput if nothing was selected."""
        from msgspec.structs import replace

        from parcelpost.storage.operator_actions import Selection

        selection = self.selection()
        is_filtered = selection != Selection()
        if task_ids:
            if is_filtered or everything:
                raise InvalidInput("task IDs cannot be combined with filters or --all", hint="use one or the other")
            return replace(selection, task_ids=tuple(dict.fromkeys(task_ids)))
        if is_filtered and everything:
            raise InvalidInput("--all cannot be combined with filters", hint="remove --all")
        if not is_filtered and not everything:
            raise InvalidInput(
                f"no {noun}s were selected", hint=f"specify task IDs or filters (see --help), or --all for all {noun}s"
            )
        return selection


class DefaultListGroup(TyperGroup):
    """`parcelpost tasks --status failed` is `parcelpost tasks list --status failed`.

    Also without an option if `list` takes an argument: `parcelpost platforms vgsi`.
    """

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args:
            is_list = not ctx.resilient_parsing  # a shell that completes the line wants the names of the commands
        else:
            has_argument = any(parameter.param_type_name == "argument" for parameter in self.commands["list"].params)
            is_list = args[0].startswith("-") or (has_argument and args[0] not in self.commands)
            is_list = is_list and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["list", *args] if is_list else args)


class CommandText(NamedTuple):
    help: str
    examples: str


def add_list(app: typer.Typer, text: CommandText, make_spec: Callable[[Selection], ListSpec]) -> None:
    @app.command("list", help=text.help, epilog=text.examples)
    def list_(
        status: Status = None,
        platform: Platform = None,
        state: State = None,
        county: County = None,
        parcel: Parcel = None,
        source: FromSource = None,
        priority: WithPriority = None,
        delivery: WithDelivery = None,
        error: Error = None,
        since: Since = None,
        limit: Limit = 100,
        after: After = 0,
        store_path: StoreOption = None,
        config: ConfigOption = None,
        set_: SetOption = None,
        as_json: AsJson = False,
    ) -> None:
        from parcelpost.cli.context import run_async
        from parcelpost.cli.paging import print_list

        filters = Filters(status, platform, state, county, parcel, source, priority, delivery, error, since)
        store = store_context(store_path, config, set_)
        run_async(store, print_list(store, make_spec(filters.selection()), limit, after, as_json=as_json))


class Flag(NamedTuple):
    """The option that a command has of its own."""

    name: str
    help: str


_UNSYNCED = Flag("--unsynced", "Also delete records that were never delivered. They cannot be recovered.")


def add_retry(
    app: typer.Typer, noun: str, text: CommandText, flag: Flag, flags_of: Callable[[Selection, bool], Flags]
) -> None:
    """`flags_of` gets the value of `flag`."""

    def plan(selection: Selection, also: bool) -> tuple[BulkAction, Flags]:
        from parcelpost.cli.bulk_actions import retry_action

        return retry_action(noun), flags_of(selection, also)

    _add_with_flag(app, "retry", noun, text, flag, plan)


def add_delete(app: typer.Typer, noun: str, text: CommandText) -> None:
    def plan(_: Selection, unsynced: bool) -> tuple[BulkAction, Flags]:
        from parcelpost.cli.bulk_actions import delete_action
        from parcelpost.storage.operator_actions import Flags

        return delete_action(noun), Flags(force=unsynced)

    _add_with_flag(app, "delete", noun, text, _UNSYNCED, plan)


def _add_with_flag(
    app: typer.Typer,
    name: str,
    noun: str,
    text: CommandText,
    flag: Flag,
    plan: Callable[[Selection, bool], tuple[BulkAction, Flags]],
) -> None:
    option = typer.Option(False, flag.name, help=flag.help)

    @app.command(name, help=text.help, epilog=text.examples)
    def command(
        task_ids: TaskIds = None,
        everything: Everything = False,
        status: Status = None,
        platform: Platform = None,
        state: State = None,
        county: County = None,
        parcel: Parcel = None,
        source: FromSource = None,
        priority: WithPriority = None,
        delivery: WithDelivery = None,
        error: Error = None,
        since: Since = None,
        own: bool = option,
        dry_run: DryRun = False,
        yes: Yes = False,
        store_path: StoreOption = None,
        config: ConfigOption = None,
        set_: SetOption = None,
        as_json: AsJson = False,
    ) -> None:
        from parcelpost.cli.bulk_actions import run_bulk_action

        filters = Filters(status, platform, state, county, parcel, source, priority, delivery, error, since)
        selection = filters.require(noun, task_ids, everything=everything)
        action, flags = plan(selection, own)
        store = store_context(store_path, config, set_)
        run_bulk_action(action, selection, flags, store, yes=yes, dry_run=dry_run, as_json=as_json)


def add_reject(app: typer.Typer, noun: str, text: CommandText) -> None:
    @app.command("reject", help=text.help, epilog=text.examples)
    def reject(
        task_ids: TaskIds = None,
        everything: Everything = False,
        status: Status = None,
        platform: Platform = None,
        state: State = None,
        county: County = None,
        parcel: Parcel = None,
        source: FromSource = None,
        priority: WithPriority = None,
        delivery: WithDelivery = None,
        error: Error = None,
        since: Since = None,
        reason: Reason = "rejected",
        dry_run: DryRun = False,
        yes: Yes = False,
        store_path: StoreOption = None,
        config: ConfigOption = None,
        set_: SetOption = None,
        as_json: AsJson = False,
    ) -> None:
        from parcelpost.cli.bulk_actions import reject_action, run_bulk_action
        from parcelpost.storage.operator_actions import Flags

        filters = Filters(status, platform, state, county, parcel, source, priority, delivery, error, since)
        selection = filters.require(noun, task_ids, everything=everything)
        store = store_context(store_path, config, set_)
        action = reject_action(noun, reason)
        run_bulk_action(action, selection, Flags(), store, yes=yes, dry_run=dry_run, as_json=as_json)
