"""From settings to a client of Firestore: credentials, the channel, the store of raw files."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from typing import Any, NamedTuple

import grpc
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

from parcelpost.client.firestore.calls import Calls, Time
from parcelpost.client.firestore.client import FirestoreClient
from parcelpost.client.firestore.credentials import find_credentials
from parcelpost.client.firestore.layout import Layout
from parcelpost.client.firestore.tokens import Tokens
from parcelpost.errors import InvalidSettings
from parcelpost.raw_store import open_any_raw_store
from parcelpost.settings.keys import FirestoreSettings

EMULATOR_VARIABLE = "FIRESTORE_EMULATOR_HOST"
PROJECT_VARIABLE = "GOOGLE_CLOUD_PROJECT"

_HOST = FirestoreGrpcAsyncIOTransport.DEFAULT_HOST
_EMULATOR_PROJECT = "parcelpost-emulator"
_CHANNEL = [
    ("grpc.keepalive_time_ms", 30_000),
    ("grpc.max_send_message_length", -1),
    ("grpc.max_receive_message_length", -1),
    # When to call again is for the worker to decide: a channel must not hold it up for two minutes more.
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
    credentials, of_credentials = await asyncio.to_thread(find_credentials, settings.credentials_file, environment)
    project = settings.project or environment.get(PROJECT_VARIABLE) or of_credentials
    if not project:
        raise InvalidSettings("no project is named for Firestore", hint=f"set firestore.project or {PROJECT_VARIABLE}")
    tokens = grpc.metadata_call_credentials(Tokens(credentials, _HOST))
    secure = grpc.composite_channel_credentials(grpc.ssl_channel_credentials(), tokens)
    return _Access(grpc.aio.secure_channel(f"{_HOST}:443", secure, options=_CHANNEL), project)
