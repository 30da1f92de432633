"""The timer of a broker after load, and the wheel that is made anew where one is damaged."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.derive import dtype_of, offset_of
from mqstore.formats.message import MESSAGE
from mqstore.formats.timer_check import PAGE_BYTES
from mqstore.formats.timer_log import UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import FILE_BYTES, SLOT
from mqstore.store.broker.load_rules import Refusal
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.timer import start
from mqstore.store.timer.start import TimerState, entries_end, load_timer, recover_timer

from ... import stores
from ...timer_precision import CLEAN, truth, unpack
from ..repair.test_repair import repaired

TIMER = chosen([RepairPart.TIMER], ())


@pytest.mark.parametrize("name", CLEAN)
def test_recover_without_being_told(name: str, tmp_path: Path) -> None:
    found = analyze(Layout.open(unpack(name, tmp_path)))
    assert found.nothing_to_do and not found.harmful


def test_who_starts_as_a_master_and_is_elected_later(tmp_path: Path) -> None:
    """In both kinds of group brokerRole is ASYNC_MASTER, unless it is set."""
    alone, group = tmp_path / "alone", tmp_path / "group"
    for directory in (alone / "commitlog", group / "dledger-n0" / "data"):
        directory.mkdir(parents=True)
        (directory / file_name(0)).write_bytes(bytes(8))
    controller = {"enableControllerMode": "true"}
    for root, options, later in (
        (alone, {}, False),
        (alone, controller, True),
        (alone, {**controller, "brokerRole": "SLAVE"}, False),
        (group, {}, True),
    ):
        assert start._is_elected_later(Layout.open(root, BrokerConfig(options))) == later


@pytest.mark.few(2)
@pytest.mark.parametrize("name", CLEAN)
def test_a_damaged_wheel_is_made_anew(name: str, tmp_path: Path) -> None:
    """Each slot that is to come, byte for byte; a start after a crash counts its entries wrong."""
    root = unpack(name, tmp_path)
    path = root / "timerwheel"
    before = path.read_bytes()
    wheel = np.frombuffer(before, dtype_of(SLOT)).copy()
    read_ms = truth(name)["timer"]["timercheck"]["last_read_time_ms"]
    ahead = np.flatnonzero(wheel["time"].astype(np.int64) * truth(name)["precision_ms"] >= read_ms)
    assert len(ahead) > 3
    wheel["first_pos"][ahead[::2]] += 1
    wheel["last_pos"][ahead[1::2]] = 1 << 40
    path.write_bytes(wheel.tobytes())
    repaired(root, BrokerConfig(), TIMER)
    made, wanted = (np.frombuffer(data, dtype_of(SLOT)) for data in (path.read_bytes(), before))
    for field in wanted.dtype.names or ():
        same = (made[field] == wanted[field]).all()
        assert same or (field == "num" and name.endswith("restarted")), field


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a timer; nothing may change it but for a while."""
    return stores.unpack("5.3.3-timer-clean", tmp_path_factory.mktemp("timer"))


def test_where_no_timer_is_nothing_is_loaded(root: Path, tmp_path: Path) -> None:
    """Brokers of 4 know none; one of 5 needs a file of it, or a queue of timer messages."""
    with_timer = Snapshot.of(Layout.open(root))
    without = replace(with_timer, has_timer=False)
    for snapshot, version in ((with_timer, "4.9"), (without, "5.3")):
        assert recover_timer(snapshot, profile_of(version), (0, 0), None, 0) is None
    loaded = recover_timer(with_timer, profile_of("5.3"), (0, 0), None, 0)
    assert isinstance(loaded, TimerState) and loaded.files


@pytest.mark.parametrize("size", [1, FILE_BYTES - 1, FILE_BYTES + 1])
def test_a_wheel_of_another_length_is_refused(root: Path, size: int) -> None:
    """An empty one is none."""
    wheel = root / "timerwheel"
    kept = wheel.rename(root / "kept")
    try:
        with wheel.open("wb") as file:
            snapshot, profile = Snapshot.of(Layout.open(root)), profile_of("5.3")
            assert not isinstance(load_timer(snapshot, profile), Refusal)
            file.truncate(size)
            refused = load_timer(snapshot, profile)
    finally:
        kept.replace(wheel)
    assert isinstance(refused, Refusal) and refused.case == "timer-wheel-length"
    assert f"length:{size} != expected:{FILE_BYTES}" in refused.reason and refused.path == str(wheel)


