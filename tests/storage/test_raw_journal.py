"""Many pages, one fsync; and what is read back after a cut is whole or not there."""

from __future__ import annotations

from pathlib import Path

import pytest

from parcelpost.storage.raw_journal import JournalRecord, RawJournal, read_segment, segment_paths

RECORDS = [JournalRecord(f"a/b/c/{n}.html.gz", b"body %d" % n * n) for n in range(6)]


@pytest.fixture
def live(tmp_path: Path) -> Path:
    (tmp_path / "live").mkdir()
    return tmp_path / "live"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    for record in RECORDS:
        path = tmp_path / "data" / record.name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(record.body)
    return tmp_path / "data"


@pytest.fixture
def segment(live: Path, root: Path) -> Path:
    """A journal of all records, as a killed process leaves it."""
    journal = RawJournal(live, "o", root)
    journal.append(RECORDS[:2])
    journal.append(RECORDS[2:])
    content = segment_paths(live, "o")[0].read_bytes()
    journal.close()
    left = live / "left.0.raw"
    left.write_bytes(content)
    return left


def test_the_records_come_back_as_they_were(segment: Path) -> None:
    assert list(read_segment(segment)) == RECORDS


def test_names_and_bodies_may_be_anything(live: Path, root: Path) -> None:
    records = [JournalRecord("é/🏠.html.gz", bytes(range(256)) * 300), JournalRecord("empty.html.gz", b"")]
    journal = RawJournal(live, "o", root)
    journal.append(records)
    assert list(read_segment(segment_paths(live, "o")[0])) == records
    journal.close()


def test_a_cut_at_any_byte_leaves_the_whole_records_before_it(segment: Path) -> None:
    content = segment.read_bytes()
    for length in range(len(content)):
        segment.write_bytes(content[:length])
        found = list(read_segment(segment))
        assert found == RECORDS[: len(found)]
        assert len(found) < len(RECORDS)


def test_a_flipped_bit_at_any_byte_never_gives_another_record(segment: Path) -> None:
    content = segment.read_bytes()
    for position in range(len(content)):
        damaged = bytearray(content)
        damaged[position] ^= 0x10
        segment.write_bytes(damaged)
        found = list(read_segment(segment))
        assert found == RECORDS[: len(found)], f"a flip of byte {position} goes unnoticed"


def test_an_empty_segment_has_no_records(segment: Path) -> None:
    segment.write_bytes(b"")
    assert list(read_segment(segment)) == []
    segment.write_bytes(bytes(10_000))
    assert list(read_segment(segment)) == []


def test_a_segment_is_used_again_and_only_its_newest_pages_are_read(live: Path, root: Path) -> None:
    """Segments are not emptied before they are used again; each use is a generation."""
    journal = RawJournal(live, "o", root, segment_bytes=1)  # every append starts another segment
    journal.append(RECORDS)
    for n in range(40):
        journal.append([RECORDS[n % 6], RECORDS[(n + 1) % 6]])
    segments = segment_paths(live, "o")
    assert 1 < len(segments) < 10, "segments are used again, or the disk would fill"
    read = [list(read_segment(path)) for path in segments]
    assert [RECORDS[39 % 6], RECORDS[40 % 6]] in read
    assert all(len(records) == 2 or records == RECORDS for records in read)
    journal.close()


def test_a_segment_takes_pages_until_it_is_full(live: Path, root: Path) -> None:
    journal = RawJournal(live, "o", root, segment_bytes=200)
    for _ in range(100):
        journal.append(RECORDS[3:4])
    assert all(200 <= path.stat().st_size < 400 or path == segment_paths(live, "o")[-1] for path in live.iterdir())
    assert len(list(live.iterdir())) < 10
    journal.close()


def test_a_page_larger_than_a_segment_fits(live: Path, root: Path) -> None:
    journal = RawJournal(live, "o", root, segment_bytes=200)
    large = JournalRecord(RECORDS[0].name, b"x" * 10_000)
    journal.append([large])
    assert list(read_segment(segment_paths(live, "o")[0])) == [large]
    journal.close()


def test_closing_leaves_no_segment(live: Path, root: Path) -> None:
    journal = RawJournal(live, "o", root, segment_bytes=50)
    for record in RECORDS:
        journal.append([record])
    journal.close()
    assert list(live.iterdir()) == []


def test_a_journal_that_was_not_used_leaves_nothing(live: Path, root: Path) -> None:
    RawJournal(live, "o", root).close()
    assert list(live.iterdir()) == []


def test_files_that_are_gone_by_now_do_not_keep_a_journal_from_closing(live: Path, root: Path) -> None:
    journal = RawJournal(live, "o", root, segment_bytes=1)
    for record in RECORDS:
        (root / record.name).unlink()
        journal.append([record])
    journal.close()
    assert list(live.iterdir()) == []
