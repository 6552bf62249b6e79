"""Writes the Grafana dashboard parcelpost.json. An unknown metric is an error."""

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

_PROMETHEUS_LABELS = {"instance", "job"}


def series(name: str, *, over: str = "", **labels: str) -> str:
    """`series("outbox", state="unsynced")` is `parcelpost_outbox{state="unsynced"}`. `over` is a range such as `5m`.

    A value that begins with `~` is a regular expression. Raises KeyError for an unknown name or label.
    """
    full = f"parcelpost_{name}"
    if unknown := set(labels) - {*KNOWN[full], *_PROMETHEUS_LABELS}:
        raise KeyError(f"{full} has no {', '.join(sorted(unknown))}")
    selector = ",".join(
        f'{label}=~"{value[1:]}"' if value.startswith("~") else f'{label}="{value}"' for label, value in labels.items()
    )
    return full + (f"{{{selector}}}" if selector else "") + (f"[{over}]" if over else "")


_CHOSEN = "~$worker"
"""The workers selected in the dashboard."""


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
    """Values from here on are red."""


def _figure(title: str, expr: str, unit: str = "short", bad_from: float | None = None) -> Panel:
    return Panel(title, {title: expr}, unit, kind="stat", width=4, height=4, bad_from=bad_from)


def _rate(name: str, by: str, **labels: str) -> str:
    return f"sum by ({by}) (rate({series(name, over='5m', **labels)}))"


def _quantile(name: str, share: float) -> str:
    return f"histogram_quantile({share}, sum by (le) (rate({series(name, instance=_CHOSEN, over='5m')})))"


_QUEUED = f"max(sum by (instance) ({series('gateway_tasks', state='queued')}))"

_FLEET = (
    _figure("Workers alive", f"max({series('gateway_workers_alive')})"),
    _figure("Queued", f"{_QUEUED} or vector(0)"),
    _figure("Leased", f"max({series('gateway_leases')})"),
    _figure("Not delivered yet", f"max({series('gateway_unsynced')})"),
    _figure("Left in inactive stores", f"max({series('gateway_unsynced_left')})", bad_from=1),
    _figure("Tasks dead", f"max(sum by (instance) ({series('gateway_tasks', state='dead')})) or vector(0)", bad_from=1),
    Panel("Tasks by state", {"{{state}}": f"max by (state) (sum by (instance, state) ({series('gateway_tasks')}))"}),
    Panel("Gateway events", {"{{outcome}}": _rate("gateway_events_total", "outcome")}, "ops"),
    Panel("Gateway responses", {"{{status}}": _rate("gateway_responses_total", "status")}, "reqps"),
    Panel(
        "Oldest queued task", {"{{platform}}": f"max by (platform) ({series('gateway_oldest_queued_seconds')})"}, "s"
    ),
    Panel("Oldest undelivered result", {"oldest": f"max({series('gateway_oldest_unsynced_seconds')})"}, "s"),
    Panel("Rows in the ledger", {"{{what}}": f"max by (what) ({series('gateway_rows')})"}),
)

_WORK = (
    Panel("Attempts by outcome", {"{{outcome}}": _rate("attempts_total", "outcome", instance=_CHOSEN)}, "ops"),
    Panel("Attempts by platform", {"{{platform}}": _rate("attempts_total", "platform", instance=_CHOSEN)}, "ops"),
    Panel(
        "Duration of an attempt",
        {
            "median": _quantile("attempt_seconds_bucket", 0.5),
            "95th percentile": _quantile("attempt_seconds_bucket", 0.95),
        },
        "s",
    ),
    Panel(
        "Tasks in the stores",
        {"{{status}}": f"sum by (status) ({series('tasks', instance=_CHOSEN, status='~pending|processing|failed')})"},
    ),
    Panel("Tasks received", {"{{kind}}": _rate("tasks_received_total", "kind", instance=_CHOSEN)}, "ops"),
    Panel(
        "Paused platforms, broken fields",
        {
            "{{platform}} paused": f"max by (platform) ({series('platform_paused', instance=_CHOSEN)})",
            "{{platform}} fields": f"max by (platform) ({series('broken_fields', instance=_CHOSEN)})",
        },
    ),
)

