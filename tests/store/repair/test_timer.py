"""The timer wheel and its chains, broken slot by slot and link by link, are as the broker left them."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.derive import dtype_of
from mqstore.formats.timer_log import UNIT, UNIT_BYTES
from mqstore.formats.timer_wheel import SLOT, SLOT_BYTES
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck, read_timer_check
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.timer_records import DeliveredTimers
from mqstore.store.repair.parts import Choice, RepairPart, chosen
from mqstore.store.repair.repair import analyze, replan
from mqstore.store.repair.timer_log import entries_complete_to, timer_messages
from mqstore.store.search.store import StoreReader
from mqstore.store.session.apply import apply
from mqstore.store.start.simulate import simulate
from mqstore.store.timer.start import QUEUE
from mqstore.store.timer.wheel import Ticks
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.timer_log import timer_files
from mqstore.store.verify.timer_wheel import Chains, chains

from ... import stores, timer_precision
from ...conftest import STORES_LEFT_MS
from ...slices import rng
from ..recover.test_broker_bugs_of_timers import loss_of
from .test_repair import config_of, examined, repaired

pytestmark = pytest.mark.long

TIMER = chosen([RepairPart.TIMER], ())
CONFIG = BrokerConfig({})
NAMES = ("5.3.3-timer-roll", "5.5.0-timer-clean")


def chains_of(root: Path) -> Chains:
    with StoreReader(root) as store:
        return chains(VerifyContext(store, Scope()))


@pytest.fixture(params=NAMES)
def root(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    root = stores.unpack(request.param, tmp_path)
    assert len(chains_of(root).slots.number), "slots that are still to come"
    return root


def files(root: Path) -> dict[str, bytes]:
    paths = [root / "timerwheel", *sorted((root / "timerlog").iterdir())]
    return {path.name: path.read_bytes() for path in paths}


@pytest.mark.few(2)
@pytest.mark.parametrize("field", ["time", "first_pos", "last_pos", "all"])
def test_slots(field: str, root: Path) -> None:
    """Every slot that is to come gets noise in one field, or is gone."""
    wanted = files(root)
    path = root / "timerwheel"
    wheel = np.frombuffer(path.read_bytes(), dtype_of(SLOT)).copy()
    generator = rng(f"slots {field}")
    for number in chains_of(root).slots.number.tolist():
        if field == "all":
            wheel[number] = np.zeros(1, dtype_of(SLOT))[0]
        else:
            wheel[field][number] = generator.randrange(1, 1 << 40)
    path.write_bytes(wheel.tobytes())
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


@pytest.mark.few(1)
def test_links(root: Path) -> None:
    wanted = files(root)
    found = chains_of(root)
    with StoreReader(root) as store:
        log = timer_files(VerifyContext(store, Scope())).log
    generator = rng("links")
    previous_at = UNIT.size.sizeof()
    for position in log.entries.position[found.reached].tolist()[::3]:
        file = log.file_of(position)
        assert file is not None
        path = Path(file.path)
        data = bytearray(path.read_bytes())
        at = position - file.start + previous_at
        data[at : at + UNIT.prev_pos.sizeof()] = generator.randbytes(UNIT.prev_pos.sizeof())
        path.write_bytes(data)
    assert files(root) != wanted
    repaired(root, CONFIG, TIMER)
    assert files(root) == wanted


def test_passed_slots_are_left_alone(root: Path) -> None:
    path = root / "timerwheel"
    data = bytearray(path.read_bytes())
    with StoreReader(root) as store:
        known = timer_files(VerifyContext(store, Scope())).slots
    passed = np.setdiff1d(known.number, chains_of(root).slots.number)
    assert len(passed)
    at = int(passed[0]) * SLOT_BYTES + SLOT.time.sizeof()
    data[at : at + 8] = b"\x7f" * 8
    path.write_bytes(data)
    assert examined(root, CONFIG, TIMER).nothing_to_do


@pytest.mark.few(1)
@pytest.mark.parametrize("name", TimerCheck._fields[1:4])
def test_timercheck_is_brought_back(name: str, root: Path) -> None:
    path = root / "config" / "timercheck"
    whole = path.read_bytes()
    known = read_timer_check(path)
    assert known is not None
    for value in (1 << 60, -5):
        data = known._replace(**{name: value}).to_bytes()
        path.write_bytes(data + whole[len(data) :])
        repaired(root, CONFIG, TIMER)
        assert 0 <= getattr(read_timer_check(path), name) <= getattr(known, name) + UNIT_BYTES
        path.write_bytes(whole)


def test_a_time_read_long_before_1970_is_no_time(root: Path) -> None:
    path = root / "config" / "timercheck"
    whole, known = path.read_bytes(), read_timer_check(path)
    assert known is not None
    data = known._replace(last_read_time_ms=-(1 << 63)).to_bytes()
    path.write_bytes(data + whole[len(data) :])
    for file in (root / "timerlog").iterdir():
        file.write_bytes(bytes(file.stat().st_size))
    assert not examined(root, CONFIG, TIMER).nothing_to_do


def test_a_message_without_an_entry_is_read_again(tmp_path: Path) -> None:
    """The timer log is ahead of timercheck: a start reads on where a message is not in it."""
    root = stores.unpack("5.3.3-timer-killed", tmp_path)
    known = read_timer_check(root / "config" / "timercheck")
    assert known is not None
    begin = known.master_timer_queue_offset
    with StoreReader(root) as store:
        scene = VerifyContext(store, Scope())
        entries = timer_files(scene).log.entries
        records = timer_messages(store, scene, entries, np.zeros(0, np.int64))
    end = int(records.queue_offset[np.isin(records.position, entries.offset_py)].max()) + 1
    assert entries_complete_to(entries, records, begin) == end > begin + 3
    lost = records.position[records.queue_offset == begin + 2]
    assert entries_complete_to(entries.take(entries.offset_py != lost), records, begin) == begin + 2
    assert entries_complete_to(entries, records.take(records.position != lost), begin) == begin + 2
    repaired(root, CONFIG, TIMER)
    after = read_timer_check(root / "config" / "timercheck")
    assert after == known._replace(last_timer_queue_offset=end, master_timer_queue_offset=end)


@pytest.mark.parametrize("back_ms", [120_000, 7 * 86_400_000])
def test_a_clock_set_back_is_no_time_read(back_ms: int, tmp_path: Path) -> None:
    """The time read is not in the future, by what the timer delivered and wrote while the clock was ahead either."""
    layout = Layout.open(stores.unpack("5.3.3-timer-clean", tmp_path))
    known = read_timer_check(layout.config / "timercheck")
    assert known is not None
    now_ms = known.last_read_time_ms - back_ms
    mended(layout, TIMER, now_ms)
    after = read_timer_check(layout.config / "timercheck")
    assert after is not None and after.last_read_time_ms <= now_ms + Ticks.of_store(layout).precision_ms
    assert after == known._replace(last_read_time_ms=after.last_read_time_ms)
    found = loss_of(simulate(Snapshot.of(layout), profile_of("5.3"), now_ms=now_ms), now_ms)
    assert found is not None and not found.unfired and found.pending


def mended(layout: Layout, choice: Choice, now_ms: int) -> None:
    """As `repaired`, at a time."""
    found = analyze(layout, choice, None, now_ms)
    apply(layout, found.plan, lambda: replan(layout, found.request), Files(), command="repair")
    assert analyze(layout, choice, None, now_ms).nothing_to_do


@pytest.mark.parametrize("name", ["5.1.4-timer-killed", "5.5.0-timer-killed"])
def test_what_a_start_reads_too_late_has_entries(name: str, tmp_path: Path) -> None:
    """What was not read before the kill: a start would file it in slots that it never comes to. The plan is one that
    finds nothing to do afterwards, and a start has nothing left that waits and is not reached.
    """
    root = stores.unpack(name, tmp_path)
    now_ms = STORES_LEFT_MS + 7 * 86_400_000
    layout = Layout.open(root, config_of(name, root))
    before = loss_of(simulate(Snapshot.of(layout), profile_of(name[:3])), now_ms)
    assert before is not None and before.never_fired == before.too_late > 20
    mended(layout, Choice(), now_ms)
    after = loss_of(simulate(Snapshot.of(layout), profile_of(name[:3])), now_ms)
    assert after is not None and after.harmless and after.pending >= before.too_late


def without_files(name: str, work: Path) -> Path:
    """A store whose timer has no file, as one that was salvaged."""
    root = stores.unpack(name, work)
    for gone in ("timerlog", "timerwheel", "config/timercheck"):
        shutil.rmtree(path) if (path := root / gone).is_dir() else path.unlink()
    return root


@pytest.mark.parametrize("too_late", [12, 11])
def test_of_a_message_that_was_rolled_only_the_newest_record_fires(too_late: int, tmp_path: Path) -> None:
    """A real 5.3.3 delivered each of these messages six times: once for each time that it was rolled, and once more."""
    name = "5.3.3-timer-roll"
    layout = Layout.open(root := without_files(name, tmp_path), config_of(name, root))
    with StoreReader(layout) as store:
        waiting = DeliveredTimers(store).waiting
    assert waiting is not None and len(waiting) == 12 and waiting.rolls.min() > 1
    ticks, due_ms = Ticks.of_store(layout), np.sort(waiting.out_ms)
    reach_ms = -ticks.oldest_ms(0)
    now_ms = int(due_ms[too_late - 1]) + reach_ms + ticks.precision_ms
    before = loss_of(simulate(Snapshot.of(layout), profile_of("5.3")), now_ms)
    assert before is not None and before.never_fired == before.by_chance == too_late
    mended(layout, Choice(), now_ms)
    with StoreReader(layout) as store:
        entries = timer_files(VerifyContext(store, Scope(), now_ms)).log.entries
    fires = (entries.tick_ms >= ticks.oldest_ms(now_ms)) & ~entries.deletes
    assert sorted(entries.offset_py[fires].tolist()) == sorted(waiting.position.tolist())


def test_a_timer_without_a_file_whose_messages_a_start_reads_too_late(tmp_path: Path) -> None:
    """As of a salvaged store: wheel, timer log and timercheck are made, a broker 5.3.3 delivers each of them once."""
    root = without_files("5.3.3-timer-clean", tmp_path)
    now_ms = STORES_LEFT_MS + 8 * 86_400_000
    layout = Layout.open(root, config_of("5.3.3-timer-clean", root))
    before = loss_of(simulate(Snapshot.of(layout), profile_of("5.3")), now_ms)
    assert before is not None and before.never_fired == before.by_chance > 10
    mended(layout, Choice(), now_ms)
    after = loss_of(simulate(Snapshot.of(layout), profile_of("5.3")), now_ms)
    assert after is not None and after.harmless and after.pending >= before.by_chance
    check, queue = read_timer_check(root / "config" / "timercheck"), simulate(Snapshot.of(layout), profile_of("5.3"))
    assert check is not None and check.last_timer_queue_offset == queue.read_queues[QUEUE].max_offset
    with StoreReader(layout) as store:
        told = {finding.code for finding in verify(store, Scope(), now_ms=now_ms).findings if finding.repair}
    assert not told & {"I-131", "I-132", "I-133", "I-183"}


@pytest.mark.parametrize(
    ("name", "known"),
    [("5.5.0-2000ms-clean", True), ("5.3.3-500ms-killed-restarted", False)],
    ids=["known", "not known"],
)
def test_a_file_that_is_missing_between_others(name: str, known: bool, tmp_path: Path) -> None:
    """It is as it was, where those around it tell of each entry. Else it stays away: a start goes over the gap, and
    cuts the timer log where a file has a place without an entry.
    """
    root = timer_precision.unpack(name, tmp_path)
    layout = Layout.open(root, BrokerConfig.of(dict(o.split("=", 1) for o in timer_precision.config(name, root))))
    paths = sorted((root / "timerlog").iterdir())
    gone = paths[len(paths) // 2]
    data = gone.read_bytes()
    gone.unlink()
    mended(layout, TIMER, STORES_LEFT_MS)
    assert gone.exists() is known
    assert not known or gone.read_bytes() == data


def test_no_edit_writes_over_what_another_one_has_mended(tmp_path: Path) -> None:
    """Entries that are made anew lie among those that are put at another tick."""
    layout = Layout.open(stores.unpack("5.3.3-timer-roll", tmp_path))
    layout = Layout.open(layout.root, BrokerConfig(stores.config("5.3.3-timer-roll", layout.root)))
    path = sorted(layout.timer_log.iterdir())[6]
    with path.open("r+b") as file:
        file.seek(15 * UNIT_BYTES)
        file.write(bytes(4 * UNIT_BYTES))
    now_ms = STORES_LEFT_MS + 8 * 86_400_000
    mended(layout, TIMER, now_ms)
    with StoreReader(layout) as store:
        codes = {finding.code for finding in verify(store, Scope(), now_ms=now_ms).findings}
    assert not codes & {"I-126", "I-133", "I-183"}
