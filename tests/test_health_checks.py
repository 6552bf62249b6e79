"""The catalogue of checks: every check is used, and nothing reports what is not in it."""

from __future__ import annotations

import re
from pathlib import Path

from parcelpost.health_checks import CHECKS, Finding, Severity, is_ok, sort_findings

SOURCE = Path(__file__).parents[1] / "src" / "parcelpost"


def test_every_check_of_the_catalogue_is_reported_somewhere_and_no_other() -> None:
    areas = "|".join({check.partition(".")[0] for check in CHECKS})
    named: set[str] = set()
    for file in SOURCE.rglob("*.py"):
        if file != SOURCE / "health.py":
            named |= set(re.findall(rf'"((?:{areas})\.[a-z_]+)"', file.read_text(encoding="utf-8")))
    assert set(CHECKS) <= named


def test_errors_come_first_and_only_they_are_not_ok() -> None:
    checks = ("worker.stopped", "backup.old", "store.full", "backup.none")
    findings = [Finding.of(check, "message", "fix") for check in checks]
    assert [one.id for one in sort_findings(findings)] == ["store.full", "backup.old", "backup.none", "worker.stopped"]
    assert [is_ok(findings), is_ok(findings[:2])] == [False, True]
    assert [one.severity for one in findings[:3]] == [Severity.NOTE, Severity.WARNING, Severity.ERROR]