_DELIVERY = (
    Panel("Outbox", {"{{instance}} {{state}}": series("outbox", instance=_CHOSEN)}),
    Panel(
        "Oldest result not delivered",
        {"{{instance}}": series("oldest_seconds", instance=_CHOSEN, what="unsynced_result")},
        "s",
    ),
    Panel("Delivered", {"{{kind}}": _rate("results_synced_total", "kind", instance=_CHOSEN)}, "ops"),
    Panel(
        "Upstream reachable",
        {"{{instance}}": f"max by (instance) ({series('upstream_up', instance=_CHOSEN)})"},
        text="1: yes",
    ),
    Panel(
        "Duration of a delivery round",
        {"median": _quantile("sync_seconds_bucket", 0.5), "95th percentile": _quantile("sync_seconds_bucket", 0.95)},
        "s",
    ),
    Panel(
        "Refused and rejected",
        {
            "refused": f"sum(increase({series('entries_refused_total', instance=_CHOSEN, over='1h')}))",
            "rejected": f"sum(increase({series('entries_rejected_total', instance=_CHOSEN, over='1h')}))",
        },
        text="Per hour.",
    ),
)

_STORE = (
    Panel(
        "Store, share of its cap",
        {"{{instance}}": " / ".join(series(name, instance=_CHOSEN) for name in ("store_bytes", "store_max_bytes"))},
        "percentunit",
    ),
    Panel("Free disk space", {"{{instance}}": series("disk_free_bytes", instance=_CHOSEN)}, "bytes"),
    Panel("Age of the newest backup", {"{{instance}}": series("without_backup_seconds", instance=_CHOSEN)}, "s"),
)

_MACHINE = (
    Panel("CPU", {"{{instance}}": series("cpu_percent", instance=_CHOSEN)}, "percent"),
    Panel("Memory", {"{{instance}}": series("memory_percent", instance=_CHOSEN)}, "percent"),
    Panel(
        "Memory pressure",
        {"{{instance}}": series("memory_pressure", instance=_CHOSEN)},
        text="0: fine, 1: half of the slots run, 2: no task is started, 3: browsers are stopped too",
    ),
    Panel("Browsers", {"{{instance}} {{status}}": series("browsers", instance=_CHOSEN)}),
    Panel("Browser crashes", {"{{instance}}": _rate("browser_deaths_total", "instance", instance=_CHOSEN)}, "ops"),
    Panel(
        "Failed loop steps, abandoned threads",
        {
            "{{loop}}": f"sum by (loop) (increase({series('loop_failures_total', instance=_CHOSEN, over='15m')}))",
            "threads": f"sum({series('threads_left_behind', instance=_CHOSEN)})",
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
        "templating": {"list": [_datasource_variable(), _worker_variable()]},
        "panels": _panels(),
    }


def _datasource_variable() -> dict[str, Any]:
    return {"name": "datasource", "label": "Prometheus", "type": "datasource", "query": "prometheus"}


def _worker_variable() -> dict[str, Any]:
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
    placed: list[dict[str, Any]] = []
    ids, top = count(1), 0
    for title, panels in ROWS.items():
        place = {"h": 1, "w": _WIDTH, "x": 0, "y": top}
        placed.append(
            {"id": next(ids), "type": "row", "title": title, "collapsed": False, "gridPos": place, "panels": []}
        )
        top, left, height = top + 1, 0, 0
        for panel in panels:
            if left + panel.width > _WIDTH:
                top, left, height = top + height, 0, 0
            place = {"h": panel.height, "w": panel.width, "x": left, "y": top}
            placed.append({"id": next(ids), "gridPos": place, **_panel(panel)})
            left, height = left + panel.width, max(height, panel.height)
        top += height
    return placed


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
