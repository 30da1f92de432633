"""What fills a gap, to the byte; the commit log as a plan leaves it: what lies over the files is read as if it were
there.
"""

from __future__ import annotations

import os
import tracemalloc
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.message import MESSAGE, SMALLEST
from mqstore.formats.message_properties import CRC_ITEM_BYTES, crc_item, crc_ok, parse
from mqstore.formats.tombstone import LOST_ITEM
from mqstore.store.disk.byte_reader import Unread
from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue, file_name
from mqstore.store.errors import Refused
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.plan.fill import PatchedQueue, _cut_apart, encoded, fills, padded
from mqstore.store.plan.gaps import Forms, Gap

from .tombstones import BARE_RECORD, FORMS, MADE_MS, lost

PAGE_BYTES = 4096
FILE_BYTES = 4 * PAGE_BYTES
#: Three files; the second is shorter than it will be, the third is not there.
SIZES = (FILE_BYTES, PAGE_BYTES)
PLACES = st.integers(0, 3 * FILE_BYTES - 1)
BYTES = st.binary(min_size=1, max_size=8).map(lambda data: data.replace(b"\0", b"\1"))


def write_pages(folder: Path, pages: set[int]) -> None:
    """Files with holes: only these pages hold data."""
    for number, size in enumerate(SIZES):
        with (folder / file_name(number * FILE_BYTES)).open("wb") as file:
            file.truncate(size)
            for page in pages:
                at = page * PAGE_BYTES - number * FILE_BYTES
                if 0 <= at < size:
                    os.pwrite(file.fileno(), b"\xee" * PAGE_BYTES, at)


def as_it_will_be(folder: Path, pieces: list[tuple[int, bytes]]) -> bytes:
    """All bytes of the three files, one after the other, with the pieces in them."""
    data = bytearray()
    for number in range(3):
        path = folder / file_name(number * FILE_BYTES)
        data += (path.read_bytes() if path.exists() else b"").ljust(FILE_BYTES, b"\0")
    for position, piece in sorted(pieces, key=lambda found: found[0]):
        data[position : position + len(piece)] = piece
    return bytes(data[: 3 * FILE_BYTES])


