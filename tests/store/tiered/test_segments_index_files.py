"""Index files of a tiered store that were never compacted, as the real classes left them; damage."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.tiered_index import HEADER_BYTES
from mqstore.formats.tiered_index_file import (
    END,
    END_BYTES,
    HEADER,
    ITEM,
    MAGIC_FULL,
    MAGIC_OPEN,
    OPEN_ITEM_BYTES,
    SLOT,
    items_offset,
    slots_by_last_byte,
)
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect.recognise import recognise
from mqstore.store.tiered.segments import TieredIndexFile, index_items, odd_slots, open_index_files, read_index_file

from ... import tiered

SLOTS, ROOM = 7, 20
"""Of the files that the real classes wrote."""


@pytest.fixture(params=tiered.VERSIONS)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    return tiered.unpack_killed(request.param, tmp_path)


def check_files(root: Path, known: dict[tuple[int, int], dict[str, Any]]) -> None:
    """Each key of each message has its item, and its slot leads to it, where its hash has a slot."""
    wanted = sorted(
        (hash_code, m["queue_id"], m["total_size"]) for m in known.values() for hash_code in tiered.hashes(m)
    )
    found = []
    with open_index_files(root / tiered.INDEX_FILES) as files:
        for file in files.files:
            index = read_index_file(files, file)
            assert (index.problem, index.slots, odd_slots(files, index)) == ("", SLOTS, "")
            full = index.header["magic"] == MAGIC_FULL
            assert full == (index.header["item_count"] == ROOM - 1)
            numbers = []
            for part in index_items(files, index):
                numbers += part.number.tolist()
                for row, linked in zip(part.items, part.linked.tolist(), strict=True):
                    assert linked == (row["hash_code"] >= 0)
                    found.append((max(0, int(row["hash_code"])), int(row["queue_id"]), int(row["size"])))
            assert numbers == list(range(1, index.header["item_count"] + 1))
    assert sorted(found) == wanted


def test_every_item(root: Path) -> None:
    check_files(root, tiered.truth(root.name.removesuffix("-tiered-killed")))


def test_recognised(root: Path, tmp_path: Path) -> None:
    """By place; by content where it takes items still."""
    directory = root / tiered.INDEX_FILES
    assert recognise(directory).kind == "tiered-index-file"
    newest = max(directory.iterdir())
    assert recognise(newest).kind == "tiered-index-file"
    shutil.copy(newest, tmp_path / "copy")
    assert recognise(tmp_path / "copy").kind == "tiered-index-file"


HASH = 9
"""Slot 2 of 7."""


def item(hash_code: int, previous: int) -> bytes:
    fields = {"topic_id": 0, "queue_id": 1, "offset": 7, "size": 100, "time_diff": 0}
    built: bytes = ITEM.build({"hash_code": hash_code, "previous": previous, **fields})
    return built


def made_by_5_1(slots: dict[int, int], items: list[bytes], *, mark: int = 0xFFFFFFFF) -> bytes:
    """The same of 5.1: items begin with number 0, and the mark follows them."""
    data = made({n: slots.get(n, -1) for n in range(SLOTS)}, items)
    begin = items_offset(SLOTS)
    end = bytes(END_BYTES - END.sizeof()) + END.build({"mark": mark})
    return data[:begin] + data[begin + OPEN_ITEM_BYTES :] + end


def made(slots: dict[int, int], items: list[bytes], *, count: int | None = None, magic: int = MAGIC_OPEN) -> bytes:
    """A file of 7 slots and room for 20 items, number 0 among them."""
    header = {"magic": magic, "begin_timestamp": 1, "end_timestamp": 2, "slot_count": 1}
    count = len(items) if count is None else count
    table = b"".join(SLOT.build({"item": slots.get(n, 0), "unused": 0}) for n in range(SLOTS))
    body = bytes(OPEN_ITEM_BYTES) + b"".join(items)
    head: bytes = HEADER.build({**header, "item_count": count}) + table
    return (head + body).ljust(items_offset(SLOTS) + ROOM * OPEN_ITEM_BYTES, b"\0")


GOOD = made({2: 2}, [item(HASH, 0), item(HASH, 1)])


@pytest.mark.parametrize(
    ("data", "problem", "slots", "linked"),
    [
        (GOOD, "", "", [True, True]),
        (made({2: 2}, [item(HASH, 0), item(HASH, 1)], magic=MAGIC_FULL), "", "", [True, True]),
        (made({}, []), "", "", []),
        (b"", "shorter than a header", "", []),
        (GOOD[: HEADER_BYTES - 1], "shorter than a header", "", []),
        (made({2: 1}, [item(HASH, 0)], magic=7), "its magic code is different", "", []),
        (GOOD[:-1], "the number of its slots is not known", "", []),
        (made({2: 1}, [item(HASH, 0)], count=-5), "the number of its slots is not known", "", []),
        (made({2: 1}, [item(HASH, 0)], count=1 << 30), "the number of its slots is not known", "", []),
        (made({2: 2, 4: 9}, [item(HASH, 0), item(HASH, 1)]), "", "slot 4: item 9", [True, True]),
        (made({2: 2, 4: -9}, [item(HASH, 0), item(HASH, 1)]), "", "slot 4: item -9", [True, True]),
        (made({2: 2}, [item(HASH, 0), item(HASH, 99)]), "", "", [False, False]),
        (made({2: 2}, [item(HASH, 0), item(HASH, -1)]), "", "", [False, False]),
        (made_by_5_1({2: 1}, [item(HASH, -1), item(HASH, 0)]), "", "", [True, True]),
        (made_by_5_1({2: 0}, [item(HASH, -1)], mark=MAGIC_FULL), "", "", [True]),
        (made_by_5_1({2: 1, 4: 3}, [item(HASH, -1), item(HASH, 7)]), "", "slot 4: item 3", [False, False]),
        (made_by_5_1({}, []), "", "", []),
        (made({2: 3}, [item(HASH, 2), item(HASH, 2), item(HASH, 2)]), "", "", [False, False, True]),
    ],
)
def test_damaged(data: bytes, problem: str, slots: str, linked: list[bool], tmp_path: Path) -> None:
    found, flags, odd = read(tmp_path / "1795475357513", data)
    assert problem in found.problem and bool(problem) == bool(found.problem), found.problem
    assert slots in odd and bool(slots) == bool(odd), odd
    assert flags == linked


def test_slots_as_configured(tmp_path: Path) -> None:
    """A count that is wrong tells nothing; the option does."""
    config = BrokerConfig().with_set([f"tieredStoreIndexFileMaxHashSlotNum={SLOTS}"])
    data = made({2: 1}, [item(HASH, 0)], count=1 << 30)
    found, flags, _ = read(tmp_path / "1795475357513", data, config)
    assert "it counts 1073741824 items, but has room for 19" in found.problem
    assert (found.slots, found.items, flags) == (SLOTS, ROOM - 1, [True])


def read(path: Path, data: bytes, config: BrokerConfig | None = None) -> tuple[TieredIndexFile, list[bool], str]:
    path.write_bytes(data)
    with open_index_files(path) as files:
        found = read_index_file(files, files.files[0], config)
        flags = [ok for part in index_items(files, found) for ok in part.linked.tolist()]
        return found, flags, odd_slots(files, found)


@given(st.binary(max_size=200), st.integers(0, len(GOOD)))
def test_any_bytes(tmp_path_factory: pytest.TempPathFactory, noise: bytes, at: int) -> None:
    """Over a good file: nothing is raised, no item is made up."""
    path = tmp_path_factory.mktemp("index") / "1795475357513"
    _, flags, _ = read(path, GOOD[:at] + noise + GOOD[at + len(noise) :])
    assert len(flags) <= (len(GOOD) + len(noise)) // OPEN_ITEM_BYTES


@given(st.integers(1, 50), st.integers(1, 40), st.integers(0, 39), st.integers(20, 31))
def test_slots_of_the_last_byte(slots: int, room: int, count: int, last: int) -> None:
    """Whatever of the last item is zero behind its size."""
    size = items_offset(slots) + (room + 1) * OPEN_ITEM_BYTES
    at = items_offset(slots) + count * OPEN_ITEM_BYTES + last
    found = slots_by_last_byte(size, count, at)
    assert found == slots or count > room
