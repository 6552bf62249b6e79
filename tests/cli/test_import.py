"""`parcelpost import`: files of every form become tasks, and bad rows are one row's matter."""

from __future__ import annotations

import csv
import gzip
import hashlib
import json
from pathlib import Path
from typing import Any

import pytest

from tests.cli.support import Ran, Run, change, rows, run_process

CSV = """Parcel No,State,County,Link,Owner,Acres
0001-2,CT,Hartford,https://example.org/1,"Müller, Ann",1.5
0001-3,ct,Hartford,,Smith,
"""
OBJECTS: list[dict[str, Any]] = [
    {"pin": "7", "state": "IN", "county": "lake", "platform": "echo", "year": 2025, "owner": None},
    {"pin": 8, "state": "IN", "county": "lake", "platform": "echo", "priority": "urgent"},
]


@pytest.fixture
def store(tmp_path: Path) -> Path:
    """Where a store will be."""
    return tmp_path / "store" / "parcelpost.db"


def write(tmp_path: Path, name: str, content: str | bytes) -> Path:
    path = tmp_path / name
    data = content.encode() if isinstance(content, str) else content
    path.write_bytes(gzip.compress(data) if name.endswith(".gz") else data)
    return path


def stored(run: Run, store: Path) -> list[Any]:
    return [one["task"] for one in run("tasks", "--json", "--store", store).document["tasks"]]


def import_(run: Run, store: Path, file: Path, *arguments: object) -> Ran:
    return run("import", file, *arguments, "--store", store)


def test_a_state_or_county_that_is_nowhere_is_said(tmp_path: Path, store: Path, run: Run) -> None:
    file = write(tmp_path, "p.csv", "pin,ST\n1,CT\n")
    lacking = "No column was recognized as state: it stays empty. Use --state or --map state=COLUMN to set it."
    assert (
        "empty: no column recognized"
        in import_(run, store, file, "--platform", "echo", "--county", "x", "--dry-run").out
    )
    assert lacking in import_(run, store, file, "--platform", "echo", "--county", "x").out.splitlines()
    assert "No column" not in import_(run, store, file, "--platform", "echo", "--county", "x", "--map", "state=ST").out


def test_an_id_is_nothing_that_a_command_line_takes_for_an_option(tmp_path: Path, store: Path, run: Run) -> None:
    assert import_(run, store, write(tmp_path, "p.csv", "pin\n#1-3\n---\n"), "--platform", "echo").code == 0
    ids = [one["task_id"] for one in stored(run, store)]
    assert len(ids) == 2 and ids[0].startswith("1-3-")
    assert [run("tasks", "show", one, "--store", store).code for one in ids] == [0, 0]


def test_a_header_maps_itself(tmp_path: Path, store: Path, run: Run) -> None:
    ran = import_(run, store, write(tmp_path, "p.csv", CSV), "--platform", "echo")
    assert (ran.code, ran.err) == (0, "")
    assert ran.out.splitlines() == [
        "Columns: parcel_id from 'Parcel No', state from 'State', county from 'County', url from 'Link'.",
        "2 new tasks, 0 already known, 0 invalid rows.",
    ]
    first, second = stored(run, store)
    assert first["target"] == {
        "parcel_id": "0001-2",
        "state": "CT",
        "county": "hartford",
        "url": "https://example.org/1",
        "extra": {"Owner": "Müller, Ann", "Acres": "1.5"},
    }
    assert (first["platform"], first["source"], first["priority"]) == ("echo", "local_file", 3)
    assert second["target"] == {
        "parcel_id": "0001-3", "state": "CT", "county": "hartford", "extra": {"Owner": "Smith"}
    }  # fmt: skip


@pytest.mark.parametrize("name", ["p.json", "p.json.gz", "p.jsonl", "p.jsonl.gz", "p.ndjson", "lines.json"])
def test_json_in_all_its_forms(tmp_path: Path, store: Path, run: Run, name: str) -> None:
    lines = "\n\n".join(map(json.dumps, OBJECTS)) + "\n"
    content = json.dumps(OBJECTS, indent=2) if name.startswith("p.json") and "jsonl" not in name else lines
    assert import_(run, store, write(tmp_path, name, content)).code == 0
    first, second = stored(run, store)
    assert first["target"] == {"parcel_id": "7", "state": "IN", "county": "lake", "extra": {"year": 2025}}
    assert (second["target"]["parcel_id"], second["priority"], second["platform"]) == ("8", 1, "echo")