@given(
    pages=st.sets(st.integers(0, 7), max_size=5),
    pieces=st.lists(st.tuples(PLACES, BYTES), max_size=6, unique_by=lambda piece: piece[0]),
    reads=st.lists(st.tuples(PLACES, st.integers(0, 2 * PAGE_BYTES)), min_size=1, max_size=8),
)
def test_reads_and_holes(pages: set[int], pieces: list[tuple[int, bytes]], reads: list[tuple[int, int]]) -> None:
    with TemporaryDirectory() as name:
        folder = Path(name)
        write_pages(folder, pages)
        starts = [number * FILE_BYTES for number in range(3)]
        files = [MappedFile(str(folder / file_name(at)), at, FILE_BYTES) for at in starts]
        present = {file.path: size for file, size in zip(files, SIZES, strict=False)}
        expected = as_it_will_be(folder, pieces)
        with MappedFileQueue.open(folder, FILE_BYTES) as base:
            queue = PatchedQueue(base, files, present, pieces)
            for position, size in reads:
                file, at = files[position // FILE_BYTES], position % FILE_BYTES
                here = expected[file.start : file.start + FILE_BYTES]
                buffer = bytearray(b"\xaa" * size)
                read = queue.read_into(file, at, memoryview(buffer))
                assert queue.read_file(file, at, size) == here[at : at + size]
                assert bytes(buffer[:read]) == here[at : at + size]
                found = queue.next_data(file, at)
                assert not any(here[at:found]), "data were passed over"
                assert found is None or (found >= at and here[found])


def test_of_pieces_over_one_another_the_later_counts() -> None:
    whole = [(10, b"0123456789"), (13, b"abc"), (30, b"x")]
    assert _cut_apart(whole) == [(10, b"012"), (13, b"abc"), (16, b"6789"), (30, b"x")]


def test_a_gap_is_closed_without_a_byte_left() -> None:
    gap = Gap(1000, 3000, False, 5)
    closed = fills([gap], lost((1200, 300, "a"), (1500, 200, "b")), FORMS)[0]
    assert closed.fillers == [(1000, 200), (1700, 1300)] and closed.blank is None
    pieces = sorted(encoded([closed], FORMS, {}))
    assert sum(len(data) for _, data in pieces) == 2000
    assert [position for position, _ in pieces] == [1000, 1200, 1700]


def test_a_rest_too_small_goes_to_the_tombstone_beside_it() -> None:
    gap = Gap(1000, 2000, False, 5)
    units = lost((1000 + SMALLEST, 300, "a"), (1400, 400, "b"), (1802, 190, "c"))
    closed = fills([gap], units, FORMS)[0]
    assert closed.lost.position.tolist() == [1000, 1400, 1802]
    assert closed.lost.size.tolist() == [SMALLEST + 300 + (1400 - 1300 - SMALLEST), 402, 198]
    assert not closed.fillers and closed.blank is None
    assert sum(len(data) for _, data in encoded([closed], FORMS, {})) == gap.end - gap.begin
    to_end = fills([Gap(1000, 2000, True, 5)], lost((1000, 995, "a")), FORMS)[0]
    assert len(to_end.lost) == 0 and to_end.blank == (1000, 1000)


@pytest.mark.parametrize("append_crc", [False, True])
def test_a_gap_too_small_for_any_record(append_crc: bool) -> None:
    """A record that ends with a checksum of all its bytes is larger by that."""
    forms = FORMS._replace(append_crc=append_crc)
    size = SMALLEST + CRC_ITEM_BYTES * append_crc  # and the topic's name would be one more
    padded = fills([Gap(1000, 1000 + size, False, 5, 800)], lost(), forms)[0]
    assert padded.padding == size
    with pytest.raises(Refused, match="too few for a record"):
        fills([Gap(1000, 1000 + size, False, 5)], lost(), forms)
    filled = fills([Gap(1000, 1000 + size + 1, False, 5, 800)], lost(), forms)
    assert [len(data) for _, data in encoded(filled, forms, {})] == [size + 1]


@pytest.mark.parametrize("time", [0, 5])
def test_all_has_a_time(time: int) -> None:
    """That of the record before; where there is none, of the recovery (I-027)."""
    made = encoded(fills([Gap(0, 1000, False, time)], lost((0, 300, "TopicA")), FORMS), FORMS, {})
    records = [MESSAGE.parse(data) for _, data in made]
    assert len(records) == 2
    assert {(r.store_timestamp, r.born_timestamp) for r in records} == {(time or MADE_MS,) * 2}


@pytest.mark.parametrize("append_crc", [False, True])
def test_padding_keeps_the_checksum_of_the_whole(append_crc: bool) -> None:
    text = b"KEYS\x01a\x02"
    bare = {**BARE_RECORD, "properties": text + bytes(CRC_ITEM_BYTES if append_crc else 0)}
    record = MESSAGE.build(bare)
    if append_crc:
        record = record[:-CRC_ITEM_BYTES] + crc_item(record[:-CRC_ITEM_BYTES])
    made = padded(record, 5)
    assert len(made) == len(record) + 5
    assert crc_ok(made) is (True if append_crc else None)
    assert parse(MESSAGE.parse(made).properties)["KEYS"] == "a"
    with pytest.raises(ValueError, match="no room"):
        padded(record, 1 << 15)


def test_large_fillers_are_split() -> None:
    size = (8 << 20) + 50
    closed = fills([Gap(0, size, False, 5)], lost(), FORMS)[0]
    assert sum(part for _, part in closed.fillers) == size
    assert all(FORMS.smallest_filler <= part <= 4 << 20 for _, part in closed.fillers)


def test_fillers_are_made_a_few_at_a_time() -> None:
    closed = fills([Gap(0, 64 << 20, False, 5)], lost(), FORMS)
    tracemalloc.start()
    try:
        made = sum(len(piece) for _, piece in encoded(closed, FORMS, {}))
        assert made == 64 << 20 and tracemalloc.get_traced_memory()[1] < 96 << 20
    finally:
        tracemalloc.stop()


def test_a_small_record_goes_without_the_tag(tmp_path: Path) -> None:
    """Its place in the queue counts for more: it is no filler."""
    forms = Forms(MADE_MS, ("5.3",), "gone")
    small = forms.smallest("topic")
    large = small + len(LOST_ITEM) + len(forms.of("topic").properties)
    units = lost((0, small, "topic"), (small, large, "topic"))
    closed = fills([Gap(0, small + large + 100, True, 5)], units, forms)[0]
    assert len(closed.lost) == 2
    data = b"".join(data for _, data in sorted(encoded([closed], forms, {})))
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(small + large + 100, b"\0"))
    log = CommitLog.of_file(tmp_path / f"{0:020d}")
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    texts = batch.columns.ragged("properties").tolist()
    assert [parse(text) for text in texts] == [{}, {"LOST": "t", "TAGS": "gone"}]


