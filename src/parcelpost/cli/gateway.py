"""The `parcelpost gateway` commands: the other side of the wire, and a person's way into its ledger."""

from __future__ import annotations

import typer

from parcelpost.cli import (
    gateway_add,
    gateway_order,
    gateway_requeue,
    gateway_serve,
    gateway_status,
    gateway_token,
    gateway_workers,
)
from parcelpost.cli.given import with_settings

app = typer.Typer(
    help="Serve a gateway, fill its queue, and look after its workers.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog="""
    Examples:

    \b
      parcelpost gateway serve
      parcelpost gateway add parcels.csv --platform grizzly_gis --state FL
      parcelpost gateway status
    """,
)
app.command("serve", epilog=gateway_serve.EXAMPLES)(gateway_serve.serve)
app.command("add", epilog=gateway_add.EXAMPLES)(with_settings(gateway_add.add))
app.command("status", epilog=gateway_status.EXAMPLES)(with_settings(gateway_status.status))
app.command("workers", epilog=gateway_workers.EXAMPLES)(with_settings(gateway_workers.workers))
app.command("release", epilog=gateway_workers.RELEASE_EXAMPLES)(with_settings(gateway_workers.release))
app.command("order", epilog=gateway_order.EXAMPLES)(with_settings(gateway_order.order))
app.command("requeue", epilog=gateway_requeue.EXAMPLES)(with_settings(gateway_requeue.requeue))
app.command("token", epilog=gateway_token.EXAMPLES)(gateway_token.token)
