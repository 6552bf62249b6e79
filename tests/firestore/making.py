"""Tasks as documents, for the tests of Firestore."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

from parcelpost.model import Lease, Task
from tests.firestore.conftest import ROOT
from tests.firestore.server import FirestoreServer

BEGIN = datetime(2026, 11, 15, tzinfo=UTC)


def add_tasks(server: FirestoreServer, *task_ids: str, **changes: Any) -> None:
    """In that order."""
    documents = {}
    for number, task_id in enumerate(task_ids):
        task = {
            "status": "queued",
            "platform": "echo",
            "target": {"parcel_id": f"p-{task_id}", "state": "CT", "county": "hartford"},
            "priority": 3,
            "created_at": BEGIN + timedelta(seconds=number),
            **changes,
        }
        documents[f"{ROOT}/tasks/{task_id}"] = {name: value for name, value in task.items() if value is not ...}
    server.put(documents)


def task(server: FirestoreServer, task_id: str) -> dict[str, Any]:
    return server.all(f"{ROOT}/tasks")[task_id]


def lease_of(task: Task) -> Lease:
    """As the worker's store names it."""
    assert task.lease_expires_at is not None
    return Lease(task_id=task.task_id, lease_id=task.lease_id, expires_at=task.lease_expires_at)
