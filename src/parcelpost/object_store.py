"""Object storage for the raw files of a gateway or of Firestore: a folder, S3 or Google Cloud Storage."""

from __future__ import annotations

import asyncio
import hashlib
import os
import re
import secrets
import zlib
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import obstore
from msgspec import Struct
from obstore.exceptions import BaseError, PermissionDeniedError, UnauthenticatedError
from obstore.store import GCSStore, LocalStore, ObjectStore, S3Store, from_url

from parcelpost.errors import InvalidSettings, RawFileDamaged, RawStoreDenied, RawStoreUnavailable
from parcelpost.files_and_sockets import make_private

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig


STAGING = "staging"
"""The subfolder for files that are being written."""

_CHUNK_BYTES = 256 * 1024
_MAX_NAME_CHARS = 200
_UNSAFE = re.compile(r"[^A-Za-z0-9._~-]+", re.ASCII)
_SHA256 = re.compile(r"[0-9a-f]{64}", re.ASCII)
_PROBE_NAME = "health"
_PROBE = b"." * 4096  # a whole block, because an empty file fits on a full disk
_LONGEST_WRITE = timedelta(hours=1)
_MAX_GZIP_OVERHEAD = 64 * 1024  # for incompressible data
_GZIP = 16 + zlib.MAX_WBITS

Write = Callable[[str, IO[bytes] | bytes], Awaitable[None]]
"""Writes content to a path, completely or not at all."""


class RawPage(Struct, frozen=True):
    size: int
    chunks: AsyncIterator[bytes]
    """Compressed with gzip, unless it is a screenshot."""


class RawStore:
    """Raw files by hash. Every call raises RawStoreUnavailable if the storage is not responding."""

    def __init__(self, address: str, store: ObjectStore, write: Write) -> None:
        self.address = address
        """Its address, for references to it. It contains no secret."""
        self._store = store
        self._write = write

    async def put(self, sha256: str, page: IO[bytes], name: str, metadata: bytes) -> str:
        """Stores a page, compressed with gzip, and its metadata under `name`. Returns the page's path."""
        path = page_path(sha256)
        try:
            if not await self._exists(path):
                await self._write(path, page)
            await self._write(f"{path.removesuffix('.html.gz')}/{safe_name(name)}.json", metadata)
        except (BaseError, OSError) as error:
            raise _unavailable("a raw file could not be stored", error) from error
        return path

    async def put_artifact(self, task_id: str, kind: str, content: IO[bytes]) -> None:
        """Stores what a failed attempt at a task saw, in place of an earlier one of that kind."""
        try:
            await self._write(_artifact_path(task_id, kind), content)
        except (BaseError, OSError) as error:
            raise _unavailable("an artifact could not be stored", error) from error

    async def open_artifact(self, task_id: str, kind: str) -> RawPage | None:
        return await self._open(_artifact_path(task_id, kind))

    async def delete_artifact(self, task_id: str, kind: str) -> None:
        try:
            await obstore.delete_async(self._store, _artifact_path(task_id, kind))
        except FileNotFoundError:
            return
        except (BaseError, OSError) as error:
            raise _unavailable("an artifact could not be deleted", error) from error

    async def put_record(self, sha256: str, packed: bytes) -> str:
        """Stores a record's JSON, compressed with gzip. Returns its path."""
        path = _record_path(sha256)
        try:
            if not await self._exists(path):
                await self._write(path, packed)
        except (BaseError, OSError) as error:
            raise _unavailable("a record could not be stored", error) from error
        return path

    async def open(self, sha256: str) -> RawPage | None:
        """Returns the page with that hash, or None."""
        return await self._open(page_path(sha256)) if _SHA256.fullmatch(sha256) else None

    async def _open(self, path: str) -> RawPage | None:
        try:
            file = await obstore.get_async(self._store, path)
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _unavailable("a raw file could not be read", error) from error
        return RawPage(file.meta["size"], _chunks(file))

    async def open_record(self, sha256: str, size: int) -> bytes | None:
        """Returns the record's JSON after checking its size and hash, or None. Raises RawFileDamaged."""
        if not _SHA256.fullmatch(sha256) or size < 0:
            return None
        try:
            file = await obstore.get_async(self._store, _record_path(sha256))
            if file.meta["size"] > size + _MAX_GZIP_OVERHEAD:
                raise RawFileDamaged(f"{_record_path(sha256)} is larger than expected")
            packed = bytes(await file.bytes_async())
        except FileNotFoundError:
            return None
        except (BaseError, OSError) as error:
            raise _unavailable("a record could not be read", error) from error
        return await asyncio.to_thread(_unpacked, sha256, packed, size)

    async def check(self) -> None:
        """Writes the file `health`, so that a full disk is noticed before a worker sends a page."""
        try:
            await self._write(_PROBE_NAME, _PROBE)
        except (BaseError, OSError) as error:
            raise _unavailable("a raw file could not be stored", error) from error

    async def _exists(self, path: str) -> bool:
        try:
            await obstore.head_async(self._store, path)
        except FileNotFoundError:
            return False
        return True


