"""Entries of the timer log that no slot leads to: which of them a start brings back (spec 04, 4.9)."""

from __future__ import annotations

import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import rocksdb_store
from mqstore.formats.derive.ragged import Flags, Ints
from mqstore.formats.timer_log import MAGIC_DEFAULT, MAGIC_ROLL, UNIT, UNIT_BYTES
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.timer.read import TimerEntries
from mqstore.store.timer.wheel import Ticks
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.timer_wheel import linked_by_a_start
from mqstore.store.verify.verdict import Status

from ... import stores
from ...database_mishaps import put
from .mutations import NOW_MS, copied, original
from .mutations.edit import overwrite, set_field
from .mutations.timer import Timer

_NAME = "5.3.3-timer-clean"


@pytest.fixture
def timer(tmp_path: Path) -> Timer:
    """A store that was stopped in order."""
    return Timer(copied(original(_NAME, tmp_path), tmp_path))


def _longest(timer: Timer) -> tuple[int, list[int]]:
    """Row of the slot with the longest chain, and the rows of its entries, newest first."""
    chains = {row: timer.chain(row) for row in timer.in_use()}
    return max(chains.items(), key=lambda item: len(item[1]))


def _all_told(timer: Timer) -> list[Finding]:
    with StoreReader(timer.store) as store:
        return verify(store, Scope(groups=frozenset({"timer"})), now_ms=NOW_MS).findings


def _told(timer: Timer) -> list[Finding]:
    found = _all_told(timer)
    return [f for f in found if f.code == "I-123" and Path(f.path).parent.name == "timerlog"]


def _position(timer: Timer, row: int) -> int:
    return int(timer.entries.position[row])


def test_what_a_start_links_again_is_no_damage(timer: Timer) -> None:
    """The slot does not lead to the newest entry yet, which timercheck does not count either."""
    slot, rows = _longest(timer)
    timer.set_slot(slot, "last_pos", _position(timer, rows[1]))
    timer.set_check("last_timer_log_flush_pos", _position(timer, rows[0]))
    for crashed in (False, True):
        if crashed:
            (timer.store / "abort").touch()
        found = _all_told(timer)
        assert {f.code: (f.severity, f.unclean) for f in found} == {
            "I-123": (Severity.WARNING, crashed),
            "I-125": (Severity.WARNING, False),
            "I-133": (Severity.WARNING, crashed),
        }
        assert "a start links it" in _told(timer)[0].message


def test_a_slot_that_every_start_makes_again_is_no_damage(timer: Timer) -> None:
    """Its newest entry is read once more; the older ones, in front of that, hang on its chain."""
    slot, rows = _longest(timer)
    for name in ("time", "first_pos", "last_pos", "num"):
        timer.set_slot(slot, name, 0)
    (finding,) = _all_told(timer)
    assert (finding.code, finding.severity) == ("I-133", Severity.WARNING)
    assert finding.count == len(rows)
    assert "a start finds its entry" in finding.message


def test_a_slot_that_no_start_makes_again_is_damage(timer: Timer) -> None:
    """All entries of its tick lie in front of the file that a start begins to read in."""
    newest = {row: timer.place(timer.chain(row)[0])[0] for row in timer.in_use()}
    slot = next(row for row, path in newest.items() if path == timer.log_files[0])
    for name in ("time", "first_pos", "last_pos", "num"):
        timer.set_slot(slot, name, 0)
    found = [f for f in _all_told(timer) if f.code == "I-133"]
    assert [f.severity for f in found] == [Severity.ERROR]


def test_what_no_start_links_is_damage(timer: Timer) -> None:
    """The newest entry links past the one before it."""
    _, rows = _longest(timer)
    timer.set_entry(rows[0], "prev_pos", _position(timer, rows[2]))
    timer.set_check("last_timer_log_flush_pos", _position(timer, rows[2]))
    (timer.store / "abort").touch()
    (finding,) = _told(timer)
    assert (finding.severity, finding.unclean, finding.count) == (Severity.ERROR, False, 1)
    assert str(_position(timer, rows[1])) in finding.message


@pytest.mark.parametrize("read_ms", [0, 1000, 1_700_000_000_000])
def test_a_time_read_that_is_before_what_a_start_goes_back_to(read_ms: int, timer: Timer) -> None:
    timer.set_check("last_read_time_ms", read_ms)
    (finding,) = [found for found in _all_told(timer) if found.code == "I-132"]
    assert finding.message == f"last_read_time_ms is {read_ms}: a start delivers again what the wheel has delivered"


def test_alike_entries_of_one_message_are_no_damage(timer: Timer) -> None:
    """Each time it has caught up with its master a slave files some messages again, three seconds later."""
    slot, rows = _longest(timer)
    file, at = timer.log_files[-1], timer.log.end - timer.log.files[-1].start
    places, before = [], _position(timer, rows[0])
    for number, row in enumerate((rows[0], rows[2])):
        path, offset = timer.place(row)
        unit = UNIT.parse(path.read_bytes()[offset : offset + UNIT_BYTES])
        later = {"curr_write_time": unit.curr_write_time + 3000, "delayed_time": unit.delayed_time - 3000}
        places.append(at + number * UNIT_BYTES)
        overwrite(file, places[-1], UNIT.build({**unit, **later, "prev_pos": before}))
        before = timer.log.end + number * UNIT_BYTES
    timer.set_slot(slot, "last_pos", before)
    timer.set_slot(slot, "num", int(timer.slots.num[slot]) + 2)
    with StoreReader(timer.store) as store:
        verdict = verify(store, now_ms=NOW_MS)
    (finding,) = [f for f in verdict.findings if f.code == "I-137"]
    assert (finding.severity, finding.count, finding.repair) == (Severity.WARNING, 2, "")
    assert verdict.status is Status.CLEAN
    assert "nothing is damaged" in finding.message

    set_field(file, places[0], UNIT, "magic", MAGIC_DEFAULT | MAGIC_ROLL)
    assert {f.severity for f in _all_told(timer) if f.code == "I-137"} == {Severity.WARNING}
    set_field(file, places[0], UNIT, "hash_code_of_real_topic", 1)
    found = {f.severity: f.count for f in _all_told(timer) if f.code == "I-137"}
    assert found == {Severity.WARNING: 1, Severity.ERROR: 1}


