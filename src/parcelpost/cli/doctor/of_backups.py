"""The newest backup: whether it could be used. Its age is told with the worker's state."""

from __future__ import annotations

import asyncio

from parcelpost.cli.doctor.of_store import until_over
from parcelpost.cli.doctor.report import Answer, Case
from parcelpost.cli.options import store_command
from parcelpost.cli.status_report import Problem
from parcelpost.storage import backup


async def newest(case: Case) -> list[Answer]:
    found = backup.list_backups(case.store)
    if not found:
        return []
    wrong = await asyncio.to_thread(backup.problem, found[-1], deep=case.deep, is_over=until_over(case))
    if not wrong:
        return [Answer("backups", f"{found[-1]} could be restored")]
    command = store_command("backup", case.store)
    what = f"the newest backup, {found[-1]}, could not be restored: {wrong}"
    return [Answer("backups", "", [Problem(what, f"make another with '{command}'", "backups", command)])]