def test_an_entry_may_be_written_as_the_gateway_does(tmp_path: Path, store: Path, run: Run) -> None:
    target = {"parcel_id": "7", "state": "IN", "county": "lake", "extra": {"book": 3}}
    entry = {"task_id": "g1", "platform": "echo", "priority": 4, "target": target}
    assert import_(run, store, write(tmp_path, "p.json", json.dumps([entry]))).code == 0
    (task,) = stored(run, store)
    assert (task["task_id"], task["priority"], task["target"]) == ("g1", 4, target)


@pytest.mark.parametrize(
    ("name", "sign"),
    [("p.csv", ","), ("p.csv", ";"), ("p.txt", "|"), ("p.txt", "\t"), ("p.tsv", "\t"), ("p.tab.gz", "\t")],
)
def test_the_separator_is_found(tmp_path: Path, store: Path, run: Run, name: str, sign: str) -> None:
    content = (
        sign.join(('"pin, or; the|like\tit"', "platform", "pin")) + "\r\n" + sign.join(("x", "echo", "5")) + "\r\n"
    )
    assert import_(run, store, write(tmp_path, name, content)).code == 0
    (task,) = stored(run, store)
    assert (task["target"]["parcel_id"], task["platform"]) == ("5", "echo")


def test_standard_input_needs_its_format_named(store: Path, run: Run) -> None:
    refused = run("import", "-", "--store", store)
    assert (refused.code, refused.err.splitlines()[0]) == (1, "error: standard input has no file name")
    assert "hint: add --format csv|tsv|json|jsonl" in refused.err
    arguments = ("import", "-", "--format", "csv", "--platform", "echo", "--store", store)
    assert "2 new tasks" in run_process(*arguments, answer=CSV).out


def test_importing_again_changes_nothing(tmp_path: Path, store: Path, run: Run) -> None:
    file = write(tmp_path, "p.csv", CSV)
    import_(run, store, file, "--platform", "echo")
    before = rows(store)
    ran = import_(run, store, file, "--platform", "echo")
    assert ran.out.splitlines()[-1] == "0 new tasks, 2 already known, 0 invalid rows."
    assert (ran.code, rows(store)) == (0, before)


def test_a_parcel_that_was_added_by_hand_is_known(tmp_path: Path, store: Path, run: Run) -> None:
    run("add", "echo", "0001-3", "--state", "CT", "--county", "hartford", "--extra", "Owner=Smith", "--store", store)
    document = import_(run, store, write(tmp_path, "p.csv", CSV), "--platform", "echo", "--json").document
    assert (document["new"], document["known"]) == (1, 1)


BAD = "platform,pin,priority\necho,1,\n,2,\necho,,\necho,4,soon\necho,5,,,\necho,6,high,?\necho,1.2E+11,\necho,8,2\n"
REASONS = {
    3: "platform is empty",
    4: "parcel_id is empty",
    5: "priority 'soon' is not one of urgent, high, normal, batch or 1 to 4",
    7: "4 values for 3 columns",
    8: "parcel_id 1.2E+11 was rounded by a spreadsheet: save that column as text",
}


def test_bad_rows_are_listed_and_the_rest_is_imported(tmp_path: Path, store: Path, run: Run) -> None:
    file, errors = write(tmp_path, "p.csv", BAD), tmp_path / "bad.csv"
    ran = import_(run, store, file, "--errors", errors)
    assert ran.code == 1
    assert ran.out.splitlines()[-1] == "3 new tasks, 0 already known, 5 invalid rows."
    assert [line.split(" (")[0] for line in ran.err.splitlines()] == [f"line {n}: {why}" for n, why in REASONS.items()]
    assert [one["target"]["parcel_id"] for one in stored(run, store)] == ["1", "5", "8"]
    with errors.open(newline="") as listed:
        header, *bad = csv.reader(listed)
    assert header == ["line", "reason", "text"]
    assert {int(line): reason for line, reason, _ in bad} == REASONS
    assert import_(run, store, file, "--allow-bad").code == 0


