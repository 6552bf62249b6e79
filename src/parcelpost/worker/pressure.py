"""What a worker still does as memory runs out."""

from __future__ import annotations

from enum import IntEnum

from parcelpost.settings.keys import ResourcesSettings

_LEFT_AT = 0.95
"""Of the threshold at which a level was entered: so that one which is hovered about does not come and go."""


class Pressure(IntEnum):
    FINE = 0
    SLOW = 1
    NO_NEW_TASKS = 2
    STOP_BROWSERS = 3

    @property
    def words(self) -> str:
        return self.name.lower().replace("_", " ")

    @property
    def meaning(self) -> str:
        return _MEANING[self]


_MEANING = {
    Pressure.FINE: "all slots work",
    Pressure.SLOW: "half of the slots work and no browser is added",
    Pressure.NO_NEW_TASKS: "no task is started, those that run go on",
    Pressure.STOP_BROWSERS: "no task is started and browsers are stopped, their tasks wait for better times",
}


def next_pressure(before: Pressure, percent: float, settings: ResourcesSettings) -> Pressure:
    """By how much of the memory is used. It rises at once, and falls a little below where it rose."""
    thresholds = {
        Pressure.SLOW: settings.slow_percent,
        Pressure.NO_NEW_TASKS: settings.no_new_tasks_percent,
        Pressure.STOP_BROWSERS: settings.stop_browsers_percent,
    }
    return max(
        (
            level
            for level, threshold in thresholds.items()
            if percent >= (threshold * _LEFT_AT if level <= before else threshold)
        ),
        default=Pressure.FINE,
    )
