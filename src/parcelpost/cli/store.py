"""The `parcelpost store` commands: a person's way into the local store."""

from __future__ import annotations

import typer

from parcelpost.cli import (
    store_backup,
    store_check,
    store_clean,
    store_requeue,
    store_results,
    store_status,
    store_tasks,
)

app = typer.Typer(
    help="Look at and care for the local store.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost store status
      parcelpost store check --deep
      parcelpost store tasks --status failed
    """,
)
app.command("status", epilog=store_status.EXAMPLES)(store_status.status)
app.command("check", epilog=store_check.EXAMPLES)(store_check.check)
app.command("backup", epilog=store_backup.BACKUP_EXAMPLES)(store_backup.backup)
app.command("restore", epilog=store_backup.RESTORE_EXAMPLES)(store_backup.restore)
app.command("clean", epilog=store_clean.CLEAN_EXAMPLES)(store_clean.clean)
app.command("migrate", epilog=store_clean.MIGRATE_EXAMPLES)(store_clean.migrate)
app.command("tasks", epilog=store_tasks.EXAMPLES)(store_tasks.tasks)
app.command("results", epilog=store_results.EXAMPLES)(store_results.results)
app.command("requeue", epilog=store_requeue.EXAMPLES)(store_requeue.requeue)
