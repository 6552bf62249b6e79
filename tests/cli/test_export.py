"""`parcelpost export`."""

from __future__ import annotations

import asyncio
import csv
import io
import json
import os
import re
import shlex
import signal
import stat
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from openpyxl import load_workbook
from pyarrow.parquet import read_table

from parcelpost.model import Result, Target, Task
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import COMMAND, Run
from tests.export.factories import ANN

PAGE = Path(__file__).parents[2] / "docs" / "export.md"
NOW = datetime(2026, 11, 16, 12, tzinfo=UTC)


def add(store: Path, *parcels: str, data: dict[str, Any] | None = None, county: str = "hartford") -> None:
    """A record of each, as a worker would store it."""

    async def fill() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for parcel in parcels:
                target = Target(parcel_id=parcel, state="CT", county=county)
                task = Task(task_id=f"{parcel}-{os.urandom(4).hex()}", platform="vgsi", target=target)
                await lpm.add_result(task, Result(data=ANN if data is None else data, scraped_at=NOW))

    asyncio.run(fill())


@pytest.fixture
def store(tmp_path: Path) -> Path:
    path = tmp_path / "here" / "parcelpost.db"
    add(path, "1", "2", "3")
    add(path, "4", county="tolland")
    return path


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    place = tmp_path / "work"
    place.mkdir()
    monkeypatch.chdir(place)
    return place


def said(stderr: str) -> list[str]:
    """All but how far it is, which a slow machine may show."""
    return [line for line in stderr.splitlines() if not line.startswith("exporting")]


def parcels(text: str) -> list[str]:
    return [row["parcel_id"] for row in csv.DictReader(io.StringIO(text))]


def test_the_name_says_the_format(run: Run, store: Path) -> None:
    done = run("export", "all.xlsx", "--store", store)
    assert re.fullmatch(r"all\.xlsx: 4 parcels, 8 liens \([\d.]+ KiB\)\n", done.out), done
    book = load_workbook("all.xlsx")
    assert [(name, book[name].max_row) for name in book.sheetnames] == [("parcels", 5), ("liens", 9)]


def test_what_changed_between_scrapes(run: Run, tmp_path: Path) -> None:
    """Two platforms show a parcel, each in its own spelling."""
    store = tmp_path / "changes.db"
    lien = {"certificate_number": "7", "certificate_year": 2024, "status": "open"}
    scrapes: list[tuple[str, str, int, dict[str, Any]]] = [
        ("vgsi", "01-02-000300", 1, {"owner_names": ["ANN"], "market_value": 5, "liens": [lien]}),
        ("beacon", "0102000300", 2, {"owner_names": ["Ann"]}),
        ("vgsi", "01-02-000300", 3, {"owner_names": ["BO JONES"], "market_value": 5.00, "liens": [lien]}),
        ("beacon", "0102000300", 4, {"owner_names": ["Jones, Bo & Cy"]}),
        ("vgsi", "01-02-000300", 5, {"owner_names": [], "liens": [], "unreadable": ["liens", "owner_names"]}),
        ("vgsi", "01-02-000300", 6, {"owner_names": ["BO JONES"], "liens": [{**lien, "status": "redeemed"}]}),
        ("vgsi", "4", 6, {"owner_names": ["DI"]}),
    ]

    async def fill() -> None:
        async with LocalPersistenceManager.open(store) as lpm:
            for number, (platform, parcel, day, data) in enumerate(scrapes):
                target = Target(parcel_id=parcel, state="CT", county="hartford")
                result = Result(data=data, scraped_at=datetime(2026, 11, day, tzinfo=UTC))
                await lpm.add_result(Task(task_id=f"t{number}", platform=platform, target=target), result)

    def changes(*options: str) -> list[dict[str, Any]]:
        lines = run("export", "-", "--changes", "--store", store, *options).out.splitlines()
        return [json.loads(line) for line in lines]

    asyncio.run(fill())
    found = changes()
    assert [(one["change"]["kind"], one["parcel_id"], one["scraped_at"][:10]) for one in found] == [
        ("parcel.new", "01-02-000300", "2026-11-01"),
        ("lien.new", "01-02-000300", "2026-11-01"),
        ("owner.changed", "01-02-000300", "2026-11-03"),
        ("lien.redeemed", "01-02-000300", "2026-11-06"),
        ("parcel.new", "4", "2026-11-06"),
    ]
    assert found[2]["change"]["before"] == {"owner": ["ANN"]}
    assert [one["change"]["kind"] for one in changes("--since", "2026-11-04", "--kind", "lien")] == ["lien.redeemed"]
    assert changes("--platform", "beacon") == [], "its owner was reported before"
    assert len(changes("--parcel", "0102000300", "--until", "2026-11-03")) == 3
    done = run("export", "changes.csv", "--changes", "--store", store, "--json").document
    assert done["rows"] == {"changes": 5}
    row = list(csv.DictReader(io.StringIO(Path("changes.csv").read_text(encoding="utf-8"))))[2]
    assert (row["kind"], row["before"]) == ("owner.changed", '{"owner":["ANN"]}')
    assert run("export", "folder/", "--changes", "--store", store, "--format", "parquet").out.startswith(
        "folder/changes.parquet: 5 changes"
    )
    for options, problem in {
        ("a.gpkg",): "changes cannot be written as gpkg",
        ("a.csv", "--new"): "--new cannot be used with --changes",
        ("a.csv", "--kind", "lein"): "unknown kind of change: 'lein'",
    }.items():
        assert problem in run("export", *options, "--changes", "--store", store).err
    assert "--kind requires --changes" in run("export", "a.csv", "--kind", "lien", "--store", store).err


