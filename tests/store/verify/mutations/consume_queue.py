"""Damage to consume queues, in files, of batches, with ext units, in a RocksDB (group C)."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

from rocksdict import Options, Rdict

from mqstore.formats import batch_consume_queue, consume_queue_ext
from mqstore.formats import rocksdb_consume_queue as rocksdb
from mqstore.formats.consume_queue import EXT_ADDRESS_MAX, PRE_FILL, UNIT, UNIT_BYTES
from mqstore.formats.message import SysFlag
from mqstore.store.broker.topics import loads

from . import on
from .edit import Place, overwrite, read, records, set_field

CLEAN = ("5.3.3-clean", "4.9.7-clean", "4.3.1-clean", "5.5.0-clean")
LONG = ("5.3.3-killed-restarted", "4.9.7-killed-restarted", "5.5.0-killed-restarted")
EXPIRED = ("5.3.3-expired", "4.9.7-expired")
EXT = ("5.3.3-cqext", "4.9.7-cqext")
BATCH = ("5.3.3-batchcq", "5.1.4-batchcq")
ROCKSDB = ("5.3.3-rocksdb", "5.5.0-rocksdb")
_PRE_FILL = UNIT.build(PRE_FILL)


@dataclass(frozen=True)
class Unit:
    """One real unit. left: real units behind it in its queue."""

    path: Path
    offset: int
    topic: str
    queue_id: int
    number: int
    left: int
    values: dict[str, int]

    def set(self, name: str, value: int) -> str:
        """Write one of its numbers."""
        return f"{self}: " + set_field(self.path, self.offset, UNIT, name, value)

    def write(self, data: bytes) -> str:
        """Write all of it."""
        overwrite(self.path, self.offset, data)
        return f"{self} -> {data.hex()}"

    @property
    def data(self) -> bytes:
        """As it is on the disk."""
        return read(self.path, self.offset, UNIT_BYTES)

    def __str__(self) -> str:
        return f"{self.topic}/{self.queue_id} unit {self.number}"


Queue = list[Unit]


def _queues(store: Path) -> list[Queue]:
    """The queues that have real units, each with those."""
    found = []
    for directory in sorted((store / "consumequeue").glob("*/*")):
        units: list[tuple[Path, int, int, dict[str, int]]] = []
        for path in sorted(directory.iterdir()) if directory.name.isdecimal() else []:
            for offset in range(0, path.stat().st_size, UNIT_BYTES):
                values: dict[str, int] = dict(UNIT.parse(read(path, offset, UNIT_BYTES)))
                values.pop("_io")
                if values["size"] > 0 and values != PRE_FILL:
                    number = (int(path.name) + offset) // UNIT_BYTES
                    units.append((path, offset, number, values))
        topic, queue_id = directory.parent.name, int(directory.name) if units else 0
        found += [
            [
                Unit(path, offset, topic, queue_id, number, len(units) - 1 - at, values)
                for at, (path, offset, number, values) in enumerate(units)
            ]
        ] * bool(units)
    return found


def _queue(store: Path, random: Random, least: int = 1, files: int = 1) -> Queue:
    """Any queue with so many units, in so many files."""
    fitting = [queue for queue in _queues(store) if len(queue) >= least and len({unit.path for unit in queue}) >= files]
    return random.choice(fitting)


def _unit(store: Path, random: Random, wanted: Callable[[Unit], bool]) -> Unit:
    """Any unit that is wanted."""
    return random.choice([u for queue in _queues(store) for u in queue if wanted(u)])


def _inside(unit: Unit) -> bool:
    """Real units are before it and behind it."""
    return unit.left > 0 and unit.number > 0


def _log_end(store: Path) -> int:
    last = records(store)[-1]
    return last.position + last.size


def _own_record(unit: Unit, places: list[Place]) -> Place:
    return next(p for p in places if p.position == unit.values["physical_offset"])


@on(*CLEAN)
def i_060(store: Path, random: Random) -> str:
    """A file cut, or made longer, in the middle of a unit."""
    unit = random.choice(_queue(store, random))
    size = unit.path.stat().st_size + random.randrange(1, UNIT_BYTES) * random.choice((-1, 1))
    with unit.path.open("r+b") as file:
        file.truncate(size)
    return f"{unit.path} has {size} bytes"


@on(*CLEAN)
def i_061(store: Path, random: Random) -> str:
    """An invalid unit with valid ones behind it."""
    unit = _unit(store, random, lambda unit: unit.left > 0)
    if random.random() < 0.5:
        return unit.write(bytes(UNIT_BYTES))
    if random.random() < 0.5:
        return unit.set("size", -random.randrange(1 << 31))
    return unit.set("physical_offset", -random.randrange(1, 1 << 62))


@on(*CLEAN)
def i_062(store: Path, random: Random) -> str:
    """A unit that names no record, or one of another size."""
    unit = _unit(store, random, lambda unit: unit.left > 0)
    if random.random() < 0.5:
        return unit.set("size", unit.values["size"] + random.choice((-7, -1, 1, 4, 64)))
    inside = random.randrange(1, unit.values["size"])
    return unit.set("physical_offset", unit.values["physical_offset"] + inside)


@on(*CLEAN)
def i_063(store: Path, random: Random) -> str:
    """A unit of another queue."""
    unit = _unit(store, random, lambda unit: unit.left > 0)
    mine = (unit.topic, unit.queue_id)
    other = _unit(store, random, lambda unit: (unit.topic, unit.queue_id) != mine)
    return unit.write(other.data) + f", that of {other}"


@on(*CLEAN)
def i_064(store: Path, random: Random) -> str:
    """Units in each other's place, or shifted: one is left out and those behind it follow."""
    queue = _queue(store, random, least=3)
    at = random.randrange(len(queue) - 2)
    if random.random() < 0.5:
        other = random.randrange(at + 1, len(queue))
        first, second = queue[at].data, queue[other].data
        queue[at].write(second)
        queue[other].write(first)
        return f"{queue[at]} and {queue[other]} exchanged"
    data = [unit.data for unit in queue]
    for unit, following in zip(queue[at:], [*data[at + 1 :], bytes(UNIT_BYTES)], strict=True):
        unit.write(following)
    return f"{queue[at]} left out, those behind it moved"


