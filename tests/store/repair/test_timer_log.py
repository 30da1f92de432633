"""Entries of the timer log, rebuilt: as the broker wrote them. `test_findings` has more damage of them."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from random import Random
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pytest

from mqstore.formats.derive import dtype_of
from mqstore.formats.timer_log import BLANK_BYTES, MAGIC_DEFAULT, MAGIC_DELETE, MAGIC_MAX, MAGIC_ROLL, UNIT, UNIT_BYTES
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_timer_check
from mqstore.store.disk.file_queue import MappedFile, file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.timers import timers
from mqstore.store.repair import timer
from mqstore.store.repair.parts import Choice
from mqstore.store.repair.timer_log import added_to, entries_to_add, missing_files
from mqstore.store.search.store import StoreReader
from mqstore.store.timer.read import due_ms
from mqstore.store.timer.wheel import Ticks, next_place
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.timer_log import TimerColumns, TimerFiles, TimerLog, timer_files

from ... import slices, stores
from ...slices import rng
from ..verify.mutations import mutations, original
from ..verify.mutations.timer import Timer
from .mended import find_unrepairable, told
from .test_repair import examined, repaired
from .test_timer import CONFIG, TIMER, files

pytestmark = pytest.mark.long

CLEAN = "5.3.3-timer-clean"
IN_ORDER = tuple(name for name in stores.NAMES if "-timer-" in name and not name.endswith("-killed"))
"""A kill leaves slots that the next start links; of the others nothing is to be mended."""


def log_of(root: Path) -> TimerLog:
    with StoreReader(root) as store:
        return timer_files(VerifyContext(store, Scope())).log


def put(log: TimerLog, position: int, data: bytes) -> None:
    """Bytes over the timer log at a position."""
    file = log.file_of(position)
    assert file is not None
    with Path(file.path).open("r+b") as opened:
        opened.seek(position - file.start)
        opened.write(data)


@pytest.mark.parametrize("name", IN_ORDER)
def test_nothing_to_do(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    plan = examined(root, config, TIMER).plan
    assert not [edit.to_json() for edit in plan.edits]


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["I-126", "I-127", "I-128", "I-129", "I-137"])
def test_entries_are_as_the_broker_wrote_them(code: str, tmp_path: Path) -> None:
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    for number in range(2):
        mutations()[code].mutate(root, Random(f"{slices.SEED} entries {code} {number}"))
        assert files(root) != wanted
        repaired(root, CONFIG, TIMER)
        assert files(root) == wanted


def test_a_page_of_entries_is_made_again(tmp_path: Path) -> None:
    """Noise over some entries in a row: their neighbours tell which messages they were of."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    log = log_of(root)
    for position in log.entries.position[10:14].tolist():
        put(log, position, rng(f"page {position}").randbytes(UNIT_BYTES))
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


def test_the_last_entry_is_not_cut_off_for_its_magic(tmp_path: Path) -> None:
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    log = log_of(root)
    magic_at = UNIT.size.sizeof() + UNIT.prev_pos.sizeof()
    put(log, log.end - UNIT_BYTES + magic_at, UNIT.magic.build(MAGIC_MAX + 1))
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


@pytest.mark.parametrize("was", [MAGIC_DEFAULT, MAGIC_DEFAULT | MAGIC_ROLL, MAGIC_DEFAULT | MAGIC_DELETE])
def test_a_magic_that_is_not_its_own_is_told_and_put_right(was: int, tmp_path: Path) -> None:
    """It says two things, roll and cancel: an entry that agrees in all else is that of its record. Each in turn."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted, log = files(root), log_of(root)
    magic_at = UNIT.size.sizeof() + UNIT.prev_pos.sizeof()
    position = int(log.entries.position[log.entries.magic == was][-1])
    for magic in (was ^ 1, was ^ 2, was ^ 4, was + 1):
        put(log, position + magic_at, UNIT.magic.build(magic))
        odd = magic not in range(1, 8, 2)
        found = set(told(CLEAN, root))
        assert {"I-127"} & found == ({"I-127"} if odd else set()), magic
        assert odd or "I-129" in found, magic
        repaired(root, CONFIG, TIMER)
        assert files(root) == wanted, magic


@pytest.mark.parametrize("whole", [16, 24, 36])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", [CLEAN, "5.1.4-timer-killed"])
@pytest.mark.few(4)
def test_a_last_entry_that_was_written_in_part_is_cut_off(name: str, first: bool, whole: int, tmp_path: Path) -> None:
    """A broker checks no more of it than size and magic; its message is read again (B36)."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    log = log_of(root)
    last = log.files[-1]
    begin = last.start if first else log.end - UNIT_BYTES
    put(log, begin + whole, bytes(last.end - begin - whole))
    repaired(root, config, Choice())
    assert log_of(root).entries.position.tolist() == [at for at in log.entries.position.tolist() if at < begin]
    assert Path(last.path).exists() != first
    assert not {"I-122", "I-126", "I-128", "I-130"} & set(told(name, root))
    assert not examined(root, config, TIMER).plan.edits


