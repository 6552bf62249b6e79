"""A download whose source goes away must not look whole."""

from __future__ import annotations

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from starlette.types import Message

from parcelpost.errors import LedgerUnavailable, RawStoreUnavailable
from parcelpost.events import DownloadCut, Event
from parcelpost.gateway.downloads import Download
from tests.gateway.stage import some_context


@pytest.mark.parametrize("error", [LedgerUnavailable("no answer"), RawStoreUnavailable("no answer")])
async def test_what_cannot_be_read_to_its_end_is_cut_off_and_told(tmp_path: Path, error: Exception) -> None:
    events: list[Event] = []
    sent: list[Message] = []

    async def body() -> AsyncIterator[bytes]:
        yield b"a part"
        raise error

    async def send(message: Message) -> None:
        sent.append(message)

    async with some_context(tmp_path, events=events) as context:
        await Download(body(), context, "GET /v1/a", headers={}, media_type="text/csv").stream_response(send)
    assert [message.get("body") for message in sent] == [None, b"a part"]
    assert sent[-1]["more_body"]
    assert events == [DownloadCut(path="GET /v1/a", reason="no answer")]
