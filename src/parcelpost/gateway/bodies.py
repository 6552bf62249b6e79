"""A request's body, read within its bounds of size and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import zstandard
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from parcelpost.gateway.refusals import Refusal

_ENCODINGS = {"Accept-Encoding": "gzip, zstd"}
_INLINE_BYTES = 32 * 1024
_LARGEST_WINDOW = 8 * 1024 * 1024


class Patience(Struct, frozen=True, kw_only=True):
    """How long a client may take. A body gets `seconds`, and one more for every `bytes_per_second` that came."""

    seconds: float = 10.0
    bytes_per_second: int = 16 * 1024


async def read_body(request: Request, most_bytes: int, patience: Patience) -> bytes:
    """The body, unpacked. Raises Refusal: 408 too slow, 413 too large, 415 packed in an unknown way, 400 badly."""
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in {"", "identity", "gzip", "x-gzip", "zstd"}:
        raise Refusal(415, f"bodies come as they are, or as gzip or zstd, not as {encoding[:40]!r}", headers=_ENCODINGS)
    body = b"".join([chunk async for chunk in chunks(request, most_bytes, patience)])
    if encoding in {"", "identity"}:
        return body
    unpack = _from_zstd if encoding == "zstd" else _from_gzip
    if len(body) <= _INLINE_BYTES:
        return unpack(body, most_bytes)
    return await asyncio.to_thread(unpack, body, most_bytes)


async def chunks(request: Request, most_bytes: int, patience: Patience) -> AsyncIterator[bytes]:
    """The body as it comes, packed or not. Raises Refusal: 408 too slow, 413 too large, 400 cut off."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most_bytes:
        raise _too_large(most_bytes)
    loop = asyncio.get_running_loop()
    deadline = loop.time() + patience.seconds
    received = 0
    stream = request.stream()
    while True:
        try:
            async with asyncio.timeout_at(deadline + received / patience.bytes_per_second):
                chunk = await anext(stream, None)
        except TimeoutError:
            raise Refusal(408, "the body came too slowly", close=True) from None
        except ClientDisconnect:
            raise Refusal(400, "the body was cut off", close=True) from None
        if chunk is None:
            return
        received += len(chunk)
        if received > most_bytes:
            raise _too_large(most_bytes)
        yield chunk


def _too_large(most_bytes: int) -> Refusal:
    return Refusal(413, f"the body is too large; at most {most_bytes:,} bytes are taken", close=True)


def _from_gzip(body: bytes, most_bytes: int) -> bytes:
    """One member or several, one after the other."""
    unpacked = bytearray()
    while body:
        unpacker = zlib.decompressobj(wbits=31)
        try:
            unpacked += unpacker.decompress(body, most_bytes + 1 - len(unpacked))
        except zlib.error:
            raise Refusal(400, "the body is not gzip, or damaged") from None
        if len(unpacked) > most_bytes:
            raise _too_large(most_bytes)
        if not unpacker.eof:
            raise Refusal(400, "the body's gzip is cut off")
        body = unpacker.unused_data
    return bytes(unpacked)


def _from_zstd(body: bytes, most_bytes: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    try:
        with unpacker.stream_reader(body, read_across_frames=True) as reader:
            unpacked = reader.read(most_bytes + 1)
    except zstandard.ZstdError:
        raise Refusal(400, "the body is not zstd, or damaged") from None
    if len(unpacked) > most_bytes:
        raise _too_large(most_bytes)
    return bytes(unpacked)