def test_every_format_says_what_was_not_readable(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "partial" / "parcelpost.db"
    place = {"latitude": 41.1, "longitude": -81.3}
    add(
        store,
        "1",
        data={**ANN, **place, "completeness": "missing: sales-part", "unreadable": ["sales", "mailing_city"]},
    )
    for suffix in ("csv", "jsonl", "xlsx", "parquet", "gpkg", "geojson"):
        assert run("export", f"a.{suffix}", "--store", str(store)).code == 0, suffix
        if suffix == "xlsx":
            text = repr([*load_workbook("a.xlsx")["parcels"].values])
        elif suffix == "parquet":
            text = repr(read_table("a.parquet").to_pylist())
        else:
            text = Path(f"a.{suffix}").read_bytes().decode(errors="replace")
        assert all(part in text for part in ("missing: sales-part", "mailing_city", "sales")), suffix


def test_a_folder_gets_both_tables_and_json_says_where(run: Run, store: Path) -> None:
    done = run("export", "handover/", "--county", "HARTFORD", "--store", store, "--json")
    assert done.code == 0
    assert [(one["path"], one["tables"]) for one in done.document["files"]] == [
        ("handover/parcels.csv", ["parcels"]),
        ("handover/liens.csv", ["liens"]),
    ]
    assert done.document["rows"] == {"parcels": 3, "liens": 6}
    assert done.document["files"][0]["bytes"] == Path("handover/parcels.csv").stat().st_size


def test_stdout_has_the_export_and_stderr_the_rest(run: Run, store: Path) -> None:
    done = run("export", "-", "--format", "csv", "--parcel", "2", "--parcel", "4", "--store", store)
    left_out = "note: liens not exported: 4; use a folder, .xlsx or .gpkg for both tables"
    assert (parcels(done.out), said(done.err)) == (["2", "4"], ["2 parcels", left_out])
    done = run("export", "-", "--tables", "liens", "--store", store)
    assert [json.loads(line)["lien"]["certificate_number"] for line in done.out.splitlines()] == ["0042", "0043"] * 4
    assert run("export", "-", "--json", "--store", store).code == 1


def test_a_parcel_scraped_twice_gives_its_newest(run: Run, store: Path) -> None:
    add(store, "1", data={"owner_names": ["NEW"]})
    newest = run("export", "-", "--format", "csv", "--parcel", "1", "--store", store)
    assert [row["owner_names"] for row in csv.DictReader(io.StringIO(newest.out))] == ["NEW"]
    every = run("export", "-", "--format", "csv", "--parcel", "1", "--all", "--store", store)
    owners = [row["owner_names"] for row in csv.DictReader(io.StringIO(every.out))]
    assert owners == ["MÜLLER ANN; MÜLLER BOB", "NEW"]


@pytest.mark.parametrize(
    ("options", "expected"),
    [
        (["--since", "2026-11-16"], ["1", "2", "3", "4"]),
        (["--since", "2026-11-16T12:00:00Z", "--until", "2026-11-16"], ["1", "2", "3", "4"]),
        (["--until", "2026-11-16T13:00:00+01:00", "--status", "any"], None),
        (["--until", "2026-11-15"], None),
        (["--changed-since", "2999-01-01"], None),
        (["--changed-since", "1h"], ["1", "2", "3", "4"]),
        (["--status", "failed"], None),
        (["--platform", "qpublic", "--platform", "vgsi", "--state", "ct"], ["1", "2", "3", "4"]),
        (["--platform", "qpublic"], None),
    ],
)
def test_filters(run: Run, store: Path, options: list[str], expected: list[str] | None) -> None:
    done = run("export", "-", "--format", "csv", *options, "--store", store)
    if expected is None:
        assert (done.code, done.out) == (1, "")
        error, hint = said(done.err)
        assert (error, hint[:30]) == ("error: no stored results match", "hint: 'parcelpost results list")
    else:
        assert (done.code, parcels(done.out)) == (0, expected)


def test_only_what_is_new_since_the_last_time(run: Run, store: Path) -> None:
    words = ("export", "--new", "--for", "acme", "--store", store)
    none = run("export", "x.csv", "--new", "--for", "fl", "--state", "FL", "--store", store, "--json")
    assert (none.code, none.document["files"], none.document["results"]) == (0, [], 0)
    assert run(*words, "day1.csv").code == 0
    mark = store.with_name("parcelpost.db-exports") / "acme.json"
    assert stat.S_IMODE(mark.stat().st_mode) == 0o600
    nothing = run(*words, "day2.csv")
    assert (nothing.code, nothing.out[:17]) == (0, "Nothing new since")
    assert not Path("day2.csv").exists()
    nothing = run(*words, "day1.csv")
    assert (nothing.code, nothing.out.endswith(": no file was written, and day1.csv is unchanged.\n")) == (0, True)
    add(store, "2", "5")
    there = run(*words, "day1.csv")
    assert (there.code, len(parcels(Path("day1.csv").read_text()))) == (1, 4)
    assert re.search(r"hint: .* a different name .*, such as day1-\d{4}-\d\d-\d\d\.csv, or .* --force", there.err)
    assert run(*words, "day3.csv").code == 0
    assert parcels(Path("day3.csv").read_text()) == ["2", "5"]
    assert len(parcels(Path("day1.csv").read_text())) == 4


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="has no device that is always full")
def test_a_full_device_is_an_error_after_which_the_same_is_new(run: Run, store: Path) -> None:
    words = ("export", "-", "--format", "csv", "--store", str(store))
    for more in ([], ["--new"]):
        with Path("/dev/full").open("wb") as full:
            done = subprocess.run(
                [COMMAND, *words, *more], stdout=full, stderr=subprocess.PIPE, text=True, timeout=60, check=False
            )
        told = said(done.stderr)
        assert (done.returncode, told[0]) == (1, "error: cannot write to standard output: No space left on device")
        assert len(told) == 2
        assert ("--new" in told[1]) == bool(more)
    assert len(parcels(run(*words, "--new").out)) == 4


