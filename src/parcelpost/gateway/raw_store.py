"""Where raw files are kept: by the hash of the page, in a folder or in S3."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import IO, Protocol

from msgspec import Struct


class RawStore(Protocol):
    """Every call raises RawStoreAway when the store does not answer for now."""

    async def put(self, sha256: str, page: IO[bytes], name: str, metadata: bytes) -> str:
        """Keeps a page, which comes compressed with gzip, and what is told about it under that name. Its path."""

    async def open(self, sha256: str) -> RawPage | None:
        """The page with that hash; None if there is none."""


class RawPage(Struct, frozen=True):
    size: int
    chunks: AsyncIterator[bytes]
    """Compressed with gzip."""
