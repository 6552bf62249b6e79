"""Names of metrics as a rule or a panel uses them: only those that a worker or a gateway really has."""

from __future__ import annotations

from collections.abc import Mapping

from parcelpost.gateway.api.health import METRICS
from parcelpost.telemetry import Telemetry

KNOWN: Mapping[str, tuple[str, ...]] = Telemetry().series | {name: labels for name, (_, labels) in METRICS.items()}
"""Name -> labels."""

WORKER_JOB, GATEWAY_JOB = "parcelpost-worker", "parcelpost-gateway"
"""What Prometheus must call them: deploy/prometheus/scrape.yaml."""

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
