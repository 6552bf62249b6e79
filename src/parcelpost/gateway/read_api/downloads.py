"""An export on its way: the first page before anything is promised, then page by page for as long as somebody reads."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from typing import TypeVar

from starlette.requests import Request
from starlette.responses import StreamingResponse
from starlette.types import Send

from parcelpost.errors import LedgerError, RawStoreUnavailable
from parcelpost.events import DownloadCut
from parcelpost.gateway.exporting import Form
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.problems import reason_of

T = TypeVar("T")


async def download_of(
    parts: Parts, request: Request, pages: AsyncIterator[Sequence[T]], form: Form[T], media_type: str
) -> StreamingResponse:
    """Raises LedgerError while it still can be told."""
    try:
        first = await anext(pages)
    except StopAsyncIteration:
        first = ()
    name = request.url.path.rpartition("/")[2]
    headers = {"Content-Disposition": f'attachment; filename="{name}"'}
    body = _body(first, pages, form)
    return Download(body, parts, f"GET {request.url.path}", headers=headers, media_type=media_type)


async def _body(first: Sequence[T], pages: AsyncIterator[Sequence[T]], form: Form[T]) -> AsyncIterator[bytes]:
    yield form.head()
    if first:
        yield await asyncio.to_thread(form.lines, first)
    async for rows in pages:
        yield await asyncio.to_thread(form.lines, rows)


class Download(StreamingResponse):
    """Cut off, so that nobody takes a part for the whole, when its source goes away or the gateway is to stop."""

    def __init__(
        self, body: AsyncIterator[bytes], parts: Parts, path: str, *, headers: dict[str, str], media_type: str
    ) -> None:
        super().__init__(body, headers=headers, media_type=media_type)
        self._parts = parts
        self._path = path

    async def stream_response(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        try:
            async for chunk in self.body_iterator:
                if self._parts.stopping.is_set():
                    return
                await send({"type": "http.response.body", "body": chunk, "more_body": True})
        except (LedgerError, RawStoreUnavailable) as error:
            self._parts.emit(DownloadCut(path=self._path, reason=reason_of(error)))
            return
        await send({"type": "http.response.body", "body": b"", "more_body": False})
