"""The `parcelpost gateway webhook` commands: receivers of changes."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Annotated

import typer

from parcelpost.cli.output import (
    Cell,
    confirm,
    count,
    examples,
    fields,
    moment,
    print_json,
    print_lines,
    printable,
    table,
)
from parcelpost.cli.settings_options import AsJson, ConfigOption, Database, Platform, SetOption, Yes, gateway_settings
from parcelpost.errors import ParcelpostError
from parcelpost.settings.secrets import WEBHOOK_SECRET_VARIABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from parcelpost.gateway.ledger.base import Ledger
    from parcelpost.gateway.models import Webhook
    from parcelpost.gateway.webhooks import WebhookDetail, WebhookState
    from parcelpost.settings import Settings

Name = Annotated[str, typer.Argument(metavar="NAME", help="The webhook's name.")]
Since = Annotated[int, typer.Option("--since", metavar="NUMBER", min=0, help="Send only changes after this number.")]

ADD_EXAMPLES = examples(
    "parcelpost gateway webhook add https://crm.example.org/hooks/parcelpost --name crm --kind lien --state FL",
    "parcelpost gateway webhook add https://example.org/hook --kind tax.delinquent --county columbia --since 0",
    "parcelpost gateway webhook add https://example.org/hook --secret-variable PARCELPOST_WEBHOOK_SECRET_EXAMPLE",
)


def add(
    url: Annotated[str, typer.Argument(metavar="URL", help="URL that receives the changes.")],
    name: Annotated[str, typer.Option("--name", help="Name of the webhook. [default: the host]")] = "",
    kinds: Annotated[
        list[str] | None,
        typer.Option(
            "--kind", metavar="KIND", help="Only this kind, such as lien.new; lien selects them all. Repeatable."
        ),
    ] = None,
    platform: Platform = None,
    state: Annotated[str, typer.Option("--state", help="Only parcels in this state.")] = "",
    county: Annotated[str, typer.Option("--county", help="Only parcels in this county.")] = "",
    field: Annotated[str, typer.Option("--field", help="Only changes to this field, such as market_value.")] = "",
    since: Annotated[
        int | None,
        typer.Option(
            "--since", metavar="NUMBER", min=0, help="Send changes after this number. [default: future changes only]"
        ),
    ] = None,
    secret_variable: Annotated[
        str,
        typer.Option(
            "--secret-variable", metavar="NAME", help="Variable in the gateway's environment that holds the secret."
        ),
    ] = WEBHOOK_SECRET_VARIABLE,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Send changes to a URL. A running gateway posts each within seconds, signed according to Standard Webhooks.

    The secret is in the gateway's environment; only the variable's name is stored. Private addresses are refused unless
    server.allow_private names them.
    """
    from parcelpost.cli.context import CLOCK, with_ledger
    from parcelpost.gateway.webhooks import NewWebhook, add_webhook, webhook_state
    from parcelpost.private_addresses import Guard

    settings = gateway_settings(database, config, set_)
    new = NewWebhook(
        url=url,
        name=name,
        secret_variable=secret_variable,
        kinds=kinds or [],
        platform=platform or "",
        state=state,
        county=county,
        field=field,
        since=since,
    )
    guard = Guard(settings.server.allow_private)

    async def store(ledger: Ledger) -> WebhookState:
        return await webhook_state(ledger, await add_webhook(ledger, new, guard, CLOCK.now()))

    added = with_ledger(settings.server, store)
    if as_json:
        print_json(added)
        return
    print(printable(f"Added {added.name}: changes after {added.since:,} go to {added.receiver}."))
    note = f"The gateway reads its secret from {secret_variable}; 'parcelpost gateway webhook secret' prints a new one."
    print(printable(note), file=sys.stderr)


LIST_EXAMPLES = examples(
    "parcelpost gateway webhook list",
    "parcelpost gateway webhook list --json | jq '.webhooks[] | select(.status == \"failing\").name'",
)