@pytest.mark.parametrize(("live", "codes"), [(False, ["I-131"]), (True, [])])
def test_a_running_broker_gets_ahead_of_the_end_that_was_read(
    live: bool, codes: list[str], timer: Timer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The end of the queue is known before timercheck is read."""
    timer.set_check("last_timer_queue_offset", timer.check.last_timer_queue_offset + 10)
    monkeypatch.setattr(VerifyContext, "live", live)
    assert [f.code for f in _all_told(timer) if f.code == "I-131"] == codes


class _Counted(TimerEntries):
    """Entries that know how many positions were looked up in them."""

    looked_up = 0

    def at(self, positions: Ints) -> tuple[Ints, Flags]:
        _Counted.looked_up += len(positions)
        return super().at(positions)


def _log(ticks: list[int], links: list[int]) -> Any:
    """Timer files with an entry for each tick, which links to the entry of a row, -1 for none."""
    rows = np.array(links, np.int64)
    zeros = np.zeros(len(rows), np.int64)
    position = np.arange(len(rows)) * UNIT_BYTES
    previous = np.where(rows < 0, rows, rows * UNIT_BYTES)
    due_ms = np.array(ticks, np.int64) * 1000
    entries = _Counted(position, previous, due_ms, *[zeros] * 6)
    return SimpleNamespace(log=SimpleNamespace(entries=entries), ticks=Ticks(1000, 1))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(-1, 30), st.booleans()), min_size=1, max_size=30))
def test_a_start_links_what_a_walk_along_the_chains_meets(entries: list[tuple[int, int, bool]]) -> None:
    """Chains of any tick that end, merge, or go forward, where a walk stops."""
    ticks, links, read = map(list, zip(*entries, strict=True))
    expected = set()
    for tick in {tick for tick, _, is_read in entries if is_read}:
        at = max(row for row, of in enumerate(ticks) if of == tick)
        expected.add(at)
        while 0 <= links[at] < at:
            at = links[at]
            expected.add(at)
    found = linked_by_a_start(_log(ticks, links), np.array(read, np.bool_))
    assert set(np.flatnonzero(found).tolist()) == expected


def test_chains_that_merge_are_followed_once() -> None:
    """One long chain, and a chain into its end for each entry of it."""
    count = 300
    links = [*range(-1, count - 1), *([count - 1] * count)]
    ticks = [1] * count + list(range(2, count + 2))
    read = np.ones(2 * count, np.bool_)
    _Counted.looked_up = 0
    assert linked_by_a_start(_log(ticks, links), read).all()
    assert _Counted.looked_up <= 4 * count


@pytest.mark.parametrize("place", [0, None])
def test_a_rocksdb_of_timers_without_its_place_in_the_queue(place: int | None, tmp_path: Path) -> None:
    """A real 5.5.1 delivered 32 messages once more, and 5 that were cancelled; as it was, and with a place behind the
    end of the queue, none of that.
    """
    pytest.importorskip("rocksdict")
    root = stores.unpack("5.5.1-rocks-timer", tmp_path)
    for value, codes in ((1000, []), (place, ["I-131", "I-184"])):
        row = None if value is None else rocksdb_store.POSITION.build({"value": value})
        put(root / "rocksdbstore", {rocksdb_store.TIMER: {rocksdb_store.TIMER_QUEUE_OFFSET: row}})
        with StoreReader(root) as store:
            found = verify(store, now_ms=1_796_000_000_000).findings
        assert [one.code for one in found if one.severity > Severity.INFO] == codes


@pytest.mark.parametrize("words", [[], ["timerRocksDBEnable=true"]])
def test_timers_in_a_rocksdb_after_a_start_that_read_nothing_new(
    words: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From its second life on the timercheck of a real 5.5.1 has the place in the queue that the RocksDB had. No chain
    leads to what waits there, and who cannot read it does not say that it never comes.
    """
    pytest.importorskip("rocksdict")
    root = stores.unpack("5.5.1-rocks-timer", tmp_path)
    check = root / "config" / "timercheck"
    place = {"last_timer_queue_offset": 41, "master_timer_queue_offset": 41}
    check.write_bytes(TimerCheck.from_bytes(check.read_bytes())._replace(**place).to_bytes())

    def serious() -> list[str]:
        with StoreReader(root, BrokerConfig({}).with_set(words)) as store:
            found = verify(store, now_ms=1_796_000_000_000).findings
        return [one.code for one in found if one.severity > Severity.INFO]

    assert serious() == []
    if words:
        monkeypatch.setitem(sys.modules, "rocksdict", None)
        assert serious() == []