@pytest.mark.parametrize("append_crc", [False, True])
def test_sizes_are_exact_to_the_byte(append_crc: bool, tmp_path: Path) -> None:
    """With and without room for the mark; what CommitLog reads is whole, with its CRCs."""
    forms = Forms(MADE_MS, ("5.3",), "gone", append_crc)
    smallest = forms.smallest("topic")
    sizes = range(smallest, smallest + 3 * len(LOST_ITEM))
    rows, position = [], 0
    for size in sizes:
        rows.append((position, size, "topic"))
        position += size
    closed = fills([Gap(0, position + 100, True, 5)], lost(*rows), forms)[0]
    data = b"".join(data for _, data in sorted(encoded([closed], forms, {})))
    (tmp_path / f"{0:020d}").write_bytes(data.ljust(position + 100, b"\0"))
    log = CommitLog.of_file(tmp_path / f"{0:020d}")
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    assert batch.columns.ints("total_size").tolist() == list(sizes)
    assert batch.body_crc_ok is not None and batch.body_crc_ok.all()
    for row, size in enumerate(sizes):
        found = parse(batch.columns.ragged("properties")[row])
        assert ("LOST" in found) == (size >= smallest + len(LOST_ITEM))
        tag = len(forms.of("topic").properties)
        assert ("TAGS" in found) == (size >= smallest + len(LOST_ITEM) + tag)
        begin = int(batch.position[row])
        assert crc_ok(data[begin : begin + size]) is (True if append_crc else None)


def test_a_piece_over_unreadable_bytes_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What no piece covers stays unreadable, and nothing more."""
    path = tmp_path / file_name(0)
    path.write_bytes(b"a" * 300)
    with MappedFileQueue.open(tmp_path, 300) as base:
        bad = Unread(str(path), 100, 100, "Input/output error")
        monkeypatch.setattr(base, "fill", lambda file, offset, buffer: (len(buffer), [bad]))
        monkeypatch.setattr(base, "read_file", lambda *_: pytest.fail("it raises here"))
        read = {}
        for begin, end in ((100, 200), (90, 210), (120, 150)):
            queue = PatchedQueue(base, base.files, {str(path): 300}, [(begin, b"x" * (end - begin))])
            read[begin] = queue.fill(base.files[0], 0, memoryview(bytearray(300)))[1]
            if not read[begin]:
                assert queue.read_file(base.files[0], 0, 300)[begin:end] == b"x" * (end - begin)
    assert read == {100: [], 90: [], 120: [bad._replace(length=20), bad._replace(offset=150, length=50)]}