@on(*CLEAN)
def i_065(store: Path, random: Random) -> str:
    """Another tags code."""
    unit = _unit(store, random, lambda unit: True)
    code = unit.values["tags_code"]
    while code == unit.values["tags_code"]:
        code = random.choice((0, random.randrange(-(1 << 31), 1 << 31), code + 1))
    return unit.set("tags_code", code)


@on(*CLEAN)
def i_066(store: Path, random: Random) -> str:
    """A unit that names an earlier record than the one before it."""
    queue = _queue(store, random, least=2)
    at = random.randrange(1, len(queue))
    before = queue[random.randrange(at)].values["physical_offset"]
    return queue[at].set("physical_offset", before - random.choice((0, min(before, 1))))


@on(*CLEAN)
def i_067(store: Path, random: Random) -> str:
    """A unit that names bytes behind the end of the log."""
    unit = _unit(store, random, lambda unit: True)
    beyond = _log_end(store) + random.choice((0, 1, 4096, 1 << 30, 1 << 50))
    return unit.set("physical_offset", beyond - random.choice((0, unit.values["size"] - 1)))


@on(*EXPIRED)
def i_068(store: Path, random: Random) -> str:
    """A unit below the log's start, behind one in the log."""
    start = min(int(path.name) for path in (store / "commitlog").iterdir())
    queues = [[u for u in q if u.values["physical_offset"] >= start] for q in _queues(store)]
    unit = random.choice([u for queue in queues for u in queue[1:]])
    return unit.set("physical_offset", random.randrange(start))