def list_(
    database: Database = None, config: ConfigOption = None, set_: SetOption = None, as_json: AsJson = False
) -> None:
    """List the webhooks."""
    from parcelpost.cli.context import with_ledger
    from parcelpost.gateway.webhooks import webhook_state

    async def read(ledger: Ledger) -> list[WebhookState]:
        return [await webhook_state(ledger, webhook) for webhook in await ledger.webhooks()]

    states = with_ledger(gateway_settings(database, config, set_).server, read)
    if as_json:
        print_json({"webhooks": states})
    elif states:
        headers = ("webhook", "receiver", "status", "sent up to", "behind", "waiting", "given up", "error")
        print_lines(table(headers, map(_cells, states)))
    else:
        print("No webhooks yet. Add one with 'parcelpost gateway webhook add URL'.")


def _cells(state: WebhookState) -> tuple[Cell, ...]:
    counts = (state.since, state.behind, state.waiting, state.gave_up)
    return (state.name, state.receiver, state.status, *counts, state.error)


SHOW_EXAMPLES = examples("parcelpost gateway webhook show crm", "parcelpost gateway webhook show crm --json")


def show(
    name: Name,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Show a webhook, and the changes that are waiting or were given up."""
    from parcelpost.cli.context import with_ledger
    from parcelpost.gateway.webhooks import find_webhook, webhook_detail

    async def read(ledger: Ledger) -> WebhookDetail:
        return await webhook_detail(ledger, await find_webhook(ledger, name))

    detail = with_ledger(gateway_settings(database, config, set_).server, read)
    print_json(detail) if as_json else print_lines(_detail_lines(detail))


def _detail_lines(detail: WebhookDetail) -> Iterator[str]:
    state = detail.webhook
    wanted = (*state.kinds, state.platform, state.state, state.county, state.field)
    delivered = f"{count(state.delivered, 'change')}" + (
        f", last {moment(state.delivered_at)}" if state.delivered_at else ""
    )
    yield from fields(
        [
            ("webhook", state.name),
            ("receiver", state.receiver),
            ("secret", state.secret_variable),
            ("sends", ", ".join(filter(None, wanted)) or "all changes"),
            ("status", state.status + (f": {state.error}" if state.error else "")),
            ("delivered", delivered),
            ("sent up to", f"change {state.since:,}, {state.behind:,} behind"),
        ]
    )
    if detail.retries:
        yield ""
        rows = (
            (
                retry.change_no,
                retry.attempts,
                "given up" if retry.dead_at else f"next {moment(retry.next_at)}",
                retry.error,
            )
            for retry in detail.retries
        )
        yield from table(("change", "attempts", "state", "error"), rows)


PAUSE_EXAMPLES = examples("parcelpost gateway webhook pause crm")


def pause(
    name: Name,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Stop sending until the webhook is resumed. Changes are kept meanwhile."""

    async def change(ledger: Ledger, webhook: Webhook) -> None:
        await ledger.pause_webhook(webhook.webhook_no, "")

    _act(name, gateway_settings(database, config, set_), "Paused", change, as_json=as_json)


RESUME_EXAMPLES = examples("parcelpost gateway webhook resume crm")


def resume(
    name: Name,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Resume sending immediately, even to a receiver that is failing."""
    from parcelpost.cli.context import CLOCK

    async def change(ledger: Ledger, webhook: Webhook) -> None:
        await ledger.resume_webhook(webhook.webhook_no, CLOCK.now())

    _act(name, gateway_settings(database, config, set_), "Resumed", change, as_json=as_json)


DELETE_EXAMPLES = examples("parcelpost gateway webhook delete crm")


def delete(
    name: Name,
    yes: Yes = False,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Delete a webhook and the changes that are waiting for it. Asks for confirmation."""
    from parcelpost.cli.context import with_ledger
    from parcelpost.gateway.webhooks import find_webhook

    server = gateway_settings(database, config, set_).server
    webhook = with_ledger(server, lambda ledger: find_webhook(ledger, name))
    if not yes:
        confirm(f"Delete webhook {webhook.name}?")
    with_ledger(server, lambda ledger: ledger.delete_webhook(webhook.webhook_no))
    print_json({"deleted": name}) if as_json else print(printable(f"Deleted {name}."))


REPLAY_EXAMPLES = examples(
    "parcelpost gateway webhook replay crm --since 1041", "parcelpost gateway webhook replay crm --since 0"
)


def replay(
    name: Name,
    since: Since,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Resend all changes after a number, including those that were given up. Their ids are the same as before."""
    from parcelpost.cli.context import CLOCK
    from parcelpost.gateway.webhooks import replay_webhook

    async def change(ledger: Ledger, webhook: Webhook) -> None:
        await replay_webhook(ledger, webhook, since, CLOCK.now())

    _act(name, gateway_settings(database, config, set_), "Replaying", change, as_json=as_json)


TEST_EXAMPLES = examples("parcelpost gateway webhook test crm")


def test(
    name: Name,
    database: Database = None,
    config: ConfigOption = None,
    set_: SetOption = None,
    as_json: AsJson = False,
) -> None:
    """Send a test event from this machine and show the response. Needs the secret in this command's environment."""
    import asyncio
    import os

    from parcelpost import __version__
    from parcelpost.cli.context import CLOCK, with_ledger
    from parcelpost.gateway.webhooks import Attempt, Sender, find_webhook, read_secrets, receiver_of, send_test
    from parcelpost.private_addresses import Guard

    settings = gateway_settings(database, config, set_)
    webhook = with_ledger(settings.server, lambda ledger: find_webhook(ledger, name))
    keys = read_secrets(webhook.secret_variable, os.environ)

    async def send() -> Attempt:
        sender = Sender(Guard(settings.server.allow_private), __version__)
        try:
            return await send_test(sender, webhook, keys, CLOCK.now())
        finally:
            await sender.close()

    attempt = asyncio.run(send())
    if as_json:
        print_json({"webhook": name, "delivered": not attempt.error, "status": attempt.status, "error": attempt.error})
    if attempt.error:
        raise ParcelpostError(f"{receiver_of(webhook.url)}: {attempt.error}", hint="only the test event was sent")
    if not as_json:
        print(printable(f"{receiver_of(webhook.url)} returned {attempt.status}."))


SECRET_EXAMPLES = examples(
    "parcelpost gateway webhook secret",
    'export PARCELPOST_WEBHOOK_SECRET="$(parcelpost gateway webhook secret)"',
)


def secret() -> None:
    """Print a new random secret. Nothing is stored: put it into the gateway's environment, and give it to the receiver.

    To rotate a secret, put both into the variable, separated by a space: each message is then signed with both.
    """
    from parcelpost.gateway.webhooks import new_secret

    print(new_secret())


def _act(
    name: str, settings: Settings, done: str, change: Callable[[Ledger, Webhook], Awaitable[None]], *, as_json: bool
) -> None:
    from parcelpost.cli.context import with_ledger
    from parcelpost.gateway.webhooks import find_webhook, webhook_state

    async def act(ledger: Ledger) -> WebhookState:
        await change(ledger, await find_webhook(ledger, name))
        return await webhook_state(ledger, await find_webhook(ledger, name))

    state = with_ledger(settings.server, act)
    if as_json:
        print_json(state)
    else:
        print(printable(f"{done} {name}: {count(state.behind + state.waiting, 'change')} to send."))


app = typer.Typer(
    help="Send changes to receivers, signed according to Standard Webhooks.",
    no_args_is_help=True,
    rich_markup_mode=None,
    epilog=examples(
        "parcelpost gateway webhook add https://crm.example.org/hooks/parcelpost --name crm --kind lien",
        "parcelpost gateway webhook list",
        "parcelpost gateway webhook test crm",
    ),
)
app.command("add", epilog=ADD_EXAMPLES)(add)
app.command("list", epilog=LIST_EXAMPLES)(list_)
app.command("show", epilog=SHOW_EXAMPLES)(show)
app.command("pause", epilog=PAUSE_EXAMPLES)(pause)
app.command("resume", epilog=RESUME_EXAMPLES)(resume)
app.command("delete", epilog=DELETE_EXAMPLES)(delete)
app.command("replay", epilog=REPLAY_EXAMPLES)(replay)
app.command("test", epilog=TEST_EXAMPLES)(test)
app.command("secret", epilog=SECRET_EXAMPLES)(secret)
