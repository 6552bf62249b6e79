"""FirestoreClient: the Upstream on Firestore; how it is opened, and its credentials."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import google.auth
import grpc
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from google.auth.exceptions import GoogleAuthError, TransportError
from google.auth.transport.grpc import AuthMetadataPlugin
from google.auth.transport.requests import Request
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport
from google.oauth2 import service_account

from parcelpost.errors import InvalidSettings, NotOffered
from parcelpost.model import Lease, OutboxEntry, Signal
from parcelpost.object_store import RawStore, open_any_raw_store
from parcelpost.protocol.payloads import (
    ArtifactKind,
    Heartbeat,
    HeartbeatReply,
    MetricsSample,
    RankedSelector,
    Submitted,
    Work,
)
from parcelpost.settings.schema import FirestoreSettings
from parcelpost.upstream.firestore.calls import Calls, Time
from parcelpost.upstream.firestore.claims import Tasks
from parcelpost.upstream.firestore.encoding import Layout
from parcelpost.upstream.firestore.errors import NOT_ACCEPTED, NOT_RENEWED
from parcelpost.upstream.firestore.fleet import Fleet, SelectorStats
from parcelpost.upstream.firestore.leases import FirestoreLeases
from parcelpost.upstream.firestore.results import RawUploads, Results

KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"

_of_account: Any = service_account.Credentials.from_service_account_info
_SCOPES = FirestoreGrpcAsyncIOTransport.AUTH_SCOPES
_SETTING = "firestore.credentials_file"
_OF_ACCOUNT = "service_account"
FAULTS = (GoogleAuthError, UnsupportedAlgorithm, ValueError, TypeError, AttributeError, LookupError, OSError)
"""Errors of the library for an invalid file or answer. Their messages may contain secrets: never log them."""
_CREDENTIALS_HINT = (
    f"set {_SETTING} or {KEY_VARIABLE} to a service account's key file, or run 'gcloud auth application-default login'"
)


def find_credentials(key_file: str, environment: Mapping[str, str]) -> tuple[Any, str]:
    """Returns credentials and their project, '' if they name none. Raises InvalidSettings."""
    credentials = read_named(key_file, environment)
    if credentials is not None:
        return credentials, credentials.project_id or ""
    named = environment.get(KEY_VARIABLE, "")
    try:
        credentials, project = google.auth.default(scopes=_SCOPES)
    except FAULTS:
        problem = f"{KEY_VARIABLE} {named} cannot be used" if named else "there are no credentials for Firestore"
        raise InvalidSettings(problem, hint=_CREDENTIALS_HINT) from None
    return credentials, project or ""


def read_named(key_file: str, environment: Mapping[str, str]) -> Any:
    """Returns the credentials of the configured service account key, None if none is configured.

    Raises InvalidSettings for an invalid file.
    """
    if key_file:
        return _account(f"{_SETTING} {key_file}", _content(_SETTING, key_file))
    if not (named := environment.get(KEY_VARIABLE, "")):
        return None
    content = _content(KEY_VARIABLE, named)
    return _account(f"{KEY_VARIABLE} {named}", content) if content.get("type") == _OF_ACCOUNT else None


def _content(name: str, file: str) -> dict[str, object]:
    try:
        return msgspec.json.decode(Path(file).read_bytes(), type=dict[str, object])
    except OSError as error:
        raise InvalidSettings(f"{name} {file} cannot be read: {error.strerror}", hint=_CREDENTIALS_HINT) from None
    except (ValueError, RecursionError):
        raise InvalidSettings(
            f"{name} {file} cannot be used: it is not a JSON object", hint=_CREDENTIALS_HINT
        ) from None


def _account(name: str, content: dict[str, object]) -> Any:
    try:
        return _of_account(content, scopes=_SCOPES)
    except FAULTS:
        raise InvalidSettings(
            f"{name} cannot be used: it is not a service account's key", hint=_CREDENTIALS_HINT
        ) from None


_of_google: Any = AuthMetadataPlugin


class Tokens(grpc.AuthMetadataPlugin):  # type: ignore[misc] # grpc has no types
    """Passes tokens to gRPC, and errors without secrets, because gRPC logs errors and adds them to the call's."""

    def __init__(self, credentials: Any, host: str) -> None:
        self._plugin = _of_google(credentials, Request(), default_host=host)

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            self._plugin(context, callback)
        except FAULTS as error:
            is_temporary = isinstance(error, TransportError | OSError) or getattr(error, "retryable", False)
            callback((), NoToken(f"{NOT_RENEWED if is_temporary else NOT_ACCEPTED} ({type(error).__name__})"))


class NoToken(Exception):
    """There is no token for a call."""


