"""`parcelpost platforms map`: a field map for a layer that nobody mapped."""

from __future__ import annotations

import asyncio
import json
import signal
import subprocess
import threading
from pathlib import Path

import pytest

from tests.cli.support import COMMAND, Run, run_process
from tests.website import Asked, Reply, Website

ROWS = [
    {"TAXLOT": f"12-{number}", "OWNER": name, "SITEADDR": f"{number} OAK ST", "LANDVAL": 5_000, "TOTVAL": 90_000}
    for number, name in enumerate(("BLOOM CLARA", "MOSS HOLDINGS LLC", "DIAZ SAM", "HARPER RUTH", "NGUYEN PETER"), 100)
]


@pytest.fixture(autouse=True)
def layer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    path = tmp_path / "rivers.json"
    path.write_text(json.dumps({"features": [{"attributes": row} for row in ROWS]}))
    return path


def test_the_columns_and_the_first_records_are_shown_and_the_map_is_written_on_a_yes(tmp_path: Path, run: Run) -> None:
    ran = run_process("platforms", "map", "rivers.json", answer="y\n")
    assert ran.code == 0, ran.err
    lines = {line.split()[0]: line.split()[1:4] for line in ran.out.splitlines() if line}
    assert lines["TAXLOT"] == ["parcel_id", "0.95", "yes"]
    assert lines["TOTVAL"] == ["market_value", "0.70", "no"]
    assert "owner_names    BLOOM CLARA" in ran.out
    assert "Write this map to rivers.toml?" in ran.err
    written = (tmp_path / "rivers.toml").read_text()
    assert 'land_value = { money = ["LANDVAL"] }  # 0.95\n' in written
    assert '\n# market_value = { money = ["TOTVAL"] }  # 0.70' in written
    parsed = run("parse", "rivers.json", "--platform", "arcgis", "--set", f"fetch.field_maps_folder={tmp_path}")
    assert [json.loads(line)["field_map"] for line in parsed.out.splitlines()] == ["rivers"] * 5


def test_nothing_is_written_without_a_yes(tmp_path: Path, run: Run) -> None:
    for answer in ("n\n", ""):
        assert run_process("platforms", "map", "rivers.json", answer=answer).code == 1
    assert run("platforms", "map", "rivers.json", "--json").document["written"] is None
    assert [path.name for path in tmp_path.iterdir()] == ["rivers.json"]


def test_a_file_is_never_replaced(tmp_path: Path, run: Run) -> None:
    place = tmp_path / "maps" / "mine.toml"
    assert run("platforms", "map", "rivers.json", "--yes", "--output", place).code == 0
    before = place.read_text()
    ran = run("platforms", "map", "rivers.json", "--yes", "--output", place)
    assert (ran.code, "already exists" in ran.err, place.read_text()) == (1, True, before)


def test_json_has_a_confidence_for_each_column(run: Run) -> None:
    document = run("platforms", "map", "rivers.json", "--json", "--yes").document
    columns = {one["column"]: (one["field"], one["certain"]) for one in document["columns"]}
    assert columns["OWNER"] == ("owner_names", True)
    assert columns["TOTVAL"] == ("market_value", False)
    assert (document["missing"], document["rows"], document["written"]) == ([], 5, "rivers.toml")
    assert document["records"][0]["owner_names"] == ["BLOOM CLARA"]
    assert document["field_map"]["fields"]["parcel_id"] == {"text": ["TAXLOT"]}


def test_likely_columns_and_those_placed_by_hand_are_used_on_demand(layer: Path, run: Run) -> None:
    rows = [{"KEYX": row["TAXLOT"], "OWNER": row["OWNER"], "TOTVAL": row["TOTVAL"]} for row in ROWS]
    layer.write_text(json.dumps(rows))
    ran = run("platforms", "map", layer, "--yes")
    assert (ran.code, "Not certain: the parcel number." in ran.out) == (1, True)
    assert "--field parcel_id=COLUMN" in ran.err
    document = run("platforms", "map", layer, "--field", "parcel_id=KEYX", "--likely", "--json").document
    assert document["field_map"]["fields"]["parcel_id"] == {"text": ["KEYX"]}
    assert document["records"][0]["market_value"] == 90_000
    for wrong, reason in (("parcel_id=NO", "no column 'NO'"), ("colour=KEYX", "'colour' is not a field")):
        ran = run("platforms", "map", layer, "--field", wrong)
        assert (ran.code, reason in ran.err) == (1, True), ran.err


def test_what_cannot_be_read_is_said(tmp_path: Path, run: Run) -> None:
    (tmp_path / "page.html").write_text("<html></html>")
    for source, reason in (
        ("page.html", "this is a web page, not a layer or table"),
        ("nowhere.json", "nowhere.json: cannot read the file"),
        ("http://127.0.0.1:1/MapServer/0", "private"),
    ):
        ran = run("platforms", "map", source)
        assert (ran.code, reason in ran.err, ran.out) == (1, True, ""), ran.err


NEAR = ("--set", "fetch.allow_private=127.0.0.1", "--set", "fetch.pace_seconds=0")


def test_a_layer_is_asked_for_its_columns_and_a_sample(served: Website, run: Run) -> None:
    fields = [{"name": name, "type": "esriFieldTypeString"} for name in ROWS[0]]
    served.page("/gis/Rivers/MapServer/0", json.dumps({"fields": fields}).encode())
    served.page("/gis/Rivers/MapServer/0/query", json.dumps({"features": [{"attributes": ROWS[0]}]}).encode())
    document = run("platforms", "map", f"{served.url}/gis/Rivers/MapServer/0", "--json", "--yes", *NEAR).document
    assert (document["rows"], document["missing"], document["written"]) == (1, [], "0_rivers.toml")
    assert [asked.path for asked in served.asked][:2] == ["/robots.txt", "/gis/Rivers/MapServer/0"]
    ran = run("platforms", "map", f"{served.url}/gis/none/MapServer/0", *NEAR)
    assert (ran.code, "cannot fetch the layer" in ran.err) == (1, True)


def test_it_can_be_interrupted(served: Website) -> None:
    asked = threading.Event()

    async def hang(_: Asked) -> Reply:
        asked.set()
        await asyncio.Event().wait()
        return Reply()

    served.pages["/MapServer/0"] = hang
    command = [COMMAND, "platforms", "map", f"{served.url}/MapServer/0", *NEAR]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as process:
        asked.wait()
        process.send_signal(signal.SIGINT)
        _, err = process.communicate()
    assert (process.returncode, b"Traceback" in err) == (130, False)


def test_names_from_outside_cannot_break_the_file_or_the_screen(layer: Path, tmp_path: Path) -> None:
    evil = 'OWNER"]\n[x]\x1b[2J'
    rows = [{"PIN": row["TAXLOT"], evil: row["OWNER"], "LANDVAL": 5_000, "SITEADDR": row["SITEADDR"]} for row in ROWS]
    layer.write_text(json.dumps(rows))
    ran = run_process("platforms", "map", layer, "--yes", "--field", f"owner_names={evil}")
    assert (ran.code, "\x1b" in ran.out) == (0, False), ran.err
    assert "OWNERX2J" in (tmp_path / "rivers.toml").read_text()
    used = ("--platform", "arcgis", "--set", f"fetch.field_maps_folder={tmp_path}")
    assert "BLOOM CLARA" in run_process("parse", layer, *("--platform", "socrata"), *used[2:]).out
