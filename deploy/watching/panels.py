"""What the dashboard shows, row by row."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from deploy.watching.series import series

_HERE = "~$worker"
"""The workers that were chosen."""


class Panel(NamedTuple):
    title: str
    lines: Mapping[str, str]
    """Legend -> expression."""
    unit: str = "short"
    text: str = ""
    kind: str = "timeseries"
    width: int = 8
    height: int = 8
    bad_from: float | None = None
    """A figure of this size and above is red."""


def _figure(title: str, expr: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    return Panel(title, {title: expr}, unit, kind="stat", width=4, height=4, bad_from=bad_from)


def _rate(name: str, by: str, **labels: str) -> str:
    return f"sum by ({by}) (rate({series(name, over='5m', **labels)}))"


def _slowest(name: str, share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({series(name, instance=_HERE, over='5m')})))"


_QUEUED = f"max(sum by (instance) ({series('gateway_tasks', state='queued')}))"

_FLEET = (
    _figure("Workers alive", f"max({series('gateway_workers_alive')})"),
    _figure("Queued", f"{_QUEUED} or vector(0)"),
    _figure("In workers' hands", f"max({series('gateway_leases')})"),
    _figure("To be delivered", f"max({series('gateway_unsynced')})"),
    _figure("Left in stores of silent workers", f"max({series('gateway_unsynced_left')})", bad_from=1),
    _figure("Tasks dead", f"max(sum by (instance) ({series('gateway_tasks', state='dead')})) or vector(0)", bad_from=1),
    Panel("Tasks by state", {"{{state}}": f"max by (state) (sum by (instance, state) ({series('gateway_tasks')}))"}),
    Panel("What happens at the gateway", {"{{outcome}}": _rate("gateway_events_total", "outcome")}, "ops"),
    Panel("Answers of the gateway", {"{{status}}": _rate("gateway_answers_total", "status")}, "reqps"),
    Panel(
        "Oldest queued task", {"{{platform}}": f"max by (platform) ({series('gateway_oldest_queued_seconds')})"}, "s"
    ),
    Panel("Oldest result on its way", {"oldest": f"max({series('gateway_oldest_unsynced_seconds')})"}, "s"),
    Panel("What the ledger holds", {"{{what}}": f"max by (what) ({series('gateway_rows')})"}),
)

_WORK = (
    Panel("Attempts by outcome", {"{{outcome}}": _rate("attempts_total", "outcome", instance=_HERE)}, "ops"),
    Panel("Attempts by platform", {"{{platform}}": _rate("attempts_total", "platform", instance=_HERE)}, "ops"),
    Panel(
        "Length of an attempt",
        {"half": _slowest("attempt_seconds_bucket", 0.5), "95 of 100": _slowest("attempt_seconds_bucket", 0.95)},
        "s",
    ),
    Panel(
        "Tasks in the stores",
        {"{{status}}": f"sum by (status) ({series('tasks', instance=_HERE, status='~pending|processing|failed')})"},
    ),
    Panel("Tasks received", {"{{kind}}": _rate("tasks_received_total", "kind", instance=_HERE)}, "ops"),
    Panel(
        "Platforms paused, fields broken",
        {
            "{{platform}} paused": f"max by (platform) ({series('platform_paused', instance=_HERE)})",
            "{{platform}} fields": f"max by (platform) ({series('broken_fields', instance=_HERE)})",
        },
    ),
)

_DELIVERY = (
    Panel("Outbox", {"{{instance}} {{state}}": series("outbox", instance=_HERE)}),
    Panel(
        "Oldest result not delivered",
        {"{{instance}}": series("oldest_seconds", instance=_HERE, what="unsynced_result")},
        "s",
    ),
    Panel("Delivered", {"{{kind}}": _rate("results_synced_total", "kind", instance=_HERE)}, "ops"),
    Panel(
        "Upstream answers",
        {"{{instance}}": f"max by (instance) ({series('upstream_up', instance=_HERE)})"},
        text="1: yes",
    ),
    Panel(
        "Length of a round",
        {"half": _slowest("sync_seconds_bucket", 0.5), "95 of 100": _slowest("sync_seconds_bucket", 0.95)},
        "s",
    ),
    Panel(
        "Refused and rejected",
        {
            "refused": f"sum(increase({series('entries_refused_total', instance=_HERE, over='1h')}))",
            "rejected": f"sum(increase({series('entries_rejected_total', instance=_HERE, over='1h')}))",
        },
        text="In an hour.",
    ),
)

_STORE = (
    Panel(
        "Store and its cap",
        {"{{instance}}": f"{series('store_bytes', instance=_HERE)} / {series('store_max_bytes', instance=_HERE)}"},
        "percentunit",
    ),
    Panel("Free on its disk", {"{{instance}}": series("disk_free_bytes", instance=_HERE)}, "bytes"),
    Panel("Age of the newest backup", {"{{instance}}": series("without_backup_seconds", instance=_HERE)}, "s"),
)

_MACHINE = (
    Panel("Processors", {"{{instance}}": series("cpu_percent", instance=_HERE)}, "percent"),
    Panel("Memory", {"{{instance}}": series("memory_percent", instance=_HERE)}, "percent"),
    Panel(
        "Memory pressure",
        {"{{instance}}": series("memory_pressure", instance=_HERE)},
        text="0: fine, 1: half of the slots work, 2: no task is started, 3: browsers are stopped too",
    ),
    Panel("Browsers", {"{{instance}} {{status}}": series("browsers", instance=_HERE)}),
    Panel("Browsers that died", {"{{instance}}": _rate("browser_deaths_total", "instance", instance=_HERE)}, "ops"),
    Panel(
        "Loops that fail, threads left behind",
        {
            "{{loop}} failed": f"sum by (loop) (increase({series('loop_failures_total', instance=_HERE, over='15m')}))",
            "threads": f"sum({series('threads_left_behind', instance=_HERE)})",
        },
    ),
)

ROWS: Mapping[str, tuple[Panel, ...]] = {
    "Fleet": _FLEET,
    "Work": _WORK,
    "Delivery": _DELIVERY,
    "Store": _STORE,
    "Machine and browsers": _MACHINE,
}
