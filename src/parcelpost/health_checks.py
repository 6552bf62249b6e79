"""The health model: what a check reports, the catalogue of all checks, and the thresholds that several of them share.

`doctor` runs them all, those of a gateway if its ledger is here. `status`, `store check`, `config check`, `browser
doctor`, `gateway status`, `top`, the worker's `/readyz`, the gateway's `/health` and its dashboard show the part that
concerns them, as the same objects.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from enum import StrEnum
from typing import NamedTuple

from msgspec import Struct


class Severity(StrEnum):
    ERROR = "error"
    WARNING = "warning"
    NOTE = "note"


class Check(NamedTuple):
    severity: Severity
    meaning: str
    blocks_work: bool = False
    """The worker starts no tasks, and its `/readyz` returns 503."""


_ERROR, _WARNING, _NOTE = Severity
_MIN_TASKS = 3  # fewer say little about a site
MANY_FAILURES = 0.05
"""Share of the ended tasks; more failures are worth a look."""
STALE_BELOW = 0.9
"""Share of a county's parcels; if fewer are fresh, its schedule is behind."""

CHECKS: Mapping[str, Check] = {
    "store.missing": Check(_ERROR, "There is no store at this path."),
    "store.moved": Check(_ERROR, "A process has the store open, but its file was moved or deleted.", blocks_work=True),
    "store.unreadable": Check(
        _ERROR, "The store cannot be opened: missing permissions, not a store, or a newer schema."
    ),
    "store.outdated": Check(_ERROR, "The store's schema is older than this program requires."),
    "store.damaged": Check(_ERROR, "The database file is damaged."),
    "store.not_writable": Check(_ERROR, "A worker cannot write to the store.", blocks_work=True),
    "store.full": Check(
        _ERROR,
        "No space left: the store reached its size limit, or the disk is out of space or inodes.",
        blocks_work=True,
    ),
    "store.nearly_full": Check(_WARNING, "Little space left: no new tasks are collected.", blocks_work=True),
    "store.raw_folder_missing": Check(_ERROR, "The folder of raw pages is missing.", blocks_work=True),
    "store.page_unusable": Check(_ERROR, "The page of an undelivered result is missing or damaged."),
    "store.orphaned_pages": Check(_WARNING, "Pages that belong to no result."),
    "store.large_wal": Check(_WARNING, "The write-ahead log is unusually large."),
    "store.exposed": Check(_ERROR, "Other users can read or replace files of the store."),
    "store.wrong_owner": Check(_ERROR, "Some files of the store belong to a different user than the store."),
    "backup.none": Check(_WARNING, "There is no backup yet, and one is due."),
    "backup.old": Check(_WARNING, "The newest backup is more than two days old."),
    "backup.unusable": Check(_ERROR, "The newest backup cannot be restored."),
    "outbox.rejected": Check(_ERROR, "The upstream rejected results."),
    "upstream.unauthorized": Check(_ERROR, "The upstream rejected our credentials.", blocks_work=True),
    "upstream.reauthorized": Check(_WARNING, "A worker was rejected; the credentials set now are accepted."),
    "upstream.not_storing": Check(_ERROR, "The upstream responds but stores nothing it is sent."),
    "upstream.unreachable": Check(_ERROR, "The upstream did not respond when it was checked."),
    "upstream.replaced": Check(_ERROR, "A different gateway responds at a known address."),
    "upstream.offline": Check(_NOTE, "The upstream is offline or responds with errors; results are kept meanwhile."),
    "upstream.long_offline": Check(_WARNING, "The upstream has been offline or has had errors for more than a day."),
    "upstream.slow": Check(_NOTE, "The upstream is slow; results are sent in smaller batches."),
    "worker.not_running": Check(_ERROR, "There is work to do, but no worker is running."),
    "worker.stopped": Check(_NOTE, "The worker was stopped on purpose."),
    "worker.draining": Check(_NOTE, "The worker is about to stop.", blocks_work=True),
    "worker.crashed": Check(_ERROR, "A process crashed with the store open, and no worker is running."),
    "worker.hung": Check(_ERROR, "A process that has the store open does not respond."),
    "worker.stuck": Check(_ERROR, "A loop of the worker is stuck: restart it.", blocks_work=True),
    "worker.paused": Check(_WARNING, "The upstream has paused the worker.", blocks_work=True),
    "worker.low_memory": Check(_WARNING, "Memory is low: no tasks are started.", blocks_work=True),
    "worker.tight_memory": Check(_NOTE, "Memory is tight: the worker is slowed down."),
    "tasks.failing": Check(_WARNING, "Many tasks failed in the last 24 hours."),
    "platform.needs_operator": Check(_ERROR, "An operator must first open a site in a browser."),
    "platform.all_paused": Check(_WARNING, "Every platform with tasks is paused temporarily."),
    "platform.paused": Check(_NOTE, "An operator has paused every platform with tasks."),
    "site.field_lost": Check(_WARNING, "A field is no longer found on the pages of a site."),
    "site.blocked": Check(_NOTE, "A site blocks workers, which pause and try it again later."),
    "site.selector_failed": Check(_NOTE, "A field is found, but not by its usual selectors."),
    "browser.waiting": Check(_ERROR, "Tasks wait because no browser can be started."),
    "browser.missing": Check(_ERROR, "No Chromium was found."),
    "browser.unusable": Check(_ERROR, "Chromium does not start or does not load a page."),
    "browser.disabled": Check(_ERROR, "`browser.most` is 0."),
    "browser.no_memory": Check(_ERROR, "There is too little memory to start a browser."),
    "browser.left_over": Check(_WARNING, "A crashed worker left browsers behind."),
    "settings.invalid": Check(_ERROR, "A worker cannot run with these settings."),
    "settings.incomplete": Check(_WARNING, "The settings name no gateway, and no worker needs one at the moment."),
    "settings.questionable": Check(_WARNING, "A setting works but is probably not what you want."),
    "clock.wrong": Check(_ERROR, "The clock shows an impossible date."),
    "clock.unknown_zone": Check(_WARNING, "`TZ` names an unknown time zone."),
    "clock.behind_store": Check(_WARNING, "The clock is behind the newest rows of the store."),
    "clock.tasks_waiting": Check(_ERROR, "The clock was set back, and tasks wait for a time in the future."),
    "clock.set_back": Check(_WARNING, "The clock was set back in the last 24 hours."),
    "clock.differs": Check(_WARNING, "The clock differs from the gateway's by more than a minute."),
    "clock.far_off": Check(_ERROR, "The clock differs from the gateway's by more than five minutes."),
    "check.timeout": Check(_WARNING, "A check did not finish in time."),
    "check.failed": Check(_ERROR, "A check could not be completed."),
    "ledger.unavailable": Check(_ERROR, "The gateway's ledger cannot be used."),
    "raw_store.not_writable": Check(_ERROR, "The gateway cannot store raw files."),
    "fleet.no_worker": Check(_ERROR, "The gateway has queued tasks, but no worker is online."),
    "fleet.stopped": Check(_NOTE, "The gateway has queued tasks, and its workers were stopped on purpose."),
    "fleet.paused": Check(_WARNING, "Every worker of the gateway is paused."),
    "fleet.worker_lost": Check(_NOTE, "A worker is offline with leased tasks; they return when the leases expire."),
    "fleet.undelivered": Check(_WARNING, "A worker is offline with results that it has not delivered."),
    "queue.dead": Check(_WARNING, "All leases of some tasks expired."),
    "queue.failed": Check(_WARNING, "Workers gave up on some tasks."),
    "webhook.failing": Check(_WARNING, "A webhook's receiver does not accept changes."),
    "webhook.gave_up": Check(_WARNING, "A webhook's receiver did not accept some changes for a day."),
    "schedule.failing": Check(
        _ERROR, "A schedule cannot run because of an error, or all tasks of its last run failed."
    ),
    "schedule.stale": Check(_WARNING, "A schedule is behind: some of its parcels were not scraped in time."),
    "schedule.resting": Check(_WARNING, "A scheduled run is on hold because the site blocks every worker."),
    "schedule.skipped": Check(_NOTE, "A scheduled run was skipped because the previous one was still in progress."),
    "queue.unclaimed": Check(_WARNING, "No online worker handles a platform that has queued tasks."),
}