@on(*CLEAN)
def i_069(store: Path, random: Random) -> str:
    """The record of a unit becomes a half message, or a rollback."""
    places = records(store)
    unit = _unit(store, random, lambda unit: unit.topic not in _TRANSACTIONS)
    place = _own_record(unit, places)
    flag = place.values["sys_flag"] & ~SysFlag.ROLLBACK
    return place.set("sys_flag", flag | random.choice((SysFlag.PREPARED, SysFlag.ROLLBACK)))


_TRANSACTIONS = ("RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC")


@on(*CLEAN)
def i_070(store: Path, random: Random) -> str:
    """A queue is lost, or some units of it."""
    queue = _queue(store, random)
    if random.random() < 0.3 and queue[0].topic in _configured(store):
        for path in queue[0].path.parent.iterdir():
            path.unlink()
        queue[0].path.parent.rmdir()
        return f"{queue[0].path.parent} removed"
    begin = random.randrange(len(queue))
    gone = queue[begin : begin + random.randrange(1, 9)]
    for unit in gone:
        unit.write(bytes(UNIT_BYTES))
    return f"{len(gone)} units from {gone[0]} on zeroed"


def _configured(store: Path) -> dict[str, Any]:
    table: dict[str, Any] = _topics(store)["topicConfigTable"]
    return table


def _topics(store: Path) -> dict[str, Any]:
    loaded: dict[str, Any] = json.loads((store / "config" / "topics.json").read_text("utf-8"))
    return loaded


@on(*CLEAN)
def i_071(store: Path, random: Random) -> str:
    """A unit in the middle is overwritten with one that fills a front."""
    return _unit(store, random, _inside).write(_PRE_FILL)


@on(*CLEAN)
def i_072(store: Path, random: Random) -> str:
    """All units of a queue become units that fill its front."""
    queue = _queue(store, random)
    for unit in queue:
        unit.write(_PRE_FILL)
    return f"all {len(queue)} units of {queue[0].path.parent}"


@on(*LONG)
def i_073(store: Path, random: Random) -> str:
    """The last file of a queue is zeros, the one before it is full."""
    queue = _queue(store, random, files=2)
    path = queue[-1].path
    path.write_bytes(bytes(path.stat().st_size))
    return f"{path} zeroed"


@on(*LONG, *EXPIRED)
def i_074(store: Path, random: Random) -> str:
    """A file that is not the last one is zeros."""
    queue = _queue(store, random, files=2)
    path = random.choice(sorted({unit.path for unit in queue})[:-1])
    path.write_bytes(bytes(path.stat().st_size))
    return f"{path} zeroed"


@on(*CLEAN)
def i_075(store: Path, random: Random) -> str:
    """A queue that ends too early."""
    queue = _queue(store, random)
    gone = random.randrange(1, min(len(queue), 9) + 1)
    for unit in queue[-gone:]:
        unit.write(bytes(UNIT_BYTES))
    return f"the last {gone} units of {queue[0].path.parent} zeroed"


@on(*CLEAN)
def i_076(store: Path, random: Random) -> str:
    """topics.json gives the topic fewer queues than it has."""
    known = _configured(store)
    unit = _unit(store, random, lambda u: u.queue_id > 0 and u.topic in known and "SCHEDULE" not in u.topic)
    count = random.randrange(1, unit.queue_id + 1)
    path = store / "config" / "topics.json"
    topics = _topics(store)
    for name in ("readQueueNums", "writeQueueNums"):
        topics["topicConfigTable"][unit.topic][name] = count
    path.write_text(json.dumps(topics), "utf-8")
    return f"{unit.topic} has {count} queues in topics.json"


@on(*CLEAN)
def i_077(store: Path, random: Random) -> str:
    """delayOffset.json is ahead of the queue of a level."""
    path = store / "config" / "delayOffset.json"
    offsets: dict[str, Any] = loads(path.read_text("utf-8"))
    level = random.choice(sorted(offsets["offsetTable"]))
    offsets["offsetTable"][level] += random.randrange(1, 1000)
    path.write_text(json.dumps(offsets), "utf-8")
    return f"level {level}: {offsets['offsetTable'][level]}"


