"""Credentials: found, read and never told. What the library says of a bad key may hold a part of it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import google.auth
import msgspec
from cryptography.exceptions import UnsupportedAlgorithm
from google.auth.exceptions import GoogleAuthError
from google.cloud.firestore_v1.services.firestore.transports import FirestoreGrpcAsyncIOTransport
from google.oauth2 import service_account

from parcelpost.errors import InvalidSettings

KEY_VARIABLE = "GOOGLE_APPLICATION_CREDENTIALS"

_of_account: Any = service_account.Credentials.from_service_account_info
_SCOPES = FirestoreGrpcAsyncIOTransport.AUTH_SCOPES
_SETTING = "firestore.credentials_file"
_OF_ACCOUNT = "service_account"
FAULTS = (GoogleAuthError, UnsupportedAlgorithm, ValueError, TypeError, AttributeError, LookupError, OSError)
"""What the library raises for a file, or an answer, that is not what it expects. Its words are not for a log."""
_HOW = f"name a service account's key with {_SETTING} or {KEY_VARIABLE}, or run 'gcloud auth application-default login'"


def find_credentials(key_file: str, environment: Mapping[str, str]) -> tuple[Any, str]:
    """And the project that they are of, '' if they do not say. Raises InvalidSettings."""
    credentials = read_named(key_file, environment)
    if credentials is not None:
        return credentials, credentials.project_id or ""
    named = environment.get(KEY_VARIABLE, "")
    try:
        credentials, project = google.auth.default(scopes=_SCOPES)
    except FAULTS:
        problem = f"{KEY_VARIABLE} {named} cannot be used" if named else "there are no credentials for Firestore"
        raise InvalidSettings(problem, hint=_HOW) from None
    return credentials, project or ""


def read_named(key_file: str, environment: Mapping[str, str]) -> Any:
    """Those of the service account whose key the operator names. None: there is no such name, or of something else.

    Raises InvalidSettings for a file that cannot be used.
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
        raise InvalidSettings(f"{name} {file} cannot be read: {error.strerror}", hint=_HOW) from None
    except (ValueError, RecursionError):
        raise InvalidSettings(f"{name} {file} cannot be used: it is no JSON object", hint=_HOW) from None


def _account(what: str, content: dict[str, object]) -> Any:
    try:
        return _of_account(content, scopes=_SCOPES)
    except FAULTS:
        raise InvalidSettings(f"{what} cannot be used: it is no service account's key", hint=_HOW) from None
