"""A raw file on its way in: spooled to disk, checked against its hash, never whole in memory."""

from __future__ import annotations

import asyncio
import hashlib
import tempfile
import zlib
from collections.abc import Iterator
from typing import IO

from msgspec import Struct
from starlette.datastructures import UploadFile
from starlette.formparsers import MultiPartException, MultiPartParser
from starlette.requests import Request

from parcelpost.errors import InvalidInput, RawStoreUnavailable
from parcelpost.gateway.bodies import MOST_GZIP_MEMBERS, Patience, chunks
from parcelpost.gateway.refusals import Refusal
from parcelpost.protocol import server
from parcelpost.protocol.payloads import RawMetadata

_STEP_BYTES = 256 * 1024
_MOST_METADATA_BYTES = 64 * 1024
_FORM_BYTES = _MOST_METADATA_BYTES + 16 * 1024
_SPOOL_BYTES = 1024 * 1024


class Upload(Struct, frozen=True, kw_only=True):
    name: str
    metadata: RawMetadata
    told: bytes
    """The metadata as sent."""
    file: IO[bytes]


async def receive(request: Request, most_bytes: int, patience: Patience) -> Upload:
    """The form's file and metadata. Raises Refusal. The file is to be closed by the caller."""
    if not request.headers.get("content-type", "").lower().startswith("multipart/form-data"):
        raise Refusal(400, "a raw file comes as multipart/form-data")
    body = chunks(request, most_bytes + _FORM_BYTES, patience)
    parser = MultiPartParser(
        request.headers,
        body,  # type: ignore[arg-type]  # an async generator
        max_files=1,
        max_fields=8,
        max_part_size=_MOST_METADATA_BYTES,
    )
    try:
        form = await parser.parse()
    except MultiPartException as error:
        raise Refusal(400, error.message) from None
    except ValueError:  # a charset that is none
        raise Refusal(400, "the form cannot be read") from None
    except OSError as error:
        raise _no_room(error) from error
    file, told = form.get("file"), form.get("metadata")
    if isinstance(file, UploadFile) and isinstance(told, str):
        try:
            metadata = server.read_raw_metadata(told)
        except InvalidInput as error:
            await form.close()
            raise Refusal(422, str(error)) from None
        return Upload(name=file.filename or metadata.sha256, metadata=metadata, told=told.encode(), file=file.file)
    await form.close()
    raise Refusal(422, "the form needs a file 'file' and a field 'metadata'")


async def checked(upload: Upload, most_bytes: int) -> IO[bytes]:
    """The page, compressed with gzip, at its start. Raises Refusal: 413 too large, 422 not what the hash says."""
    try:
        return await asyncio.to_thread(_checked, upload, most_bytes)
    except OSError as error:
        raise _no_room(error) from error


def _no_room(error: OSError) -> RawStoreUnavailable:
    return RawStoreUnavailable(f"a raw file could not be spooled: {error.strerror}")


def _checked(upload: Upload, most_bytes: int) -> IO[bytes]:
    upload.file.seek(0)
    if upload.metadata.content_encoding == "gzip":
        _check(_unpacked(upload.file), upload.metadata.sha256, most_bytes)
        upload.file.seek(0)
        return upload.file
    _check(_steps(upload.file), upload.metadata.sha256, most_bytes)
    upload.file.seek(0)
    return _packed(upload.file)


def _check(page: Iterator[bytes], sha256: str, most_bytes: int) -> None:
    digest, size = hashlib.sha256(), 0
    for step in page:
        size += len(step)
        if size > most_bytes:
            raise Refusal(413, f"the page is too large; at most {most_bytes:,} bytes are taken")
        digest.update(step)
    if digest.hexdigest() != sha256:
        raise Refusal(422, "the page's SHA-256 is not the one in the metadata: it was damaged on its way")


def _steps(file: IO[bytes]) -> Iterator[bytes]:
    while step := file.read(_STEP_BYTES):
        yield step


def _unpacked(file: IO[bytes]) -> Iterator[bytes]:
    """In bounded steps, whatever the file unpacks to."""
    unpacker = zlib.decompressobj(wbits=31)
    begun, members = False, 1
    try:
        for step in _steps(file):
            rest = step
            while rest:
                if unpacker.eof:
                    unpacker, begun, members = zlib.decompressobj(wbits=31), False, members + 1
                if members > MOST_GZIP_MEMBERS:
                    raise Refusal(422, f"the file's gzip has more than {MOST_GZIP_MEMBERS} members")
                yield unpacker.decompress(rest, _STEP_BYTES)
                begun = True
                rest = unpacker.unused_data if unpacker.eof else unpacker.unconsumed_tail
    except zlib.error:
        raise Refusal(422, "the file is not gzip, or damaged") from None
    if not begun or not unpacker.eof:
        raise Refusal(422, "the file's gzip is cut off")


def _packed(file: IO[bytes]) -> IO[bytes]:
    packer = zlib.compressobj(6, wbits=31)
    packed = tempfile.SpooledTemporaryFile(max_size=_SPOOL_BYTES)  # noqa: SIM115 - the caller closes it
    for step in _steps(file):
        packed.write(packer.compress(step))
    packed.write(packer.flush())
    packed.seek(0)
    return packed
