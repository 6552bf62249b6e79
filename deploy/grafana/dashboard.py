"""Grafana's dashboard: writes parcelpost.json beside this file. A metric that does not exist is an error."""

from __future__ import annotations

import json
from collections.abc import Mapping
from itertools import count
from pathlib import Path
from typing import Any, NamedTuple

from parcelpost.gateway.api.health import METRICS
from parcelpost.telemetry import Telemetry

FILE = Path(__file__).with_name("parcelpost.json")

KNOWN: Mapping[str, tuple[str, ...]] = Telemetry().series | {name: labels for name, (_, labels) in METRICS.items()}
"""Name -> labels."""

_GIVEN_BY_PROMETHEUS = {"instance", "job"}


def series(name: str, *, over: str = "", **labels: str) -> str:
    """`series("outbox", state="unsynced")` is `parcelpost_outbox{state="unsynced"}`. `over` is a range such as `5m`.

    A value that begins with `~` is a regular expression. Raises KeyError for a name or a label that is not there.
    """
    full = f"parcelpost_{name}"
    if unknown := set(labels) - {*KNOWN[full], *_GIVEN_BY_PROMETHEUS}:
        raise KeyError(f"{full} has no {', '.join(sorted(unknown))}")
    chosen = ",".join(
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"' for label, value in labels.items()
    )
    return full + (f"{{{chosen}}}" if chosen else "") + (f"[{over}]" if over else "")


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

_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard() -> str:
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "parcelpost",
        "title": "Parcelpost",
        "description": "Written by `make docs` from deploy/grafana/dashboard.py.",
        "tags": ["parcelpost"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "refresh": "30s",
        "time": {"from": "now-6h", "to": "now"},
        "templating": {"list": [_source_choice(), _worker_choice()]},
        "panels": _panels(),
    }


def _source_choice() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _worker_choice() -> dict[str, Any]:
    return {
        "name": "worker",
        "label": "Worker",
        "type": "query",
        "datasource": _DATASOURCE,
        "query": {"query": "label_values(parcelpost_worker_draining, instance)", "refId": "workers"},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "current": {"text": "All", "value": "$__all"},
    }


def _panels() -> list[dict[str, Any]]:
    made: list[dict[str, Any]] = []
    numbers, top = count(1), 0
    for title, panels in ROWS.items():
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        made.append(
            {"id": next(numbers), "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        top, left, height = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                top, left, height = top + height, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            made.append({"id": next(numbers), "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return made


def _panel(panel: Panel) -> dict[str, Any]:
    defaults: dict[str, Any] = {"unit": panel.unit, "min": 0}
    if panel.kind == "timeseries":
        defaults["custom"] = {"lineWidth": 1, "fillOpacity": 10, "showPoints": "never"}
    if panel.bad_from is not None:
        steps = [{"color": "green", "value": None}, {"color": "red", "value": panel.bad_from}]
        defaults["thresholds"] = {"mode": "absolute", "steps": steps}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": _options(panel),
        "targets": [
            {"refId": chr(ord("A") + number), "datasource": _DATASOURCE, "expr": expr, "legendFormat": legend}
            for number, (legend, expr) in enumerate(panel.lines.items())
        ],
    }


def _options(panel: Panel) -> dict[str, Any]:
    if panel.kind == "stat":
        return {"reduceOptions": {"calcs": ["lastNotNull"], "fields": "", "values": False}, "colorMode": "value"}
    return {"legend": {"displayMode": "list", "placement": "bottom"}, "tooltip": {"mode": "multi", "sort": "desc"}}


if __name__ == "__main__":
    FILE.write_text(dashboard(), encoding="utf-8")
