"""Raw pages on disk: where they are, who may read them, and that nobody's bytes are ever touched again (I6)."""

from __future__ import annotations

import asyncio
import gzip
import os
import shutil
import stat
from pathlib import Path

from parcelpost.clock import ManualClock
from parcelpost.storage import LocalPersistenceManager
from tests.storage.factories import a_result, a_task, claim_one, deliver, list_results, look, save_one
from tests.storage.test_raw_file_names import HOSTILE


def files_in(store: Path) -> set[str]:
    root = store.parent / "data"
    return {path.relative_to(root).as_posix() for path in root.rglob("?*.*") if path.is_file()}


async def test_a_page_is_kept_under_its_platform_state_county_and_parcel(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    entry = await save_one(lpm, "t1", a_result({"n": 1}, body=b"<p>1</p>"))
    assert entry.html_path == "vgsi/CT/hartford/1-2.html.gz"
    assert entry.json_path == "vgsi/CT/hartford/1-2.json"
    html = store.parent / "data" / "vgsi" / "CT" / "hartford" / "1-2.html.gz"
    assert lpm.raw_path(entry.html_path) == html
    assert gzip.decompress(html.read_bytes()) == b"<p>1</p>"
    assert html.with_name("1-2.json").read_text() == '{"n":1}'


async def test_a_large_page_is_kept_small(lpm: LocalPersistenceManager) -> None:
    body = b"<tr><td>the same row again</td></tr>" * 50_000
    entry = await save_one(lpm, "t1", a_result(body=body))
    assert entry.html_path is not None
    content = lpm.raw_path(entry.html_path).read_bytes()
    assert len(content) < len(body) / 20
    assert gzip.decompress(content) == body


async def test_only_the_owner_may_read_any_file_or_enter_any_folder(store: Path, clock: ManualClock) -> None:
    before = os.umask(0)
    try:
        async with LocalPersistenceManager.open(store, clock=clock) as lpm:
            await save_one(lpm, "t1", a_result(body=b"<p>"))
            await lpm.maintenance.backup()
            modes = {path: path.stat().st_mode for path in [store.parent, *store.parent.rglob("*")]}
    finally:
        os.umask(before)
    wrong = {
        str(path.relative_to(store.parent)): oct(stat.S_IMODE(mode))
        for path, mode in modes.items()
        if stat.S_IMODE(mode) != (0o700 if stat.S_ISDIR(mode) else 0o600)
    }
    assert wrong == {}
    kinds = {".db", ".gz", ".json", ".raw", ".lock"}
    assert kinds <= {path.suffix for path in modes}
    assert {"parcelpost.db-wal", "gate", "reserve"} <= {path.name for path in modes}


async def test_a_second_scrape_of_a_parcel_leaves_the_first_page_byte_for_byte(
    lpm: LocalPersistenceManager,
) -> None:
    """I6"""
    first = await save_one(lpm, "t1", a_result({"n": 1}, body=b"<p>1</p>"))
    assert first.html_path and first.json_path
    kept = lpm.raw_path(first.html_path), lpm.raw_path(first.json_path)
    before = [(path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in kept]
    second = await save_one(lpm, "t2", a_result({"n": 2}, body=b"<p>2</p>"))
    assert second.html_path and second.json_path
    assert [(path.read_bytes(), path.stat().st_ino, path.stat().st_mtime_ns) for path in kept] == before
    assert gzip.decompress(lpm.raw_path(second.html_path).read_bytes()) == b"<p>2</p>"
    assert lpm.raw_path(second.json_path).read_text() == '{"n":2}'
    assert second.html_path.startswith("vgsi/CT/hartford/1-2~")


async def test_the_same_page_any_number_of_times_is_kept_for_each_result(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    entries = [await save_one(lpm, f"t{n}", a_result(body=b"<p>same</p>")) for n in range(5)]
    assert len({entry.html_path for entry in entries}) == 5
    await deliver(lpm, entries[0].result_id)
    await lpm.maintenance.relieve()
    for entry in entries[1:]:
        assert entry.html_path is not None
        assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == b"<p>same</p>"
    assert len(files_in(store)) == 8


async def test_pages_of_one_parcel_at_once_get_files_of_their_own(lpm: LocalPersistenceManager, store: Path) -> None:
    await lpm.add_tasks(a_task(f"t{n}") for n in range(64))
    claims = await lpm.claim(64)
    await asyncio.gather(*(lpm.save_result(claim, a_result(body=b"%d" % (claim.seq % 7))) for claim in claims))
    entries = await list_results(lpm)
    assert len({entry.html_path for entry in entries}) == 64
    assert len(files_in(store)) == 128


async def test_names_that_differ_in_case_or_spaces_only_do_not_clash(lpm: LocalPersistenceManager, store: Path) -> None:
    for n, parcel_id in enumerate(["a1", "A1", "a1 ", " a1", "á1", "a\u03011"]):
        entry = await save_one(lpm, a_task(f"t{n}", parcel_id=parcel_id), a_result(body=parcel_id.encode()))
        assert entry.html_path is not None
        assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == parcel_id.encode()
    assert len(files_in(store)) == 12


async def test_a_name_that_the_file_system_holds_already_is_not_written_over(
    lpm: LocalPersistenceManager, store: Path
) -> None:
    """As on a file system that takes A1 and a1 for the same name."""
    folder = store.parent / "data" / "vgsi" / "CT" / "hartford"
    folder.mkdir(parents=True)
    (folder / "1-2.html.gz").write_bytes(b"somebody else's")
    entry = await save_one(lpm, "t1", a_result(body=b"<p>"))
    assert (folder / "1-2.html.gz").read_bytes() == b"somebody else's"
    assert entry.html_path is not None
    assert gzip.decompress(lpm.raw_path(entry.html_path).read_bytes()) == b"<p>"


async def test_a_link_is_never_followed_out_of_the_folder(
    lpm: LocalPersistenceManager, store: Path, tmp_path: Path
) -> None:
    outside = tmp_path / "outside"
    outside.write_bytes(b"precious")
    folder = store.parent / "data" / "vgsi" / "CT" / "hartford"
    folder.mkdir(parents=True)
    (folder / "1-2.html.gz").symlink_to(outside)
    entry = await save_one(lpm, "t1", a_result(body=b"<p>"))
    assert outside.read_bytes() == b"precious"
    assert entry.html_path is not None
    assert entry.html_path != "vgsi/CT/hartford/1-2.html.gz"


HOSTILE_BUT_STORED = [value for value in HOSTILE if "\0" not in value]


async def test_a_hostile_parcel_is_kept_inside_the_folder(lpm: LocalPersistenceManager, store: Path) -> None:
    for number, value in enumerate(HOSTILE_BUT_STORED):
        task = a_task(f"t{number}", parcel_id=value, state=value, county=value, platform=value or "p")
        entry = await save_one(lpm, task, a_result(body=value.encode()))
        assert entry.html_path is not None, value
        assert entry.parcel_id == value
        path = lpm.raw_path(entry.html_path)
        assert gzip.decompress(path.read_bytes()) == value.encode()
        assert path.resolve().is_relative_to((store.parent / "data").resolve())
        assert {child.name for child in store.parent.iterdir()} <= {
            "data", "parcelpost.db", "parcelpost.db-wal", "parcelpost.db-shm", "parcelpost.db-live"
        }, value  # fmt: skip


async def test_a_stale_claim_leaves_no_file(lpm: LocalPersistenceManager, store: Path) -> None:
    """I4"""
    claim = await claim_one(lpm)
    await lpm.give_up(claim, "no")
    assert await lpm.save_result(claim, a_result(body=b"<p>")) is None
    assert files_in(store) == set()


async def test_the_bytes_on_disk_are_tallied(lpm: LocalPersistenceManager, store: Path) -> None:
    for n in range(3):
        await save_one(lpm, f"t{n}", a_result(body=os.urandom(10_000)))
    ((tally,),) = look(store, "SELECT bytes FROM storage_usage WHERE kind = 'raw'")
    assert tally == 3 * (12_288 + 4_096)
    assert [(tally,)] == look(store, "SELECT sum(raw_bytes) FROM results")


async def test_a_folder_that_somebody_removed_is_made_again(lpm: LocalPersistenceManager, store: Path) -> None:
    await save_one(lpm, "t1", a_result(body=b"<p>1</p>"))
    shutil.rmtree(store.parent / "data" / "vgsi")
    entry = await save_one(lpm, "t2", a_result(body=b"<p>2</p>"))
    assert entry.html_path is not None
    assert lpm.raw_path(entry.html_path).exists()
