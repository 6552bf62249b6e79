"""What Firestore's errors mean to the worker: the same table as HTTP's."""

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
"""A used-up quota does not come back by being asked for."""

_MOST_SAID_CHARS = 300
_MOST_OF_A_LINK_CHARS = 4_000
"""What is said of a missing index ends with the address that makes it, which is of no use without its end."""
_TOO_LARGE = re.compile(r"too (large|big)|exceeds the (maximum|limit)|maximum .{0,40}size", re.IGNORECASE)
_LARGE_MESSAGE = re.compile(r"message larger than max", re.IGNORECASE)
"""What gRPC itself says as RESOURCE_EXHAUSTED; of Firestore, that is a quota, whatever it exceeds."""
_LOST_TRANSACTION = re.compile(r"transaction.{0,40}(expired|no longer valid|closed)|invalid transaction", re.IGNORECASE)

NOT_RENEWED = "the credentials could not be renewed"
NOT_TAKEN = "the credentials are not taken"
"""What `tokens.Tokens` says where a call needs a token and there is none."""

_WHO = (
    "check firestore.project, firestore.database and the credentials: their account needs the role 'Cloud Datastore "
    "User' (roles/datastore.user); everything is kept here meanwhile"
)
_INDEX = (
    "deploy the indexes that 'parcelpost firestore show indexes' prints, and wait until they "
    "are built; everything is kept here meanwhile"
)
_MODE = (
    "check that firestore.database is in native mode, not in Datastore mode, and is neither disabled nor being "
    "restored; everything is kept here meanwhile"
)
_REST = "nothing to do: everything is kept here and sent when Firestore is back"
_QUOTA = "look at the project's quota and billing; everything is kept here, and tried again later"
_REJECTED = (
    "look at 'parcelpost results list --delivery rejected'; what is refused is kept and can be sent again by hand"
)

_Code = grpc.StatusCode


class Conflict(Unavailable):
    """Somebody else was at the same documents."""


@contextmanager
def in_our_words(call: str, *, may_refuse: bool = False, needs_index: bool = False) -> Iterator[None]:
    """`call`: whom we ask, and for what.

    Only one that `may_refuse` raises Refused and TooLarge: elsewhere a person must look. A failed precondition of one
    that `needs_index` is its absence.
    """
    try:
        yield
    except GoogleAPICallError as error:
        raise _translated(call, error, may_refuse, needs_index) from None


def _translated(call: str, error: GoogleAPICallError, may_refuse: bool, needs_index: bool) -> UpstreamError:
    code, text = error.grpc_status_code or _Code.UNKNOWN, str(error.message or "")
    most = _MOST_SAID_CHARS if code is not _Code.FAILED_PRECONDITION else _MOST_OF_A_LINK_CHARS
    said = _say(call, code.name.lower().replace("_", " "), text, most)
    if code is _Code.ABORTED or (code in _OF_A_TRANSACTION and _LOST_TRANSACTION.search(text)):
        return Conflict(said, hint=_REST)
    if (code in _BAD_REQUEST and _TOO_LARGE.search(text)) or _LARGE_MESSAGE.search(text):
        return TooLarge(said, hint=_REJECTED) if may_refuse else Unauthorized(said, hint=_WHO)
    if code in {_Code.INVALID_ARGUMENT, _Code.OUT_OF_RANGE, _Code.ALREADY_EXISTS} and may_refuse:
        return Refused(said, hint=_REJECTED)
    if code is _Code.RESOURCE_EXHAUSTED:
        return Unavailable(said, retry_after=max(QUOTA_REST_SECONDS, _asked_wait(error)), hint=_QUOTA)
    if code is _Code.FAILED_PRECONDITION:
        return Unauthorized(said, hint=_INDEX if needs_index else _MODE)
    if code in _A_PERSON_MUST_LOOK or NOT_TAKEN in text:
        return Unauthorized(said, hint=_WHO)
    return Unavailable(said, retry_after=_asked_wait(error), hint=_REST)


_BAD_REQUEST = {_Code.INVALID_ARGUMENT, _Code.OUT_OF_RANGE}
_OF_A_TRANSACTION = {_Code.INVALID_ARGUMENT, _Code.FAILED_PRECONDITION}
_A_PERSON_MUST_LOOK = {
    _Code.PERMISSION_DENIED,
    _Code.UNAUTHENTICATED,
    _Code.NOT_FOUND,
    _Code.UNIMPLEMENTED,
    _Code.INVALID_ARGUMENT,
    _Code.OUT_OF_RANGE,
    _Code.ALREADY_EXISTS,
}


def _asked_wait(error: GoogleAPICallError) -> float:
    """Seconds that Firestore asks to be left alone."""
    waits = (detail.retry_delay.ToTimedelta() for detail in error.details if isinstance(detail, RetryInfo))
    return max((min(wait.total_seconds(), payloads.LONGEST_WAIT_SECONDS) for wait in waits), default=0.0)


def _say(call: str, what: str, text: str, most: int = _MOST_SAID_CHARS) -> str:
    return f"{call}: {what}: {payloads.one_line(text)}"[:most].rstrip(": ")