@on("5.3.3-lmq")
def i_078(store: Path, random: Random) -> str:
    """An LMQ with another number or with a / in its name, or with a foreign unit."""
    light = [q for q in _queues(store) if q[0].topic.startswith("%LMQ%")]
    queue = random.choice(light)
    directory = queue[0].path.parent
    kind = random.randrange(3)
    if kind == 0:
        return f"{directory} -> {directory.rename(directory.with_name(str(random.randrange(1, 9))))}"
    if kind == 1:
        inner = directory.parent / random.choice("abcde") / "0"
        inner.mkdir(parents=True)
        (inner / queue[0].path.name).write_bytes(queue[0].path.read_bytes())
        return f"{inner} made"
    places = [p for p in records(store) if b"INNER_MULTI" not in p.values["properties"]]
    place = random.choice(places)
    unit = random.choice(queue[:-1])
    unit.set("size", place.size)
    return unit.set("physical_offset", place.position)


@on(*EXT)
def i_079(store: Path, random: Random) -> str:
    """A size in consumequeue_ext that its bit map contradicts."""
    path, offset, values = _ext_unit(store, random)
    name = random.choice(("size", "bit_map_size"))
    size = values[name]
    while size in (values[name], consume_queue_ext.END_OF_FILE):
        size = random.choice((32767, random.randrange(-32768, 32767), size + 1, 0))
    return set_field(path, offset, consume_queue_ext.HEAD, name, size)


def _ext_unit(store: Path, random: Random) -> tuple[Path, int, dict[str, int]]:
    """File, offset and head of an ext unit that some unit names."""
    unit = _unit(store, random, lambda unit: unit.values["tags_code"] <= EXT_ADDRESS_MAX)
    position = unit.values["tags_code"] - consume_queue_ext.ADDRESS_BASE
    directory = store / "consumequeue_ext" / unit.topic / str(unit.queue_id)
    path = max(path for path in directory.iterdir() if int(path.name) <= position)
    offset = position - int(path.name)
    data = read(path, offset, consume_queue_ext.UNIT_BYTES_MIN)
    return path, offset, dict(consume_queue_ext.HEAD.parse(data))


@on(*EXT)
def i_080(store: Path, random: Random) -> str:
    """An address that is none, or an ext unit of another message."""
    if random.random() < 0.5:
        path, offset, values = _ext_unit(store, random)
        name = random.choice(("tags_code", "msg_store_time"))
        value = values[name] + random.choice((-1, 1, 1000))
        return set_field(path, offset, consume_queue_ext.HEAD, name, value)
    unit = _unit(store, random, lambda unit: unit.values["tags_code"] <= EXT_ADDRESS_MAX)
    return unit.set("tags_code", unit.values["tags_code"] + random.choice((-1, 1, 20, 1 << 40)))


def _batch_unit(store: Path, random: Random) -> tuple[Path, int, dict[str, int]]:
    """File, offset and content of a unit of a queue of batches that has one before it."""
    found = []
    for path in sorted((store / "batchconsumequeue").glob("*/*/*")):
        step = batch_consume_queue.UNIT_BYTES
        for offset in range(step, path.stat().st_size - step + 1, step):
            values = dict(batch_consume_queue.UNIT.parse(read(path, offset, step)))
            if values["size"] > 0:
                found.append((path, offset, values))
    return random.choice(found)


@on(*BATCH)
def i_081(store: Path, random: Random) -> str:
    """A batch that does not begin where the one before it ends."""
    path, offset, values = _batch_unit(store, random)
    base = values["msg_base_offset"] + random.choice((-1, 1, 5, 1 << 40))
    return set_field(path, offset, batch_consume_queue.UNIT, "msg_base_offset", base)