def test_json_says_the_same(tmp_path: Path, store: Path, run: Run) -> None:
    ran = import_(run, store, write(tmp_path, "p.csv", BAD), "--json")
    document = ran.document
    assert (ran.code, document["read"], document["new"], document["known"], document["bad"]) == (1, 8, 3, 0, 5)
    assert document["fields"] == {"platform": "platform", "parcel_id": "pin", "priority": "priority"}
    assert document["first_bad"] == [{"line": line, "reason": reason} for line, reason in REASONS.items()]


def test_twenty_bad_rows_are_shown_and_all_are_written(tmp_path: Path, store: Path, run: Run) -> None:
    file = write(tmp_path, "p.csv", "platform,pin\n" + "echo,\n" * 50)
    ran = import_(run, store, file)
    assert len(ran.err.splitlines()) == 21
    assert ran.err.splitlines()[-1] == "and 30 more invalid rows: use --errors PATH to save them all"
    errors = tmp_path / "bad.csv"
    assert f"all are in {errors}" in import_(run, store, file, "--errors", errors).err
    assert len(errors.read_text().splitlines()) == 51


def test_what_the_store_itself_refuses_is_a_bad_row(tmp_path: Path, store: Path, run: Run) -> None:
    wide = "x" * 100_000
    entries = [{"pin": "1", "a": "y"}, {"pin": "2", "a": wide, "b": wide, "c": wide}, {"pin": "p" * 600}, {"pin": "4"}]
    ran = import_(run, store, write(tmp_path, "p.json", json.dumps(entries)), "--platform", "echo")
    first, second = ran.err.splitlines()
    assert first.startswith("entry 2: target takes 300,")
    assert second == "entry 3: target.parcel_id has 600 characters; at most 512 are allowed"
    assert [one["target"]["parcel_id"] for one in stored(run, store)] == ["1", "4"]


def test_an_id_that_means_another_parcel_already_is_a_bad_row(tmp_path: Path, store: Path, run: Run) -> None:
    import_(run, store, write(tmp_path, "a.csv", "id,pin\n1,a\n2,b\n"), "--platform", "echo")
    ran = import_(run, store, write(tmp_path, "b.csv", "id,pin\n1,a\n2,x\n3,c\n3,d\n"), "--platform", "echo")
    assert ran.out.splitlines()[-1] == "1 new task, 1 already known, 2 invalid rows."
    assert ran.err.splitlines() == [
        "line 3: task ID '2' already belongs to parcel 'b'",
        "line 5: task ID '3' already belongs to parcel 'c'",
    ]


def test_a_dry_run_shows_all_and_stores_nothing(tmp_path: Path, store: Path, run: Run) -> None:
    file = write(tmp_path, "p.csv", "Tax Key,ST,State,Owner\n" + "1,x,NY,Ann\n,,NY,\n" * 10)
    arguments = ("--map", "parcel_id=tax key", "--platform", "echo", "--state", "WI", "--dry-run")
    ran = import_(run, store, file, *arguments)
    assert (ran.code, store.exists()) == (0, False)
    assert ran.out.splitlines()[:7] == [
        "parcel_id      column 'Tax Key'",
        "platform       'echo' for all rows",
        "state          'WI' for all rows",
        "county         empty: no column recognized",
        "extra 'ST'     column 'ST'",
        "extra 'Owner'  column 'Owner'",
        "not used       column 'State': set by an option",
    ]
    assert ran.out.count('{"ST":"x","Owner":"Ann"}') == 3
    assert "line 3: parcel_id is empty" in ran.out
    assert ran.out.endswith("\nNothing was stored.\n")
    document = import_(run, store, file, *arguments, "--json").document
    assert document["columns"]["unused"] == ["State"]
    assert [one["target"]["state"] for one in document["first"]] == ["WI"] * 3
    assert not store.exists()


