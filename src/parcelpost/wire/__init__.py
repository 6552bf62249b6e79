"""The Gateway's words <-> the model: pure functions, no I/O. `answers` and `requests` are the gateway's side of it.

Whatever an answer holds is foreign until it is read here. A `read_` function raises NotNow, and nothing else, for an
answer that is not what the contract says; what it gives back is bounded and typed. A `_body` function makes the body of
a request.
"""

from parcelpost.wire.answers import (
    AcceptedWords,
    BeatWords,
    EndWords,
    ProblemWords,
    RawFileWords,
    ReceiptWords,
    ResultsWords,
    SelectorsWords,
    SelectorWords,
    TaskWords,
    WorkWords,
    answer,
    error_answer,
    task_words,
)
from parcelpost.wire.duties import (
    FoundSelector,
    Heard,
    expiry_body,
    failure_body,
    heartbeat_body,
    metrics_body,
    read_end,
    read_heard,
    read_receipt,
    read_selectors,
    signals_body,
)
from parcelpost.wire.raw_files import raw_file_metadata, raw_file_name, read_raw_file
from parcelpost.wire.reading import error_text, one_line
from parcelpost.wire.requests import MOST_NAME_BYTES, MOST_RESULTS, BadEntry, ReadResult, read_batch
from parcelpost.wire.results import BatchAnswer, EntryReceipt, read_results, results_body
from parcelpost.wire.sent_duties import (
    RawMetadata,
    SentBeat,
    SentEnd,
    SentSample,
    read_beat,
    read_completion,
    read_failure,
    read_raw_metadata,
    read_samples,
    read_signals,
)
from parcelpost.wire.waits import LONGEST_WAIT_SECONDS, rest_seconds, wait_seconds
from parcelpost.wire.work import UnreadTask, WorkAnswer, read_work

__all__ = [
    "LONGEST_WAIT_SECONDS",
    "MOST_NAME_BYTES",
    "MOST_RESULTS",
    "AcceptedWords",
    "BadEntry",
    "BatchAnswer",
    "BeatWords",
    "EndWords",
    "EntryReceipt",
    "FoundSelector",
    "Heard",
    "ProblemWords",
    "RawFileWords",
    "RawMetadata",
    "ReadResult",
    "ReceiptWords",
    "ResultsWords",
    "SelectorWords",
    "SelectorsWords",
    "SentBeat",
    "SentEnd",
    "SentSample",
    "TaskWords",
    "UnreadTask",
    "WorkAnswer",
    "WorkWords",
    "answer",
    "error_answer",
    "error_text",
    "expiry_body",
    "failure_body",
    "heartbeat_body",
    "metrics_body",
    "one_line",
    "raw_file_metadata",
    "raw_file_name",
    "read_batch",
    "read_beat",
    "read_completion",
    "read_end",
    "read_failure",
    "read_heard",
    "read_raw_file",
    "read_raw_metadata",
    "read_receipt",
    "read_results",
    "read_samples",
    "read_selectors",
    "read_signals",
    "read_work",
    "rest_seconds",
    "results_body",
    "signals_body",
    "task_words",
    "wait_seconds",
]
