"""Draws the pictures of the README from what really happens: python docs/images/draw.py. Needs a Chromium."""

from __future__ import annotations

import io
import os
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from playwright.sync_api import sync_playwright
from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
WIDTH = 120
_AT_WORK_SECONDS = 3.0
"""After the gateway's return: then the fleet, the queue and the parcels have something to show."""


def main() -> None:
    command = [str(Path(sys.executable).with_name("parcelpost")), "demo", "--dir", "demo_data", "--stay"]
    with (
        tempfile.TemporaryDirectory() as folder,
        subprocess.Popen(command, cwd=folder, stdout=subprocess.PIPE, text=True, env=_environment()) as demo,
    ):
        printed, url = "", ""
        for line in demo.stdout or ():
            printed += line
            if found := re.search(r"Dashboard: (\S+)", line):
                url = found[1]
            if line.startswith("Restarted the gateway"):
                time.sleep(_AT_WORK_SECONDS)
                photograph(url, HERE / "dashboard.png")
            if "Press Ctrl-C" in line:
                demo.send_signal(signal.SIGINT)
    draw("make demo DEMO_ARGS=--stay", printed, HERE / "demo.svg")


def photograph(url: str, file: Path) -> None:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=shutil.which("chromium"), args=["--no-sandbox"])
        page = browser.new_page(viewport={"width": 1280, "height": 900})
        page.goto(url)
        page.locator("#state").get_by_text("Live").wait_for()
        page.wait_for_timeout(1_000)
        page.screenshot(path=file)
        browser.close()


def draw(command: str, printed: str, file: Path) -> None:
    """As a terminal shows it."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    console.print(Text(f"$ {command}", style="bold green"))
    console.print(Text(printed.rstrip()))
    save(console, command, file)


def save(console: Console, title: str, file: Path) -> None:
    svg = console.export_svg(title=title)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from elsewhere
    file.write_text(svg, encoding="utf-8")


def _environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("PARCELPOST_")}


if __name__ == "__main__":
    main()
