"""What can go wrong with a store, file by file; each scenario registers itself under its name.

First come ways to spoil the bytes of a record, or of any part of a file; the project's tests use them, too. They make
edits and write nothing. Then come scenarios: of the commit log; of queues, their extension and the index; of
checkpoint, timer, configuration and tiered storage.
"""

from __future__ import annotations

import json
import random
from collections.abc import Callable, Iterator
from datetime import datetime
from pathlib import Path
from typing import NamedTuple

from ...formats.blank import BLANK
from ...formats.checkpoint import FIELDS
from ...formats.commit_log import PLAIN
from ...formats.consume_queue import UNIT_BYTES
from ...formats.consumer_offset import OFFSET_TABLE
from ...formats.derive import offset_of, spans
from ...formats.index_file import HEADER, HEADER_BYTES, ITEM, ITEM_BYTES, items_offset
from ...formats.message import MESSAGE, SMALLEST
from ...formats.tiered_index import HEADER as TIERED_HEADER
from ...formats.timer_log import UNIT_BYTES as TIMER_UNIT_BYTES
from ...formats.topics import TOPIC_CONFIG_TABLE
from ..broker.snapshot import DirectoryEntry
from ..disk.compressed import read_regular
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Edit
from ..disk.layout import COMPACTION, COMPACTION_LOG
from ..errors import InvalidInput, NotFound
from ..index.read import Header, open_index_file
from ..index.write import file_name as index_file_name
from ..queues.edits import last_byte
from ..settings.read import LARGEST_BYTES
from ..tiered.segments import kind_of_place, open_segments, read_index
from ..timer.read import TimerUnits, timer_log
from .scenario import REGISTER, RecordPlace, Scenario, Scene, cut, remove, replace, scenario, write, zeros

PAGE_BYTES = 4096
LIES = (-(2**31), -1, 0, 1, SMALLEST - 1, SMALLEST, 2**16, 2**30, 2**31 - 1)
"""Sizes to overwrite that of a record with: limits of the format and of int32, and values near them."""


class Spot(NamedTuple):
    """What to spoil: `data`, which begins at byte `begin` of a file of `file_bytes`."""

    path: str
    file_bytes: int
    begin: int
    data: bytes

    def anywhere(self, rng: random.Random) -> int:
        """Return the place in the file of any byte of `data`."""
        return self.begin + rng.randrange(len(self.data))


Corrupt = Callable[[Spot, random.Random], Edit]


def flip_bit(spot: Spot, rng: random.Random) -> Edit:
    """Flip one bit."""
    at = spot.anywhere(rng)
    flipped = bytes([spot.data[at - spot.begin] ^ 1 << rng.randrange(8)])
    return write(spot.path, at, flipped, "a bit of a record")


def zero_page(spot: Spot, rng: random.Random) -> Edit:
    """Zero a page, as if it never reached the disk."""
    begin = spot.anywhere(rng) // PAGE_BYTES * PAGE_BYTES
    size = min(PAGE_BYTES, spot.file_bytes - begin)
    return zeros(spot.path, begin, size, "a page that was never written")


def garbage(spot: Spot, rng: random.Random) -> Edit:
    """Write up to a page of random bytes."""
    at = spot.anywhere(rng)
    size = min(rng.randint(1, PAGE_BYTES), spot.file_bytes - at)
    return write(spot.path, at, rng.randbytes(size), "random bytes")


def wrong_size(spot: Spot, rng: random.Random) -> Edit:
    """Give the record a wrong size: off by one, doubled, or one of `LIES`."""
    size = len(spot.data)
    lies = [lie for lie in (*LIES, size - 1, size + 1, size * 2) if lie != size]
    at = spot.begin + PLAIN.size_offset
    lie = BLANK.total_size.build(rng.choice(lies))[: max(0, spot.file_bytes - at)]
    return write(spot.path, at, lie, "total_size of a record")


