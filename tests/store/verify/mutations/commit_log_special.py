"""Damage to properties and to records of special topics; the functions belong to commit_log."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from random import Random

from mqstore.formats.dledger import ENTRY, HEADER_BYTES
from mqstore.formats.dledger_index import UNIT, UNIT_BYTES
from mqstore.formats.hashing import crc31
from mqstore.formats.message_properties import ITEM_SEPARATOR, NAME_VALUE_SEPARATOR
from mqstore.formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from mqstore.formats.sys_flag import TRANSACTION_MASK, SysFlag
from mqstore.store.search.store import StoreReader

from . import on
from .edit import Place, a_record, overwrite, read, records, set_field

_SCHEDULE = "SCHEDULE_TOPIC_XXXX"
_HALF, _OP = "RMQ_SYS_TRANS_HALF_TOPIC", "RMQ_SYS_TRANS_OP_HALF_TOPIC"
_TIMER = "rmq_sys_wheel_timer"


def _text(place: Place) -> tuple[int, bytes]:
    """Where the properties begin in the file, and what they are."""
    begin, length = place.span("properties")
    return begin, read(place.path, begin, length)


def _value(place: Place, name: str) -> tuple[int, bytes]:
    """(offset in the file, bytes) of a property's last value. Raises LookupError."""
    begin, text = _text(place)
    at = 0
    found: tuple[int, bytes] | None = None
    for item in text.split(ITEM_SEPARATOR):
        head, _, value = item.partition(NAME_VALUE_SEPARATOR)
        if head == name.encode():
            found = (begin + at + len(head) + 1, value)
        at += len(item) + 1
    if found is None:
        raise LookupError(name)
    return found


def _has(*names: str) -> Callable[[Place], bool]:
    def has(place: Place) -> bool:
        try:
            return all(_value(place, name)[1] for name in names)
        except LookupError:
            return False

    return has


def _of(topic: str) -> Callable[[Place], bool]:
    return lambda place: place.topic == topic


def _rename(place: Place, name: str, other: str) -> str:
    """Give a property another name of the same length."""
    at, _ = _value(place, name)
    assert len(name) == len(other)
    overwrite(place.path, at - 1 - len(name), other.encode())
    return f"record at {place.position}: {name} is {other}"


def _spoil(place: Place, name: str, random: Random, letters: bytes = b"xyzXYZ!") -> str:
    """Replace a character of a value."""
    at, value = _value(place, name)
    number = random.randrange(len(value))
    new = random.choice([c for c in letters if c != value[number]])
    overwrite(place.path, at + number, bytes([new]))
    return f"record at {place.position}: {name} {value!r}, character {number} is {chr(new)!r}"


def i_038(store: Path, random: Random) -> str:
    """A separator within an item, or between two, is no more."""
    place = a_record(store, random, lambda p: p.values["properties_length"] > 4)
    begin, text = _text(place)
    separators = (NAME_VALUE_SEPARATOR[0], ITEM_SEPARATOR[0])
    ones = [at for at, byte in enumerate(text[:-1]) if byte in separators]
    one = random.choice(ones)
    overwrite(place.path, begin + one, b"=")
    return f"record at {place.position}: byte {one} of the properties"


def i_039(store: Path, random: Random) -> str:
    """A plain body that is marked as compressed, or another compression."""
    if random.random() < 0.5:
        packed = a_record(store, random, lambda p: bool(p.values["sys_flag"] & SysFlag.COMPRESSED))
        flags = packed.values["sys_flag"]
        zlib = flags & SysFlag.ZLIB in (0, SysFlag.ZLIB)
        other = random.choice([SysFlag.LZ4, SysFlag.ZSTD]) if zlib else SysFlag.ZLIB
        return packed.set("sys_flag", flags & ~SysFlag.ZLIB | other)
    place = a_record(
        store, random, lambda p: not p.values["sys_flag"] & SysFlag.COMPRESSED and p.values["body_length"] > 4
    )
    kind = random.choice([0, SysFlag.LZ4, SysFlag.ZSTD, SysFlag.ZLIB])
    return place.set("sys_flag", place.values["sys_flag"] | SysFlag.COMPRESSED | kind)


@on("5.3.3-batchcq", "5.1.4-batchcq")
def i_044(store: Path, random: Random) -> str:
    """The number or the base of an inner batch is another one."""
    place = a_record(store, random, _has("INNER_NUM", "INNER_BASE"))
    return _spoil(place, random.choice(["INNER_NUM", "INNER_BASE"]), random, b"0123456789")


def i_045(store: Path, random: Random) -> str:
    """A delayed message in the wrong queue, or without its level or its place."""
    place = a_record(store, random, _of(_SCHEDULE))
    what = random.randrange(4)
    if what == 0:
        return place.set("queue_id", place.values["queue_id"] + random.randrange(1, 20))
    if what == 1:
        return _spoil(place, "DELAY", random)
    names = ("REAL_TOPIC", "REAL_QID")
    return _rename(place, names[what - 2], names[what - 2].replace("REAL", "LEAR"))


def i_046(store: Path, random: Random) -> str:
    """A half message out of place, or a decision about nothing."""
    what = random.randrange(3)
    if what == 0:
        place = a_record(store, random, lambda p: p.topic in (_HALF,))
        return place.set("queue_id", random.randrange(1, 1 << 20))
    if what == 1:
        name = random.choice(["PGROUP", "REAL_QID", "REAL_TOPIC"])
        place = a_record(store, random, lambda p: p.topic == _HALF and _has(name)(p))
        return _rename(place, name, name[::-1])
    place = a_record(store, random, _of(_OP))
    begin, length = place.span("body")
    overwrite(place.path, begin + random.randrange(length), b"x")
    return f"the body at {place.position}"


