"""Draws the pictures of the README from what the commands really print: python docs/images/draw.py."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console
from rich.text import Text

HERE = Path(__file__).parent
WIDTH = 116


def draw(name: str, title: str, *commands: str) -> None:
    """Runs the commands in an empty folder and draws what they print on standard output."""
    console = Console(record=True, width=WIDTH, file=io.StringIO())
    env = {**os.environ, "PATH": f"{Path(sys.executable).parent}{os.pathsep}{os.environ['PATH']}"}
    with tempfile.TemporaryDirectory() as folder:
        for command in commands:
            done = subprocess.run(
                command.split(),
                cwd=folder,
                env=env,
                capture_output=True,
                text=True,
                check=True,
            )
            console.print(Text(f"$ {command}", style="bold green"))
            console.print(Text(done.stdout))
    save(console, name, title)


def save(console: Console, name: str, title: str) -> None:
    svg = console.export_svg(title=title)
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL)  # no fonts from elsewhere
    (HERE / f"{name}.svg").write_text(svg, encoding="utf-8")


if __name__ == "__main__":
    draw("demo", "make demo", "parcelpost demo --dir demo_data")
