"""The `parcelpost store` commands: a person's way into the local store."""

from __future__ import annotations

import typer

from parcelpost.cli import (
    store_backup,
    store_check,
    store_clean,
    store_requeue,
    store_salvage,
    store_status,
    store_upstream,
)
from parcelpost.cli.given import with_settings
from parcelpost.cli.results import group as results
from parcelpost.cli.tasks import group as tasks

app = typer.Typer(
    help="Look at and care for the local store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost store status
      parcelpost store check --deep
      parcelpost store backup
    """,
)
app.command("status", epilog=store_status.EXAMPLES)(with_settings(store_status.status))
app.command("check", epilog=store_check.EXAMPLES)(with_settings(store_check.check))
app.command("backup", epilog=store_backup.BACKUP_EXAMPLES)(with_settings(store_backup.backup))
app.command("restore", epilog=store_backup.RESTORE_EXAMPLES)(with_settings(store_backup.restore))
app.command("salvage", epilog=store_salvage.EXAMPLES)(with_settings(store_salvage.salvage))
app.command("clean", epilog=store_clean.CLEAN_EXAMPLES)(with_settings(store_clean.clean))
app.command("migrate", epilog=store_clean.MIGRATE_EXAMPLES)(with_settings(store_clean.migrate))
app.command("upstream", epilog=store_upstream.EXAMPLES)(with_settings(store_upstream.upstream))
app.command("requeue", epilog=store_requeue.EXAMPLES, hidden=True)(with_settings(store_requeue.requeue))
app.add_typer(tasks.app, name="tasks", hidden=True)
app.add_typer(results.app, name="results", hidden=True)