def i_047(store: Path, random: Random) -> str:
    """A committed message that names no half message, or another one that names some."""
    kind = random.choice([SysFlag.COMMIT, SysFlag(0)])
    place = a_record(store, random, lambda p: p.values["sys_flag"] & TRANSACTION_MASK == kind)
    was = place.values["prepared_transaction_offset"]
    return place.set("prepared_transaction_offset", was + random.choice([1, 7, -3, 1 << 33]))


@on("5.3.3-lmq", "4.9.7-lmq")
def i_048(store: Path, random: Random) -> str:
    """An offset of an LMQ is no number, or one of them is missing."""
    place = a_record(store, random, _has("INNER_MULTI_DISPATCH", "INNER_MULTI_QUEUE_OFFSET"))
    if random.random() < 0.5:
        return _spoil(place, "INNER_MULTI_QUEUE_OFFSET", random)
    return _spoil(place, "INNER_MULTI_QUEUE_OFFSET", random, b"x-")


@on("5.3.3-timer-clean", "5.5.0-timer-clean")
def i_049(store: Path, random: Random) -> str:
    """A time that is none, or no multiple of a second, or no place to go to."""
    place = a_record(store, random, _of(_TIMER))
    what = random.randrange(3)
    if what == 0:
        return _spoil(place, "TIMER_OUT_MS", random)
    if what == 1:
        at, value = _value(place, "TIMER_OUT_MS")
        overwrite(place.path, at + len(value) - 1, str(random.randrange(1, 10)).encode())
        return f"record at {place.position}: {value!r} and some ms"
    name = random.choice(["REAL_TOPIC", "REAL_QID"])
    return _rename(place, name, name[::-1])


def i_050(store: Path, random: Random) -> str:
    """A record with DUP_INFO of one part."""
    return _rename(a_record(store, random, _has("UNIQ_KEY")), "UNIQ_KEY", "DUP_INFO")


@on("5.3.3-dledger", "4.9.7-dledger")
def i_051(store: Path, random: Random) -> str:
    """Two messages of a topic with one unique key."""
    places = [p for p in records(store) if _has("UNIQ_KEY")(p)]
    one = random.choice(places)
    _, key = _value(one, "UNIQ_KEY")
    same = [p for p in places if p.topic == one.topic and p.position != one.position]
    same = [p for p in same if len(_value(p, "UNIQ_KEY")[1]) == len(key)]
    other = random.choice(same)
    overwrite(other.path, _value(other, "UNIQ_KEY")[0], key)
    return f"{other.position} has the key of {one.position}"


@on("5.3.3-dledger", "4.9.7-dledger")
def i_052(store: Path, random: Random) -> str:
    """The head of an entry says something else."""
    places = records(store)
    place = random.choice(places[1:-1])
    offset = place.offset - HEADER_BYTES
    name, value = random.choice(
        [
            ("index", random.getrandbits(40) + len(places)),
            ("term", -random.randrange(1, 1 << 40)),
            ("pos", place.position + random.randrange(1, 1 << 30)),
        ]
    )
    return set_field(place.path, offset, ENTRY, name, value)


@on("5.3.3-dledger", "4.9.7-dledger")
def i_053(store: Path, random: Random) -> str:
    """A unit of the index, or the state, does not agree with the entries."""
    with StoreReader(store) as opened:
        assert opened.layout.dledger is not None
        directory = opened.layout.dledger.parent
    count = len(records(store))
    if random.random() < 0.3:
        path = directory / "checkpoint"
        end = count + random.randrange(1000)
        path.write_text(f"endIndex={end}\ncommittedIndex={end}\n")
        return f"endIndex {end}"
    path = min((directory / "index").iterdir())
    number = random.randrange(count)
    name = random.choice(["pos", "size", "index", "term"])
    return set_field(path, number * UNIT_BYTES, UNIT, name, random.randrange(10**6, 10**9))


def i_055(store: Path, random: Random) -> str:
    """NUL bytes from somewhere on, or one in the place of a separator."""
    place = a_record(store, random, lambda p: p.values["properties_length"] > 8)
    begin, text = _text(place)
    at = random.randrange(len(text))
    count = len(text) - at
    if random.random() < 0.3:
        at, count = random.choice([at for at, byte in enumerate(text) if byte in (1, 2)]), 1
    overwrite(place.path, begin + at, bytes(count))
    return f"record at {place.position}: {count} NUL bytes from {at} on"


@on("5.5.0-clean", "4.9.7-clean")
def i_056(store: Path, random: Random) -> str:
    """A name twice."""
    place = a_record(store, random, _has("WAIT", "TAGS"))
    if _has("KEYS")(place) and random.random() < 0.5:
        return _rename(place, "KEYS", random.choice(["TAGS", "WAIT"]))
    return _rename(place, *random.choice([("WAIT", "TAGS"), ("TAGS", "WAIT")]))


@on("5.3.3-pop", "5.5.0-pop")
def i_057(store: Path, random: Random) -> str:
    """A check point or an acknowledgement that no broker has read is no JSON; its checksum is right."""
    offsets = store / "config" / "consumerOffset.json"
    offsets.write_text(offsets.read_text().replace(REVIVE_GROUP, "CID_OF_OTHERS"))
    place = a_record(store, random, lambda p: p.topic.startswith(REVIVE_TOPIC))
    begin, length = place.span("body")
    body = b"x" + read(place.path, begin + 1, length - 1)
    overwrite(place.path, begin, body)
    return place.set("body_crc", crc31(body))