@pytest.mark.parametrize(
    ("name", "content", "arguments", "error", "hint"),
    [
        ("p.csv", "Tax Key,Town\n1,x\n", (), "has no column recognized as platform or parcel_id; its columns "
         "are 'Tax Key', 'Town'", "--platform NAME --map parcel_id='Tax Key'"),
        ("p.csv", CSV, ("--map", "url=Page"), "has no column 'Page'", "its columns are 'Parcel No', 'State',"),
        ("p.csv", CSV, ("--map", "owner=Owner"), "--map 'owner=Owner' is not FIELD=COLUMN", "for example: --map"),
        ("p.csv", "", (), "is empty", "check the file"),
        ("p.csv", "\n \n", (), "is empty", "check the file"),
        ("p.xlsx", "PK", (), "cannot tell the format of", "add --format csv|tsv|json|jsonl"),
        ("p.csv", "a,b\n".encode("utf-16"), (), "is encoded in UTF-16", "iconv -f UTF-16 -t UTF-8"),
        ("p.csv", "pin\r1\r2\r", (), "lines end with CR only", "convert the file"),
        ("p.csv", "x" * 200_000, (), "the header row cannot be read: field larger than", "check the first line"),
        ("p.csv", "x" * 2_000_000, (), "the line is longer than 1,048,576 bytes", "correct"),
        ("p.csv", b"\x1f\x8bnonsense", (), "is incomplete or damaged", "get a complete copy"),
        ("p.csv", gzip.compress(CSV.encode(), mtime=0)[:-20], (), "is incomplete or damaged", "get a complete copy"),
        ("p.json", "[]", (), "no rows could be read: the file has no rows", "check the file"),
        ("p.jsonl", "nonsense\n", (), "no rows could be read: line 1: not valid JSON", "check the file"),
    ],
)  # fmt: skip
def test_a_file_that_cannot_be_understood_is_an_error_that_says_what_to_do(
    tmp_path: Path, store: Path, run: Run, name: str, content: str | bytes, arguments: tuple[str, ...], error: str,
    hint: str,
) -> None:  # fmt: skip
    ran = import_(run, store, write(tmp_path, name, content), *arguments)
    first, second = ran.err.splitlines()
    assert ran.code == 1
    assert first.startswith("error: ")
    assert error in first
    assert second.startswith("hint: ")
    assert hint in second
    assert not store.exists()


def test_files_that_cannot_be_opened_are_named(tmp_path: Path, store: Path, run: Run) -> None:
    missing = tmp_path / "none.csv"
    assert import_(run, store, missing).err.startswith(f"error: cannot read {missing}: No such file")
    file = write(tmp_path, "p.csv", CSV)
    ran = import_(run, store, file, "--platform", "echo", "--errors", file)
    assert ran.err.startswith("error: --errors names the file being imported")
    ran = import_(run, store, file, "--platform", "echo", "--errors", tmp_path / "none" / "bad.csv")
    assert ": No such file" in ran.err
    assert file.read_text() == CSV
    assert not store.exists()


def test_a_cut_gzip_file_leaves_what_was_read_and_says_so(tmp_path: Path, store: Path, run: Run) -> None:
    lines = (f"echo,{n},{hashlib.sha256(b'%d' % n).hexdigest()}\n" for n in range(8_000))  # nothing packs them well
    file = write(tmp_path, "p.csv.gz", "platform,pin,note\n" + "".join(lines))
    file.write_bytes(file.read_bytes()[:-5_000])
    ran = import_(run, store, file)
    assert ran.code == 1
    assert f"error: {file} is incomplete or damaged: " in ran.err  # on a slow machine behind its progress
    assert "import it again" in ran.err
    assert len(stored(run, store)) == 100


def test_on_a_disk_that_is_nearly_full_it_says_that_of_the_disk(
    tmp_path: Path, store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PARCELPOST_STORAGE_MIN_FREE_BYTES", str(1 << 60))
    ran = import_(run, store, write(tmp_path, "p.csv", CSV), "--platform", "echo")
    error, hint = ran.err.splitlines()
    assert error.startswith("error: the disk is nearly full (")
    assert error.endswith("stopped after 0 tasks")
    assert hint == "hint: free some disk space, then import again to continue"


def test_at_the_stores_cap_it_stops_and_says_how_to_go_on(tmp_path: Path, store: Path, run: Run) -> None:
    file = write(tmp_path, "p.csv", CSV)
    import_(run, store, file, "--platform", "echo")
    change(store, "UPDATE storage_usage SET bytes = 1 << 30 WHERE kind = 'raw'")
    ran = import_(run, store, file, "--platform", "echo")
    assert ran.code == 1
    assert ran.err.startswith("error: the store is nearly full (1.0 GiB of at most 1.0 GiB")
    assert "then import again to continue" in ran.err
    assert len(stored(run, store)) == 2


ROWS = "platform,pin\necho,1\nehco,2\nECHO,3\ntheirs,4\nehco,5\n"


def test_a_platform_that_is_not_known_is_a_bad_row_and_known_however_it_is_written(
    tmp_path: Path, store: Path, run: Run
) -> None:
    ran = import_(run, store, write(tmp_path, "p.csv", ROWS))
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "line 3: unknown platform 'ehco' (did you mean echo?)",
        "line 5: unknown platform 'theirs'",
        "line 6: unknown platform 'ehco' (did you mean echo?)",
    ]
    assert [task["platform"] for task in stored(run, store)] == ["echo", "echo"]


