"""The commit log as a plan leaves it: what lies over the files is read as if it were there."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue, file_name
from mqstore.store.plan.fill import PatchedQueue

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
