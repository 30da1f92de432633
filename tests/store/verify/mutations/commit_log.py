"""Damage to the records of the commit log, I-020 … I-056; the ranges between them first."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path
from random import Random

from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.search.store import StoreReader

from . import on
from .edit import Place, a_record, overwrite, read, records

_MAGICS = (MAGIC_V1, MAGIC_V2, MAGIC_BLANK)
_MINUTE_MS = 60_000


def _inner(store: Path, random: Random, wanted: Callable[[Place], bool] = lambda place: True) -> Place:
    """A record that has another one behind it in its file."""
    places = records(store)
    followed = {p.position for p in places}
    fitting = [p for p in places if p.position + p.size in followed and wanted(p)]
    return random.choice(fitting)


def i_020(store: Path, random: Random) -> str:
    """No magic code, or zeros where a record begins."""
    place = _inner(store, random)
    if random.random() < 0.3:
        overwrite(place.path, place.offset, bytes(random.randrange(8, place.size)))
        return f"zeros at {place.position}"
    magic = random.choice([0, random.getrandbits(32), MAGIC_V1 ^ 1 << random.randrange(32)])
    while magic in _MAGICS:
        magic = random.getrandbits(32)
    return place.set("magic_code", magic)


def i_021(store: Path, random: Random) -> str:
    """A size that no record has, or that leaves the file."""
    place = _inner(store, random)
    rest = place.path.stat().st_size - place.offset
    size = random.choice([random.randrange(91), random.randrange(rest + 1, 1 << 31), -random.randrange(1, 1 << 31)])
    return place.set("total_size", size)


def i_022(store: Path, random: Random) -> str:
    """A size or a length to which the rest does not add up."""
    place = _inner(store, random)
    if random.random() < 0.5:
        rest = place.path.stat().st_size - place.offset
        size = random.randrange(92, rest)
        return place.set("total_size", size + (size == place.size))
    name = random.choice(["body_length", "topic_length", "properties_length"])
    return place.set(name, place.values[name] + random.choice([-1, 1, 2, 5, 60]))


def i_023(store: Path, random: Random) -> str:
    """A changed body, or a changed CRC."""
    place = a_record(store, random, lambda p: p.values["body_length"] > 0)
    if random.random() < 0.2:
        return place.set("body_crc", place.values["body_crc"] ^ 1 << random.randrange(31))
    begin, length = place.span("body")
    at = begin + random.randrange(length)
    overwrite(place.path, at, bytes([read(place.path, at, 1)[0] ^ 1 << random.randrange(8)]))
    return f"a bit of the body at {place.position}"


@on("4.9.7-clean", "5.3.3-clean")
def i_024(store: Path, random: Random) -> str:
    """An empty body with a CRC."""
    place = a_record(store, random, lambda p: p.values["body_length"] == 0)
    return place.set("body_crc", random.randrange(1, 1 << 31))


def i_025(store: Path, random: Random) -> str:
    """A record in the chain that names another position."""
    place = _inner(store, random)
    other = random.choice([0, place.position + 1, random.getrandbits(62), -1])
    return place.set("physical_offset", other if other != place.position else 1 << 40)


@on("5.3.3-propcrc", "5.5.0-propcrc")
def i_026(store: Path, random: Random) -> str:
    """A field outside the body is not what the CRC of the record covers."""
    place = a_record(store, random)
    name = random.choice(["flag", "born_timestamp", "reconsume_times", "queue_id", "CRC"])
    if name != "CRC":
        return place.set(name, place.values[name] ^ 1 << random.randrange(24))
    begin, length = place.span("properties")
    at = begin + length - 1 - random.randrange(1, 11)
    digit = (read(place.path, at, 1)[0] - ord("0") + random.randrange(1, 10)) % 10
    overwrite(place.path, at, str(digit).encode())
    return f"a digit of the CRC at {place.position}"


def i_027(store: Path, random: Random) -> str:
    """No store time."""
    return a_record(store, random).set("store_timestamp", -random.randrange(3))


def i_028(store: Path, random: Random) -> str:
    """A record older than the one in front of it."""
    places = records(store)
    at = random.randrange(1, len(places))
    earlier = places[at - 1].values["store_timestamp"] - random.randrange(1, 1 << 33)
    return places[at].set("store_timestamp", earlier)


def i_029(store: Path, random: Random) -> str:
    """Sent after it was stored, or stored in a far future."""
    place = a_record(store, random)
    later = place.values["store_timestamp"] + random.randrange(2 * _MINUTE_MS, 1 << 40)
    if random.random() < 0.5:
        return place.set("born_timestamp", later)
    return place.set("store_timestamp", later + (1 << 37))


def i_030(store: Path, random: Random) -> str:
    """A negative queue."""
    return a_record(store, random).set("queue_id", -random.randrange(1, 1 << 31))


def i_031(store: Path, random: Random) -> str:
    """A queue offset that is not the next one."""
    places = [p for p in records(store) if not p.values["sys_flag"] & SysFlag.PREPARED]
    count = Counter((p.topic, p.values["queue_id"]) for p in places)
    place = random.choice([p for p in places if count[p.topic, p.values["queue_id"]] > 1])
    offset = place.values["queue_offset"]
    other = random.choice([offset + random.randrange(1, 100), random.getrandbits(40), offset - 1])
    return place.set("queue_offset", other if other != offset else offset + 1)


def i_032(store: Path, random: Random) -> str:
    """A message with a queue offset that is marked as prepared or rolled back."""
    place = a_record(store, random, lambda p: p.values["queue_offset"] > 0)
    bits = random.choice([SysFlag.PREPARED, SysFlag.ROLLBACK])
    return place.set("sys_flag", place.values["sys_flag"] & ~SysFlag.ROLLBACK | bits)


def i_033(store: Path, random: Random) -> str:
    """Flags that are unknown, or not together with what they need."""
    place = a_record(store, random, lambda p: not p.values["sys_flag"] & SysFlag.COMPRESSED)
    wrong = [1 << random.randrange(11, 31), SysFlag.NEED_UNWRAP, SysFlag.INNER_BATCH, SysFlag.ZSTD]
    return place.set("sys_flag", place.values["sys_flag"] | random.choice(wrong))


def i_034(store: Path, random: Random) -> str:
    """A port that is none."""
    name = random.choice(["born_host.port", "store_host.port"])
    port = random.choice([65536 + random.randrange(1 << 30), -random.randrange(1, 1 << 31)])
    return a_record(store, random).set(name, port)


def i_035(store: Path, random: Random) -> str:
    """A byte that no topic has."""
    place = a_record(store, random)
    begin, length = place.span("topic")
    at = begin + random.randrange(length)
    byte = random.choice([0, 0xFF, 0xC3, ord("/"), ord(" "), ord("~"), random.randrange(1, 32)])
    overwrite(place.path, at, bytes([byte]))
    return f"byte {byte:#x} in the topic at {place.position}"


def _as_version_2(place: Place) -> str:
    """The record as one of version 2, of the same size: its body gets a byte shorter."""
    fields = dict(MESSAGE.parse(place.bytes()))
    body = fields["body"][:-1]
    fields |= {"magic_code": MAGIC_V2, "body": body, "body_crc": crc31(body)}
    for name in ("total_size", "body_length", "topic_length", "properties_length"):
        del fields[name]
    overwrite(place.path, place.offset, MESSAGE.build(fields))
    return f"record at {place.position} of version 2"


def _plain(place: Place) -> bool:
    return place.values["body_length"] > 1 and not place.values["sys_flag"] & SysFlag.COMPRESSED


def i_036(store: Path, random: Random) -> str:
    """Version 2 for a short topic."""
    return _as_version_2(a_record(store, random, _plain))


@on("4.9.7-clean", "4.3.1-clean")
def i_037(store: Path, random: Random) -> str:
    """Version 2 in the store of an old broker."""
    first = records(store)[0].path
    return _as_version_2(a_record(store, random, lambda p: p.path == first and _plain(p)))


def _blank(store: Path) -> tuple[Path, int, int]:
    """(file, offset, size) of the BLANK at the end of the first file."""
    places = records(store)
    place = [p for p in places if p.path == places[0].path][-1]
    offset = place.offset + place.size
    return place.path, offset, place.path.stat().st_size - offset


def i_040(store: Path, random: Random) -> str:
    """The BLANK of the first file is gone, or has another size."""
    path, offset, size = _blank(store)
    if random.random() < 0.5:
        other = random.choice([0, random.getrandbits(31), size + random.randrange(1, 100)])
        other += other in (size, path.stat().st_size)
        overwrite(path, offset, BLANK.build({"total_size": other, "magic_code": MAGIC_BLANK}))
        return f"BLANK with size {other}"
    overwrite(path, offset, random.choice([bytes(size), random.randbytes(8)]))
    return "no BLANK"


def i_041(store: Path, random: Random) -> str:
    """A BLANK in the place of a record, with or without the records behind it."""
    first = records(store)[0].path
    place = _inner(store, random, lambda p: p.path == first)
    rest = place.path.stat().st_size - place.offset
    blank = BLANK.build({"total_size": rest, "magic_code": MAGIC_BLANK})
    behind = random.random() < 0.5
    overwrite(place.path, place.offset, blank if behind else blank.ljust(rest, b"\0"))
    return f"a BLANK at {place.position}, records behind it: {behind}"


def i_042(store: Path, random: Random) -> str:
    """Damage in the middle, good records behind it."""
    place = _inner(store, random)
    name = random.choice(["total_size", "magic_code", "body_length", "properties_length"])
    return place.set(name, random.choice([-1, 0, (1 << 31) - 1]) if name[0] != "p" else -1)


def _behind(store: Path) -> tuple[Path, int, int]:
    """(file, offset, bytes) behind the last record."""
    place = records(store)[-1]
    offset = place.offset + place.size
    return place.path, offset, place.path.stat().st_size - offset


def i_043(store: Path, random: Random) -> str:
    """Noise behind the end."""
    path, offset, size = _behind(store)
    noise = random.randbytes(random.randrange(8, min(size, 3000)))
    overwrite(path, offset, noise)
    return f"{len(noise)} bytes behind the end"


def i_054(store: Path, random: Random) -> str:
    """Records of another place behind the end, or in a file behind it."""
    places = records(store)[:-1]
    path, offset, size = _behind(store)
    at = random.randrange(len(places) - 6)
    run = places[at : at + random.randrange(1, 5)]
    run = [p for p in run if p.path == run[0].path]
    data = b"".join(place.bytes() for place in run)[: size - 8]
    if len(data) < sum(p.size for p in run):
        data = run[0].bytes()
    if random.random() < 0.3:
        with StoreReader(store) as opened:
            last = opened.log_files.files[-1]
        file = Path(last.path).with_name(f"{last.end:020}")
        file.write_bytes(data.ljust(last.size, b"\0"))
        return f"{len(run)} records in {file.name}"
    overwrite(path, offset, data)
    return f"{len(run)} records from {run[0].position} behind the end"
