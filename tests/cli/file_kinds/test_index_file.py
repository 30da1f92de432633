"""Index files whose header or length is not what it was."""

from __future__ import annotations

from pathlib import Path

from mqstore.formats.derive import offset_of
from mqstore.formats.index_file import HEADER, HEADER_BYTES, ITEM_BYTES, items_offset

from ...stores import unpack
from .told import records, summary

SLOTS, ITEMS = 97, 400
SIZES = (f"maxHashSlotNum={SLOTS}", f"maxIndexNum={ITEMS}")


def test_a_header_that_counts_more_items_than_there_are(tmp_path: Path) -> None:
    """No more are printed than the file has room for, and none that a cut file does not hold."""
    path = next((unpack("5.3.3-timer-clean", tmp_path) / "index").iterdir())
    data, (header, *items) = path.read_bytes(), records(path)
    assert header["index_count"] == len(items) + 1 < ITEMS
    at = offset_of(HEADER, "index_count")
    path.write_bytes(data[:at] + (1 << 30).to_bytes(4, "big") + data[at + 4 :])
    lied, *found = records(path, sizes=SIZES)
    assert lied == {**header, "index_count": 1 << 30}
    assert found[: len(items)] == items
    assert len(found) == ITEMS - 1 and found[-1]["key_hash"] == 0
    assert summary(path, sizes=SIZES)["index_count"] == 1 << 30
    path.write_bytes(path.read_bytes()[: items_offset(SLOTS) + 5 * ITEM_BYTES])
    assert records(path, "index-file", at=3, sizes=SIZES)[1:] == items[2:4]


def test_of_several_files_there_are_sums(tmp_path: Path) -> None:
    """A file without an item, which a broker makes ahead, has no times."""
    folder = unpack("5.3.3-timer-clean", tmp_path) / "index"
    (path,) = folder.iterdir()
    one = summary(folder)
    empty = HEADER.build(dict.fromkeys(one.keys() - {"slots", "items"}, 0) | {"index_count": 1})
    path.with_name(str(int(path.name) + 1)).write_bytes(empty + path.read_bytes()[HEADER_BYTES:])
    assert summary(folder) == {
        "slots": one["slots"],
        "items": one["items"],
        "index_items": one["index_count"] - 1,
        "begin_timestamp": one["begin_timestamp"],
        "end_timestamp": one["end_timestamp"],
    }
