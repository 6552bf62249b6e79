"""Options of the commands that change tasks or results, and the group that lists unless told otherwise."""

from __future__ import annotations

from typing import Annotated

import typer
from typer.core import TyperGroup

TaskIds = Annotated[list[str] | None, typer.Argument(help="These, by their tasks.", metavar="TASK_ID")]
Everything = Annotated[bool, typer.Option("--all", help="All of them.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Only say what would be done.")]
Unsynced = Annotated[
    bool, typer.Option("--unsynced", help="Also records that were never delivered: they are lost for good.")
]
Reason = Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for those who look.")]


class ListUnlessTold(TyperGroup):
    """`parcelpost tasks --status failed` is `parcelpost tasks list --status failed`."""

    def parse_args(self, ctx: typer.Context, args: list[str]) -> list[str]:  # type: ignore[override]
        if not args:
            is_list = not ctx.resilient_parsing  # a shell that completes the line wants to know the commands
        else:
            is_list = args[0].startswith("-") and args[0] not in ctx.help_option_names
        return super().parse_args(ctx, ["list", *args] if is_list else args)
