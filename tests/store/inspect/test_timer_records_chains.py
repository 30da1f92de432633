"""The columns behind `inspect --timers`: chains followed all at once, numbers in properties."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.derive import dtype_of
from mqstore.formats.derive.ragged import Ragged
from mqstore.formats.timer_log import UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import FILE_BYTES, SLOT, SLOT_BYTES, SLOTS
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.inspect.timer_records import Chained, WheelPosition, entries_of, numbers
from mqstore.store.search.store import StoreReader
from mqstore.store.timer.read import NO_NUMBER, NOWHERE
from mqstore.store.timer.wheel import Ticks

ENTRIES = 12
PLACES = st.integers(-2, ENTRIES + 1).map(lambda n: -1 if n < 0 else n * UNIT_BYTES)
ODD = st.sampled_from([1, UNIT_BYTES - 1, -2, -UNIT_BYTES, 1 << 40, (1 << 63) - 1])


def followed(previous: list[int], heads: list[int]) -> tuple[list[set[int]], int, list[bool]]:
    """One by one: the heads that lead to each entry, chains that end at none, chains that loop."""
    led: list[set[int]] = [set() for _ in previous]
    cut, loops = 0, []
    for number, head in enumerate(heads):
        at, seen = head, set[int]()
        while at != -1 and at not in seen and at % UNIT_BYTES == 0 and 0 <= at // UNIT_BYTES < len(led):
            seen.add(at)
            led[at // UNIT_BYTES].add(number)
            at = previous[at // UNIT_BYTES]
        loops.append(at in seen or (at >= len(led) * UNIT_BYTES and at == head))
        cut += at != -1 and at not in seen and not loops[-1]
    return led, cut, loops


def write(root: Path, previous: list[int], heads: list[int]) -> WheelPosition:
    empty = UNIT.parse(bytes(UNIT_BYTES))
    units = [{**empty, "prev_pos": place, "size": UNIT_BYTES, "magic": 1} for place in previous]
    (root / "timerlog").mkdir(exist_ok=True)
    data = b"".join(UNIT.build(unit) for unit in units)
    (root / "timerlog" / f"{0:020}").write_bytes(data)
    wheel = WheelPosition(Ticks(), timer_log_end=len(data))
    wheel.time_ms = np.arange(1, len(heads) + 1, dtype=np.int64) * 1000
    wheel.last_pos = np.array(heads, np.int64)
    return wheel


def entries(root: Path, wheel: WheelPosition) -> Chained:
    with StoreReader(root, BrokerConfig({"mappedFileSizeTimerLog": str(1 << 12)})) as store:
        return entries_of(store, wheel)


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory that looks like a store."""
    found = tmp_path_factory.mktemp("chains")
    (found / "commitlog").mkdir()
    return found


@given(previous=st.lists(PLACES | ODD, min_size=1, max_size=ENTRIES), heads=st.lists(PLACES | ODD, max_size=6))
def test_chains_are_followed_as_one_by_one(root: Path, previous: list[int], heads: list[int]) -> None:
    """Whatever the entries and slots say: loops, places behind the end, places of no entry."""
    found = entries(root, write(root, previous, heads))
    led, cut, loops = followed(previous, heads)
    for number, by in enumerate(led):
        fires = int(found.fires_ms[number])
        assert (fires == NOWHERE) == (not by)
        assert fires == NOWHERE or fires // 1000 - 1 in by
    first = [1000 * (n + 1) for n, loop in enumerate(loops) if loop]
    assert found.stuck_ms == (min(first) if first else None)
    assert found.cut == cut


def test_chains_as_long_as_a_log(tmp_path: Path) -> None:
    """Steps double: a chain of 10,000 entries is no matter of 10,000 steps."""
    (tmp_path / "commitlog").mkdir()
    count = 10_000
    previous = [-1, *(n * UNIT_BYTES for n in range(count - 1))]
    wheel = write(tmp_path, previous, [(count - 1) * UNIT_BYTES])
    with StoreReader(tmp_path, BrokerConfig({"mappedFileSizeTimerLog": str(count * 64)})) as store:
        found = entries_of(store, wheel)
    assert (found.fires_ms == 1000).all() and len(found.fires_ms) == count
    assert (found.cut, found.stuck_ms) == (0, None)


def test_only_slots_that_are_read_are_in_use() -> None:
    """Of a time not before the read time, in a place that is that of their time, and no noise."""
    slots = np.zeros(6, dtype_of(SLOT))
    assert SLOT_BYTES * SLOTS == FILE_BYTES and SLOT.sizeof() == SLOT_BYTES
    slots["time"] = [0, SLOTS + 1, 3, SLOTS * 2 + 3, -5, (1 << 62) // SLOTS * SLOTS + 5]
    wheel = WheelPosition(Ticks(), read_ms=(SLOTS - 10) * 1000)
    wheel.add(np.arange(6, dtype=np.int64), slots)
    assert wheel.time_ms.tolist() == [(SLOTS + 1) * 1000, (SLOTS * 2 + 3) * 1000]


@given(st.lists(st.none() | st.binary(max_size=20) | st.integers(0, 10**20).map(lambda n: b"%d" % n)))
def test_numbers_in_columns(texts: list[bytes | None]) -> None:
    expected = [int(text) if text and len(text) <= 18 and text.isdigit() else NO_NUMBER for text in texts]
    assert numbers(Ragged.of(texts)).tolist() == expected
