"""Scans of damaged logs: nothing lost that is there, nothing delivered that is not."""

from __future__ import annotations

import random
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats import dledger
from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.commit_log import DLEDGER, PLAIN
from mqstore.store.disk.file_queue import file_name
from mqstore.store.errors import Missing, NotFound
from mqstore.store.log import commit_log, scan
from mqstore.store.log.batch import Batch, ExtentKind
from mqstore.store.log.batch import messages as each
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Mark
from mqstore.store.queues.references import commit_log_of
from tests.damage import ALL_KINDS, DROP_FILE, Damage, Span, Victim, damage
from tests.slices import rng, share

from ..made_log import START_MS, Account, MadeLog, account, log_of, made, record

FILE_SIZE = 1 << 16
LIVE = (Mark.NONE, Mark.AFTER_DAMAGE)
HEADS = {"plain": 0, "dledger": dledger.HEADER_BYTES}
around_each = pytest.mark.parametrize("around", HEADS.values(), ids=HEADS)


def victim_of(log: MadeLog, folder: Path) -> Victim:
    """The made log for `damage`."""
    return Victim(folder, tuple(span_of(log, folder, *span) for span in log.spans))


def span_of(log: MadeLog, folder: Path, position: int, size: int) -> Span:
    start = position // log.file_size * log.file_size
    return Span(position, folder / file_name(start), position - start, size)


def judge(found: Account, spans: dict[int, int], spoiled: frozenset[int], what: str) -> None:
    """Every undamaged record is there and live; whatever is live is a record that was there."""
    for position, size in spans.items():
        if position not in spoiled:
            assert position in found.records, (what, "lost", position)
            assert found.records[position][0] == size, (what, position)
            assert found.records[position][1] in LIVE, (what, position, found.records[position])
            assert found.records[position][2], (what, "CRC", position)
    for position in found.with_mark(*LIVE):
        assert found.records[position][0] == spans.get(position), (what, "false", position)
    for position in found.with_mark(Mark.EMBEDDED):
        assert any(p < position < p + spans[p] for p in spoiled), (what, "embedded", position)


# -- undamaged logs ----------------------------------------------------------------------------------


@around_each
@pytest.mark.parametrize("seed", range(6))
def test_undamaged(around: int, seed: int, tmp_path: Path) -> None:
    """All records unmarked, a BLANK at the end of each file but the last, zeros behind the end."""
    log = made(random.Random(seed), count=60, file_size=FILE_SIZE, around=around)
    found = account(log.log(tmp_path), around=around)
    assert {p: (size, Mark.NONE, True) for p, size in log.spans} == found.records
    blanks = [(e.position, e.size, e.reason) for e in found.extents if e.kind is ExtentKind.BLANK]
    assert blanks == [(position, size, "") for position, size in log.blanks]
    zeros = [e for e in found.extents if e.kind is not ExtentKind.BLANK]
    assert [(e.kind, e.position) for e in zeros] == [(ExtentKind.ZEROS, log.end)]


