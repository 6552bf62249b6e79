"""The input and output of a check of `parcelpost doctor`."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from msgspec import Struct

from parcelpost.cli.context import CLOCK
from parcelpost.cli.settings_options import StoreContext
from parcelpost.health_checks import Finding, sort_findings
from parcelpost.settings import Settings
from parcelpost.settings.sources import Diagnosis


class CheckContext(Struct, frozen=True, kw_only=True):
    store: StoreContext
    diagnosis: Diagnosis
    deep: bool
    wal_bytes: int
    """Measured first: opening a store may truncate the write-ahead log."""
    limit_seconds: float
    """No check takes longer."""
    upstream: CheckResult | None = None
    """The upstream's response; None if it was not contacted yet."""

    @property
    def settings(self) -> Settings:
        return self.diagnosis.partly

    def deadline(self) -> Callable[[], bool]:
        """Returns a function that tells whether the time limit of a check that starts now is over."""
        ends_at = CLOCK.monotonic() + self.limit_seconds
        return lambda: CLOCK.monotonic() > ends_at


class CheckResult(Struct, frozen=True):
    area: str
    summary: str
    """What was found to be in order; '' if the findings say everything."""
    findings: Sequence[Finding] = ()
    skipped: bool = False
    """There is nothing to check, or it could not be checked."""

    @property
    def state(self) -> str:
        """`ok`, `skipped`, or the worst severity of its findings."""
        if self.findings:
            return sort_findings(self.findings)[0].severity
        return "skipped" if self.skipped else "ok"