def test_entries_of_messages_that_were_cut_off_go(tmp_path: Path) -> None:
    """As after a cut of the log, more than the queue has messages for: what comes next stands in their places."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted, log = files(root), log_of(root)
    file = log.files[-1]
    last = UNIT.parse(Path(file.path).read_bytes()[log.end - UNIT_BYTES - file.start :])
    for number in range(9):
        at = log.end + number * UNIT_BYTES
        values = {**last, "prev_pos": -1, "offset_py": 1 << 30, "curr_write_time": last.curr_write_time + 1000 * number}
        put(log, at, UNIT.build(values))
    assert "I-128" in told(CLEAN, root)
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


@pytest.mark.parametrize("data", [b"\0", b"x", bytes(512), bytes(3000)])
def test_a_last_file_without_entry_goes_whatever_its_length(data: bytes, tmp_path: Path) -> None:
    """Made as long as the others it keeps a broker from starting (B32), and what is before it is no end."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    (root / "timerlog" / file_name(log_of(root).files[-1].end)).write_bytes(data)
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


def put_time(root: Path, write: Callable[[bytes], bytes]) -> None:
    """The time in the record of the first entry that waits becomes another one of its length."""
    timer = Timer(root)
    row = timer.chain(timer.in_use()[0])[0]
    assert not timer.entries.rolled[row]
    path, place = root / "commitlog" / file_name(0), int(timer.entries.offset_py[row])
    data = path.read_bytes()
    begin = data.index(b"TIMER_OUT_MS\1", place) + len(b"TIMER_OUT_MS\1")
    end = data.index(b"\2", begin)
    path.write_bytes(data[:begin] + write(data[begin:end]) + data[end:])


def test_a_record_without_its_time_says_nothing_of_the_entry(tmp_path: Path) -> None:
    """A broker goes by the entry; that the record is torn is told of the record."""
    root = stores.unpack(CLEAN, tmp_path)
    put_time(root, lambda old: bytes(len(old)))
    assert set(told(CLEAN, root)) - set(told(CLEAN, original(CLEAN, tmp_path))) == {"I-049", "I-055"}


def test_a_time_that_no_entry_can_hold_is_told_with_its_reason(tmp_path: Path) -> None:
    """It is of long before the entry was written: the entry stays, and keeps its own."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    put_time(root, lambda old: b"0" + old[1:])
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted
    (found,) = find_unrepairable(Layout.open(root, CONFIG), "5.3")
    assert found.code == "I-129" and "uses the entry's time" in found.now
    assert found.command == f"mqstore dump {root / found.path}"


def test_what_nothing_tells_is_left_as_it_is(tmp_path: Path) -> None:
    """Entries of messages that no queue leads to are not made up."""
    root = stores.unpack(CLEAN, tmp_path)
    log = log_of(root)
    damaged = log.entries.position[-6:-1].tolist()
    for path in (root / "consumequeue" / "rmq_sys_wheel_timer").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    for position in damaged:
        put(log, position, b"\x55" * UNIT_BYTES)
    plan = examined(root, CONFIG, TIMER).plan
    reasons = {edit.reason for edit in plan.edits}
    assert not any("entries made from their messages" in reason for reason in reasons), reasons


def test_units_that_the_same_plan_makes_lead_to_the_messages_of_entries(tmp_path: Path) -> None:
    """The timer topic's queue is lost, and an entry is: one run rebuilds both."""
    root = stores.unpack(CLEAN, tmp_path)
    wanted = files(root)
    log = log_of(root)
    put(log, int(log.entries.position[-6]), b"\x55")  # of its size
    shutil.rmtree(root / "consumequeue" / "rmq_sys_wheel_timer")
    repaired(root, CONFIG, Choice())
    assert files(root) == wanted


