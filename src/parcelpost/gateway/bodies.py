"""A request's body, read within its bounds of size and time."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Concatenate, ParamSpec, TypeVar

import zstandard
from msgspec import Struct
from starlette.requests import ClientDisconnect, Request

from parcelpost.gateway.refusals import Refusal
from parcelpost.protocol.payloads import is_too_dense

P = ParamSpec("P")
T = TypeVar("T")

MOST_GZIP_MEMBERS = 100

_ENCODINGS = {"Accept-Encoding": "gzip, zstd"}
_INLINE_BYTES = 128 * 1024
_INLINE_PACKED_BYTES = 16 * 1024
_THREADS = ThreadPoolExecutor(2, "bodies")  # what is read at the same time is in memory at the same time
_LARGEST_WINDOW = 8 * 1024 * 1024


class Patience(Struct, frozen=True, kw_only=True):
    """How long a client may take. A body gets `seconds`, and one more for every `bytes_per_second` that came."""

    seconds: float = 10.0
    bytes_per_second: int = 16 * 1024


async def read_body(request: Request, most_bytes: int, patience: Patience) -> bytes:
    """The body, unpacked: JSON that can be read in at most ten times `most_bytes` of memory, all in all.

    Raises Refusal: 408 too slow, 413 too large or too many values, 415 packed in an unknown way, 400 badly.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _UNPACK:
        raise Refusal(415, f"bodies come as they are, or as gzip or zstd, not as {encoding[:40]!r}", headers=_ENCODINGS)
    body = b"".join([chunk async for chunk in chunks(request, most_bytes, patience)])
    if len(body) <= _INLINE_BYTES and not _UNPACK[encoding]:
        return _checked(body, most_bytes)
    if len(body) <= _INLINE_PACKED_BYTES:
        with suppress(_TooLarge):
            return _checked(_unpacked(body, encoding, min(most_bytes, _INLINE_BYTES)), most_bytes)
    return await in_thread(lambda: _checked(_unpacked(body, encoding, most_bytes), most_bytes))


async def parse(read: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **more: P.kwargs) -> T:
    """What `read(body, ...)` returns; called beside the event loop if that may take a while."""
    if len(body) <= _INLINE_BYTES:
        return read(body, *args, **more)
    return await in_thread(read, body, *args, **more)


async def in_thread(work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """What `work(...)` returns, called beside the event loop."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(work, *args, **more))


async def chunks(request: Request, most_bytes: int, patience: Patience) -> AsyncIterator[bytes]:
    """The body as it comes, packed or not. Raises Refusal: 408 too slow, 413 too large, 400 cut off."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > most_bytes:
        raise _TooLarge(most_bytes, close=True)
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
            raise _TooLarge(most_bytes, close=True)
        yield chunk


class _TooLarge(Refusal):
    def __init__(self, most_bytes: int, *, close: bool = False) -> None:
        super().__init__(413, f"the body is too large; at most {most_bytes:,} bytes are taken", close=close)


def _unpacked(body: bytes, encoding: str, most_bytes: int) -> bytes:
    unpack = _UNPACK[encoding]
    return unpack(body, most_bytes) if unpack else body


def _checked(body: bytes, most_bytes: int) -> bytes:
    if is_too_dense(body, most_bytes):
        raise Refusal(413, "the body holds too many values for its size; send it in parts")
    return body


def _from_gzip(body: bytes, most_bytes: int) -> bytes:
    """One member or a few, one after the other: what is left after each is copied."""
    unpacked = bytearray()
    for _ in range(MOST_GZIP_MEMBERS):
        unpacker = zlib.decompressobj(wbits=31)
        try:
            unpacked += unpacker.decompress(body, most_bytes + 1 - len(unpacked))
        except zlib.error:
            raise Refusal(400, "the body is not gzip, or damaged") from None
        if len(unpacked) > most_bytes:
            raise _TooLarge(most_bytes)
        if not unpacker.eof:
            raise Refusal(400, "the body's gzip is cut off")
        body = unpacker.unused_data
        if not body:
            return bytes(unpacked)
    raise Refusal(400, f"the body's gzip has more than {MOST_GZIP_MEMBERS} members")


def _from_zstd(body: bytes, most_bytes: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    try:
        with unpacker.stream_reader(body, read_across_frames=True) as reader:
            unpacked = reader.read(most_bytes + 1)
    except zstandard.ZstdError:
        raise Refusal(400, "the body is not zstd, or damaged") from None
    if len(unpacked) > most_bytes:
        raise _TooLarge(most_bytes)
    return bytes(unpacked)


_UNPACK = {"": None, "identity": None, "gzip": _from_gzip, "x-gzip": _from_gzip, "zstd": _from_zstd}
