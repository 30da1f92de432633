"""Damage to compaction logs and queues, and to the files of a controller's broker (group H)."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from random import Random

from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from mqstore.formats.sparse_consume_queue import END, UNIT, UNIT_BYTES
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.queues.references import commit_log_of

from . import on
from .edit import overwrite, read, set_field

STORES = ("5.3.3-compaction", "5.1.4-compaction", "5.3.3-compaction-killed-restarted")
SEVERAL = ("5.3.3-compaction-killed",)
"""A store with files behind the gap that compaction leaves."""
_KEYS = b"KEYS\x01"
ANY = ("5.3.3-clean", "5.5.0-clean")


def _files(store: Path, part: str) -> list[Path]:
    """All files of the compaction logs (Log) or queues (Cq)."""
    return sorted(path for path in (store / f"compaction/compaction{part}").glob("*/*/*"))


def _pair(store: Path, random: Random) -> tuple[Path, Path]:
    """A log file and its queue file."""
    log = random.choice(_files(store, "Log"))
    return log, store / "compaction/compactionCq" / log.relative_to(log.parents[2])


def _records(log: Path) -> list[int]:
    """Offsets of the records of one log file."""
    found: list[int] = []
    with MappedFileQueue.of_file(log, int(log.name)) as files:
        for item in CommitLog(files).scan(crc=False):
            if isinstance(item, Batch):
                found += (item.position - int(log.name)).tolist()
    return found


def _units(queue: Path) -> list[int]:
    """Offsets of the units that name a record."""
    data = queue.read_bytes()
    places = range(0, len(data) - UNIT_BYTES + 1, UNIT_BYTES)
    return [at for at in places if UNIT.parse(data[at : at + UNIT_BYTES]).size > 0]


@on(*STORES)
def i_160(store: Path, random: Random) -> str:
    """A file has no counterpart."""
    pair = _pair(store, random)
    path = random.choice(pair)
    if random.random() < 0.5:
        path.unlink()
        return f"{path} removed"
    target = path.with_name(f"{int(path.name) + 10 * path.stat().st_size:020}")
    shutil.copy(path, target)
    return f"{target} made"


@on(*STORES)
def i_161(store: Path, random: Random) -> str:
    """A log file has another length than its queue file asks for."""
    log, queue = _pair(store, random)
    path = random.choice([log, queue])
    size = path.stat().st_size + random.choice([-1, 1]) * random.randrange(1, 40)
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path}: {size} bytes"


@on(*STORES, *SEVERAL)
def i_162(store: Path, random: Random) -> str:
    """A record does not know its place, its queue or its topic."""
    log = random.choice([path for path in _files(store, "Log") if _records(path)])
    offset = random.choice(_records(log))
    if random.random() < 0.2:
        return set_field(log, offset, MESSAGE, "queue_id", random.choice([-1, 7, 1 << 30]))
    if random.random() < 0.2:
        topic = log.parts[-3].encode()
        record = read(log, offset, int.from_bytes(read(log, offset, 4), "big"))
        at = offset + record.index(bytes([len(topic)]) + topic) + 1
        overwrite(log, at, bytes([topic[0] ^ 1]))
        return f"{log} @{at}: another topic"
    value = int(log.name) + offset + random.choice([-1, 1, 8, 4096, 1 << 33])
    return set_field(log, offset, MESSAGE, "physical_offset", value)


@on(*STORES, *SEVERAL)
def i_163(store: Path, random: Random) -> str:
    """A unit contradicts its record, or is gone."""
    queue = random.choice([path for path in _files(store, "Cq") if _units(path)])
    at = random.choice(_units(queue))
    if random.random() < 0.2:
        overwrite(queue, at, bytes(UNIT_BYTES))
        return f"{queue.name} @{at}: zeros"
    name = random.choice(["physical_offset", "size", "store_time", "msg_base_offset"])
    old = UNIT.parse(read(queue, at, UNIT_BYTES))[name]
    return set_field(queue, at, UNIT, name, old + random.choice([-1, 1, 100]))


@on(*SEVERAL)
def i_164(store: Path, random: Random) -> str:
    """A file in the middle has no end unit, or no BLANK."""
    queues = [path for path in _files(store, "Cq") if UNIT.build(END) in path.read_bytes()]
    queue = random.choice(queues)
    at = queue.read_bytes().index(UNIT.build(END))
    if random.random() < 0.5:
        overwrite(queue, at, bytes(UNIT_BYTES))
        return f"{queue}: no end unit"
    log = store / "compaction/compactionLog" / queue.relative_to(queue.parents[2])
    offset = _records(log)[-1]
    size = int.from_bytes(read(log, offset, 4), "big")
    overwrite(log, offset + size, bytes(8))
    return f"{log}: no BLANK at {offset + size}"


@on(*STORES)
def i_165(store: Path, random: Random) -> str:
    """position-checkpoint is ahead, or broken."""
    path = store / "compaction/position-checkpoint"
    content = json.loads(path.read_text())
    if random.random() < 0.3:
        path.write_text(path.read_text()[: random.randrange(3, 60)])
        return "cut"
    name = random.choice(sorted(content["queueOffsetMap"]))
    content["queueOffsetMap"][name] = random.randrange(1000, 1 << 40)
    path.write_text(json.dumps(content))
    return f"{name}: {content['queueOffsetMap'][name]}"


@on(*STORES)
def i_166(store: Path, random: Random) -> str:
    """Something is left over from a compaction."""
    path = random.choice(_files(store, random.choice(["Log", "Cq"])))
    if random.random() < 0.5:
        shutil.copy(path, path.with_name(path.name + ".delete"))
        return f"{path.name}.delete"
    directory = path.parent / random.choice(["compacting", "replicating"])
    directory.mkdir()
    if random.random() < 0.5:
        shutil.copy(path, directory / path.name)
    return f"{directory}"


@on("5.3.3-compaction", "5.1.4-compaction")
def i_167(store: Path, random: Random) -> str:
    """A key is there twice in what was compacted."""
    log = random.choice([path for path in _files(store, "Log") if int(path.name) == 0])
    keys = {offset: _key(log, offset) for offset in _records(log)}
    one = random.choice(sorted(keys))
    fitting = [at for at, (_, key) in keys.items() if at != one and len(key) == len(keys[one][1])]
    place, old = keys[random.choice(fitting)]
    key = keys[one][1]
    overwrite(log, place, key)
    return f"{log.name} @{place}: key {old!r} -> {key!r}"


def _key(log: Path, offset: int) -> tuple[int, bytes]:
    """Where KEYS of a record stands, and what it is."""
    record = read(log, offset, int.from_bytes(read(log, offset, 4), "big"))
    at = record.index(_KEYS) + len(_KEYS)
    return offset + at, record[at : record.index(b"\x02", at)]


def _epochs(store: Path, random: Random) -> list[tuple[int, int]]:
    """Epochs that begin with records of the log."""
    log = commit_log_of(Layout.open(store))
    starts = [p for item in log.scan() if isinstance(item, Batch) for p in item.position.tolist()]
    chosen = sorted(random.sample(starts[1:], random.randrange(2, 5)))
    return [(number + 1, start) for number, start in enumerate(chosen)]


@on(*ANY)
def i_170(store: Path, random: Random) -> str:
    """Epochs do not add up, or are not those of the log; a .bak that a broker would take does not either."""
    rows = _epochs(store, random)
    count, wrong_crc = len(rows), 0
    kinds = ["count", "crc", "order", "starts", "behind", "inside", "letters", "empty"]
    kind = random.choice(kinds)
    if kind == "count":
        count += random.choice([-1, 1])
    elif kind == "crc":
        wrong_crc = random.randrange(1, 99)
    elif kind == "order":
        rows[0], rows[1] = rows[1], rows[0]
    elif kind == "starts":
        rows[0], rows[1] = (rows[0][0], rows[1][1] + 1), rows[1]
    elif kind == "behind":
        rows[-1] = (rows[-1][0], 1 << 40)
    elif kind == "inside":
        number = random.randrange(len(rows))
        rows[number] = (rows[number][0], rows[number][1] + random.randrange(1, 80))
    lines = [f"{epoch}-{start}\n" for epoch, start in rows]
    if kind == "letters":
        lines[0] = "one-two\n"
    crc = crc31("".join(lines).encode()) + wrong_crc
    text = "" if kind == "empty" else f"{count}\n{crc}\n{''.join(lines)}"
    name = "epochFileCheckpoint" + random.choice(["", ".bak"])
    (store / name).write_text(text)
    return f"{name}, {kind}: {text!r}"


@on(*ANY)
def i_171(store: Path, random: Random) -> str:
    """The identity lacks a part, or its number is none."""
    text = random.choice(["", "c", "c#b", "c##1", "#b#1", "c#b#one", "c#b#-", "c#b#99999999999999999999"])
    name = "brokerIdentity" + random.choice(["", "-temp"])
    (store / name).write_text(text)
    return f"{name}: {text!r}"