PLACES = """pin,state,county,url
1,FL,Columbia County,
2,Florida,COLUMBIA,
3,FL,columbus,
4,ZZ,columbia,
5,FL,elsewhere,https://example.org/5
6,FL,,
"""


def test_a_county_that_the_platform_does_not_know_is_a_bad_row_and_spellings_are_one(
    tmp_path: Path, store: Path, run: Run
) -> None:
    ran = import_(run, store, write(tmp_path, "p.csv", PLACES), "--platform", "grizzly_gis")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "line 4: grizzly_gis has no known site for columbus, FL (did you mean columbia, FL?)",
        "line 5: unknown state 'ZZ'",
        "line 7: grizzly_gis needs a county, or the URL of the parcel's page",
    ]
    places = [(one["target"]["state"], one["target"]["county"]) for one in stored(run, store)]
    assert places == [("FL", "columbia"), ("FL", "columbia"), ("FL", "elsewhere")]


def test_the_same_parcel_in_another_spelling_of_its_county_is_known(tmp_path: Path, store: Path, run: Run) -> None:
    rows = "pin,state,county\n1,CT,Invented County\n1,ct,invented\n1,Connecticut, INVENTED\n"
    ran = import_(run, store, write(tmp_path, "p.csv", rows), "--platform", "echo")
    assert ran.out.splitlines()[-1] == "1 new task, 2 already known, 0 invalid rows."


def test_a_row_with_fewer_values_than_columns_is_bad(tmp_path: Path, store: Path, run: Run) -> None:
    """Where it was cut cannot be told: what is there may be another column's. Columns without a name count for none."""
    rows = "pin,state,county,\n1,CT,x\n2,CT\n\n3,CT,x,\n4\n"
    ran = import_(run, store, write(tmp_path, "p.csv", rows), "--platform", "echo")
    assert ran.code == 1
    assert ran.err.splitlines() == [
        "line 3: 2 values for 4 columns (2,CT)",
        "line 6: 1 values for 4 columns (4)",
    ]
    assert [one["target"]["parcel_id"] for one in stored(run, store)] == ["1", "3"]


def test_any_platform_is_taken_on_demand(tmp_path: Path, store: Path, run: Run) -> None:
    assert import_(run, store, write(tmp_path, "p.csv", ROWS), "--any-platform").code == 0
    assert [task["platform"] for task in stored(run, store)] == ["echo", "ehco", "ECHO", "theirs", "ehco"]


def test_a_platform_of_all_rows_that_is_not_known_ends_the_import_before_it_begins(
    tmp_path: Path, store: Path, run: Run
) -> None:
    file = write(tmp_path, "p.csv", "pin\n1\n")
    ran = import_(run, store, file, "--platform", "ehco")
    assert (ran.code, ran.out) == (1, "")
    assert ran.err.startswith("error: unknown platform 'ehco' (did you mean echo?)\nhint: known platforms: arcgis, ")
    assert "--any-platform" in ran.err
    assert not store.exists()
    assert import_(run, store, file, "--platform", "Echo").code == 0
    assert [task["platform"] for task in stored(run, store)] == ["echo"]


def test_platforms_of_the_settings_are_known(
    tmp_path: Path, store: Path, run: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path, "parcelpost.toml", '[platforms.mine]\nscrape = "nowhere:at_all"\n')
    assert import_(run, store, write(tmp_path, "p.csv", "pin\n1\n"), "--platform", "mine").code == 0
