"""`parcelpost parse`: saved pages of every form, and what is said of one that holds no record."""

from __future__ import annotations

import gzip
import json
import subprocess
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, Ran, Run

REGISTER = b"Schedule Number,Certificate Number,Tax Year,Principal\n1-1,C1,2024,10.50\n2-2,C3,2025,7\n"
PARSERS = """
import sys

def scrape_parcel(id):
    return f"<b>{id}</b>"

def parse_html(html):
    if "raise" in html:
        raise KeyError("owner")
    if "exit" in html:
        sys.exit(3)
    return {"owner": html[3:-4], "as": type(html).__mro__[-2].__name__} if "nobody" not in html else None

async def parse_later(html: str):
    return [{"parcel_id": "1"}, {"parcel_id": "2"}]

def scrape(target):
    return {}
"""
SETTINGS = """
[platforms.pages]
scrape = "somebodys:scrape_parcel"
parse = "somebodys:parse_html"
[platforms.later]
scrape = "somebodys:scrape_parcel"
parse = "somebodys:parse_later"
[platforms.records]
scrape = "somebodys:scrape"
[platforms.absent]
scrape = "nowhere_at_all:scrape"
"""


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "somebodys.py").write_text(PARSERS)
    (tmp_path / "parcelpost.toml").write_text(SETTINGS)
    return tmp_path


def parse(run: Run, *files: object, platform: str = "lien_register") -> Ran:
    return run("parse", *files, "--platform", platform, "--state", "CO", "--county", "x")


def parcels(out: str) -> list[str]:
    return [json.loads(line)["parcel_id"] for line in out.splitlines()]


def test_files_gzipped_or_not_whatever_their_names_are_read(folder: Path, run: Run) -> None:
    (folder / "a.csv").write_bytes(REGISTER)
    (folder / "b.html.gz").write_bytes(gzip.compress(REGISTER))
    (folder / "c").write_bytes(gzip.compress(REGISTER))
    ran = parse(run, "a.csv", "b.html.gz", "c")
    assert (ran.code, ran.err, parcels(ran.out)) == (0, "", ["1-1", "2-2"] * 3)


@pytest.mark.parametrize("sent", [REGISTER, gzip.compress(REGISTER)], ids=["plain", "gzipped"])
def test_a_page_may_come_by_standard_input(sent: bytes) -> None:
    command = [COMMAND, "parse", "-", "--platform", "lien_register", "--state", "CO"]
    done = subprocess.run(command, input=sent, capture_output=True, check=False)
    assert (done.returncode, parcels(done.stdout.decode())) == (0, ["1-1", "2-2"])


def test_a_folder_is_read_by_name_without_a_stores_records_and_hidden_files(folder: Path, run: Run) -> None:
    saved = folder / "saved" / "deeper"
    saved.mkdir(parents=True)
    (saved / "1.html.gz").write_bytes(gzip.compress(REGISTER.replace(b"1-1", b"7-7")))
    (saved / "1.json").write_text('{"parcel_id": "1-1"}')
    (saved / ".hidden").write_text("no register")
    (folder / "saved" / "z.csv").write_bytes(REGISTER)
    ran = parse(run, "saved")
    assert (ran.code, ran.err) == (0, "")
    assert parcels(ran.out) == ["1-1", "2-2", "7-7", "2-2"]


def test_what_gives_no_record_is_told_and_the_rest_read(folder: Path, run: Run) -> None:
    (folder / "good.csv").write_bytes(REGISTER)
    (folder / "bad.csv").write_text("no,register\n")
    (folder / "broken.gz").write_bytes(gzip.compress(REGISTER)[:30])
    ran = parse(run, "none.csv", "bad.csv", "broken.gz", "good.csv")
    assert (ran.code, parcels(ran.out)) == (1, ["1-1", "2-2"])
    first, second, third = ran.err.splitlines()
    assert first == "none.csv: error: cannot read the file: No such file or directory"
    assert second.startswith("bad.csv: error: the file is not a lien register")
    assert third.startswith("broken.gz: error: cannot read the file: Compressed file ended")


def test_a_page_without_a_record_prints_none(folder: Path, run: Run) -> None:
    (folder / "empty.html").touch()
    for platform in ("vgsi", "arcgis", "pages"):
        ran = parse(run, "empty.html", platform=platform)
        assert (ran.code, ran.out) == (1, "")
        assert ran.err.startswith("empty.html: error: ")


def test_what_could_be_read_of_an_incomplete_file_is_printed_and_is_an_error(folder: Path, run: Run) -> None:
    (folder / "register.csv").write_bytes(REGISTER + b"3-3,C4,2025\n")
    ran = run("parse", "register.csv", "--platform", "lien_register", "--state", "CO", "--county", "x")
    records = [json.loads(line) for line in ran.out.splitlines()]
    assert [record["certificate_number"] for record in records] == ["C1", "C3"]
    assert all(record["completeness"].startswith("missing: liens") for record in records)
    assert ran.code == 1
    assert "incomplete" in ran.err


def test_a_parser_of_the_settings_reads_and_harms_nothing(folder: Path, run: Run) -> None:
    for name in ("Ann", "raise", "exit", "nobody"):
        (folder / f"{name}.html").write_text(f"<b>{name}</b>")
    ran = parse(run, "raise.html", "exit.html", "nobody.html", "Ann.html", platform="pages")
    assert ran.code == 1
    place = {"parcel_id": "", "state": "CO", "county": "x", "platform": "pages"}
    assert ran.document == {**place, "owner": "Ann", "as": "str"}
    assert ran.err.splitlines() == [
        "raise.html: error: KeyError: 'owner'",
        "exit.html: error: SystemExit: 3",
        "nobody.html: not found: it returned nothing",
    ]
    ran = parse(run, "Ann.html", platform="later")
    assert (ran.code, parcels(ran.out)) == (0, ["1", "2"])


@pytest.mark.parametrize(
    ("platform", "reason"),
    [
        ("records", "records cannot parse saved pages: it has no parse function"),
        ("echo", "echo cannot parse saved pages: it has no parse function"),
        ("absent", "absent cannot parse saved pages: it cannot be imported: ModuleNotFoundError: No module named"),
        ("vgis", "unknown platform 'vgis' (did you mean vgsi?)"),
    ],
)
def test_a_platform_that_reads_no_pages_is_an_error(folder: Path, run: Run, platform: str, reason: str) -> None:
    (folder / "page.html").write_text("<p>")
    ran = parse(run, "page.html", platform=platform)
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith(f"error: {reason}")
