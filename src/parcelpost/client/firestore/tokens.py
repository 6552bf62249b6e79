"""The token that goes with each call. What Google's library says where there is none may hold a part of a key."""

from __future__ import annotations

from typing import Any

import grpc
from google.auth.exceptions import TransportError
from google.auth.transport.grpc import AuthMetadataPlugin
from google.auth.transport.requests import Request

from parcelpost.client.firestore.credentials import FAULTS
from parcelpost.client.firestore.failures import NOT_RENEWED, NOT_TAKEN

_of_google: Any = AuthMetadataPlugin


class Tokens(grpc.AuthMetadataPlugin):  # type: ignore[misc] # grpc has no types
    """Told to gRPC in our own words: gRPC would log whatever else is raised here, and put it into the call's error."""

    def __init__(self, credentials: Any, host: str) -> None:
        self._plugin = _of_google(credentials, Request(), default_host=host)

    def __call__(self, context: Any, callback: Any) -> None:
        try:
            self._plugin(context, callback)
        except FAULTS as error:
            is_passing = isinstance(error, TransportError | OSError) or getattr(error, "retryable", False)
            callback((), NoToken(f"{NOT_RENEWED if is_passing else NOT_TAKEN} ({type(error).__name__})"))


class NoToken(Exception):
    """There is no token for a call."""
