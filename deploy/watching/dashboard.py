"""The dashboard as a file for Grafana: every figure that matters, of the fleet and of the workers that are chosen."""

from __future__ import annotations

import json
from itertools import count
from typing import Any

from deploy.watching.panels import ROWS, Panel

_WIDTH = 24
_DATASOURCE = {"type": "prometheus", "uid": "${datasource}"}


def dashboard_file() -> str:
    return json.dumps(_dashboard(), indent=2) + "\n"


def _dashboard() -> dict[str, Any]:
    return {
        "uid": "parcelpost",
        "title": "Parcelpost",
        "description": "Made by `make watching` from deploy/watching/panels.py.",
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
