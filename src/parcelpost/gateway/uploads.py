"""Request bodies and raw-file uploads, read within limits of size."""

from __future__ import annotations

import asyncio
import hashlib
import io
import re
import tempfile
import zlib
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import IO, Concatenate, Generic, ParamSpec, TypeVar

import zstandard
from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import ClientDisconnect, Request

from parcelpost.errors import InvalidInput, RawStoreUnavailable
from parcelpost.gateway.errors import ApiError
from parcelpost.protocol.payloads import MAX_ARTIFACT_BYTES, ArtifactMetadata, RawMetadata, is_too_dense

P = ParamSpec("P")
T = TypeVar("T")

MAX_GZIP_MEMBERS = 100

_ENCODINGS = {"Accept-Encoding": "gzip, zstd"}
_INLINE_BYTES = 128 * 1024
_INLINE_PACKED_BYTES = 16 * 1024
_THREADS = ThreadPoolExecutor(2, "bodies")  # bodies that are decoded at the same time are in memory at the same time
_LARGEST_WINDOW = 8 * 1024 * 1024


async def read_body(request: Request, max_bytes: int) -> bytes:
    """Returns the decompressed body: JSON that can be decoded in at most ten times `max_bytes` of memory.

    Raises ApiError: 413 too large or too many values, 415 unknown encoding, 400 invalid compression.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower()
    if encoding not in _UNPACK:
        raise ApiError(
            415, f"Content-Encoding {encoding[:40]!r} is not supported; use gzip, zstd or none", headers=_ENCODINGS
        )
    body = b"".join([chunk async for chunk in body_chunks(request, max_bytes)])
    if len(body) <= _INLINE_BYTES and not _UNPACK[encoding]:
        return _checked_body(body, max_bytes)
    if len(body) <= _INLINE_PACKED_BYTES:
        with suppress(_TooLarge):
            return _checked_body(_unpacked_body(body, encoding, min(max_bytes, _INLINE_BYTES)), max_bytes)
    return await run_in_thread(lambda: _checked_body(_unpacked_body(body, encoding, max_bytes), max_bytes))


async def parse_body(read: Callable[Concatenate[bytes, P], T], body: bytes, *args: P.args, **more: P.kwargs) -> T:
    """Returns `read(body, ...)`, called in a thread if the body is large."""
    if len(body) <= _INLINE_BYTES:
        return read(body, *args, **more)
    return await run_in_thread(read, body, *args, **more)


async def run_in_thread(work: Callable[P, T], *args: P.args, **more: P.kwargs) -> T:
    """Returns `work(...)`, called in a thread."""
    return await asyncio.get_running_loop().run_in_executor(_THREADS, partial(work, *args, **more))


async def body_chunks(request: Request, max_bytes: int) -> AsyncIterator[bytes]:
    """Yields the body as sent. Raises ApiError: 413 too large, 400 incomplete."""
    declared = request.headers.get("content-length", "")
    if declared.isdecimal() and int(declared) > max_bytes:
        raise _TooLarge(max_bytes, close=True)
    received = 0
    try:
        async for chunk in request.stream():
            received += len(chunk)
            if received > max_bytes:
                raise _TooLarge(max_bytes, close=True)
            yield chunk
    except ClientDisconnect:
        raise ApiError(400, "the body is incomplete", close=True) from None


class _TooLarge(ApiError):
    def __init__(self, max_bytes: int, *, close: bool = False) -> None:
        super().__init__(413, f"the body is too large; the limit is {max_bytes:,} bytes", close=close)


def _unpacked_body(body: bytes, encoding: str, max_bytes: int) -> bytes:
    unpack = _UNPACK[encoding]
    return unpack(body, max_bytes) if unpack else body


def _checked_body(body: bytes, max_bytes: int) -> bytes:
    if is_too_dense(body, max_bytes):
        raise ApiError(413, "the body contains too many values; send smaller batches")
    return body


def _from_gzip(body: bytes, max_bytes: int) -> bytes:
    unpacked = bytearray()
    for step in _gunzip(io.BytesIO(body), "body", 400):
        unpacked += step
        if len(unpacked) > max_bytes:
            raise _TooLarge(max_bytes)
    return bytes(unpacked)


def _from_zstd(body: bytes, max_bytes: int) -> bytes:
    unpacker = zstandard.ZstdDecompressor(max_window_size=_LARGEST_WINDOW)
    try:
        with unpacker.stream_reader(body, read_across_frames=True) as reader:
            unpacked = reader.read(max_bytes + 1)
    except zstandard.ZstdError:
        raise ApiError(400, "the body is not valid zstd") from None
    if len(unpacked) > max_bytes:
        raise _TooLarge(max_bytes)
    return bytes(unpacked)


_UNPACK = {"": None, "identity": None, "gzip": _from_gzip, "x-gzip": _from_gzip, "zstd": _from_zstd}


_STEP_BYTES = 256 * 1024
_MAX_METADATA_BYTES = 64 * 1024
_FORM_BYTES = _MAX_METADATA_BYTES + 16 * 1024
_SPOOL_BYTES = 1024 * 1024


class FileUpload(Struct, Generic[T], frozen=True, kw_only=True):
    name: str
    """'' if it has none."""
    metadata: T
    metadata_json: bytes
    """The metadata as sent."""
    file: IO[bytes]


async def receive_file(request: Request, max_bytes: int, read_metadata: Callable[[str], T]) -> FileUpload[T]:
    """Reads the form's file and metadata. Raises ApiError. The caller closes the file."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise ApiError(400, "a file must be sent as multipart/form-data")
    body = body_chunks(request, max_bytes + _FORM_BYTES)
    parser = MultiPartParser(
        request.headers,
        body,  # type: ignore[arg-type]  # an async generator
        max_files=1,
        max_fields=8,
        max_part_size=_MAX_METADATA_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise ApiError(400, error.message) from None
    except ValueError:  # an unknown charset
        raise ApiError(400, "the form is not valid") from None
    except OSError as error:
        raise _spool_error(error) from error
    file, metadata_json = form.get("file"), form.get("metadata")
    if isinstance(file, UploadFile) and isinstance(metadata_json, str):
        try:
            metadata = read_metadata(metadata_json)
        except InvalidInput as error:
            await form.close()
            raise ApiError(422, str(error)) from None
        return FileUpload(
            name=file.filename or "", metadata=metadata, metadata_json=metadata_json.encode(), file=file.file
        )
    await form.close()
    raise ApiError(422, "the form needs the file 'file' and the field 'metadata'")


async def verified_page(upload: FileUpload[RawMetadata], max_bytes: int) -> IO[bytes]:
    """Returns the page gzip-compressed, positioned at its start. Raises ApiError: 413 too large, 422 wrong hash."""
    try:
        return await asyncio.to_thread(_verified, upload, max_bytes)
    except OSError as error:
        raise _spool_error(error) from error


async def verified_artifact(upload: FileUpload[ArtifactMetadata], max_page_bytes: int) -> str:
    """Returns its media type; the file is at its start. Raises ApiError: 413 too large, 422 not what it should be."""
    try:
        return await asyncio.to_thread(_artifact_type, upload, max_page_bytes)
    except OSError as error:
        raise _spool_error(error) from error


def _artifact_type(upload: FileUpload[ArtifactMetadata], max_page_bytes: int) -> str:
    file = upload.file
    file.seek(0)
    start = file.read(_MAGIC_BYTES)
    file.seek(0)
    _check_hash(_file_chunks(file), upload.metadata.sha256, MAX_ARTIFACT_BYTES)
    file.seek(0)
    if upload.metadata.kind == "screenshot":
        media_type = next((media_type for media_type, magic in _IMAGES.items() if magic.match(start)), None)
        if media_type is None:
            raise ApiError(422, "a screenshot must be a PNG, JPEG or WebP image")
        return media_type
    _check_size(_gunzip(file, "page", 422), max_page_bytes)
    file.seek(0)
    return "text/html"


_MAGIC_BYTES = 12
_IMAGES = {
    "image/png": re.compile(rb"\x89PNG\r\n\x1a\n"),
    "image/jpeg": re.compile(rb"\xff\xd8\xff"),
    "image/webp": re.compile(rb"RIFF....WEBP", re.DOTALL),
}


def _spool_error(error: OSError) -> RawStoreUnavailable:
    return RawStoreUnavailable(f"cannot buffer an uploaded raw file: {error.strerror}")


def _verified(upload: FileUpload[RawMetadata], max_bytes: int) -> IO[bytes]:
    upload.file.seek(0)
    if upload.metadata.content_encoding == "gzip":
        _check_hash(_gunzip(upload.file, "file", 422), upload.metadata.sha256, max_bytes)
        upload.file.seek(0)
        return upload.file
    _check_hash(_file_chunks(upload.file), upload.metadata.sha256, max_bytes)
    upload.file.seek(0)
    return _packed_file(upload.file)


def _check_hash(page: Iterator[bytes], sha256: str, max_bytes: int) -> None:
    digest = hashlib.sha256()
    _check_size(page, max_bytes, digest.update)
    if digest.hexdigest() != sha256:
        raise ApiError(422, "the file does not match the SHA-256 in its metadata")


def _check_size(file: Iterator[bytes], max_bytes: int, use: Callable[[bytes], object] = len) -> None:
    size = 0
    for step in file:
        size += len(step)
        if size > max_bytes:
            raise ApiError(413, f"the file is too large; the limit is {max_bytes:,} bytes")
        use(step)


def _file_chunks(file: IO[bytes]) -> Iterator[bytes]:
    while step := file.read(_STEP_BYTES):
        yield step


def _gunzip(file: IO[bytes], name: str, status: int) -> Iterator[bytes]:
    """Decompresses one or several members in bounded steps. Raises ApiError with that status."""
    unpacker = zlib.decompressobj(wbits=31)
    begun, members = False, 1
    try:
        for step in _file_chunks(file):
            rest = step
            while rest:
                if unpacker.eof:
                    unpacker, begun, members = zlib.decompressobj(wbits=31), False, members + 1
                if members > MAX_GZIP_MEMBERS:
                    raise ApiError(status, f"the gzip {name} has more than {MAX_GZIP_MEMBERS} members")
                yield unpacker.decompress(rest, _STEP_BYTES)
                begun = True
                rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error:
        raise ApiError(status, f"the {name} is not valid gzip") from None
    if not begun or not unpacker.eof:
        raise ApiError(status, f"the gzip {name} is incomplete")


def _packed_file(file: IO[bytes]) -> IO[bytes]:
    packer = zlib.compressobj(6, wbits=31)
    packed = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - the caller closes it
    for step in _file_chunks(file):
        packed.write(packer.compress(step))
    packed.write(packer.flush())
    packed.seek(0)
    return packed
