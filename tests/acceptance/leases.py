"""Leases for the tests' gateway: a task handed out and not heard of again comes back."""

from __future__ import annotations

import time
from collections.abc import Sequence

from tests.hostile import Entry, HostileGateway, Reply, Request


class Leases:
    """`gateway.play("work", Leases(gateway, tasks, seconds=2), times=None)`."""

    def __init__(self, gateway: HostileGateway, tasks: Sequence[Entry], seconds: float) -> None:
        self._gateway = gateway
        self._tasks = {task["task_id"]: task for task in tasks}
        self._seconds = seconds
        self._out: dict[str, float] = {}

    def __call__(self, _gateway: HostileGateway, request: Request) -> Reply:
        now = time.monotonic()
        for task_id, since in list(self._out.items()):
            if self._is_over(task_id):
                del self._out[task_id]
            elif now - since > self._seconds:
                self._out[task_id] = now
                self._gateway.offer(self._tasks[task_id])
        self._gateway.queue = [task for task in self._gateway.queue if not self._is_over(task["task_id"])]
        reply = self._gateway.answer(request)
        for task in (reply.body or {}).get("tasks") or []:
            self._out[task["task_id"]] = now
        if self._out and not reply.body.get("tasks"):
            reply.body["retry_after"] = 0.5  # some are still out: ask again soon
        return reply

    def _is_over(self, task_id: str) -> bool:
        gateway = self._gateway
        return task_id in gateway.submissions or any(task_id == failed for failed, _ in gateway.failed)
