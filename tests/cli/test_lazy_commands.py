"""Commands are imported when they are run, and what is known of them before is true."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from parcelpost.cli.main import COMMANDS, GROUPS
from tests.cli.support import Run, make_store

HEAVY = (
    "asyncpg", "google", "grpc", "httpcore2", "httpx2", "lxml", "obstore", "playwright", "prometheus_client",
    "protego", "psutil", "pygments", "rich", "pydantic", "scrapy", "starlette", "structlog", "twisted", "uvicorn",
)  # fmt: skip
LOOK = """
import json, sys
from parcelpost.cli.main import main
loaded = []
for words in json.loads(sys.argv[1]):
    try:
        main(words)
    except SystemExit as end:
        assert not end.code, words
    loaded.append(sorted({name.split(".")[0] for name in sys.modules}))
print(json.dumps(loaded))
"""


def test_each_is_there_under_its_name(subtests: pytest.Subtests) -> None:
    for command in COMMANDS:
        with subtests.test(command=command):
            own = command.real()
            assert (own.name, own.hidden) == (command.name, False)
            assert own.help


def test_the_list_of_commands_is_complete_grouped_and_in_columns(run: Run) -> None:
    parts = run("-h").out.split("\n\n")
    listed = {heading: body.splitlines() for heading, _, body in (part.partition(":\n") for part in parts)}
    for heading, commands in GROUPS.items():
        assert [line.split()[0] for line in listed[heading]] == [command.name for command in commands]
        assert [line for line in listed[heading] if len(line) > 80 or line.endswith("...")] == []


def test_a_value_that_is_no_plain_text_is_still_typers_to_judge(run: Run, tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=3)
    for bad in (("--limit", "many"), ("--limit", "0"), ("--status", "lost")):
        ran = run("tasks", "--store", store, *bad)
        assert ran.code == 2
        assert f"Invalid value for '{bad[0]}'" in ran.err
    some = run("tasks", "--store", store, "--limit", "2", "--status", "pending", "--set", "log.level=info")
    assert some.out.count("pending") == 2


def test_help_and_status_load_little(tmp_path: Path) -> None:
    store = make_store(tmp_path / "parcelpost.db", tasks=3)
    asked = [["--help"], ["--version"], ["store", "--help"], ["status", "--store", str(store)]]
    done = subprocess.run(
        [sys.executable, "-c", LOOK, json.dumps(asked)], capture_output=True, text=True, check=True, timeout=60
    )
    *for_help, for_status = json.loads(done.stdout.splitlines()[-1])
    for loaded in for_help:
        assert {*HEAVY, "asyncio", "aiosqlite", "sqlite3"} & set(loaded) == set()
    assert set(HEAVY) & set(for_status) == set()
