"""Platform code of all kinds, and how it is put on a stage."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

from parcelpost.model import Done, Outcome, Task
from parcelpost.scrapers.platform import Scrape
from parcelpost.worker.sandbox import Sandbox
from tests.storage.factories import a_task

LONG = 60.0
"""Seconds that no test takes."""
DONE = Done(data={"owner": "Ann"})
TASK = a_task()


async def run(stage: Sandbox, scrape: Scrape, timeout: float = LONG) -> Outcome | None:
    return await asyncio.wait_for(stage.run(scrape, TASK, timeout), LONG)


async def is_usable(stage: Sandbox) -> bool:
    """For the next task, whoever's it is."""
    return stage.is_free and await run(stage, answering(DONE)) == DONE


def answering(value: Any) -> Scrape:
    async def scrape(_: Task) -> Outcome:
        return value  # type: ignore[no-any-return]

    return scrape


async def hang(_: Task) -> Outcome:
    await asyncio.Event().wait()
    raise AssertionError


async def refuse(_: Task) -> Outcome:
    """Goes on when it is cancelled."""
    while True:
        try:
            await asyncio.sleep(LONG)
        except asyncio.CancelledError:
            continue


def blocks_its_loop(release: threading.Event) -> Scrape:
    async def scrape(_: Task) -> Outcome:
        release.wait(LONG)
        return DONE

    return scrape


def blocks_in_a_plain_function(release: threading.Event) -> Scrape:
    def scrape(_: Task) -> Outcome:
        release.wait(LONG)
        return DONE

    return scrape


def blocks_in_a_helper_thread(release: threading.Event) -> Scrape:
    async def scrape(_: Task) -> Outcome:
        await asyncio.to_thread(release.wait, LONG)
        return DONE

    return scrape


def leaves_a_helper_thread_blocked(release: threading.Event) -> Scrape:
    async def scrape(_: Task) -> Outcome:
        asyncio.get_running_loop().run_in_executor(None, release.wait, LONG)
        return DONE

    return scrape
