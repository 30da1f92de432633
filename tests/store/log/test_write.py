"""Appending to the log: places, files, and what closes them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.errors import LimitExceeded, Refused
from mqstore.store.log.write import Blank, LogWriter, place, place_columns, place_whole

from ..made_log import record

FILE = 512
SIZES = st.lists(st.integers(1, FILE - BLANK_BYTES), max_size=30)


@given(st.integers(0, 5 * FILE).filter(lambda at: at % FILE <= FILE - BLANK_BYTES), SIZES)
def test_many_records_are_placed_as_one_after_the_other(position: int, sizes: list[int]) -> None:
    """None crosses the end of a file, and behind each is room for a BLANK, which fills what is left."""
    found = place_columns(position, np.array(sizes, np.int64), FILE)
    expected, blanks, end = [], [], position
    for size in sizes:
        at, blank = place(end, size, FILE)
        blanks += [] if blank is None else [blank]
        expected.append(at)
        end = at + size
        assert at // FILE == (end + BLANK_BYTES - 1) // FILE
    assert (found.positions.tolist(), found.blanks, found.end) == (expected, blanks, end)
    assert all(blank.size >= BLANK_BYTES and (blank.position + blank.size) % FILE == 0 for blank in blanks)
    assert sum(sizes) + sum(blank.size for blank in blanks) == end - position


def test_what_no_file_holds_is_refused() -> None:
    assert place(0, FILE - BLANK_BYTES, FILE) == (0, None)
    assert place(1, FILE - BLANK_BYTES, FILE) == (FILE, Blank(1, FILE - 1))
    together = place_whole(100, np.array([250, 200], np.int64), FILE)
    assert (together.positions.tolist(), together.blanks) == ([FILE, FILE + 250], [Blank(100, FILE - 100)])
    with pytest.raises(LimitExceeded, match="505 bytes does not fit into a commit log file of 512"):
        place(0, FILE - BLANK_BYTES + 1, FILE)
    with pytest.raises(LimitExceeded):
        place_whole(0, np.array([300, 300], np.int64), FILE)


def test_files_lie_in_directories_that_may_be_written(tmp_path: Path) -> None:
    """A short one that is there gets its length; a BLANK that has no room is refused."""
    first, second, third = (tmp_path / name for name in "abc")
    third.mkdir()
    (third / file_name(2 * FILE)).write_bytes(b"old")
    log = LogWriter(Files(), [first, second, third], FILE, 0, read_only=[first])
    for number in range(3):
        position = log.append(FILE - BLANK_BYTES)
        log.write(position, bytes([number + 1]) * (FILE - BLANK_BYTES))
    with pytest.raises(Refused, match="no room for a BLANK"):
        log.write_blank(Blank(3 * FILE - 4, 4))
    log.sync()
    log.close()
    assert not first.exists()
    assert sorted(path.name for path in second.iterdir()) == [file_name(0)]
    assert sorted(path.name for path in third.iterdir()) == [file_name(FILE), file_name(2 * FILE)]
    for number, folder in enumerate((second, third, third)):
        data = (folder / file_name(number * FILE)).read_bytes()
        assert len(data) == FILE and set(data[:-BLANK_BYTES]) == {number + 1}
        closed = number < 2
        assert data[-BLANK_BYTES:] == (
            BLANK.build({"total_size": BLANK_BYTES, "magic_code": MAGIC_BLANK}) if closed else bytes(BLANK_BYTES)
        )


def test_an_older_record_behind_the_end_is_cleared(tmp_path: Path) -> None:
    """Its head alone, which would make it a new one (B14); other bytes stay as they are."""
    older = record(100, b"x" * 20)
    for behind, cleared in ((older, bytes(BLANK_BYTES) + older[BLANK_BYTES:]), (b"other bytes", b"other bytes")):
        (tmp_path / file_name(0)).write_bytes((bytes(100) + behind).ljust(FILE, b"\0"))
        log = LogWriter(Files(), [tmp_path], FILE, 0)
        log.write(0, b"r" * 100)
        log.clear_head()
        log.close()
        assert (tmp_path / file_name(0)).read_bytes() == (b"r" * 100 + cleared).ljust(FILE, b"\0")