class FirestoreClient:
    """Created by `open_firestore`. Any number of coroutines of one event loop may share it."""

    def __init__(self, calls: Calls, layout: Layout, raw_store: RawStore, settings: FirestoreSettings) -> None:
        self._leases = FirestoreLeases(calls, layout, settings)
        self._raw_files = RawUploads(raw_store)
        self._tasks = Tasks(calls, layout, self._leases, settings)
        self._results = Results(calls, layout, self._raw_files)
        self._fleet = Fleet(calls, layout, self._leases)
        self._selector_stats = SelectorStats(calls, layout)

    async def get_work(self, capacity: int, platforms: Sequence[str]) -> Work:
        return await self._tasks.claim(capacity, platforms)

    async def submit_results(self, entries: Sequence[OutboxEntry]) -> Submitted:
        return await self._results.submit(entries)

    async def upload_raw_file(self, entry: OutboxEntry, path: Path) -> None:
        await self._raw_files.upload(entry, path)

    async def report_end(self, entry: OutboxEntry, artifacts: Sequence[ArtifactKind] = ()) -> Sequence[ArtifactKind]:
        await self._tasks.end(entry)
        return ()

    async def upload_artifact(self, task_id: str, kind: ArtifactKind, path: Path) -> None:
        raise NotOffered("Firestore keeps no artifacts")

    async def heartbeat(self, beat: Heartbeat) -> HeartbeatReply:
        return await self._fleet.heartbeat(beat)

    async def extend_leases(self, leases: Sequence[Lease]) -> Sequence[Lease]:
        return await self._leases.extend(leases)

    async def submit_signals(self, signals: Sequence[Signal], first_id: str) -> None:
        await self._selector_stats.count(signals, first_id)

    async def submit_metrics(self, samples: Sequence[MetricsSample]) -> None:
        await self._fleet.add_samples(samples)

    async def get_selectors(self, platform: str) -> Sequence[RankedSelector]:
        return await self._selector_stats.selectors(platform)


EMULATOR_VARIABLE = "FIRESTORE_EMULATOR_HOST"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"

_HOST = FirestoreGrpcAsyncIOTransport.DEFAULT_HOST
_EMULATOR_PROJECT = "parcelpost-emulator"
_CHANNEL = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # The worker decides when to call again; by default a channel would delay it by up to two minutes.
    ("grpc.initial_reconnect_backoff_ms", 100),
    ("grpc.max_reconnect_backoff_ms", 1_000),
]


class _Access(NamedTuple):
    channel: Any
    project: str
    metadata: tuple[tuple[str, str], ...] = ()
    place: str = "Firestore"


@asynccontextmanager
async def open_firestore(
    settings: FirestoreSettings, environment: Mapping[str, str], worker_id: str, time: Time
) -> AsyncIterator[FirestoreClient]:
    """Connects on the first call. Raises InvalidSettings, which never quotes a key."""
    host = environment.get(EMULATOR_VARIABLE, "")
    access = _emulator(host, settings, environment) if host else await _google(settings, environment)
    database = f"projects/{access.project}/databases/{settings.database}"
    metadata = (("google-cloud-resource-prefix", database), *access.metadata)
    try:
        raw_store = open_any_raw_store(
            settings.raw, environment, setting="firestore.raw", google_key_file=settings.credentials_file
        )
        api = FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(channel=access.channel))
        calls = Calls(api, database, settings.timeout_seconds, time, metadata, access.place)
        yield FirestoreClient(calls, Layout(database, settings.root.strip("/"), worker_id), raw_store, settings)
    finally:
        await access.channel.close()


def _emulator(host: str, settings: FirestoreSettings, environment: Mapping[str, str]) -> _Access:
    project = settings.project or environment.get(PROJECT_VARIABLE) or _EMULATOR_PROJECT
    channel = grpc.aio.insecure_channel(host, options=_CHANNEL)
    place = f"Firestore's emulator at {host} ({EMULATOR_VARIABLE})"
    return _Access(channel, project, (("authorization", "Bearer owner"),), place)


async def _google(settings: FirestoreSettings, environment: Mapping[str, str]) -> _Access:
    credentials, their_project = await asyncio.to_thread(find_credentials, settings.credentials_file, environment)
    project = settings.project or environment.get(PROJECT_VARIABLE) or their_project
    if not project:
        raise InvalidSettings("no Firestore project is set", hint=f"set firestore.project or {PROJECT_VARIABLE}")
    tokens = grpc.metadata_call_credentials(Tokens(credentials, _HOST))
    secure = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), tokens)
    return _Access(grpc.aio.secure_channel(f"{_HOST}:443", secure, options=_CHANNEL), project)
