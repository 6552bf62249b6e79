"""A parser that can be improved, and stored pages for it. As a program: reads again until it is killed."""

from __future__ import annotations

import asyncio
import os
import sys
from pathlib import Path

from parcelpost.clock import SystemClock
from parcelpost.model import Done, Outcome, Page, Retry, Target
from parcelpost.scrapers.platform import Parse
from parcelpost.storage import LocalPersistenceManager
from parcelpost.storage.reparse import Filters
from parcelpost.worker import reparse
from parcelpost.worker.reparse import Counts, Reparse


def reading(version: int) -> Parse:
    """`name;name`: one record each. The second version writes them in capitals."""

    def parse(page: Page, target: Target) -> Outcome:
        names = page.body.decode().split(";")
        if "unreadable" in names and version > 1:
            return Retry("what is this?")
        told = [name.upper() if version > 1 and name != "same" else name for name in names]
        of_several = [{"parcel_id": f"{target.parcel_id}-{number}"} for number in range(len(told))]
        own = of_several if len(told) > 1 else [{"parcel_id": target.parcel_id}]
        records = [{**one, "owner": name, "parser_version": version} for one, name in zip(own, told, strict=True)]
        return Done(data=records[0], additional_records=tuple(records[1:]), page=page)

    return parse


async def main(store: Path, a_look: int) -> None:
    reparse._BATCH = a_look
    async with LocalPersistenceManager.open(store) as lpm:
        work = Reparse(lpm, lambda _: reading(2), Filters(), SystemClock())
        await work.run("killed", say)


def say(counts: Counts) -> None:
    os.write(1, f"{counts.changed}\n".encode())


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), int(sys.argv[2])))
