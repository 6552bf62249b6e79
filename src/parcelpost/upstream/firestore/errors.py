"""Translates Firestore's errors into ours, with the same meanings as HTTP statuses."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager

import grpc
from google.api_core.exceptions import GoogleAPICallError
from google.rpc.error_details_pb2 import RetryInfo

from parcelpost.errors import Refused, TooLarge, Unauthorized, Unavailable, UpstreamError
from parcelpost.protocol import payloads

QUOTA_REST_SECONDS = 300.0
"""Wait after an exhausted quota."""

_MAX_MESSAGE_CHARS = 300
_MAX_LINK_CHARS = 4_000
"""The message about a missing index ends with a link that creates it, which must not be truncated."""
_TOO_LARGE = re.compile(r"too (large|big)|exceeds the (maximum|limit)|maximum .{0,40}size", re.IGNORECASE)
_LARGE_MESSAGE = re.compile(r"message larger than max", re.IGNORECASE)
"""gRPC's own RESOURCE_EXHAUSTED; Firestore's always means a quota."""
_LOST_TRANSACTION = re.compile(r"transaction.{0,40}(expired|no longer valid|closed)|invalid transaction", re.IGNORECASE)

NOT_RENEWED = "the credentials could not be renewed"
NOT_ACCEPTED = "the credentials are not accepted"
"""Messages of `client.Tokens` when there is no token for a call."""

_ACCESS_HINT = (
    "check firestore.project, firestore.database and the credentials: their account needs the role 'Cloud Datastore "
    "User' (roles/datastore.user); everything is stored locally until then"
)
_INDEX_HINT = (
    "deploy the indexes that 'parcelpost firestore show indexes' prints, and wait until they "
    "are built; everything is stored locally until then"
)
_MODE_HINT = (
    "check that firestore.database is in native mode, not in Datastore mode, and is neither disabled nor being "
    "restored; everything is stored locally until then"
)
_WAIT_HINT = "no action needed: everything is stored locally and sent when Firestore is back"
_QUOTA_HINT = "check the project's quota and billing; everything is stored locally and sent later"
_REJECTED_HINT = "see 'parcelpost results list --delivery rejected'; rejected results are kept and can be sent again"

_Code = grpc.StatusCode


class Conflict(Unavailable):
    """Another worker changed the same documents."""


@contextmanager
def translated_errors(call: str, *, may_refuse: bool = False, needs_index: bool = False) -> Iterator[None]:
    """Raises Firestore's errors as ours, with messages that start with `call`.

    Only a call with `may_refuse` raises Refused and TooLarge; otherwise an operator must act. A failed precondition of
    a call with `needs_index` means that the index is missing.
    """
    try:
        yield
    except GoogleAPICallError as error:
        raise _translated(call, error, may_refuse, needs_index) from None


def _translated(call: str, error: GoogleAPICallError, may_refuse: bool, needs_index: bool) -> UpstreamError:
    code, text = error.grpc_status_code or _Code.UNKNOWN, str(error.message or "")
    max_chars = _MAX_MESSAGE_CHARS if code is not _Code.FAILED_PRECONDITION else _MAX_LINK_CHARS
    reason = code.name.lower().replace("_", " ")
    message = f"{call}: {reason}: {payloads.one_line(text)}"[:max_chars].rstrip(": ")
    if code is _Code.ABORTED or (code in _TRANSACTION_CODES and _LOST_TRANSACTION.search(text)):
        return Conflict(message, hint=_WAIT_HINT)
    if (code in _BAD_REQUEST and _TOO_LARGE.search(text)) or _LARGE_MESSAGE.search(text):
        return TooLarge(message, hint=_REJECTED_HINT) if may_refuse else Unauthorized(message, hint=_ACCESS_HINT)
    if code in {_Code.INVALID_ARGUMENT, _Code.OUT_OF_RANGE, _Code.ALREADY_EXISTS} and may_refuse:
        return Refused(message, hint=_REJECTED_HINT)
    if code is _Code.RESOURCE_EXHAUSTED:
        wait = max(QUOTA_REST_SECONDS, _asked_wait(error))
        return Unavailable(message, retry_after=wait, hint=_QUOTA_HINT, responded=True)
    if code is _Code.FAILED_PRECONDITION:
        return Unauthorized(message, hint=_INDEX_HINT if needs_index else _MODE_HINT)
    if code in _OPERATOR_MUST_ACT or NOT_ACCEPTED in text:
        return Unauthorized(message, hint=_ACCESS_HINT)
    return Unavailable(message, retry_after=_asked_wait(error), hint=_WAIT_HINT)


_BAD_REQUEST = {_Code.INVALID_ARGUMENT, _Code.OUT_OF_RANGE}
_TRANSACTION_CODES = {_Code.INVALID_ARGUMENT, _Code.FAILED_PRECONDITION}
_OPERATOR_MUST_ACT = {
    _Code.PERMISSION_DENIED,
    _Code.UNAUTHENTICATED,
    _Code.NOT_FOUND,
    _Code.UNIMPLEMENTED,
    _Code.INVALID_ARGUMENT,
    _Code.OUT_OF_RANGE,
    _Code.ALREADY_EXISTS,
}


def _asked_wait(error: GoogleAPICallError) -> float:
    """Returns how many seconds Firestore wants us to wait."""
    waits = (detail.retry_delay.ToTimedelta() for detail in error.details if isinstance(detail, RetryInfo))
    return max((min(wait.total_seconds(), payloads.LONGEST_WAIT_SECONDS) for wait in waits), default=0.0)