@around_each
@pytest.mark.parametrize("window", [1 << 12, 1 << 14, 1 << 16])
def test_windows_cut_records(around: int, window: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Small windows: records of any size lie across their ends, some are larger."""
    for name in ("mqstore.store.log.scan", "mqstore.store.log.scan"):
        monkeypatch.setattr(f"{name}.WINDOW_BYTES", window)
        monkeypatch.setattr(f"{name}.NARROW_BYTES", window // 4)
    for seed in range(4):
        log = made(random.Random(seed), count=60, file_size=FILE_SIZE, around=around)
        found = account(log.log(tmp_path / str(seed)), around=around)
        assert found.records == {p: (size, Mark.NONE, True) for p, size in log.spans}


def test_every_field_comes_out(tmp_path: Path) -> None:
    log = MadeLog(FILE_SIZE)
    at = log.append(b"body", topic=b"topic", properties=b"a\x01b\x02", queue_id=3, flag=-7)
    (batch,) = [item for item in log.log(tmp_path).scan() if isinstance(item, Batch)]
    (message,) = each(batch)
    assert (message.position, message.physical_offset, message.mark) == (at, at, Mark.NONE)
    assert (message.stored_body, message.topic, message.properties) == (b"body", "topic", {"a": "b"})
    assert (message.queue_id, message.flag, message.body_crc_ok) == (3, -7, True)
    assert message.store_timestamp == START_MS
    kept = batch.copy()
    assert [*each(kept)] == [message]
    assert kept.end == batch.end == log.end


def test_start_and_stop(tmp_path: Path) -> None:
    """From a record on, to before a position."""
    log = made(random.Random(1), count=40, file_size=FILE_SIZE)
    whole = log.log(tmp_path)
    places = [position for position, _ in log.spans]
    for first, last in ((0, 5), (3, 3), (10, 39), (39, 40), (20, 21)):
        stop = places[last] if last < len(places) else None
        items = [item for item in whole.scan(places[first], stop) if isinstance(item, Batch)]
        assert np.concatenate([np.empty(0, np.int64), *(i.position for i in items)]).tolist() == (places[first:last])


def test_without_crc(tmp_path: Path) -> None:
    log = made(random.Random(2), count=10, file_size=FILE_SIZE)
    found = account(log.log(tmp_path), crc=False)
    assert {crc_ok for _, _, crc_ok in found.records.values()} == {None}


@pytest.mark.parametrize("at_once", [1, 1000, 1 << 22])
@pytest.mark.parametrize("number", range(4))
def test_records_that_lie_near_are_read_as_one_by_one(
    number: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In any order, twice, where no record begins, in damaged files and where files are missing."""
    chance = rng(f"near {number}")
    log = made(chance, count=120, file_size=FILE_SIZE)
    log.log(tmp_path)
    for _ in range(3):
        damage(victim_of(log, tmp_path), chance)
    begins = [position for position, _ in log.spans]
    beside = [chance.randrange(-9, log.end + 999) for _ in range(50)]
    wanted = [*begins, *chance.sample(begins, 40), *beside, 1 << 50, 2**63 - 1, -(2**63)]
    chance.shuffle(wanted)
    monkeypatch.setattr(commit_log, "_GROUP_BYTES", at_once)
    read = log_of(tmp_path)
    near = read.records(np.array(wanted, np.int64))
    monkeypatch.setattr(commit_log, "_GROUP_GAP_BYTES", -1)
    alone = read.records(np.array(wanted, np.int64))
    assert len(near)
    assert near.position.tolist() == alone.position.tolist()
    assert [*each(near)] == [*each(alone)]


@around_each
def test_records_by_position(around: int, tmp_path: Path) -> None:
    """The same as a scan gives; where none begins there is none."""
    log = made(random.Random(3), count=50, file_size=FILE_SIZE, around=around)
    opened = log.log(tmp_path)
    places = [position + around for position, _ in log.spans]
    batch = opened.records(np.array(places[::-1]))
    assert batch.position.tolist() == places[::-1]
    assert batch.body_crc_ok is not None
    assert batch.body_crc_ok.all()
    scanned = [m for i in opened.scan() if isinstance(i, Batch) for m in each(i)]
    assert sorted(each(batch), key=lambda message: message.position) == scanned
    for wrong in (-1, 1, places[0] + 1, places[-1] + 3, log.end, 1 << 40, 2**63 - 1, -(2**63)):
        assert not len(opened.records(np.array([wrong])))
        with pytest.raises(NotFound):
            opened.record(wrong)
    mixed = opened.records(np.array([places[1], 5, places[0], 1 << 50]))
    assert mixed.position.tolist() == [places[1], places[0]]


# -- damage ------------------------------------------------------------------------------------------


def expected_without_header(log: MadeLog, hurt: Damage, found: Account) -> frozenset[int]:
    """Spoiled records whose head is gone: a record in their body cannot be told from a real one."""
    inside = frozenset(p for p in found.with_mark(*LIVE) if p not in dict(log.spans))
    for position in inside:
        outer = max(p for p, _ in log.spans if p < position)
        assert outer in hurt.spoiled, (str(hurt), position)
        assert position < outer + dict(log.spans)[outer]
    return inside


@pytest.mark.few(33)
@around_each
@pytest.mark.parametrize("kind", ALL_KINDS)
@pytest.mark.parametrize("seed", range(6))
def test_every_kind_of_damage(around: int, kind: str, seed: int, tmp_path: Path) -> None:
    """Bodies that hold records in place are no way in as long as a head is left."""
    chance = random.Random(f"{kind} {seed}")
    log = made(chance, count=60, file_size=FILE_SIZE, around=around)
    folder = log.write(tmp_path)
    hurt = damage(victim_of(log, folder), chance, kind=kind)
    found = account(log_of(folder, dledger=bool(around)), around=around)
    spans = dict(log.spans)
    if kind in ("zero_page", "garbage", "stale_record", "truncate"):
        for position in expected_without_header(log, hurt, found):
            del found.records[position]
    if kind == "truncate":  # the file's other records are missing, not spoiled in place
        assert any(e.kind in (ExtentKind.MISSING, ExtentKind.TORN_TAIL) for e in found.extents) or (
            hurt.path.name == file_name(FILE_SIZE * (len(log.files) - 1))
        )
    judge(found, spans, hurt.spoiled, str(hurt))
    broken = [e for e in found.extents if e.kind not in (ExtentKind.BLANK, ExtentKind.ZEROS)]
    if kind == DROP_FILE and hurt.path.name not in (file_name(0), max(p.name for p in folder.iterdir())):
        inner = file_name(0) < hurt.path.name < max(p.name for p in folder.iterdir())
        assert [e.kind for e in broken] == ([ExtentKind.MISSING] if inner else [])
    if kind == "flip_bit":
        assert len(broken) <= 1, "told once"


@pytest.mark.few(30)
@around_each
@pytest.mark.parametrize("seed", range(40))
def test_each_bit_of_a_head(around: int, seed: int, tmp_path: Path) -> None:
    """A record that holds others in its body, hurt in its head: none of them gets out."""
    chance = random.Random(seed)
    log = MadeLog(FILE_SIZE, around)
    for number in range(3):
        log.append(b"before %d" % number)
    start = log.end + 2 * around + 88
    inner = record(start, b"fake") if not around else b""
    if around:
        from ..made_log import entry

        inner = entry(log.end + around + 88, b"fake")
    outer = log.append(inner + b"behind")
    for number in range(chance.randrange(4)):
        log.append(b"after %d" % number)
    folder = log.write(tmp_path)
    bit = chance.randrange((around + 88) * 8)
    log.files[0][outer + bit // 8] ^= 1 << bit % 8
    log.write(folder)
    found = account(log_of(folder, dledger=bool(around)), around=around)
    judge(found, dict(log.spans), frozenset([outer]), f"bit {bit}")


def spoil(folder: Path, position: int, data: bytes) -> None:
    """Overwrite bytes of the log."""
    path = folder / file_name(position // FILE_SIZE * FILE_SIZE)
    content = bytearray(path.read_bytes())
    at = position % FILE_SIZE
    content[at : at + len(data)] = data
    path.write_bytes(content)


def plain_log(count: int = 30, **fields: Any) -> MadeLog:
    log = MadeLog(FILE_SIZE)
    for number in range(count):
        log.append(b"body %d " % number * (number % 7), **fields)
    return log


@pytest.mark.parametrize("size", [-(2**31), -1, 0, 1, 90, 91, 2**16, 2**30, 2**31 - 1])
def test_wrong_sizes(size: int, tmp_path: Path) -> None:
    """Too small, too large, below zero: one damage, from this record to the next."""
    log = plain_log()
    folder = log.write(tmp_path)
    position, length = log.spans[12]
    spoil(folder, position, size.to_bytes(4, "big", signed=True))
    found = account(log_of(folder))
    judge(found, dict(log.spans), frozenset([position]), str(size))
    first = found.extents[0]
    assert (first.kind, first.position, first.size) == (ExtentKind.DAMAGE, position, length)
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans[:12]]
    assert found.with_mark(Mark.AFTER_DAMAGE) == [p for p, _ in log.spans[13:]]


@pytest.mark.parametrize("over", [1, 2, 5])
def test_a_size_that_leads_to_another_record(over: int, tmp_path: Path) -> None:
    """The records that the size jumps over are delivered; they are not inside anything."""
    log = plain_log()
    folder = log.write(tmp_path)
    position = log.spans[12][0]
    size = log.spans[12 + over + 1][0] - position
    spoil(folder, position, size.to_bytes(4, "big"))
    judge(account(log_of(folder)), dict(log.spans), frozenset([position]), str(over))


def test_a_lying_size_costs_no_memory(tmp_path: Path) -> None:
    """A size of most of the file is not read: the lengths beside it say otherwise."""
    import tracemalloc

    log = MadeLog(256 << 20)
    for number in range(50):
        log.append(b"body %d" % number)
    folder = log.write(tmp_path)
    with (folder / file_name(0)).open("r+b") as file:
        for position, _ in log.spans[10:20]:
            file.seek(position)
            file.write((200 << 20).to_bytes(4, "big"))
    log.files.clear()
    opened = log_of(folder)
    tracemalloc.start()
    found = account(opened)
    opened.records(np.array([position for position, _ in log.spans]))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    judge(found, dict(log.spans), frozenset(p for p, _ in log.spans[10:20]), "sizes")
    assert peak < 64 << 20


def test_a_torn_tail_with_records_in_it(tmp_path: Path) -> None:
    """The last record is cut off inside its body: what the body holds is embedded."""
    log = plain_log(5)
    start = log.end + 88
    inner = record(start, b"fake")
    outer = log.append(inner + b"x" * 2000)
    folder = log.write(tmp_path)
    spoil(folder, outer + 88 + len(inner) + 10, bytes(3000))
    found = account(log_of(folder))
    judge(found, dict(log.spans), frozenset([outer]), "torn")
    assert found.with_mark(Mark.EMBEDDED) == [start]
    assert found.extents[-1].kind is ExtentKind.TORN_TAIL


def test_not_in_place_in_the_middle(tmp_path: Path) -> None:
    """A record that names another place but has good ones behind it belongs to the log (B14)."""
    log = plain_log()
    folder = log.write(tmp_path)
    position = log.spans[9][0]
    spoil(folder, position + PLAIN.position_offset, (12345).to_bytes(8, "big"))
    found = account(log_of(folder))
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans]


def test_an_earlier_life_behind_the_end(tmp_path: Path) -> None:
    """A recycled file: records of another place behind the last good one."""
    log = plain_log(10)
    at, stale = log.end, []
    for number in range(3):
        data = record((7 << 30) + number, b"old")
        log.files[0][at : at + len(data)] = data
        stale.append(at)
        at += len(data)
    found = account(log.log(tmp_path))
    assert found.with_mark(Mark.EARLIER_LIFE) == stale
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans]
    assert [(e.kind, e.position) for e in found.extents] == [(ExtentKind.ZEROS, at)]


