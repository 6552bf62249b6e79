"""Checks of the backups: none, too old, or unusable; and what to restore if the store is damaged."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable
from datetime import timedelta
from pathlib import Path

from parcelpost.cli.health.check_result import CheckContext, CheckResult
from parcelpost.cli.settings_options import StoreContext, store_command
from parcelpost.health_checks import Finding
from parcelpost.storage import backup, health, salvage
from parcelpost.storage.snapshot import never
from parcelpost.units import age

_BACKUP_IS_OLD = timedelta(days=2)
_FIRST_BACKUP_IS_DUE = timedelta(hours=26)  # one is made every day at a set hour
_MAX_BACKUPS_TRIED = 10


def backup_findings(store: StoreContext, state: health.Health) -> list[Finding]:
    command = store_command("backup", store)
    newest = state.newest_backup_age_seconds
    if newest is None:
        is_due = state.last_change and state.age_seconds > _FIRST_BACKUP_IS_DUE.total_seconds()
        return [Finding.of("backup.none", "there is no backup yet", f"run '{command}'", command)] if is_due else []
    if newest <= _BACKUP_IS_OLD.total_seconds():
        return []
    return [Finding.of("backup.old", f"the newest backup is {age(newest)} old", f"run '{command}'", command)]


async def check_newest_backup(case: CheckContext) -> list[CheckResult]:
    backups = backup.list_backups(case.store.path)
    if not backups:
        return []
    wrong = await asyncio.to_thread(backup.problem, backups[-1], deep=case.deep, is_over=case.deadline())
    if not wrong:
        return [CheckResult("backup", f"{backups[-1]} can be restored")]
    command = store_command("backup", case.store)
    message = f"the newest backup, {backups[-1]}, cannot be restored: {wrong}"
    return [CheckResult("backup", "", [Finding.of("backup.unusable", message, f"run '{command}'", command)])]


def damage_finding(store: StoreContext, message: str, is_over: Callable[[], bool] = never) -> Finding:
    """Suggests the newest backup that is intact."""
    backups = backup.list_backups(store.path)
    good = newest_good_backup(store, is_over) if backups else None
    is_newest = good is None or good == backups[-1]
    restore = store_command("restore --latest --force", store) if backups else ""
    restore = restore if good is None or is_newest else restore_command(store, good)
    if salvage.can_be_read(store.path):
        command = store_command("salvage --replace", store)
        fix = f"stop the workers, then run '{command}', which keeps everything that can be read"
        fix += f", or restore a backup with '{restore}'" if restore else ""
        return Finding.of("store.damaged", message, fix, command)
    if restore:
        return Finding.of("store.damaged", message, f"stop the workers, then run '{restore}'", restore)
    fix = f"there is no backup; copy the file and recover what can be read with 'sqlite3 {store.path} .recover'"
    return Finding.of("store.damaged", message, fix)


def restore_command(store: StoreContext, source: Path) -> str:
    return store_command(f"restore {shlex.quote(str(source))} --force", store)


def newest_good_backup(store: StoreContext, is_over: Callable[[], bool]) -> Path | None:
    for candidate in backup.candidates(store.path)[:_MAX_BACKUPS_TRIED]:
        try:
            if not backup.problem(candidate, is_over=is_over):
                return candidate
        except TimeoutError:
            return None
    return None