def truncate(spot: Spot, rng: random.Random) -> Edit:
    """Let the file end inside of the record."""
    return cut(spot.path, spot.anywhere(rng), "a file of the log ends inside a record")


def torn_tail(spot: Spot, rng: random.Random, least: int = 1) -> Edit:
    """Keep the front of the record, at least `least` bytes, and zero the rest."""
    front = rng.randrange(least, len(spot.data))
    size = len(spot.data) - front
    return zeros(spot.path, spot.begin + front, size, "the end of the last record")


_STALE_RECORDS = 5
_LARGEST_COPY = 1 << 24


def _field(scene: Scene, place: RecordPlace, name: str) -> tuple[int, int]:
    """Return the byte of the file where a field of a record begins, and its length."""
    for span in spans(MESSAGE, scene.bytes_of(place)):
        if span.path == name:
            return place.offset + span.offset, span.length
    raise NotFound(f"the record has no {name}", path=place.file.path, offset=place.offset)


def _spot(scene: Scene, place: RecordPlace, skipped: int = 0) -> Spot:
    """Return a record without `skipped` bytes at its front, to be spoiled."""
    data = scene.bytes_of(place)[skipped:]
    return Spot(place.file.path, place.file.size, place.offset + skipped, data)


@scenario("killed", kills=True)
def _killed(scene: Scene) -> Iterator[Edit]:
    """The broker was killed: abort is there, nothing else is wrong."""
    yield from ()


@scenario("illegal-magic", 289, 6767)
def _illegal_magic(scene: Scene) -> Iterator[Edit]:
    """The magic code of a record in the log is overwritten."""
    place = scene.record()
    at, size = _field(scene, place, "magic_code")
    yield write(place.file.path, at, scene.rng.randbytes(size), "magic code of a record")


@scenario("flip-bit")
def _flip_bit(scene: Scene) -> Iterator[Edit]:
    """One bit of a record's body or properties flips."""
    place = scene.record()
    at, _ = _field(scene, place, "body_length")
    yield flip_bit(_spot(scene, place, at - place.offset), scene.rng)


@scenario("zero-page")
def _zero_page(scene: Scene) -> Iterator[Edit]:
    """A page of the log never reached the disk: zeros."""
    yield zero_page(_spot(scene, scene.record()), scene.rng)


@scenario("garbage")
def _garbage(scene: Scene) -> Iterator[Edit]:
    """Up to a page of the log is random bytes."""
    yield garbage(_spot(scene, scene.record()), scene.rng)


@scenario("wrong-size")
def _wrong_size(scene: Scene) -> Iterator[Edit]:
    """A record has a wrong size."""
    yield wrong_size(_spot(scene, scene.record()), scene.rng)


@scenario("crc-zero")
def _crc_zero(scene: Scene) -> Iterator[Edit]:
    """The body CRC of a record is 0, as another kind of broker writes it."""
    place = scene.record()
    at, size = _field(scene, place, "body_crc")
    yield zeros(place.file.path, at, size, "body_crc of a record")


