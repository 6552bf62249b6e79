"""Tasks as documents, for the tests of Firestore."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from typing import Any

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
