"""Credentials that give no token: told by what happened, never in the words of Google's library."""

from __future__ import annotations

import logging
import re
from collections.abc import AsyncIterator
from typing import Any

import grpc
import pytest
from google.auth import exceptions
from google.cloud.firestore_v1.services.firestore import FirestoreAsyncClient
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport

from parcelpost.clock import SystemClock
from parcelpost.errors import Unauthorized, Unavailable, UpstreamError
from parcelpost.upstream.firestore.calls import Calls
from parcelpost.upstream.firestore.client import Tokens
from tests.firestore.server import FirestoreServer

GoogleAuthError: Any = exceptions.GoogleAuthError
RefreshError: Any = exceptions.RefreshError
TransportError: Any = exceptions.TransportError
SECRET = "-----BEGIN PRIVATE KEY----- MII"
DATABASE = "projects/p/databases/(default)"


class _Credentials:
    """As google.auth has them; at the edge of our program."""

    def __init__(self, error: Exception | None) -> None:
        self._error = error

    def before_request(self, request: Any, method: str, url: str, headers: dict[str, str]) -> None:
        if self._error:
            raise self._error
        headers["authorization"] = "Bearer good"


@pytest.fixture
async def secure() -> AsyncIterator[FirestoreServer]:
    """gRPC sends tokens only where it trusts the connection."""
    async with FirestoreServer(grpc.local_server_credentials()) as server:
        yield server


async def _call(server: FirestoreServer, error: Exception | None) -> None:
    tokens = grpc.metadata_call_credentials(Tokens(_Credentials(error), "firestore.googleapis.com"))
    trusted = grpc.composite_channel_credentials(grpc.local_channel_credentials(), tokens)
    async with grpc.aio.secure_channel(server.host, trusted) as channel:
        api = FirestoreAsyncClient(transport=FirestoreGrpcAsyncIOTransport(channel=channel))
        await Calls(api, DATABASE, 20.0, SystemClock()).get([f"{DATABASE}/documents/tasks/t1"])


FAULTS: list[tuple[Exception, type[UpstreamError], str]] = [
    (TransportError(SECRET), Unavailable, "could not be renewed (TransportError)"),
    (RefreshError(SECRET, retryable=True), Unavailable, "could not be renewed (RefreshError)"),
    (OSError(SECRET), Unavailable, "could not be renewed (OSError)"),
    (RefreshError(f"invalid_grant: {SECRET}", {"error": SECRET}), Unauthorized, "are not accepted (RefreshError)"),
    (GoogleAuthError(SECRET), Unauthorized, "are not accepted (GoogleAuthError)"),
    (ValueError(SECRET), Unauthorized, "are not accepted (ValueError)"),
]


@pytest.mark.parametrize(("fault", "meaning", "words"), FAULTS, ids=[str(number) for number in range(len(FAULTS))])
async def test_what_the_library_says_of_credentials_is_neither_told_nor_logged(
    secure: FirestoreServer,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
    fault: Exception,
    meaning: type[UpstreamError],
    words: str,
) -> None:
    with caplog.at_level(logging.DEBUG), pytest.raises(UpstreamError) as error:
        await _call(secure, fault)
    assert type(error.value) is meaning
    assert words in str(error.value)
    out, err = capfd.readouterr()
    said = (
        f"{error.value} {error.value.hint} {error.value.__cause__} {error.value.__context__} {caplog.text} {out} {err}"
    )
    assert not re.search("BEGIN|MII|invalid_grant", said)
    assert not secure.calls


async def test_a_token_goes_with_the_call(secure: FirestoreServer) -> None:
    await _call(secure, None)
    assert secure.credentials == ["Bearer good"]