@scenario("torn-tail", kills=True)
def _torn_tail(scene: Scene) -> Iterator[Edit]:
    """The last record was only partly written when the power failed."""
    yield torn_tail(_spot(scene, scene.last_record()), scene.rng, SMALLEST // 2)


@scenario("torn-properties", 7437, 9852, kills=True)
def _torn_properties(scene: Scene) -> Iterator[Edit]:
    """The last record has its body, but zeros for properties: the body CRC does not show it."""
    place = scene.last_record()
    at, size = _field(scene, place, "properties")
    yield zeros(place.file.path, at, size, "properties of the last record")


@scenario("stale-tail", 10017, kills=True)
def _stale_tail(scene: Scene) -> Iterator[Edit]:
    """Behind the log's end lie records of a recycled file: their CRCs fit, their positions do not."""
    yield from _tail(scene, in_place=False)


@scenario("dead-tail", 10666, 6665, kills=True)
def _dead_tail(scene: Scene) -> Iterator[Edit]:
    """Records that a slave had cut off came back behind the log's end."""
    yield from _tail(scene, in_place=True)


def _tail(scene: Scene, *, in_place: bool) -> Iterator[Edit]:
    """Yield edits that write old records behind the end of the log. in_place: they name their own positions."""
    last = scene.last_record()
    at = last.offset + last.size
    data = b""
    for place in scene.records(scene.log[0])[:_STALE_RECORDS]:
        record = scene.bytes_of(place)
        if at + len(data) + len(record) > last.file.size:
            break
        if in_place:
            own = MESSAGE.physical_offset.build(last.file.start + at + len(data))
            begin = PLAIN.position_offset
            record = record[:begin] + own + record[begin + len(own) :]
        data += record
    if not data:
        raise NotFound("no room behind the last record", path=last.file.path, offset=at)
    yield write(last.file.path, at, data, "old records behind the end of the log")


@scenario("missing-segment", 2141)
def _missing_segment(scene: Scene) -> Iterator[Edit]:
    """A file in the middle of the log is gone."""
    if len(scene.log) < 3:
        raise NotFound("the log has no file in the middle", path=scene.store.layout.root)
    file = scene.rng.choice(scene.log[1:-1])
    yield remove(file.path, "a file of the log")


@scenario("first-segment-gone", 10417, 8753)
def _first_segment_gone(scene: Scene) -> Iterator[Edit]:
    """The oldest file of the log was deleted; the queues still point into it."""
    if len(scene.log) < 2:
        raise NotFound("the log has one file only", path=scene.store.layout.root)
    yield remove(scene.log[0].path, "the oldest file of the log")


@scenario("cut-segment", 3257, 6904)
def _cut_segment(scene: Scene) -> Iterator[Edit]:
    """A file of the log ends early: length not matched message store config value."""
    yield truncate(_spot(scene, scene.record(), 1), scene.rng)


@scenario("empty-segment", 1560)
def _empty_segment(scene: Scene) -> Iterator[Edit]:
    """Behind the last file of the log there is an empty one."""
    files = scene.store.log_files
    path = f"{files.directories[0]}/{file_name(files.files[-1].start + files.file_size)}"
    yield Edit.create(path, b"", "an empty file behind the log")


@scenario("stray-file", 1251)
def _stray_file(scene: Scene) -> Iterator[Edit]:
    """Somebody left a file among those of the log: NumberFormatException."""
    files = scene.store.log_files
    path = f"{files.directories[0]}/{file_name(files.start)}.bak"
    data = scene.rng.randbytes(scene.rng.randint(1, min(PAGE_BYTES, files.file_size)))
    yield Edit.create(path, data, "not of the broker", size=files.file_size)


@scenario("duplicate-segment", 8859, 1231)
def _duplicate_segment(scene: Scene) -> Iterator[Edit]:
    """Two log directories have a file of the same name: which one counts is a matter of chance."""
    directories = [path for path in scene.store.layout.commit_log_directories if path.is_dir()]
    if len(directories) < 2:
        raise NotFound("the store has one log directory", path=scene.store.layout.root)
    file = scene.rng.choice(scene.log)
    other = next(path for path in directories if path != Path(file.path).parent)
    stale = scene.store.log_files.read_file(file, 0, min(file.size, _LARGEST_COPY) // 2)
    yield Edit.create(other / Path(file.path).name, stale, "an older file of the log", size=file.size)


_MOVED_UNITS = 1 << 16
"""Limit of units that move up."""
_ENDLESS_FILES = 20
_LONG_AGO = datetime(1970, 1, 1)
"""Index file names then follow the newest file, not the clock: the same for the same seed."""


def _place(files: MappedFileQueue, queue_offset: int) -> tuple[str, int, int]:
    """Return the file of a unit, its first byte there, and the bytes from there to the file's end."""
    file = files.file_at(queue_offset * UNIT_BYTES)
    if file is None:
        raise NotFound("no file has the unit", offset=queue_offset * UNIT_BYTES)
    at = queue_offset * UNIT_BYTES - file.start
    return file.path, at, file.size - at


@scenario("queue-order", 495, 467, 7355)
def _queue_order(scene: Scene) -> Iterator[Edit]:
    """A unit of a queue is lost and the others moved up: logic queue order maybe wrong."""
    files, first, end = scene.queue(3)
    with files:
        number = scene.rng.randrange(first, end - 2)
        path, at, room = _place(files, number)
        size = min(room, (end - number) * UNIT_BYTES, _MOVED_UNITS * UNIT_BYTES)
        rest = files.read(number * UNIT_BYTES + UNIT_BYTES, size - UNIT_BYTES)
    yield write(path, at, rest + bytes(size - len(rest)), "units of a queue moved up by one")


@scenario("queue-hole")
def _queue_hole(scene: Scene) -> Iterator[Edit]:
    """Units in the middle of a queue are zeros."""
    files, first, end = scene.queue(3)
    with files:
        number = scene.rng.randrange(first + 1, end - 1)
        path, at, room = _place(files, number)
    size = min(room, scene.rng.randint(1, end - 1 - number) * UNIT_BYTES)
    yield zeros(path, at, size, "units of a queue")


@scenario("queue-behind", 678, 1434, 405, kills=True)
def _queue_behind(scene: Scene) -> Iterator[Edit]:
    """The last units of a queue never reached the disk, but the checkpoint says they did."""
    files, first, end = scene.queue(2)
    with files:
        path, at, room = _place(files, scene.rng.randrange(max(first + 1, end - 10), end))
    yield zeros(path, at, room, "the last units of a queue")


@scenario("empty-queue-file", 9728, 10108)
def _empty_queue_file(scene: Scene) -> Iterator[Edit]:
    """Behind the last file of a queue there is an empty one: newPosition < 0."""
    files, _, _ = scene.queue()
    with files:
        path = f"{files.directories[0]}/{file_name(files.files[-1].start + files.file_size)}"
    yield Edit.create(path, b"", "an empty file behind a queue")


@scenario("queues-deleted", 8032, 495)
def _queues_deleted(scene: Scene) -> Iterator[Edit]:
    """All consume queues are deleted, as advice on the web says."""
    for path in scene.files_of("consumequeue/**/*", "consume queues"):
        yield remove(path, "a file of a consume queue")


@scenario("ext-cut", 10758)
def _ext_cut(scene: Scene) -> Iterator[Edit]:
    """The extension of a queue ends before the units that point into it."""
    path = scene.file_of("consumequeue_ext/*/*/*", "extension of consume queues")
    size = path.stat().st_size
    yield zeros(path, size // 4, size - size // 4, "units of an extension")


def _newest_index(scene: Scene) -> Path:
    return scene.files_of("index/*", "index")[-1]


@scenario("index-destroyed", 8007, 4463, kills=True)
def _index_destroyed(scene: Scene) -> Iterator[Edit]:
    """The newest index file has lost its header."""
    yield zeros(_newest_index(scene), 0, HEADER_BYTES, "header of the newest index file")


@scenario("index-gone", 3868)
def _index_gone(scene: Scene) -> Iterator[Edit]:
    """The newest index file is gone."""
    yield remove(_newest_index(scene), "the newest index file")


@scenario("index-loop", 8018)
def _index_loop(scene: Scene) -> Iterator[Edit]:
    """An item of the index links to itself: an endless loop."""
    path = _newest_index(scene)
    with open_index_file(path, scene.store.config) as index:
        if index.last < 1:
            raise NotFound("the newest index file has no items", path=path)
        number = scene.rng.randint(1, index.last)
        at = items_offset(index.slots) + number * ITEM_BYTES
    data = ITEM.previous.build(number)
    yield write(path, at + offset_of(ITEM, "previous"), data, f"item {number} names itself")


@scenario("index-cut")
def _index_cut(scene: Scene) -> Iterator[Edit]:
    """The newest index file ends early."""
    path = _newest_index(scene)
    yield cut(path, scene.rng.randrange(path.stat().st_size), "the newest index file ends early")


@scenario("index-endless", 7539)
def _index_endless(scene: Scene) -> Iterator[Edit]:
    """Many index files were begun and never filled: they fill the disk."""
    newest = _newest_index(scene)
    size = newest.stat().st_size
    with open_index_file(newest, scene.store.config) as index:
        end = index.header
    fields = (end.end_timestamp, end.end_timestamp, end.end_physical_offset, end.end_physical_offset)
    header = HEADER.build(dict(zip(Header._fields, (*fields, 0, 1), strict=True)))
    name = newest.name
    for _ in range(_ENDLESS_FILES):
        name = index_file_name(_LONG_AGO, name)
        yield Edit.create(newest.with_name(name), header, "an index file without an item", size=size)


@scenario("compaction-cut", kills=True)
def _compaction_cut(scene: Scene) -> Iterator[Edit]:
    """The log of a compaction topic lost its end, but its queue still points there."""
    path = scene.file_of(f"{COMPACTION}/{COMPACTION_LOG}/*/*/*", "log of a compaction topic")
    entry = DirectoryEntry(path.name, str(path), path.stat().st_size, directory=False)
    end = last_byte(entry, 0)
    at = scene.rng.randrange(end // 4, end // 2)
    yield zeros(path, at, end - at, "the end of a compaction log")


_CONFIG = "config/*.json"
_AN_HOUR_MS = 3_600_000
_BEYOND = 1_000_000
_MS_PER_S = 1000
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@scenario("checkpoint-ahead", 678, 1434, kills=True)
def _checkpoint_ahead(scene: Scene) -> Iterator[Edit]:
    """The checkpoint says that everything is flushed until an hour after the last message."""
    path = scene.store.layout.checkpoint
    fields = _checkpoint(path)
    late = (scene.store.log_end.store_timestamp or 0) + _AN_HOUR_MS
    fields.update(dict.fromkeys(_TIMES, late))
    yield write(path, 0, FIELDS.build(fields), "times of the checkpoint")


@scenario("checkpoint-zeros", kills=True)
def _checkpoint_zeros(scene: Scene) -> Iterator[Edit]:
    """The checkpoint is zeros."""
    path = scene.store.layout.checkpoint
    _checkpoint(path)
    yield zeros(path, 0, FIELDS.sizeof(), "the checkpoint")


def _checkpoint(path: Path) -> dict[str, int]:
    data = read_regular(path, FIELDS.sizeof()) if path.is_file() else b""
    if len(data) < FIELDS.sizeof():
        raise NotFound("the store has no checkpoint", path=path)
    return {name: value for name, value in FIELDS.parse(data).items() if name != "_io"}


@scenario("timer-ahead", 10668, 9735, kills=True)
def _timer_ahead(scene: Scene) -> Iterator[Edit]:
    """The log was cut, but the timer log still points behind its end: delayed messages are stuck."""
    layout = scene.store.layout
    with MappedFileQueue.open(layout.timer_log) as files:
        units = (item for item in timer_log(files) if isinstance(item, TimerUnits))
        last = [int(item.units["offset_py"][-1]) for item in units]
    file = scene.store.log_files.file_at(last[-1]) if last else None
    if file is None:
        raise NotFound("the store has no timer log that points into the log", path=layout.timer_log)
    at = last[-1] - file.start
    yield zeros(file.path, at, file.size - at, "the end of the log")


@scenario("timer-wheel-gone", 9654)
def _timer_wheel_gone(scene: Scene) -> Iterator[Edit]:
    """The timer wheel is gone."""
    path = scene.file_of("timerwheel", "timer wheel")
    yield remove(path, "the timer wheel")


@scenario("timer-wheel-length")
def _timer_wheel_length(scene: Scene) -> Iterator[Edit]:
    """The timer wheel does not have the length that a broker expects."""
    path = scene.file_of("timerwheel", "timer wheel")
    yield cut(path, path.stat().st_size - TIMER_UNIT_BYTES, "the timer wheel ends early")


@scenario("config-cut", 6096, 3401)
def _config_cut(scene: Scene) -> Iterator[Edit]:
    """A file of the configuration ends early after a power failure."""
    path = scene.file_of(_CONFIG, "configuration")
    size = scene.rng.randrange(path.stat().st_size)
    yield cut(path, size, "a file of the configuration ends early")


@scenario("config-zeros", 5905, 7729)
def _config_zeros(scene: Scene) -> Iterator[Edit]:
    """A file of the configuration is zeros after a power failure."""
    path = scene.file_of(_CONFIG, "configuration")
    yield zeros(path, 0, path.stat().st_size, "a file of the configuration")


@scenario("config-tail", 9328)
def _config_tail(scene: Scene) -> Iterator[Edit]:
    """The JSON of a configuration file is followed by the rest of an older file."""
    path = scene.file_of(_CONFIG, "configuration")
    data = read_regular(path, LARGEST_BYTES)
    yield write(path, len(data), data[len(data) // 2 :], "more behind the end of the JSON")


@scenario("offset-beyond", 551, 1869, 4226)
def _offset_beyond(scene: Scene) -> Iterator[Edit]:
    """A group's offset lies behind the end of its queue: the group gets no messages."""
    path, value, table = scene.table_of("consumer-offset", OFFSET_TABLE)
    groups = sorted(group for group, offsets in table.items() if offsets)
    if not groups:
        raise NotFound("no group has an offset", path=path)
    offsets = table[scene.rng.choice(groups)]
    offsets[scene.rng.choice(sorted(offsets))] += _BEYOND
    yield from replace(path, json.dumps(value).encode(), "the offset of a group")


@scenario("topic-forgotten", 1852, 6343)
def _topic_forgotten(scene: Scene) -> Iterator[Edit]:
    """The configuration lacks a topic that has messages."""
    path, value, table = scene.table_of("topics", TOPIC_CONFIG_TABLE)
    topics = sorted(set(table) & set(scene.store.topics))
    if not topics:
        raise NotFound("no topic of the configuration has a queue", path=path)
    del table[scene.rng.choice(topics)]
    yield from replace(path, json.dumps(value).encode(), "a topic of the configuration")


@scenario("tiered-index-end", 10656)
def _tiered_index_end(scene: Scene) -> Iterator[Edit]:
    """A segment of the tiered index ends when it begins: searches by time skip it."""
    path = scene.file_of("**/INDEX/*", "tiered index that is longer than a second", _has_length)
    end = TIERED_HEADER.end_timestamp.build(_tiered_header(path)["begin_timestamp"])
    yield write(path, offset_of(TIERED_HEADER, "end_timestamp"), end, "end_timestamp is begin_timestamp")


def _has_length(path: Path) -> bool:
    """Whether this is a sealed segment whose begin and end are at least a second apart."""
    header = _tiered_header(path) if kind_of_place(path) == "tiered-index" else {}
    return bool(header) and abs(header["end_timestamp"] - header["begin_timestamp"]) >= _MS_PER_S


def _tiered_header(path: Path) -> dict[str, int]:
    """Return the header of a segment; empty if it is not sealed."""
    with open_segments(path) as files:
        index = read_index(files, files.files[0])
    return {} if index.problem else index.header


def scenarios() -> dict[str, Scenario]:
    """Return all scenarios by name, those of the log first."""
    return REGISTER


def scenario_of(name: str) -> Scenario:
    """Return a scenario by its name. Raises InvalidInput."""
    found = scenarios().get(name)
    if found is None:
        raise InvalidInput(f"no such scenario: {name!r}", hint="mqstore damage --list names them")
    return found
