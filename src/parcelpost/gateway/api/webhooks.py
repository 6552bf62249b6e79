"""Routes for webhooks. A receiver's URL may be secret: only its host is shown."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated

from msgspec import Meta, Struct

from parcelpost.changes import checked_kinds
from parcelpost.errors import InvalidInput
from parcelpost.gateway.api.params import Text
from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.ledger.base import Ledger
from parcelpost.gateway.models import ChangeFilter, Webhook, WebhookRetry
from parcelpost.gateway.overview import WebhookState, webhook_state
from parcelpost.gateway.routes import Role, Route
from parcelpost.gateway.webhooks import check_webhook, default_name
from parcelpost.places import county_slug, state_code
from parcelpost.private_addresses import Guard
from parcelpost.settings.secrets import WEBHOOK_SECRET_VARIABLE

_MAX_LISTED_RETRIES = 100


class NewWebhook(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All conditions must match; without any, all changes are sent."""

    url: str
    name: str = ""
    """Defaults to the host of the URL."""
    secret_variable: str = WEBHOOK_SECRET_VARIABLE
    """The variable in the gateway's environment that holds the secret."""
    kinds: list[Text] = []
    """Kinds such as `lien.new`; `lien` selects them all."""
    platform: Text = ""
    state: Text = ""
    county: Text = ""
    field: Text = ""
    since: Annotated[int, Meta(ge=0, le=2**63 - 1)] | None = None
    """Send changes after this number; null: future changes only."""


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    since: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """All changes after this number are sent again."""


class WebhookList(Struct, frozen=True):
    webhooks: Sequence[WebhookState]


class WebhookDetail(Struct, frozen=True):
    webhook: WebhookState
    retries: Sequence[WebhookRetry]
    """The first 100 changes that are waiting or were given up."""


async def add_webhook(ledger: Ledger, new: NewWebhook, guard: Guard, now: datetime) -> Webhook:
    """Raises InvalidInput."""
    name = new.name or default_name(new.url)
    check_webhook(name, new.url, new.secret_variable, guard)
    wanted = ChangeFilter(
        kinds=checked_kinds(new.kinds),
        platform=new.platform,
        state=state_code(new.state),
        county=county_slug(new.county),
        field=new.field,
    )
    last = await ledger.last_change()
    if new.since is not None and new.since > last:
        raise InvalidInput(f"the last change is {last:,}", hint="omit 'since' to send only future changes")
    cursor = last if new.since is None else new.since
    if not await ledger.add_webhook(name, new.url, new.secret_variable, wanted, cursor, now):
        raise InvalidInput(f"a webhook named {name!r} already exists", hint="choose another name")
    return await find_webhook(ledger, name)


async def find_webhook(ledger: Ledger, name: str) -> Webhook:
    """Raises InvalidInput."""
    webhook = await ledger.webhook(name)
    if webhook is None:
        raise InvalidInput(f"there is no webhook {name!r:.100}", hint="see 'parcelpost gateway webhook list'")
    return webhook


async def replay(ledger: Ledger, webhook: Webhook, since: int, now: datetime) -> None:
    """Raises InvalidInput."""
    if not await ledger.replay_webhook(webhook.webhook_no, since, now):
        raise InvalidInput(f"the last change is {webhook.last:,}", hint="see 'parcelpost gateway changes'")


class WebhooksApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    def routes(self) -> list[Route]:
        one = "/v1/webhooks/{name}"
        return [
            Route("GET", "/v1/webhooks", self.list_webhooks, Role.READER),
            Route("POST", "/v1/webhooks", self.new_webhook, Role.ADMIN),
            Route("GET", one, self.webhook, Role.READER, errors=(404,)),
            Route("DELETE", one, self.delete_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{one}/pause", self.pause_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{one}/resume", self.resume_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{one}/replay", self.replay_webhook, Role.ADMIN, errors=(404,)),
        ]

    async def list_webhooks(self) -> WebhookList:
        """List the receivers of changes."""
        return WebhookList([webhook_state(one) for one in await self._ledger.webhooks()])

    async def new_webhook(self, body: NewWebhook) -> WebhookState:
        """Send changes to a URL, signed according to Standard Webhooks."""
        guard = Guard(self._context.settings.allow_private)
        return webhook_state(await add_webhook(self._ledger, body, guard, self._context.clock.now()))

    async def webhook(self, name: str) -> WebhookDetail:
        """Return a receiver and the changes that are waiting for it."""
        found = await self._find(name)
        retries = await self._ledger.webhook_retries(found.webhook_no, 0, _MAX_LISTED_RETRIES)
        return WebhookDetail(webhook_state(found), retries)

    async def delete_webhook(self, name: str) -> WebhookState:
        """Delete a receiver and the changes that are waiting for it."""
        found = await self._find(name)
        await self._ledger.delete_webhook(found.webhook_no)
        return webhook_state(found)

    async def pause_webhook(self, name: str) -> WebhookState:
        """Stop sending until the webhook is resumed. Changes are kept meanwhile."""
        await self._ledger.pause_webhook((await self._find(name)).webhook_no, "")
        return webhook_state(await self._find(name))

    async def resume_webhook(self, name: str) -> WebhookState:
        """Resume sending immediately, even to a receiver that is failing."""
        await self._ledger.resume_webhook((await self._find(name)).webhook_no, self._context.clock.now())
        return webhook_state(await self._find(name))

    async def replay_webhook(self, name: str, body: ReplayRequest) -> WebhookState:
        """Resend all changes after a number, including those that were given up."""
        await replay(self._ledger, await self._find(name), body.since, self._context.clock.now())
        return webhook_state(await self._find(name))

    async def _find(self, name: str) -> Webhook:
        webhook = await self._ledger.webhook(name)
        if webhook is None:
            raise ApiError(404, "no such webhook")
        return webhook
