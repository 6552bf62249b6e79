"""Saving a result that has a page: the page is on disk before the row that names it (I6)."""

from __future__ import annotations

from parcelpost.errors import InvalidInput
from parcelpost.model import Claim, Page
from parcelpost.storage import outbox
from parcelpost.storage.db import LocalDatabase
from parcelpost.storage.raw_files import PageToKeep, RawFiles


def page_to_keep(claim: Claim, page: Page, result_id: str, data: bytes, max_bytes: int) -> PageToKeep:
    """Raises InvalidInput."""
    body = page.body
    if not isinstance(body, bytes):
        raise InvalidInput(f"page body must be bytes, not {type(body).__name__}")
    if len(body) > max_bytes:
        raise InvalidInput(f"page has {len(body):,} bytes; at most {max_bytes:,} are kept")
    target = claim.task.target
    return PageToKeep(claim.task.platform, target.state, target.county, target.parcel_id, result_id, body, data)


async def with_page(
    database: LocalDatabase, raw: RawFiles, claim: Claim, row: outbox.ResultRow, page: PageToKeep
) -> list[str] | None:
    """As `outbox.save_each` answers. A name that another result has already is changed, once."""
    try:
        return await _with_name(database, raw, claim, row, page)
    except outbox.PathTaken:
        return await _with_name(database, raw, claim, row, page._replace(own_name=True))


async def _with_name(
    database: LocalDatabase, raw: RawFiles, claim: Claim, row: outbox.ResultRow, page: PageToKeep
) -> list[str] | None:
    kept = await raw.keep(page)
    request = outbox.SaveRequest(claim.seq, claim.token, outbox.with_page(row, kept))
    try:
        saved = await database.start_together(outbox.save_each, request)
    except outbox.PathTaken:
        await raw.discard([kept.json_path, kept.html_path])
        raise
    if saved is None:
        await raw.discard([kept.json_path, kept.html_path])
    return saved
