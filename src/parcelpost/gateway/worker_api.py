"""What workers ask for: the contract's routes."""

from __future__ import annotations

from datetime import timedelta

from fastapi import APIRouter, Request
from starlette.responses import Response

from parcelpost import wire
from parcelpost.gateway.access import Access
from parcelpost.gateway.parts import Parts
from parcelpost.gateway.refusals import Refusal

_MOST_TASKS = 100


def router(parts: Parts) -> APIRouter:
    access = Access(parts.settings, parts.tokens)
    routes = APIRouter(prefix=parts.settings.base_path.rstrip("/"), tags=["workers"])

    @routes.get("/work")
    async def work(request: Request) -> Response:
        worker_id = access.worker(request)
        platforms = request.query_params.getlist("platforms")
        if not platforms:
            raise Refusal(422, "platforms must be given, once for each platform")
        capacity = min(max(int(request.query_params.get("capacity", "1")), 1), _MOST_TASKS)
        now = parts.clock.now()
        until = now + timedelta(seconds=parts.settings.lease_seconds)
        granted = await parts.ledger.grant(worker_id, platforms, capacity, now, until)
        tasks = [wire.task_words(one.task, one.attempt, one.created_at) for one in granted]
        return Response(wire.answer(wire.WorkWords(tasks, 5 if tasks else 30)), media_type="application/json")

    return routes