def test_entries_end_where_one_is_none(root: Path) -> None:
    """Whatever of its size or its magic is wrong, and where the file ends inside of one."""
    data = np.frombuffer(min((root / "timerlog").iterdir()).read_bytes(), np.uint8)
    whole = entries_end(data)
    count = whole // UNIT_BYTES
    assert whole == count * UNIT_BYTES and count > 5
    for number in range(count):
        for name, value in (("size", UNIT_BYTES + 1), ("size", 0), ("magic", 0x7FFFFFFF)):
            damaged = data.copy()
            damaged[: count * UNIT_BYTES].view(dtype_of(UNIT))[name][number] = value
            assert entries_end(damaged) == number * UNIT_BYTES, (number, name)
        for size in (number * UNIT_BYTES, (number + 1) * UNIT_BYTES - 1):
            assert entries_end(data[:size]) == number * UNIT_BYTES


@pytest.mark.parametrize(("size", "words"), [(-1, "< 0: (-1 < 0)"), (1 << 30, "> capacity: (1073741824 > 4194404)")])
def test_a_size_that_no_buffer_has_is_refused_in_the_words_of_java(size: int, words: str, tmp_path: Path) -> None:
    """Up to 5.3 the message that the last entry names is read into a buffer for one (B32)."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    path = max((root / "timerlog").iterdir())
    data = bytearray(path.read_bytes())
    end = entries_end(np.frombuffer(data, np.uint8))
    np.frombuffer(data, np.uint8)[:end].view(dtype_of(UNIT))["size_py"][-1] = size
    path.write_bytes(data)
    snapshot = Snapshot.of(Layout.open(root))
    refused = recover_timer(snapshot, profile_of("5.3"), (0, 0), None, 0)
    assert isinstance(refused, Refusal) and refused.case == "timer-log-end"
    assert refused.reason == f"IllegalArgumentException: newLimit {words}"
    assert isinstance(recover_timer(snapshot, profile_of("5.4"), (0, 0), None, 0), TimerState)


@pytest.mark.parametrize(
    ("field", "value", "is_read"), [("total_size", 1, True), ("body_crc", 7, True), ("magic_code", 7, False)]
)
def test_the_record_of_the_last_entry_need_not_be_whole(field: str, value: int, is_read: bool, tmp_path: Path) -> None:
    """A broker takes place and size from the entry: its queue offset counts, unless the magic is none."""
    root = stores.unpack("5.3.3-timer-clean", tmp_path)
    snapshot = Snapshot.of(Layout.open(root))
    log_end = 1 << 20
    whole = recover_timer(snapshot, profile_of("5.5"), (0, log_end), None, 0)
    assert isinstance(whole, TimerState)
    data = np.frombuffer(max((root / "timerlog").iterdir()).read_bytes(), np.uint8)
    last = data[: entries_end(data)].view(dtype_of(UNIT))[-1]
    path = root / "commitlog" / f"{0:020d}"
    damaged = bytearray(path.read_bytes())
    at = int(last["offset_py"]) + offset_of(MESSAGE, field)
    damaged[at : at + 4] = value.to_bytes(4, "big")
    path.write_bytes(damaged)
    check = root / "config" / "timercheck"  # what counts where the record says nothing
    fields = TimerCheck.from_bytes(check.read_bytes())._replace(last_timer_queue_offset=7)
    check.write_bytes(fields.to_bytes().ljust(PAGE_BYTES, b"\0"))
    found = recover_timer(Snapshot.of(Layout.open(root)), profile_of("5.5"), (0, log_end), None, 0)
    assert isinstance(found, TimerState)
    assert found.queue_offset == (whole.queue_offset if is_read else 7) and whole.queue_offset > 7