def test_each_receiver_has_a_mark_of_its_own_that_a_failure_does_not_move(run: Run, store: Path) -> None:
    assert run("export", "a.csv", "--new", "--store", store).code == 0
    add(store, "5")
    assert run("export", "b.gpkg", "--new", "--for", "maps", "--store", store).code == 0
    assert run("export", "a.csv", "--new", "--store", store).code == 1  # it is there already
    again = run("export", "a.csv", "--new", "--force", "--store", store, "--json")
    assert again.document["rows"] == {"parcels": 1}
    assert again.document["new_since"]


def test_a_mark_is_for_one_question(run: Run, store: Path) -> None:
    assert run("export", "a.csv", "--new", "--county", "hartford", "--store", store).code == 0
    other = run("export", "b.csv", "--new", "--county", "tolland", "--store", store)
    assert said(other.err)[0].startswith("error: the last export for default used different filters")
    assert "--for" in other.err
    mark = store.with_name("parcelpost.db-exports") / "default.json"
    mark.write_text("{}")
    damaged = run("export", "b.csv", "--new", "--store", store)
    assert "cannot be read" in damaged.err
    assert run("export", "b.csv", "--new", "--for", "../evil", "--store", store).code == 1


@pytest.mark.parametrize(
    ("arguments", "problem"),
    [
        (["a.csv", "--since", "yesterday"], "not a valid date or time: 'yesterday'"),
        (["a.csv", "--for", "acme"], "--for requires --new"),
        (["a.xlsx", "--bom"], "--bom and --unguarded apply only to CSV"),
        (["a.csv", "--tables", ","], "--tables is empty"),
        (["a.doc"], "cannot tell the format of a.doc"),
        (["map.geojson", "--parcel", "none"], "no stored results match"),
    ],
)
def test_mistakes_are_said_with_what_to_do(run: Run, store: Path, arguments: list[str], problem: str) -> None:
    done = run("export", *arguments, "--store", store)
    error, hint = said(done.err)
    assert (done.code, done.out) == (1, "")
    assert problem in error
    assert hint.startswith("hint: ")
    assert list(Path().iterdir()) == []


