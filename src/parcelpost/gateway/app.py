"""The gateway as an ASGI application."""

from __future__ import annotations

from fastapi import FastAPI

from parcelpost.gateway import dashboard, docs_page, pages, problems, read_api, worker_api
from parcelpost.gateway.headers import Headers
from parcelpost.gateway.parts import Parts


def make_app(parts: Parts) -> FastAPI:
    app = FastAPI(
        title="Parcelpost gateway",
        version=parts.version,
        docs_url=None,
        redoc_url=None,
        redirect_slashes=False,  # the address would be that of the Host header, which anybody may write
    )
    app.add_middleware(Headers, answered=parts.tally.answered)
    problems.answer_for(app, parts)
    for router in (
        worker_api.router(parts),
        *read_api.routers(parts),
        pages.router(parts),
        docs_page.router(app),
        dashboard.router(),
    ):
        app.routes.extend(router.routes)  # include_router would build each of them again
    return app