@on(*BATCH)
def i_082(store: Path, random: Random) -> str:
    """A unit that tells something else of its batch than the record."""
    path, offset, values = _batch_unit(store, random)
    names = ("store_time", "msg_base_offset", "batch_size", "compacted_offset", "reserved")
    name = random.choice(names)
    value = values[name] + random.choice((1, 3, 100))
    return set_field(path, offset, batch_consume_queue.UNIT, name, value)


@on("5.3.3-clean", "5.5.0-clean", "5.1.4-batchcq", "5.3.3-batchcq")
def i_083(store: Path, random: Random) -> str:
    """A queue in the directory of the other type, or the other type in topics.json."""
    topics = _topics(store)
    table = topics["topicConfigTable"]
    simple = sorted(p.name for p in (store / "consumequeue").iterdir() if p.name in table)
    topic = random.choice(simple)
    if random.random() < 0.5:
        table[topic].setdefault("attributes", {})["queue.type"] = "BatchCQ"
        (store / "config" / "topics.json").write_text(json.dumps(topics), "utf-8")
        return f"{topic} is BatchCQ in topics.json"
    other = store / "batchconsumequeue"
    other.mkdir(exist_ok=True)
    (store / "consumequeue" / topic).rename(other / topic)
    return f"{topic} moved to {other}"


@on(*ROCKSDB)
def i_084(store: Path, random: Random) -> str:
    """Another greatest offset in the RocksDB, or a queue in files that says something else."""
    if random.random() < 0.5:
        return _other_bound(store, random)
    place = random.choice([p for p in records(store) if not p.values["sys_flag"] & 0xC])
    path = store / "consumequeue" / place.topic / str(place.values["queue_id"]) / f"{0:020}"
    path.parent.mkdir(parents=True)
    number = place.values["queue_offset"]
    unit = {"physical_offset": place.position, "size": place.size + 1, "tags_code": 0}
    unit["physical_offset"] += random.randrange(1000)
    path.write_bytes(bytes(UNIT_BYTES * number) + UNIT.build(unit))
    return f"{path} with unit {number}"


def _other_bound(store: Path, random: Random) -> str:
    """The greatest offset of one queue is changed, or taken out."""
    path = str(store / "consumequeue")
    families = {name: Options(raw_mode=True) for name in Rdict.list_cf(path)}
    database = Rdict(path, Options(raw_mode=True), column_families=families)
    bounds: Any = database.get_column_family(rocksdb.BOUNDS)
    keys = [key for key, _ in bounds.items() if b"max" in key and b"CHECKPOINT" not in key]
    key = random.choice(sorted(keys))
    value = rocksdb.BOUND.parse(bounds[key])
    name = random.choice(("physical_offset", "queue_offset", ""))
    if name:
        value[name] += random.choice((-1, 1, 100))
        bounds[key] = rocksdb.BOUND.build(value)
    else:
        del bounds[key]
    database.close()
    return f"{key!r}: {name or 'all'} changed"


@on(*EXPIRED, *LONG)
def i_085(store: Path, random: Random) -> str:
    """The log has expired further, the first file of a queue has stayed."""
    files = sorted((store / "commitlog").iterdir())
    start = int(random.choice(files[1:]).name)
    ends = {}
    for queue in _queues(store):
        last = [unit for unit in queue if unit.path == queue[0].path][-1]
        ends[last.path] = last.values["physical_offset"]
    if min(ends.values()) >= start:
        start = int(files[-1].name)
    for path in files:
        if int(path.name) < start:
            path.unlink()
    gone = [path for path, position in ends.items() if position < start]
    return f"the log begins at {start}, {len(gone)} first files of queues before it"


@on(*CLEAN)
def i_086(store: Path, random: Random) -> str:
    """A queue without a valid unit."""
    queue = _queue(store, random)
    for path in queue[0].path.parent.iterdir():
        path.write_bytes(bytes(path.stat().st_size))
    return f"{queue[0].path.parent} zeroed"


@on(*CLEAN)
def i_087(store: Path, random: Random) -> str:
    """The last unit fills a front."""
    queue = _queue(store, random, least=2)
    return queue[-1].write(_PRE_FILL)
