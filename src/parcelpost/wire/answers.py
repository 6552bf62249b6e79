"""What a gateway answers, in the contract's words. The worker reads these with the other modules of this room."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from parcelpost.model import Json, Task

_encode = msgspec.json.Encoder().encode


LEDGER_HEADER = "X-Ledger-ID"
"""In an answer: which ledger the gateway has. In a request: which one the worker means; another refuses it (421)."""
NO_LEDGER = "none"
"""In a request: a gateway that does not say which one it has."""


def read_ledger_id(headers: Mapping[str, str]) -> str:
    """As a gateway gives it in an answer; '': it gives none."""
    return "".join(sign for sign in headers.get(LEDGER_HEADER, "") if "!" <= sign <= "~")[:64]


def ledger_name(ledger_id: str) -> str:
    """For people."""
    return "one without a ledger id" if ledger_id in ("", NO_LEDGER) else f"the one with ledger {ledger_id[:64]}"


class TaskWords(Struct, frozen=True, kw_only=True, gc=False):
    task_id: str
    type: str
    platform: str
    target: Mapping[str, Json]
    priority: int
    created_at: datetime
    lease_expires_at: datetime | None
    attempt: int
    max_retries: int


class WorkWords(Struct, frozen=True):
    tasks: Sequence[TaskWords]
    retry_after: int


class ReceiptWords(Struct, frozen=True, omit_defaults=True, gc=False):
    task_id: str
    status: Literal["stored", "duplicate", "rejected"]
    error: str | UnsetType = UNSET


class ResultsWords(Struct, frozen=True, kw_only=True):
    inserted: int
    updated: int
    failed: int
    errors: Sequence[str] | None
    receipts: Sequence[ReceiptWords]


class RawFileWords(Struct, frozen=True):
    status: Literal["ok"]
    path: str


class EndWords(Struct, frozen=True):
    status: Literal["reported"]
    success: bool


class BeatWords(Struct, frozen=True):
    acknowledged: Literal[True]
    commands: Sequence[str]
    lease_expires_at: datetime | None = None
    """Until then run the leases that the worker got after `leases_since`; null where it holds nothing."""
    leases_since: datetime | None = None


class AcceptedWords(Struct, frozen=True):
    accepted: int
    failed: int


class SelectorWords(Struct, frozen=True, kw_only=True):
    platform: str
    field: str
    selector: str
    selector_type: str
    success_rate: float
    samples: int


class SelectorsWords(Struct, frozen=True):
    selectors: Sequence[SelectorWords]


class ErrorWords(Struct, frozen=True):
    code: str
    message: str


class ProblemWords(Struct, frozen=True):
    error: ErrorWords
    request_id: str


def task_words(task: Task, attempt: int, created_at: datetime) -> TaskWords:
    target = task.target
    words = {**target.extra, "parcel_id": target.parcel_id, "state": target.state, "county": target.county}
    return TaskWords(
        task_id=task.task_id,
        type=task.type,
        platform=task.platform,
        target={**words, "url": target.url} if target.url else words,
        priority=task.priority,
        created_at=created_at,
        lease_expires_at=task.lease_expires_at,
        attempt=attempt,
        max_retries=task.max_retries,
    )


def answer(words: Struct) -> bytes:
    return _encode(words)


def error_answer(code: str, message: str, request_id: str) -> bytes:
    return _encode(ProblemWords(ErrorWords(code, message), request_id))