def test_no_force_replaces_the_store_itself(run: Run, store: Path) -> None:
    before = store.read_bytes()
    for name in (store, f"{store}-wal"):
        done = run("export", name, "--format", "csv", "--force", "--store", store)
        assert (done.code, "belongs to the store" in done.err) == (1, True)
    assert store.read_bytes() == before


def test_a_store_that_is_not_there_is_not_made(run: Run, tmp_path: Path) -> None:
    done = run("export", "a.csv", "--store", tmp_path / "none" / "p.db")
    assert (done.code, done.err[:31]) == (1, "error: there is no store at " + str(tmp_path)[:3])
    assert not (tmp_path / "none").exists()


def test_the_commands_of_the_page_can_be_run(run: Run, store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PARCELPOST_STORE", str(store))
    (block,) = re.findall(r"```sh\n(.*?)```", PAGE.read_text(encoding="utf-8"), flags=re.DOTALL)
    commands = [shlex.split(line, comments=True) for line in block.splitlines()]
    assert len(commands) > 5
    for program, *words in commands:
        assert program == "parcelpost"
        done = run(*words[: words.index("|")] if "|" in words else words)
        assert done.code == 0, (words, done)


def test_ctrl_c_ends_it_also_where_nobody_reads(tmp_path: Path) -> None:
    big = tmp_path / "big" / "p.db"
    add(big, *map(str, range(60)), data={"legal_description": "x" * 10_000})
    command = [COMMAND, "export", "-", "--store", str(big)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert process.stdout.read(1) == b"{"  # and no more: it has to wait for us
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert not said(process.stderr.read().decode())


def test_a_reader_that_leaves_is_no_failure_to_talk_about(tmp_path: Path, store: Path) -> None:
    add(store, *map(str, range(40)), data={"legal_description": "x" * 10_000})  # more than a pipe takes
    command = [COMMAND, "export", "-", "--store", str(store)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert not said(process.stderr.read().decode())
    assert process.returncode == 1