def dead_tail(log: MadeLog, gap: int, count: int, **fields: Any) -> list[int]:
    """Older records in place, some bytes behind the end of the last file."""
    at, dead = log.end + gap, []
    log.files[-1][log.end % FILE_SIZE : at % FILE_SIZE] = b"\xee" * gap
    for number in range(count):
        fields.setdefault("store_timestamp", START_MS - 5)
        data = record(at, b"dead %d" % number, queue_offset=number, **fields)
        log.files[-1][at % FILE_SIZE : at % FILE_SIZE + len(data)] = data
        dead.append(at)
        at += len(data)
    return dead


def test_a_dead_tail(tmp_path: Path) -> None:
    """Whole and in place, but older than the records before."""
    log = plain_log(10)
    dead = dead_tail(log, 33, 4)
    found = account(log.log(tmp_path))
    assert found.with_mark(Mark.DEAD_TAIL) == dead
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans]


def test_a_dead_tail_by_its_queue_offsets(tmp_path: Path) -> None:
    """Not older, but at queue offsets that are taken."""
    log = plain_log(10)
    dead = dead_tail(log, 33, 4, store_timestamp=START_MS + 10**6)
    found = account(log.log(tmp_path))
    assert found.with_mark(Mark.DEAD_TAIL) == dead


