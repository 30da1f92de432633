"""Which index files stay: those that are sound, in the log, and leave out no record before their end."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.derive import offset_of
from mqstore.formats.index_file import HEADER, HEADER_BYTES
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.index.compare import IndexAudit, IndexFiles, index_edits, load_index, stored_files, uncovered

from ...stores import config_set, unpack
from ..broker.batches import batch_of

NAME = "5.3.3-clean"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return unpack(NAME, tmp_path)


def snapshot_of(root: Path) -> Snapshot:
    return Snapshot.of(Layout.open(root, BrokerConfig().with_set(config_set(NAME, root))))


def patch(root: Path, number: int, name: str, value: int, size: int) -> None:
    """Another value in the header of an index file."""
    path = sorted((root / "index").iterdir())[number]
    with path.open("r+b") as file:
        file.seek(offset_of(HEADER, name))
        file.write(value.to_bytes(size))


def test_files_with_other_names_are_passed_over(root: Path) -> None:
    """As a load does: what is no number of 64 bits to Java, in any digits; a directory, too."""
    names = sorted(path.name for path in (root / "index").iterdir())
    (root / "index" / "20991231x").write_bytes(bytes(HEADER_BYTES))
    (root / "index" / ("9" * 20)).write_bytes(bytes(HEADER_BYTES))
    (root / "index" / "\u0663").write_bytes(bytes(HEADER_BYTES))
    (root / "index" / "20991231").mkdir()
    assert [file.entry.name for file in stored_files(snapshot_of(root).index)] == [*names, "\u0663"]


def test_after_a_crash_files_newer_than_the_checkpoint_go(root: Path) -> None:
    entries = snapshot_of(root).index
    files = list(stored_files(entries))
    assert len(files) > 2
    for number in (0, 1, len(files) - 1):
        time = files[number].header.end_timestamp
        found = load_index(entries, True, time)
        assert found.kept == [file for file in files if file.header.end_timestamp <= time]
        assert found.deleted == [file for file in files if file.header.end_timestamp > time]
    assert load_index(entries, False, 0).kept == files
    assert load_index(entries, True, 0).kept == []


@pytest.mark.parametrize(
    ("name", "value", "size"),
    [
        ("end_physical_offset", 0, 8),
        ("begin_timestamp", 1 << 50, 8),
        ("index_count", 1, 4),
        ("index_count", (1 << 31) - 1, 4),
    ],
)
def test_the_first_unsound_file_ends_what_stays(name: str, value: int, size: int, root: Path) -> None:
    """All behind it are made anew, from where the one before it ends."""
    files = IndexFiles.of(snapshot_of(root))
    assert files.good == len(files.files) > 2
    patch(root, 1, name, value, size)
    snapshot = snapshot_of(root)
    found = IndexFiles.of(snapshot)
    assert (found.good, found.ranges) == (1, files.ranges[:1])
    fix = IndexAudit.of(found, 1 << 40, tagged=False).finish()
    assert fix is not None and fix.indexed_to == files.ranges[0][1]
    *moves, rebuild = index_edits(snapshot, fix)
    assert [move.path for move in moves] == [file.entry.path for file in files.files[1:]]
    assert (rebuild.kind, rebuild.offset) == ("rebuild", fix.indexed_to)


def test_files_that_reach_behind_the_log_or_into_a_hole_of_it_go(root: Path) -> None:
    files = IndexFiles.of(snapshot_of(root))
    assert IndexAudit.of(files, files.ranges[-1][1] + 1, tagged=False).finish() is None
    cut = IndexAudit.of(files, files.ranges[1][1], tagged=False)
    assert (cut.good, cut.ranges, cut.given_up) == (1, files.ranges[:1], files.ranges[1:])
    begin, end = files.ranges[1]
    assert begin == files.ranges[0][1], "the keys of one record are in two files"
    for stretch, good in (((begin, begin + 1), 0), ((end, end + 50), 1), ((end + 1, end + 2), len(files.files))):
        audit = IndexAudit.of(files, 1 << 40, tagged=False)
        audit.note_blanks([stretch])
        assert audit.good == good, stretch


def test_all_files_go_where_one_that_goes_is_about_older_records(root: Path) -> None:
    """An index put together from two backups: the file with the oldest records has the newest name."""
    ordered = IndexFiles.of(snapshot_of(root))
    assert len(ordered.fix(ordered.files[:2]).gone) == len(ordered.files) - 2
    oldest = min((root / "index").iterdir())
    oldest.rename(oldest.with_name("20991231000000000"))
    files = IndexFiles.of(snapshot_of(root))
    assert files.ranges[-1] == ordered.ranges[0]
    fix = files.fix(files.files[:1])
    assert (fix.last_kept, len(fix.gone)) == (None, len(files.files))


def test_what_lies_behind_the_end_of_the_log_need_not_be_covered(root: Path) -> None:
    """Before it a record with keys that no file has ends what stays, at the file before it."""
    batch = batch_of([{}, {"KEYS": "a"}], topic=b"T")
    position = int(batch.position[1])
    none = IndexFiles.of(snapshot_of(root))._replace(files=[], good=0)
    for log_end, fix in ((position, None), (position + 1, (None, []))):
        audit = IndexAudit.of(none, log_end, tagged=False)
        audit.records(batch)
        assert audit.finish() == fix


def test_a_record_with_keys_that_no_file_covers_is_found() -> None:
    """The first of them, whatever lies between; one without a key lacks nothing."""
    batch = batch_of([{"KEYS": "a"}, {}, {"UNIQ_KEY": "b"}, {"TAGS": "c"}], topic=b"T")
    first, second, third, last = batch.position.tolist()
    assert uncovered([], batch, tagged=False) == first
    assert uncovered([(first, first)], batch, tagged=False) == third
    assert uncovered([(first, first), (third, third)], batch, tagged=False) is None
    assert uncovered([(first, third)], batch, tagged=True) == last
    assert uncovered([(0, last - 1), (last + 1, 1 << 40)], batch, tagged=True) == last
    assert uncovered([(first + 1, second)], batch.take(np.array([0, 1])), tagged=True) == first