def remove_leftovers(place: str, now: datetime) -> None:
    """Deletes files that crashed gateways left incomplete in a folder, but not recent ones: a peer may be writing."""
    if "://" in place:
        return
    before = (now - _LONGEST_WRITE).timestamp()
    for file in (Path(place) / STAGING).glob("*"):
        with suppress(OSError):  # a peer was faster, or the file belongs to another user
            if file.stat().st_mtime < before:
                file.unlink()


def safe_name(name: str) -> str:
    """Returns ASCII without separators. A changed name gets a hash, so that it stays unique."""
    base = _UNSAFE.sub("-", name.replace("\\", "/").rsplit("/", 1)[-1]).lstrip(".-")[:_MAX_NAME_CHARS]
    if base == name:
        return base
    return f"{base}~{hashlib.sha256(name.encode('utf-8', 'surrogatepass')).hexdigest()[:12]}"


def page_path(sha256: str) -> str:
    return f"{_folder(sha256)}/{sha256}.html.gz"


def _artifact_path(task_id: str, kind: str) -> str:
    name = hashlib.sha256(task_id.encode("utf-8", "surrogatepass")).hexdigest()
    return f"artifacts/{name[:2]}/{name}.{kind}"


def _record_path(sha256: str) -> str:
    return f"{_folder(sha256)}/{sha256}.json.gz"


def _folder(sha256: str) -> str:
    return f"{sha256[:2]}/{sha256[2:4]}"


def _unpacked(sha256: str, packed: bytes, size: int) -> bytes:
    """Decompresses at most `size` bytes."""
    try:
        data = zlib.decompressobj(_GZIP).decompress(packed, size + 1)
    except zlib.error:
        data = b""
    if hashlib.sha256(data).hexdigest() != sha256:
        raise RawFileDamaged(f"{_record_path(sha256)} does not match the hash in its name")
    return data


def _unavailable(problem: str, error: Exception) -> RawStoreUnavailable:
    is_denied = isinstance(error, PermissionDeniedError | UnauthenticatedError | FileNotFoundError)
    return (RawStoreDenied if is_denied else RawStoreUnavailable)(f"{problem}: {type(error).__name__}")


async def _chunks(file: obstore.GetResult) -> AsyncIterator[bytes]:
    try:
        async for chunk in file.stream(min_chunk_size=_CHUNK_BYTES):
            yield bytes(chunk)
    except (BaseError, OSError) as error:
        raise _unavailable("a raw file could not be read completely", error) from error


_RETRIES: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
"""Few, because the caller retries, too."""
_CONNECT = timedelta(seconds=10)
_LONGEST_CALL = timedelta(minutes=2)
_NO_QUERY = "write it as gs://bucket/prefix; credentials come from the environment or a file"
_NO_MEMORY = "use a folder, gs://bucket/prefix or s3://bucket/prefix"


def open_raw_store(place: str, environment: Mapping[str, str]) -> RawStore:
    """Opens a gateway's store: a folder (created with mode 700) or s3://bucket/prefix. Raises InvalidSettings."""
    if not place:
        raise InvalidSettings("server.raw is empty", hint="use a folder, or s3://bucket/prefix")
    if place.startswith("s3://"):
        return _in_s3(place, environment, "server.raw")
    if "://" in place:
        raise InvalidSettings("server.raw is neither a folder nor s3://bucket/prefix")
    return _in_folder(Path(place), "server.raw")


