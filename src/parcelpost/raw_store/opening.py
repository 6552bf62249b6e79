"""From an address to a store of raw files."""

from __future__ import annotations

import asyncio
import os
import secrets
from collections.abc import Mapping
from datetime import timedelta
from pathlib import Path
from typing import IO, TYPE_CHECKING
from urllib.parse import unquote, urlsplit

import obstore
from obstore.exceptions import BaseError
from obstore.store import GCSStore, LocalStore, ObjectStore, S3Store, from_url

from parcelpost.errors import InvalidSettings
from parcelpost.private_folder import make_private
from parcelpost.raw_store.store import STAGING, RawStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, RetryConfig

_RETRIES: RetryConfig = {"max_retries": 2, "retry_timeout": timedelta(seconds=10)}
"""The worker comes again by itself."""
_CONNECT = timedelta(seconds=10)
_LONGEST_CALL = timedelta(minutes=2)
_NO_QUERY = "write it as gs://bucket/prefix; what signs a call comes from the environment or a file"
_NO_MEMORY = "name a folder, gs://bucket/prefix or s3://bucket/prefix"


def open_raw_store(place: str, environment: Mapping[str, str]) -> RawStore:
    """A gateway's: a folder, for its owner alone where it has to be made; or s3://bucket/prefix.

    Raises InvalidSettings.
    """
    if not place:
        raise InvalidSettings("server.raw is empty", hint="name a folder, or s3://bucket/prefix")
    if place.startswith("s3://"):
        return _in_s3(place, environment, "server.raw")
    if "://" in place:
        raise InvalidSettings("server.raw is neither a folder nor s3://bucket/prefix")
    return _in_folder(Path(place), "server.raw")


def open_any_raw_store(place: str, environment: Mapping[str, str], *, setting: str, google_key_file: str) -> RawStore:
    """A folder, gs://bucket/prefix, s3://bucket/prefix, or another address that obstore knows.

    Cloud Storage is opened with that key file, or with what the environment has. Raises InvalidSettings.
    """
    scheme = urlsplit(place).scheme if "://" in place else ""
    if scheme and ("?" in place or "#" in place):
        raise InvalidSettings(f"{setting} must not hold a query or a fragment", hint=_NO_QUERY)
    if scheme and _holds_password(place):
        raise InvalidSettings(f"{setting} must not hold a password", hint=_NO_QUERY)
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
            raise InvalidSettings(f"{setting} must outlive the worker, and its memory does not", hint=_NO_MEMORY)
    try:
        store = from_url(place, client_options=_client(allow_http=scheme == "http"), retry_config=_RETRIES)
        return _in_bucket(place, store)
    except (BaseError, ValueError) as error:
        raise InvalidSettings(f"{setting} cannot be used: {type(error).__name__}") from None


def _in_folder(folder: Path, setting: str) -> RawStore:
    """A file appears under its name only when it is on the disk, synced. A folder that is there keeps its mode."""
    root = folder.absolute()
    try:
        make_private(root / STAGING)
        store = LocalStore(root, mkdir=True)
    except (BaseError, OSError) as error:
        raise InvalidSettings(f"{setting} {folder} cannot be used: {error}", hint="check who owns it") from None

    async def write(path: str, content: IO[bytes] | bytes) -> None:
        staged = f"{STAGING}/{secrets.token_hex(16)}"
        try:
            await obstore.put_async(store, staged, content, use_multipart=False)
            await asyncio.to_thread(_settle_file, root / staged, root / path)
            await obstore.rename_async(store, staged, path)
        except BaseException:
            (root / staged).unlink(missing_ok=True)
            raise
        await asyncio.to_thread(_settle_folders, root, (root / path).parent)

    return RawStore(root.as_uri(), store, write)


def _settle_file(path: Path, target: Path) -> None:
    make_private(target.parent)
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fchmod(descriptor, 0o600)
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _settle_folders(root: Path, folder: Path) -> None:
    """The new name is on the disk when its folder is, and that one's own name too."""
    for one in (folder, *folder.parents):
        descriptor = os.open(one, os.O_RDONLY)
        try:
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if one == root:
            return


def _in_s3(place: str, environment: Mapping[str, str], setting: str) -> RawStore:
    bucket, prefix = _bucket(place, setting)
    endpoint = environment.get("AWS_ENDPOINT_URL_S3") or environment.get("AWS_ENDPOINT_URL") or ""
    given = {
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
            config={name: text for name, text in given.items() if text},  # type: ignore[arg-type]
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
            client_options=_client(allow_http=True),  # as a key file for an imitation may name; Google's own is https
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
        raise InvalidSettings(f"{setting} names no bucket", hint=f"write it as {parts.scheme}://bucket/prefix")
    return parts.netloc, parts.path.strip("/") or None


def _in_bucket(place: str, store: ObjectStore) -> RawStore:
    """What a bucket promises, holds."""

    async def write(path: str, content: IO[bytes] | bytes) -> None:
        await obstore.put_async(store, path, content)

    return RawStore(place.rstrip("/"), store, write)
