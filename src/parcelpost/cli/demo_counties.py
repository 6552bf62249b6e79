"""The demonstration's counties: websites on this machine, of four platforms, that err now and then."""

from __future__ import annotations

import csv

from parcelpost.cli.demo_files import Files
from parcelpost.cli.demo_processes import Child, free_port

PLATFORMS = {
    "lien_register": "a treasurer's register of liens",
    "grizzly_gis": "an appraiser's pages behind a frame and a form",
    "mygov_due": "a tax collector's bills and certificates",
    "vgsi": "an assessor's pages",
}
ERRORS = 0.02
"""The share of requests that a site answers with 500."""
READY = "Ctrl-C ends it."
"""What the websites print when they are up and the files with counties and tasks are written."""

WORKER_SETTINGS = {
    "fetch.allow_private": "127.0.0.1",
    "fetch.pace_seconds": "0.01",
    "fetch.concurrency_per_host": "8",
    "executor.retry_min_seconds": "0.5",
    "executor.retry_max_seconds": "2",
}
"""These websites are on this machine, and stand more than a county's server would."""


def websites(files: Files, parcels: int) -> Child:
    wanted = [part for name in PLATFORMS for part in ("--platform", name)]
    written = ["--counties-file", str(files.counties), "--tasks-file", str(files.tasks)]
    size = ["--parcels", str(parcels), "--port", str(free_port()), "--fault", f"500={ERRORS}"]
    return Child(["simulate", "county", *wanted, *size, *written], {}, files.log("county"))


def count_tasks(files: Files) -> int:
    with files.tasks.open(encoding="utf-8", newline="") as opened:
        return sum(1 for _ in csv.DictReader(opened))