class Finding(Struct, frozen=True, kw_only=True):
    """What a check found."""

    id: str
    """A key of `CHECKS`."""
    severity: Severity
    message: str
    fix: str
    """What to do about it."""
    command: str = ""
    """A shell command that fixes it; '' if the operator has to decide something first."""

    @classmethod
    def of(cls, check: str, message: str, fix: str, command: str = "") -> Finding:
        return cls(id=check, severity=CHECKS[check].severity, message=message, fix=fix, command=command)

    @property
    def is_error(self) -> bool:
        return self.severity is Severity.ERROR

    @property
    def is_problem(self) -> bool:
        """Whether it is more than a note."""
        return self.severity is not Severity.NOTE

    @property
    def blocks_work(self) -> bool:
        return CHECKS[self.id].blocks_work


def sort_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Returns errors first, then warnings, then notes; otherwise in the given order."""
    order = list(Severity)
    return sorted(findings, key=lambda finding: order.index(finding.severity))


def is_failing(succeeded: int, failed: int) -> bool:
    """Whether most tasks of a platform or site fail."""
    return succeeded + failed >= _MIN_TASKS and succeeded < failed


def is_ok(findings: Iterable[Finding]) -> bool:
    """Whether no finding is an error."""
    return not any(finding.is_error for finding in findings)
