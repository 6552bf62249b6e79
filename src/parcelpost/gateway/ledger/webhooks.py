"""Webhooks in the ledger, their cursors, and the changes waiting for a retry.

A retry is written before the cursor moves past its change: if a gateway is killed, a change is delivered twice rather
than never.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Protocol

from msgspec.json import Decoder

from parcelpost.errors import InvalidInput
from parcelpost.gateway.ledger import rows
from parcelpost.gateway.ledger.queries import CHANGES, Queries, is_matchable
from parcelpost.gateway.ledger.rows import Row, timestamp, timestamp_or_none
from parcelpost.gateway.models import ChangeFilter, ChangeRow, Webhook, WebhookRetry

MAX_WEBHOOKS = 100

_read_filter = Decoder(ChangeFilter).decode

_WEBHOOKS = """
SELECT w.webhook_no, w.name, w.url, w.secret_variable, w.filter, w.created_at, w.is_paused, w.cursor, w.delivered,
       w.delivered_at, w.failures, w.failing_since, w.error, w.next_at, w.leased_by, w.leased_until,
       (SELECT count(*) FROM webhook_retries r WHERE r.webhook_no = w.webhook_no AND r.dead_at IS NULL),
       (SELECT min(r.next_at) FROM webhook_retries r WHERE r.webhook_no = w.webhook_no AND r.dead_at IS NULL),
       (SELECT count(*) FROM webhook_retries r WHERE r.webhook_no = w.webhook_no AND r.dead_at IS NOT NULL),
       (SELECT coalesce(max(change_no), 0) FROM changes)
FROM webhooks w ORDER BY w.name
"""
_ADD = """
INSERT INTO webhooks (name, url, secret_variable, filter, created_at, cursor, next_at, leased_until)
VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT (name) DO NOTHING
"""
_PAUSE = "UPDATE webhooks SET is_paused = ?, error = ?, leased_by = NULL WHERE webhook_no = ?"
_RESUME = """
UPDATE webhooks
SET is_paused = ?, error = '', failures = 0, failing_since = NULL, next_at = ?, leased_by = NULL WHERE webhook_no = ?
"""
_RETRY_NOW = "UPDATE webhook_retries SET next_at = ?, first_at = ? WHERE webhook_no = ? AND dead_at IS NULL"
_REPLAY = """
UPDATE webhooks SET cursor = ?, failures = 0, next_at = ?, leased_by = NULL
WHERE webhook_no = ? AND ? <= (SELECT coalesce(max(change_no), 0) FROM changes)
"""
_DELETE_RETRIES = "DELETE FROM webhook_retries WHERE webhook_no = ? AND change_no > ?"
_DELETE = "DELETE FROM webhooks WHERE webhook_no = ?"

_LEASE = """
UPDATE webhooks SET leased_by = ?, leased_until = ?
WHERE webhook_no = ? AND is_paused = ? AND next_at <= ? AND (leased_by IS NULL OR leased_by = ? OR leased_until <= ?)
"""
_RELEASE = "UPDATE webhooks SET leased_by = NULL WHERE webhook_no = ? AND leased_by = ?"
_DUE = f"""
{CHANGES} c.change_no IN (
    SELECT r.change_no FROM webhook_retries r
    WHERE r.webhook_no = ? AND r.dead_at IS NULL AND r.next_at <= ? ORDER BY r.change_no LIMIT ?)
ORDER BY c.change_no
"""
_RETRIES = """
SELECT change_no, attempts, first_at, next_at, error, dead_at FROM webhook_retries
WHERE webhook_no = ? AND change_no > ? ORDER BY change_no LIMIT ?
"""
_RETRY_OF = """
SELECT change_no, attempts, first_at, next_at, error, dead_at FROM webhook_retries
WHERE webhook_no = ? AND change_no = ?
"""
_ADD_RETRY = """
INSERT INTO webhook_retries (webhook_no, change_no, attempts, first_at, next_at, error, dead_at)
VALUES (?, ?, ?, ?, ?, ?, ?)
ON CONFLICT (webhook_no, change_no) DO UPDATE
SET attempts = excluded.attempts, next_at = excluded.next_at, error = excluded.error, dead_at = excluded.dead_at
"""
_REMOVE_RETRY = "DELETE FROM webhook_retries WHERE webhook_no = ? AND change_no = ?"
_ADVANCE = """
UPDATE webhooks SET cursor = ?, delivered = delivered + ?, delivered_at = coalesce(?, delivered_at), failures = ?,
    failing_since = ?, error = ?, next_at = ?
WHERE webhook_no = ? AND leased_by = ?
"""
PRUNE_RETRIES = """
DELETE FROM webhook_retries WHERE (webhook_no, change_no) IN (
    SELECT r.webhook_no, r.change_no FROM webhook_retries r
    WHERE r.dead_at < ? OR NOT EXISTS (SELECT 1 FROM webhooks w WHERE w.webhook_no = r.webhook_no) LIMIT ?)