def test_a_cut_file_whose_entries_nothing_tells_is_closed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its BLANK stays, and what tells of the entries is read once for that."""
    root = stores.unpack(CLEAN, tmp_path)
    log = log_of(root)
    cut = log.files[1]
    whole = Path(cut.path).read_bytes()
    Path(cut.path).write_bytes(whole[: 4 * UNIT_BYTES])
    for path in (root / "consumequeue" / "rmq_sys_wheel_timer").rglob("0*"):
        if path.is_file():
            path.write_bytes(bytes(path.stat().st_size))
    stores_opened = []

    def counted(*args: Any) -> StoreReader:
        stores_opened.append(args)
        return StoreReader(*args)

    monkeypatch.setattr(timer, "StoreReader", counted)
    edits = [edit for edit in examined(root, CONFIG, TIMER).plan.edits if edit.path == cut.path]
    assert ("write", 4 * UNIT_BYTES, BLANK_BYTES) in [(e.kind, e.offset, e.length) for e in edits]
    assert len(stores_opened) == 1


def told_of_timers(root: Path, config: BrokerConfig) -> dict[str, Any]:
    """What becomes of each message for a broker that starts where the timer had come to."""
    check = read_timer_check(root / "config" / "timercheck")
    assert check is not None
    with StoreReader(root, config) as store:
        return timers(store, check.last_read_time_ms, lambda _: None).to_json()


@pytest.mark.parametrize(("name", "zeros"), [(CLEAN, True), ("5.3.3-timer-roll", False)])
def test_a_timer_log_that_is_gone_is_made_from_the_messages(name: str, zeros: bool, tmp_path: Path) -> None:
    """All that waited fires when it would have, and nothing twice; cancelled is what was."""
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig({key: str(value) for key, value in stores.config(name, root).items()})
    wanted = told_of_timers(root, config)
    assert wanted["pending"] + wanted["rolled"] > 0
    for path in (root / "timerlog").iterdir():
        path.write_bytes(bytes(path.stat().st_size)) if zeros else path.unlink()
    repaired(root, config, TIMER)
    assert told_of_timers(root, config) == wanted
    assert examined(root, config, TIMER).nothing_to_do


def test_the_length_of_a_timer_log_that_is_gone_may_not_be_known(tmp_path: Path) -> None:
    """Places in the wheel are of smaller files than those of a broker that is told no length."""
    root = stores.unpack(CLEAN, tmp_path)
    shutil.rmtree(root / "timerlog")
    for _ in range(2):
        repaired(root, CONFIG, TIMER)
        assert not (root / "timerlog").exists()
    left = find_unrepairable(Layout.open(root), "5.3")
    assert [row.code for row in left if "mappedFileSizeTimerLog" in row.now] == ["I-133"]


def test_what_waits_in_a_database_gets_no_entry(tmp_path: Path) -> None:
    """It would fire a second time."""
    root = stores.unpack(CLEAN, tmp_path)
    shutil.rmtree(root / "timerlog")
    sized = {"mappedFileSizeTimerLog": "1024"}
    for more, makes in (({}, True), ({"timerRocksDBEnable": "true"}, False)):
        plan = examined(root, BrokerConfig({**sized, **more}), TIMER).plan
        assert any(edit.kind == "create" for edit in plan.edits) == makes, more


@pytest.mark.parametrize(
    ("starts", "sizes"),
    [((0, 1024, 9 << 60), (1024,) * 3), ((0, 2048), (0, 1024)), ((0, 4096, 8192), (1024, 999, 1024))],
)
def test_a_file_that_is_far_away_makes_none_between(starts: tuple[int, ...], sizes: tuple[int, ...]) -> None:
    """A name is no length to be trusted; nor does a file of another length tell where the next one began."""
    files = [MappedFile(f"timerlog/{start:020}", start, size) for start, size in zip(starts, sizes, strict=True)]
    assert not [*missing_files(TimerLog(files), 1000)]
    sound = [MappedFile(f"timerlog/{start:020}", start, 1024) for start in (0, 3072)]
    assert [edit.path for edit in missing_files(TimerLog(sound), 38)] == [
        f"timerlog/{start:020}" for start in (1024, 2048)
    ]
    assert not [*missing_files(TimerLog(sound), 37)]  # 19 entries a file


@pytest.mark.parametrize("file_bytes", [BLANK_BYTES + UNIT_BYTES, 300, 312, 328, 4096])
def test_entries_are_added_as_a_broker_files_them(file_bytes: int) -> None:
    """One by one, behind a BLANK in the next file where the last one has no room; all of a file are one edit."""
    units = np.zeros(9, dtype_of(UNIT))
    units["offset_py"] = np.arange(9)
    log = cast(TimerLog, SimpleNamespace(end=52, files=[MappedFile("f/" + file_name(0), 0, file_bytes, False)]))
    wanted, position = bytearray(1 << 13), log.end
    for unit in units:
        place, blank = next_place(position, file_bytes)
        wanted[position : position + len(blank)] = blank
        wanted[place : place + UNIT_BYTES] = unit.tobytes()
        position = place + UNIT_BYTES
    found, edits = bytearray(1 << 13), list(added_to(log, units, file_bytes, "f"))
    for edit in edits:
        for offset, piece in ((edit.offset, edit.data or b""), *edit.pieces):
            at = int(Path(edit.path).name) + offset
            found[at : at + len(piece)] = piece
    assert found == wanted and len({edit.path for edit in edits}) == len(edits)


def test_entries_of_records_that_were_rolled_do_nothing() -> None:
    """Due long ago, in a slot that a start reads, or to come: only that of the newest record fires."""
    ticks, now_ms = Ticks(), 2_000_000_000_000
    oldest_ms = ticks.oldest_ms(now_ms)
    out_ms = np.repeat([oldest_ms - 1000, now_ms - 5000, now_ms + 5000], 2)
    column = np.arange(6)
    none = column < 0
    records = TimerColumns(column, column, column, column, out_ms, column, none, column, column, none)
    newest = column % 2 == 1
    files = cast(TimerFiles, SimpleNamespace(ticks=ticks))
    units = entries_to_add(files, records, newest, ~newest, now_ms)
    tick_ms = due_ms(units)
    assert (tick_ms[newest] == np.maximum(out_ms[newest], now_ms)).all() and (tick_ms[~newest] < oldest_ms).all()
    rolled = (units["magic"] & MAGIC_ROLL) != 0
    assert (rolled == (tick_ms < out_ms)).all(), "what comes before its time is rolled"
