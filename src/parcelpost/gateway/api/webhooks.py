"""Routes for webhooks. A receiver's URL may be secret: only its host is shown."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from msgspec import Meta, Struct

from parcelpost.gateway.context import Context
from parcelpost.gateway.errors import ApiError
from parcelpost.gateway.models import Webhook
from parcelpost.gateway.routes import Role, Route
from parcelpost.gateway.webhooks import (
    NewWebhook,
    WebhookDetail,
    WebhookState,
    add_webhook,
    replay_webhook,
    webhook_detail,
    webhook_state,
)
from parcelpost.private_addresses import Guard


class ReplayRequest(Struct, frozen=True, forbid_unknown_fields=True):
    since: Annotated[int, Meta(ge=0, le=2**63 - 1)]
    """All changes after this number are sent again."""


class WebhookList(Struct, frozen=True):
    webhooks: Sequence[WebhookState]


class WebhooksApi:
    def __init__(self, context: Context) -> None:
        self._context = context
        self._ledger = context.ledger

    def routes(self) -> list[Route]:
        path = "/v1/webhooks/{name}"
        return [
            Route("GET", "/v1/webhooks", self.list_webhooks, Role.READER),
            Route("POST", "/v1/webhooks", self.new_webhook, Role.ADMIN),
            Route("GET", path, self.webhook, Role.READER, errors=(404,)),
            Route("DELETE", path, self.delete_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{path}/pause", self.pause_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{path}/resume", self.resume_webhook, Role.ADMIN, errors=(404,)),
            Route("POST", f"{path}/replay", self.replay_webhook, Role.ADMIN, errors=(404,)),
        ]

    async def list_webhooks(self) -> WebhookList:
        """List the receivers of changes."""
        return WebhookList([await webhook_state(self._ledger, webhook) for webhook in await self._ledger.webhooks()])

    async def new_webhook(self, body: NewWebhook) -> WebhookState:
        """Send changes to a URL, signed according to Standard Webhooks."""
        guard = Guard(self._context.settings.allow_private)
        webhook = await add_webhook(self._ledger, body, guard, self._context.clock.now())
        return await webhook_state(self._ledger, webhook)

    async def webhook(self, name: str) -> WebhookDetail:
        """Return a receiver and the changes that are waiting for it."""
        return await webhook_detail(self._ledger, await self._find(name))

    async def delete_webhook(self, name: str) -> WebhookState:
        """Delete a receiver and the changes that are waiting for it."""
        webhook = await self._find(name)
        await self._ledger.delete_webhook(webhook.webhook_no)
        return await webhook_state(self._ledger, webhook)

    async def pause_webhook(self, name: str) -> WebhookState:
        """Stop sending until the webhook is resumed. Changes are kept meanwhile."""
        await self._ledger.pause_webhook((await self._find(name)).webhook_no, "")
        return await webhook_state(self._ledger, await self._find(name))

    async def resume_webhook(self, name: str) -> WebhookState:
        """Resume sending immediately, even to a receiver that is failing."""
        await self._ledger.resume_webhook((await self._find(name)).webhook_no, self._context.clock.now())
        return await webhook_state(self._ledger, await self._find(name))

    async def replay_webhook(self, name: str, body: ReplayRequest) -> WebhookState:
        """Resend all changes after a number, including those that were given up."""
        await replay_webhook(self._ledger, await self._find(name), body.since, self._context.clock.now())
        return await webhook_state(self._ledger, await self._find(name))

    async def _find(self, name: str) -> Webhook:
        webhook = await self._ledger.webhook(name)
        if webhook is None:
            raise ApiError(404, "no such webhook")
        return webhook
