"""The `parcelpost tasks` commands."""

from __future__ import annotations

import typer

from parcelpost.cli.given import with_settings
from parcelpost.cli.mending.filters import with_filters
from parcelpost.cli.mending.options import ListUnlessTold
from parcelpost.cli.tasks import looks, words

app = typer.Typer(
    help="The tasks of the store: list, show one, try again, reject, delete. Without a command they are listed.",
    cls=ListUnlessTold,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost tasks --status failed
      parcelpost tasks show 7f3a9c
      parcelpost tasks retry --status failed --platform vgsi
    """,
)
app.command("list", epilog=looks.LIST_EXAMPLES)(with_settings(with_filters(looks.list_)))
app.command("show", epilog=looks.SHOW_EXAMPLES)(with_settings(looks.show))
app.command("retry", epilog=words.RETRY_EXAMPLES)(with_settings(with_filters(words.retry)))
app.command("reject", epilog=words.REJECT_EXAMPLES)(with_settings(with_filters(words.reject)))
app.command("delete", epilog=words.DELETE_EXAMPLES)(with_settings(with_filters(words.delete)))
