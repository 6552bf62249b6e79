"""The alerts as a file for Prometheus. Texts are written as JSON writes them, which is YAML too."""

from __future__ import annotations

import json

from deploy.watching.alerts import GROUPS, Alert

_HEAD = "# Made by `make watching` from deploy/watching/alerts.py: change that.\n"


def rules_file() -> str:
    parts = [f"  - name: {name}\n    rules:\n" + "".join(map(_rule, alerts)) for name, alerts in GROUPS.items()]
    return f"{_HEAD}groups:\n" + "".join(parts)


def _rule(alert: Alert) -> str:
    return (
        f"      - alert: {alert.name}\n"
        f"        expr: {json.dumps(alert.expr)}\n"
        f"        for: {alert.lasts}\n"
        f"        labels:\n          severity: {alert.severity}\n"
        f"        annotations:\n"
        f"          summary: {json.dumps(alert.summary)}\n"
        f"          description: {json.dumps(alert.remedy)}\n"
    )
