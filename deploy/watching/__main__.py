"""Writes the files that watch over Parcelpost: Prometheus' alerts and Grafana's dashboard."""

from __future__ import annotations

from pathlib import Path

from deploy.watching.dashboard import dashboard_file
from deploy.watching.rules import rules_file

FOLDER = Path(__file__).parents[1]
FILES = {
    FOLDER / "prometheus" / "parcelpost.rules.yaml": rules_file,
    FOLDER / "grafana" / "parcelpost.json": dashboard_file,
}


def write() -> None:
    for path, make in FILES.items():
        path.write_text(make(), encoding="utf-8")


if __name__ == "__main__":
    write()
