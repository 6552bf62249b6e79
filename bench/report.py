"""The report of a benchmark: targets and tables, as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True, slots=True)
class Goal:
    """A goal and what was measured for it, in the same unit."""

    name: str
    goal: str
    measured: float
    met: bool


def at_least(name: str, goal: float, measured: float) -> Goal:
    return Goal(name, f">= {goal:.3g}", round(measured, 4), measured >= goal)


def at_most(name: str, goal: float, measured: float) -> Goal:
    return Goal(name, f"<= {goal:.3g}", round(measured, 4), measured <= goal)


@dataclass(frozen=True, slots=True)
class Table:
    """Plain text in aligned columns: the first column to the left, the others to the right."""

    title: str
    header: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    left: int = 1
    """How many columns, from the first on, are aligned to the left."""

    def as_text(self) -> str:
        lines = [self.header, *self.rows]
        widths = [max(len(line[column]) for line in lines) for column in range(len(self.header))]
        text = [self.title, ""]
        for number, line in enumerate(lines):
            cells = [
                cell.ljust(width) if column < self.left else cell.rjust(width)
                for column, (cell, width) in enumerate(zip(line, widths, strict=True))
            ]
            text.append("  ".join(cells).rstrip())
            if number == 0:
                text.append("  ".join("-" * width for width in widths))
        return "\n".join([*text, *(["", *self.notes] if self.notes else [])])


@dataclass(frozen=True, slots=True)
class Report:
    """`data` has the unrounded figures of the tables."""

    bench: str
    targets: Sequence[Goal]
    tables: Sequence[Table]
    data: dict[str, Any] = field(default_factory=dict)

    def as_json(self) -> str:
        targets = [
            {"name": target.name, "goal": target.goal, "measured": target.measured, "met": target.met}
            for target in self.targets
        ]
        return json.dumps({"bench": self.bench, "targets": targets, **self.data}, indent=2)

    def as_text(self) -> str:
        missed = sum(not target.met for target in self.targets)
        verdict = f"{len(self.targets) - missed} of {len(self.targets)} met"
        targets = Table(
            f"Targets: {verdict}",
            ["target", "goal", "measured", ""],
            [[t.name, t.goal, f"{t.measured:.3g}", "met" if t.met else "MISSED"] for t in self.targets],
        )
        return "\n\n\n".join(table.as_text() for table in [*self.tables, targets])


def progress(text: str) -> None:
    """One line on stderr: a full run takes minutes."""
    print(text, file=sys.stderr, flush=True)