"""


class WebhookQueries(Queries, Protocol):
    async def webhooks(self) -> Sequence[Webhook]:
        return [_webhook(row) for row in await self._find(_WEBHOOKS)]

    async def webhook(self, name: str) -> Webhook | None:
        return next((webhook for webhook in await self.webhooks() if webhook.name == name), None)

    async def add_webhook(
        self, name: str, url: str, secret_variable: str, wanted: ChangeFilter, cursor: int, now: datetime
    ) -> bool:
        known = await self.webhooks()
        if len(known) >= MAX_WEBHOOKS:
            raise InvalidInput(f"there are {MAX_WEBHOOKS} webhooks already", hint="delete one that is not needed")
        if not all(map(is_matchable, (name, url, secret_variable))):
            raise InvalidInput("the webhook contains a character that cannot be stored")
        filter_ = rows.encode(wanted).decode()
        return bool(await self._change(_ADD, name, url, secret_variable, filter_, now, cursor, now, now))

    async def pause_webhook(self, webhook_no: int, reason: str) -> None:
        await self._change(_PAUSE, True, reason, webhook_no)

    async def resume_webhook(self, webhook_no: int, now: datetime) -> None:
        await self._change(_RETRY_NOW, now, now, webhook_no)
        await self._change(_RESUME, False, now, webhook_no)

    async def replay_webhook(self, webhook_no: int, after: int, now: datetime) -> bool:
        if not await self._change(_REPLAY, after, now, webhook_no, after):
            return False
        await self._change(_DELETE_RETRIES, webhook_no, after)
        return True

    async def delete_webhook(self, webhook_no: int) -> None:
        await self._change(_DELETE, webhook_no)
        await self._change(_DELETE_RETRIES, webhook_no, -1)

    async def lease_webhook(self, webhook_no: int, gateway_id: str, now: datetime, until: datetime) -> bool:
        return bool(await self._change(_LEASE, gateway_id, until, webhook_no, False, now, gateway_id, now))

    async def release_webhook(self, webhook_no: int, gateway_id: str) -> None:
        await self._change(_RELEASE, webhook_no, gateway_id)

    async def due_retries(self, webhook_no: int, now: datetime, most: int) -> Sequence[ChangeRow]:
        return [rows.change(row) for row in await self._find(_DUE, webhook_no, now, most)]

    async def webhook_retries(self, webhook_no: int, after: int, most: int) -> Sequence[WebhookRetry]:
        return [_retry(row) for row in await self._find(_RETRIES, webhook_no, after, most)]

    async def webhook_retry(self, webhook_no: int, change_no: int) -> WebhookRetry | None:
        retries = await self._find(_RETRY_OF, webhook_no, change_no)
        return _retry(retries[0]) if retries else None

    async def put_webhook_retry(self, webhook_no: int, retry: WebhookRetry) -> None:
        values = (retry.attempts, retry.first_at, retry.next_at, retry.error, retry.dead_at)
        await self._change(_ADD_RETRY, webhook_no, retry.change_no, *values)

    async def advance_webhook(
        self, webhook: Webhook, gateway_id: str, retried: Sequence[int], delivered: int, now: datetime
    ) -> bool:
        if retried:
            await self._run_all(_REMOVE_RETRY, [(webhook.webhook_no, number) for number in retried])
        at = now if delivered else None
        state = (webhook.failures, webhook.failing_since, webhook.error, webhook.next_at)
        return bool(await self._change(_ADVANCE, webhook.cursor, delivered, at, *state, webhook.webhook_no, gateway_id))


def _webhook(row: Row) -> Webhook:
    number, name, url, secret_variable, filter_, created_at, is_paused, cursor, delivered, delivered_at, *state = row
    failures, failing_since, error, next_at, leased_by, leased_until, retries, next_retry_at, dead, last = state
    return Webhook(
        webhook_no=number,
        name=name,
        url=url,
        secret_variable=secret_variable,
        wanted=_read_filter(filter_),
        created_at=timestamp(created_at),
        is_paused=bool(is_paused),
        cursor=cursor,
        delivered=delivered,
        delivered_at=timestamp_or_none(delivered_at),
        failures=failures,
        failing_since=timestamp_or_none(failing_since),
        error=error,
        next_at=timestamp(next_at),
        leased_by=leased_by,
        leased_until=timestamp(leased_until),
        retries=retries,
        next_retry_at=timestamp_or_none(next_retry_at),
        dead=dead,
        last=last,
    )


def _retry(row: Row) -> WebhookRetry:
    change_no, attempts, first_at, next_at, error, dead_at = row
    return WebhookRetry(
        change_no=change_no,
        attempts=attempts,
        first_at=timestamp(first_at),
        next_at=timestamp(next_at),
        error=error,
        dead_at=timestamp_or_none(dead_at),
    )
