"""`parcelpost doctor --bundle`: what a helper needs, and nothing that is nobody's business."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import sqlite3
import stat
import tarfile
from pathlib import Path

import pytest

from parcelpost.cli.health import scrubber
from parcelpost.clock import SystemClock
from parcelpost.model import Page, Result, Source, Target, Task
from parcelpost.storage import LocalPersistenceManager
from tests.cli.support import Run, damage, make_full_store, make_store

OWNER = "Zebulon Quartermaine"
STREET = "742 Evergreen Terrace"
TOKEN = "tok-5f1e9a7b3c"
PASSWORD = "hunter2-in-a-url"
COOKIE = "sessionid=c00k1e-8842"
PARCEL = "R-0042-118-77"
PRIVATE = (OWNER, "Zebulon", "Quartermaine", STREET, "Evergreen", TOKEN, PASSWORD, COOKIE, "c00k1e", PARCEL)
LEAK = (
    f"the page of {OWNER}, {STREET} failed: https://admin:{PASSWORD}@example.org/{PARCEL} "
    f"(X-Worker-Token: {TOKEN}; Cookie: {COOKIE})"
)
NOW = "2026-11-16T10:00:00.000Z"
CHECKED = {"task_id", "checksum", "source", "status", "direction", "selector_type", "kind", "claim_token", "claimed_by"}
CHECKED |= {"html_path", "raw_sha256", "ended_by", "rejected_by"}
"""Columns whose values are a closed list, or bound to others."""
OPEN_ENDED = {"completed_at", "synced_at", "rejected_at"}
"""Times that are there only in a certain state."""


@pytest.fixture(autouse=True)
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    for name in [name for name in os.environ if name.startswith("PARCELPOST_")]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("PARCELPOST_WORKER_MODE", "standalone")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def leaking_store(path: Path, *, times: bool) -> Path:
    """One whose every text column holds what must not leave it, as far as its CHECKs let it; with `times` those too."""

    async def make() -> None:
        async with LocalPersistenceManager.open(path) as lpm:
            for number in range(4):
                target = Target(parcel_id=f"{PARCEL}-{number}", state="CT", county="hartford", url=LEAK)
                await lpm.add_task(
                    Task(task_id=f"{PARCEL}-{number}", platform="vgsi", target=target, source=Source.CLI)
                )
            first, second, third = await lpm.claim(3)
            data = {"owner_names": [OWNER], "address": STREET}
            page = Page(body=f"<p>{LEAK}".encode())
            result = await lpm.save_result(first, Result(data=data, scraped_at=SystemClock().now(), page=page))
            assert result is not None
            await lpm.mark_rejected([result], LEAK)
            await lpm.give_up(second, LEAK)
            await lpm.retry_later(third, LEAK)
            await lpm.pause_platform("vgsi", reason=LEAK)

    asyncio.run(make())
    with contextlib.closing(sqlite3.connect(path)) as db:
        for table in [name for (name,) in db.execute("SELECT name FROM sqlite_schema WHERE type = 'table'")]:
            _fill(db, table, times=times)
        db.commit()
    return path


def _fill(db: sqlite3.Connection, table: str, *, times: bool) -> None:
    """Adds a row where there is none, then writes into every text column that takes it."""
    if table.startswith("sqlite_"):
        return
    columns = {row[1]: row[2] for row in db.execute(f"PRAGMA table_info({table})")}
    if not db.execute(f"SELECT count(*) FROM {table}").fetchone()[0]:
        own = {"direction": "upload", "selector_type": "css", "status": "idle", "synced_at": None}
        kinds = {"TEXT": LEAK, "BLOB": LEAK.encode()}
        values = {name: own.get(name, NOW if _is_time(name) else kinds.get(kind, 0)) for name, kind in columns.items()}
        db.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(values))})", list(values.values()))
    end = "" if table == "artifacts" else " || rowid"
    for name, kind in columns.items():
        if kind == "TEXT" and name not in ("task_id", "checksum") and times >= _is_time(name):
            with contextlib.suppress(sqlite3.IntegrityError):
                db.execute(f"UPDATE {table} SET {name} = ?{end}", (LEAK,))
    kept = [name for name, kind in columns.items() if kind == "TEXT" and not _holds(db, table, name)]
    allowed = {*CHECKED, *(name for name in columns if _is_time(name))} if not times else {*CHECKED, *OPEN_ENDED}
    assert set(kept) <= allowed, (table, kept)


def _is_time(name: str) -> bool:
    return name.endswith("_at") or name in ("timestamp", "last_accessed", "last_health_check", "last_modified")


def _holds(db: sqlite3.Connection, table: str, name: str) -> bool:
    return bool(db.execute(f"SELECT count(*) FROM {table} WHERE instr({name}, ?)", (OWNER,)).fetchone()[0])


def unpacked(bundle: Path) -> dict[str, bytes]:
    found = {}
    with tarfile.open(bundle) as archive:
        for member in archive.getmembers():
            file = archive.extractfile(member)
            assert file is not None
            found[member.name.rpartition("/")[2]] = file.read()
    return found


@pytest.mark.parametrize("times", [False, True])
def test_nothing_private_is_in_it_wherever_it_was(
    here: Path, run: Run, monkeypatch: pytest.MonkeyPatch, times: bool
) -> None:
    store = leaking_store(here / OWNER / "parcelpost.db", times=times)
    log = here / "worker.log"
    event = {"time": LEAK, "level": "error", "event": "TaskFailed", "error": LEAK, "task_id": PARCEL, LEAK: LEAK}
    log.write_text(
        f"12:03:04 error   {LEAK}\n{json.dumps(event)}\n{json.dumps({'event': LEAK})}\nTraceback: {LEAK}\n{LEAK}\n"
    )
    for name in ("PARCELPOST_GATEWAY_TOKEN", "PARCELPOST_FETCH_PROXY_LOGIN", "PGPASSWORD"):
        monkeypatch.setenv(name, TOKEN)
    monkeypatch.setenv(f"PARCELPOST_{TOKEN}", LEAK)
    (here / "parcelpost.toml").write_text(
        f"""[worker]\nid = "{PARCEL}"\n[fetch]\nuser_agent = "{OWNER}"\ncontact = "{STREET}"
        [server]\ndatabase = "postgresql://admin:{PASSWORD}@host/db"\n[log]\nlevel = "{COOKIE}"
        [platforms.{OWNER.split(maxsplit=1)[0]}]\nscrape = "a.b:c"\n"""
    )
    ran = run("doctor", "--bundle", "b.tar.gz", "--log", log, "--store", store)
    assert ran.code == 0, ran.err
    members = unpacked(here / "b.tar.gz")
    assert len(members) == 11
    for name, content in members.items():
        for private in PRIVATE:
            assert private.encode() not in content, (name, private, content[:2_000])
    if not times:
        newest = json.loads(members["errors.json"])["newest"]
        assert any("failed:" in error["error"] for error in newest), "or nothing was looked at"
    assert ("error" in json.loads(members["state.json"])) is times, "what cannot be read is said to be so"
    for private in (OWNER, TOKEN, PASSWORD):
        assert private not in ran.out.replace(str(store), "")


def test_what_a_helper_needs_is_in_it(here: Path, run: Run) -> None:
    make_full_store(here / "local_data" / "parcelpost.db")
    ran = run("doctor", "--bundle", "--json")
    assert ran.code == 0
    packed = ran.document
    path = Path(packed["path"])
    assert path.name.startswith("parcelpost-support-2")
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    members = {name: json.loads(content) for name, content in unpacked(path).items()}
    assert set(members) == {one["name"] for one in packed["members"]}
    assert members["versions.json"]["packages"]["msgspec"]
    assert members["versions.json"]["sqlite"] == sqlite3.sqlite_version
    assert members["settings.json"]["settings"]["worker.mode"] == {"value": "standalone", "from": "environment"}
    assert members["settings.json"]["settings"]["sync.batch_size"] == {"value": 50, "from": "default"}
    assert members["counts.json"]["rows"]["tasks"] == 7
    assert members["counts.json"]["tasks"][0]["platform"] == "vgsi"
    assert members["counts.json"]["tasks"][0]["expired"] == 1
    assert all(one["known"] for one in members["schema.json"]["applied"])
    assert (members["schema.json"]["missing"], members["schema.json"]["unknown"]) == ([], 0)
    assert members["state.json"]["queue"]["rejected"] == 1
    errors = [one["error"] for one in members["errors.json"]["newest"]]
    assert "the page has no table" in errors
    assert "outbox.rejected" in {one["id"] for one in members["findings.json"]["findings"]}


def test_what_another_user_compiled_is_not_read(tmp_path: Path) -> None:
    """It may be closed to us; a bundle needs the sources only."""
    (tmp_path / "worker" / "__pycache__").mkdir(parents=True)
    (tmp_path / "worker" / "__pycache__" / "left.py").write_text("zzunheardof")
    (tmp_path / "worker" / "loops.py").write_text("zzheardof")
    assert scrubber.source_texts(tmp_path) == ["zzheardof"]


def test_the_same_parcel_has_the_same_name_in_every_bundle(here: Path, run: Run) -> None:
    make_full_store(here / "local_data" / "parcelpost.db")
    names = []
    for number in range(2):
        assert run("doctor", "--bundle", f"{number}.tar.gz").code == 0
        newest = json.loads(unpacked(here / f"{number}.tar.gz")["errors.json"])["newest"]
        names.append([one["parcel"] for one in newest])
    assert names[0] == names[1]
    assert all(name.startswith("parcel-") for name in names[0])


def test_nothing_is_overwritten(here: Path, run: Run) -> None:
    (here / "b.tar.gz").write_text("mine")
    ran = run("doctor", "--bundle", "b.tar.gz")
    assert ran.code == 1
    assert "already exists" in ran.err
    assert (here / "b.tar.gz").read_text() == "mine"


def test_it_says_what_is_in_it_and_how_to_look(here: Path, run: Run) -> None:
    out = run("doctor", "--bundle", "b.tar.gz").out
    assert "Wrote b.tar.gz (" in out
    assert "settings.json" in out
    assert "Review it before you send it: tar -xzOf b.tar.gz | less" in out


def test_it_is_made_of_a_store_that_cannot_be_read(here: Path, run: Run) -> None:
    store = make_store(here / "parcelpost.db", tasks=2_000)
    damage(store)
    assert run("doctor", "--bundle", "b.tar.gz", "--store", store).code == 0
    assert "StoreCorrupt" in unpacked(here / "b.tar.gz")["counts.json"].decode()


def test_a_log_that_is_not_there_is_told(here: Path, run: Run) -> None:
    ran = run("doctor", "--bundle", "--log", "none.log")
    assert ran.code == 1
    assert "the log none.log cannot be read: No such file" in ran.err


def test_a_file_goes_with_bundle(here: Path, run: Run) -> None:
    assert run("doctor", "b.tar.gz").code == 1
