"""The same results for every contender: bodies of 100, each of another parcel and task, made before any clock runs."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import islice

import msgspec

from bench.store.work import PLATFORM, SCRAPED_AT, make_tasks, make_work
from parcelpost.model import Task

BATCH = 100
CONNECTIONS = 8

_RECORDS = 1_000


def bodies(batches: int) -> Iterator[bytes]:
    """What workers post, batch by batch."""
    records = make_work(_RECORDS).records
    for batch, tasks in enumerate(batches_of_tasks(batches)):
        yield msgspec.json.encode(
            [
                {
                    "task_id": task.task_id,
                    "parcel_id": task.target.parcel_id,
                    "platform": PLATFORM,
                    "state": task.target.state,
                    "county": task.target.county,
                    "data": records[(batch * BATCH + place) % _RECORDS],
                    "scraped_at": SCRAPED_AT,
                    "parse_duration_ms": 12,
                    "idempotency_key": f"{task.task_id}-{batch:056}",
                }
                for place, task in enumerate(tasks)
            ]
        )


def batches_of_tasks(batches: int) -> Iterator[list[Task]]:
    """The tasks whose results the bodies hold."""
    tasks = make_tasks(batches * BATCH)
    for _ in range(batches):
        yield list(islice(tasks, BATCH))


def worker_of(batch: int) -> str:
    """Who holds a batch's tasks and posts their results: one worker for each connection."""
    return f"bench-{batch % CONNECTIONS}"