def open_any_raw_store(place: str, environment: Mapping[str, str], *, setting: str, google_key_file: str) -> RawStore:
    """Opens a folder, gs://bucket/prefix, s3://bucket/prefix, or another address that obstore supports.

    Cloud Storage uses this key file, or the environment's credentials. Raises InvalidSettings.
    """
    scheme = urlsplit(place).scheme if "://" in place else ""
    if scheme and ("?" in place or "#" in place):
        raise InvalidSettings(f"{setting} must not contain a query or a fragment", hint=_NO_QUERY)
    if scheme and _holds_password(place):
        raise InvalidSettings(f"{setting} must not contain a password", hint=_NO_QUERY)
    match scheme:
        case "":
            return _in_folder(Path(place), setting)
        case "file":
            return _in_folder(Path(unquote(urlsplit(place).path)), setting)
        case "s3":
            return _in_s3(place, environment, setting)
        case "gs":
            return _in_google(place, google_key_file, setting)
        case "memory":
            raise InvalidSettings(
                f"{setting} must be durable storage; memory is lost when the worker stops", hint=_NO_MEMORY
            )
    try:
        store = from_url(place, client_options=_client(allow_http=scheme == "http"), retry_config=_RETRIES)
        return _in_bucket(place, store)
    except (BaseError, ValueError) as error:
        raise InvalidSettings(f"{setting} cannot be used: {type(error).__name__}") from None


def _in_folder(folder: Path, setting: str) -> RawStore:
    """A file gets its name only after it was synced to disk. An existing folder keeps its mode."""
    root = folder.absolute()
    try:
        make_private(root / STAGING)
        store = LocalStore(root, mkdir=True)
    except (BaseError, OSError) as error:
        raise InvalidSettings(f"{setting} {folder} cannot be used: {error}", hint="check its owner") from None

    async def write(path: str, content: IO[bytes] | bytes) -> None:
        staged = f"{STAGING}/{secrets.token_hex(16)}"
        try:
            await obstore.put_async(store, staged, content, use_multipart=False)
            await asyncio.to_thread(_sync_file, root / staged, root / path)
            await obstore.rename_async(store, staged, path)
        except BaseException:
            (root / staged).unlink(missing_ok=True)
            raise
        await asyncio.to_thread(_sync_folders, root, (root / path).parent)

    return RawStore(root.as_uri(), store, write)


def _sync_file(path: Path, target: Path) -> None:
    make_private(target.parent)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folders(root: Path, folder: Path) -> None:
    """Makes a new name durable: syncs its folder and its parents, up to the root."""
    for path in (folder, *folder.parents):
        descriptor = os.open(path, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if path == root:
            return


def _in_s3(place: str, environment: Mapping[str, str], setting: str) -> RawStore:
    bucket, prefix = _bucket(place, setting)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    config = {
        "access_key_id": environment.get("AWS_ACCESS_KEY_ID"),
        "secret_access_key": environment.get("AWS_SECRET_ACCESS_KEY"),
        "session_token": environment.get("AWS_SESSION_TOKEN"),
        "region": environment.get("AWS_REGION") or environment.get("AWS_DEFAULT_REGION") or "us-east-1",
        "endpoint": endpoint or None,
    }
    try:
        store = S3Store(
            bucket,
            prefix=prefix,
            config={name: text for name, text in config.items() if text},  # type: ignore[arg-type]
            client_options=_client(allow_http=endpoint.startswith("http://")),
            virtual_hosted_style_request=not endpoint,
            retry_config=_RETRIES,
        )
    except BaseError as error:
        raise InvalidSettings(f"{setting} cannot be used: {type(error).__name__}") from None
    return _in_bucket(place, store)


def _in_google(place: str, key_file: str, setting: str) -> RawStore:
    bucket, prefix = _bucket(place, setting)
    try:
        store = GCSStore(
            bucket,
            prefix=prefix,
            config={"service_account": key_file} if key_file else None,
            client_options=_client(allow_http=True),  # for emulators; Google itself uses https
            retry_config=_RETRIES,
        )
    except BaseError as error:
        raise InvalidSettings(f"{setting} cannot be used: {type(error).__name__}") from None
    return _in_bucket(place, store)


def _client(*, allow_http: bool) -> ClientConfig:
    return {"allow_http": allow_http, "connect_timeout": _CONNECT, "timeout": _LONGEST_CALL}


def _holds_password(place: str) -> bool:
    return ":" in urlsplit(place).netloc.rpartition("@")[0]


def _bucket(place: str, setting: str) -> tuple[str, str | None]:
    parts = urlsplit(place)
    if not parts.netloc:
        raise InvalidSettings(f"{setting} has no bucket name", hint=f"write it as {parts.scheme}://bucket/prefix")
    return parts.netloc, parts.path.strip("/") or None


def _in_bucket(place: str, store: ObjectStore) -> RawStore:
    async def write(path: str, content: IO[bytes] | bytes) -> None:
        await obstore.put_async(store, path, content)

    return RawStore(place.rstrip("/"), store, write)