def test_a_dead_tail_by_queue_offsets_of_earlier_windows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last window has no message of that queue: what is dead must not hang on where windows end."""
    for name in ("NARROW_BYTES", "WINDOW_BYTES", "_WIDEST_BYTES"):
        monkeypatch.setattr(scan, name, 256)
    log = plain_log(10)
    for _ in range(6):
        log.append(bytes(200), queue_id=1)
    dead = dead_tail(log, 33, 4, store_timestamp=START_MS + 10**6)
    found = account(log.log(tmp_path))
    assert found.with_mark(Mark.DEAD_TAIL) == dead


@pytest.mark.parametrize("number", [3, 18, 19])
def test_a_spoilt_queue_offset_kills_nothing_behind_it(number: int, tmp_path: Path) -> None:
    """Later ones of its queue tell, or that there is no room for so many before it; no unit does."""
    log = plain_log(30)
    folder = log.write(tmp_path)
    spoil(folder, log.spans[number][0] + 20, (1 << 40).to_bytes(8, "big"))
    position, size = log.spans[20]
    spoil(folder, position, bytes(size))
    found = account(log_of(folder))
    assert found.with_mark(Mark.AFTER_DAMAGE) == [p for p, _ in log.spans[21:]]


def with_blank_in_front(size: int | None, tmp_path: Path, time_ms: int) -> tuple[MadeLog, Account]:
    """A BLANK in the first file with whole records behind it, and good records in the next file."""
    log = plain_log(10)
    at, room = log.end, -log.end % FILE_SIZE
    blank = {"total_size": room if size is None else size, "magic_code": MAGIC_BLANK}
    head = BLANK.build(blank)
    dead = dead_tail(log, 40, 3, store_timestamp=time_ms)
    log.files[-1][at : at + len(head)] = head
    log.end += room
    for number in range(5):
        log.append(b"next file %d" % number)
    found = account(log.log(tmp_path))
    assert [p for p in dead if p in found.records] == dead
    return log, found


def test_a_blank_over_dead_records(tmp_path: Path) -> None:
    """The broker cut here, wrote on, and closed the file: the next file is live."""
    log, found = with_blank_in_front(None, tmp_path, START_MS - 9)
    assert len(found.with_mark(Mark.DEAD_TAIL)) == 3
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans]
    assert found.extents[0].kind is ExtentKind.BLANK
    assert found.extents[0].size == 40


def test_a_blank_before_its_time(tmp_path: Path) -> None:
    """Good records behind it were not lost: damage, told once, and both sides are delivered."""
    log, found = with_blank_in_front(8, tmp_path, START_MS - 9)
    assert found.with_mark(Mark.NONE) == [p for p, _ in log.spans]
    assert (found.extents[0].kind, found.extents[0].size) == (ExtentKind.DAMAGE, 40)


def test_a_blank_of_a_wrong_size_is_a_blank(tmp_path: Path) -> None:
    """No broker tests it (spec 1.5); the reason tells."""
    log = made(random.Random(5), count=60, file_size=FILE_SIZE)
    folder = log.write(tmp_path)
    position, size = log.blanks[0]
    spoil(folder, position, (size + 1).to_bytes(4, "big"))
    found = account(log_of(folder))
    judge(found, dict(log.spans), frozenset(), "blank")
    assert next((e.position, e.reason) for e in found.extents if e.kind is ExtentKind.BLANK) == (
        position,
        f"its size is {size + 1}, not {size}",
    )


def test_a_dead_tail_does_not_reach_into_the_next_file(tmp_path: Path) -> None:
    """Each file is judged again: newer records are of this log."""
    log = plain_log(10)
    dead = dead_tail(log, 33, 3)
    log.end += -log.end % FILE_SIZE
    next_file = [log.append(b"next %d" % number) for number in range(4)]
    found = account(log.log(tmp_path))
    assert found.with_mark(Mark.DEAD_TAIL) == dead
    assert found.with_mark(Mark.AFTER_DAMAGE) == next_file


# -- files -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("size", [0, 1, 7, 8, 90, 91, 4096])
@pytest.mark.parametrize("number", [0, 1, 2])
def test_short_files(size: int, number: int, tmp_path: Path) -> None:
    """Any file cut short, the last one empty: the rest is read."""
    log = made(random.Random(6), count=80, file_size=FILE_SIZE)
    assert len(log.files) > 2
    folder = log.write(tmp_path)
    path = folder / file_name(number * FILE_SIZE)
    path.write_bytes(path.read_bytes()[:size])
    opened = log_of(folder)
    found = account(opened)
    cut = range(number * FILE_SIZE + size, (number + 1) * FILE_SIZE)
    spoiled = frozenset(p for p, s in log.spans if p in cut or p + s - 1 in cut)
    for position in [p for p in found.with_mark(*LIVE) if p not in dict(log.spans)]:
        assert any(p < position < p + s for p, s in log.spans if p in spoiled)
        del found.records[position]
    judge(found, dict(log.spans), spoiled, f"{number} {size}")


def test_a_file_that_is_too_long(tmp_path: Path) -> None:
    """Bytes behind the end of a file are no part of the log: the next file stands there."""
    log = made(random.Random(7), count=60, file_size=FILE_SIZE)
    folder = log.write(tmp_path)
    path = folder / file_name(0)
    path.write_bytes(path.read_bytes() + bytes(FILE_SIZE))
    judge(account(log_of(folder)), dict(log.spans), frozenset(), "long")


def test_no_files_and_empty_files(tmp_path: Path) -> None:
    assert [*log_of(tmp_path / "nothing").scan()] == []
    (tmp_path / file_name(0)).touch()
    assert [*log_of(tmp_path).scan()] == []
    with pytest.raises(Missing):
        CommitLog.of_file(tmp_path / "gone")


@around_each
def test_a_file_of_its_own(around: int, tmp_path: Path) -> None:
    """Under a foreign name: its place is what its first record says."""
    log = made(random.Random(8), count=60, file_size=FILE_SIZE, around=around)
    second = tmp_path / "copy of a file"
    second.write_bytes(log.files[1])
    opened = CommitLog.of_file(second, frame=DLEDGER if around else PLAIN)
    assert opened.min_offset == FILE_SIZE
    found = account(opened, around=around)
    assert list(found.records) == [p for p, _ in log.spans if FILE_SIZE <= p < 2 * FILE_SIZE]


def test_preallocated_zeros_of_an_entry_log_are_passed_quickly(tmp_path: Path) -> None:
    """Zeros look like the start of every magic code of an entry."""
    log = MadeLog(64 << 20, dledger.HEADER_BYTES)
    log.append(b"one")
    found = account(log.log(tmp_path), around=dledger.HEADER_BYTES)
    assert len(found.records) == 1


def test_end(tmp_path: Path) -> None:
    log = made(random.Random(9), count=60, file_size=FILE_SIZE)
    opened = log.log(tmp_path)
    assert opened.end().position == log.end
    assert opened.end(log.spans[-1][0]).position == log.end
    assert log_of(tmp_path / "none").end().position == 0


def test_end_says_what_lies_behind_it_first(tmp_path: Path) -> None:
    """Zeros farther on, and whole files of them, do not hide it; only a torn record is one."""

    def end_of(name: str, log: MadeLog, torn: int | None = None) -> str:
        log.files.append(bytearray(FILE_SIZE))
        found = log.log(tmp_path / name).end()
        assert (found.position, found.damaged_ranges, found.torn and found.torn.position) == (end, 0, torn)
        return found.reason

    log = plain_log(5)
    end = log.end
    assert end_of("zeros", log) == "zeros: never written"
    log = plain_log(5)
    log.files[0][end : end + 100] = record(end, b"x" * 400)[:100]
    assert end_of("torn", log, end).startswith("torn tail: ")
    log = plain_log(5)
    log.files[0][end : end + 100] = b"\xee" * 100
    assert end_of("stale bytes", log).startswith("stale bytes: ")
    log = plain_log(5)
    dead_tail(log, 33, 3)
    assert end_of("dead, behind the rest of a record that was cut", log) == "stale: dead tail"


# -- real stores -------------------------------------------------------------------------------------


def test_a_scan_may_be_left_early(store: Callable[[str], Path]) -> None:
    from ..real_log import layout_of

    root = store("5.3.3-clean")
    opened = commit_log_of(layout_of("5.3.3-clean", root))
    for _ in range(3):
        assert isinstance(next(iter(opened.scan())), Batch)


@pytest.mark.slow
@around_each
def test_damage_at_length(around: int, tmp_path: Path) -> None:
    """Made logs, every kind of damage, twice in one log now and then."""
    chance = rng(f"damage at length {around}")
    for number in range(share(3_000)):
        log = made(chance, count=40, file_size=FILE_SIZE, around=around)
        folder = log.write(tmp_path / str(number))
        hurt = damage(victim_of(log, folder), chance)
        found = account(log_of(folder, dledger=bool(around)), around=around)
        for position in expected_without_header(log, hurt, found):
            del found.records[position]
        judge(found, dict(log.spans), hurt.spoiled, f"case {number}, {hurt}")
        for path in folder.iterdir():
            path.unlink()
