"""The browsers of a store's workers, as the store has them."""

from __future__ import annotations

from datetime import datetime
from pathlib import Path
from typing import Literal

from msgspec import Struct
from msgspec.structs import asdict

from parcelpost.cli.running import looking
from parcelpost.model import BrowserState
from parcelpost.storage import locks
from parcelpost.storage.browsers import Browsers
from parcelpost.storage.db import LocalDatabase


class SeenBrowser(Struct, frozen=True, kw_only=True):
    browser_id: int
    status: Literal["idle", "busy", "crashed", "restarting", "starting"]
    """starting: for the first time."""
    current_task_id: str | None
    tasks_completed: int
    launches: int
    memory_mb: int | None
    pid: int | None
    created_at: datetime
    restarted_at: datetime | None
    last_health_check: datetime
    owner: str
    owner_lives: bool


async def seen(store: Path) -> list[SeenBrowser]:
    async with looking(store) as database:
        return await seen_in(database, store)


async def seen_in(database: LocalDatabase, store: Path) -> list[SeenBrowser]:
    live = locks.live_folder(store)
    states = await Browsers(database, live).all()
    return [_seen(one, owner_lives=locks.is_alive(live, one.owner)) for one in states]


def _seen(state: BrowserState, *, owner_lives: bool) -> SeenBrowser:
    """Without what only those need who clean up."""
    is_first = state.status == "restarting" and state.launches <= 1 and state.pid is None
    known = {name: value for name, value in asdict(state).items() if name in SeenBrowser.__struct_fields__}
    return SeenBrowser(**{**known, "status": "starting" if is_first else state.status}, owner_lives=owner_lives)
