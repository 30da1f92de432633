"""Damage to index files: headers, slots, chains, items, and records that contradict them (group D)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random

from mqstore.formats.index_file import HEADER, ITEM, ITEM_BYTES, SLOT, items_offset, slots_offset
from mqstore.formats.message import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.index.read import Header, Item
from mqstore.store.search.store import StoreReader

from ....stores import config
from . import on
from .edit import Place, overwrite, records, set_field

CLEAN = ("5.3.3-clean", "4.9.7-clean", "4.3.1-clean", "5.5.0-clean")
_LARGEST = (1 << 31) - 1


@dataclass(frozen=True)
class File:
    """One index file as it is before it is damaged. items: the first one is number 0, never used."""

    path: Path
    header: Header
    slots: list[int]
    items: list[Item]
    room: int

    def set_header(self, name: str, value: int) -> str:
        """A field of the header."""
        return set_field(self.path, 0, HEADER, name, value)

    def set_slot(self, number: int, value: int) -> str:
        """What a slot names."""
        at = slots_offset() + number * SLOT.sizeof()
        return f"slot {number}: " + set_field(self.path, at, SLOT, "item", value)

    def place(self, number: int) -> int:
        """Where an item lies."""
        return items_offset(len(self.slots)) + number * ITEM_BYTES

    def set_item(self, number: int, name: str, value: int) -> str:
        """A field of an item."""
        return f"item {number}: " + set_field(self.path, self.place(number), ITEM, name, value)

    def slot_of(self, number: int) -> int:
        """The slot of an item."""
        return self.items[number].key_hash % len(self.slots)

    def any_item(self, random: Random, wanted: Callable[[Item], bool] = lambda item: True) -> int:
        """Number of any item that is wanted."""
        return random.choice([n for n in range(1, len(self.items)) if wanted(self.items[n])])


def files(store: Path) -> list[File]:
    """The index files that have items, oldest first."""
    options = BrokerConfig(config(CLEAN[0], store))  # all have the same geometry
    found = []
    with StoreReader(store, options) as opened:
        for file in opened.index.files:
            if file.last:
                slots = [file.slot(number) for number in range(file.slots)]
                items = [file.item(number) for number in range(file.last + 1)]
                found.append(File(Path(file.path), file.header, slots, items, file.items))
    return found


def _file(store: Path, random: Random) -> File:
    return random.choice(files(store))


@on(*CLEAN)
def i_090(store: Path, random: Random) -> str:
    """A file cut short, or too long."""
    path = _file(store, random).path
    size = path.stat().st_size
    size = random.choice((random.randrange(1, size), size + random.randrange(1, 100)))
    with path.open("r+b") as file:
        file.truncate(size)
    return f"{path} has {size} bytes"


@on(*CLEAN)
def i_091(store: Path, random: Random) -> str:
    """A name that is no time."""
    path = _file(store, random).path
    name = random.choice((path.name + ".bak", "copy", path.name[:14], "0" + path.name))
    return f"{path} -> {path.rename(path.with_name(name))}"


@on(*CLEAN)
def i_092(store: Path, random: Random) -> str:
    """A count that the file has no room for, or an end before the beginning."""
    file = _file(store, random)
    kind = random.randrange(3)
    if kind == 0:
        count = random.choice((0, -1, -(1 << 31), file.room + 1, _LARGEST))
        return file.set_header("index_count", count)
    name = ("timestamp", "physical_offset")[kind - 1]
    begin = getattr(file.header, f"end_{name}") + random.choice((1, 1000, 1 << 40))
    return file.set_header(f"begin_{name}", begin)


@on(*CLEAN)
def i_093(store: Path, random: Random) -> str:
    """Another number of slots in use."""
    file = _file(store, random)
    count = file.header.hash_slot_count + random.choice((-3, -1, 1, 2, 1 << 20))
    return file.set_header("hash_slot_count", count)


@on(*CLEAN)
def i_094(store: Path, random: Random) -> str:
    """A slot that names an item which is not there."""
    file = _file(store, random)
    count = file.header.index_count
    item = random.choice((-1, -(1 << 31), count, count + 1, _LARGEST))
    return file.set_slot(random.randrange(len(file.slots)), item)


@on(*CLEAN)
def i_095(store: Path, random: Random) -> str:
    """An item with a hash of another slot, or a negative one."""
    file = _file(store, random)
    number = file.any_item(random)
    key_hash = file.items[number].key_hash
    if random.random() < 0.3:
        return file.set_item(number, "key_hash", -random.randrange(1, 1 << 31))
    other = key_hash + random.randrange(1, len(file.slots))
    other -= len(file.slots) if other > _LARGEST else 0
    return file.set_item(number, "key_hash", other)


@on(*CLEAN)
def i_096(store: Path, random: Random) -> str:
    """A chain that does not lead back."""
    file = _file(store, random)
    number = file.any_item(random)
    newer = random.randrange(number, len(file.items))
    return file.set_item(number, "previous", random.choice((newer, number, -1, _LARGEST)))


@on(*CLEAN)
def i_097(store: Path, random: Random) -> str:
    """A slot or a link is zeroed: what it named is in no chain."""
    file = _file(store, random)
    linked = any(item.previous > 0 for item in file.items[1:])  # by chance no two keys share a slot
    if random.random() < 0.5 or not linked:
        used = [number for number, item in enumerate(file.slots) if item]
        return file.set_slot(random.choice(used), 0)
    return file.set_item(file.any_item(random, lambda item: item.previous > 0), "previous", 0)


@on(*CLEAN)
def i_098(store: Path, random: Random) -> str:
    """An item that names a record before that of the item before it, or out of the range."""
    file = _file(store, random)
    begin, end = file.header.begin_physical_offset, file.header.end_physical_offset
    if random.random() < 0.5:
        number = file.any_item(random)
        return file.set_item(number, "physical_offset", random.choice((end + 1, begin - 1, -5)))
    number = file.any_item(random, lambda item: item.physical_offset > begin + 1)
    return file.set_item(number, "physical_offset", random.randrange(begin, _before(file, number)))


def _before(file: File, number: int) -> int:
    """Position of the last record before that of the item before an item."""
    return max(file.items[number - 1].physical_offset, file.header.begin_physical_offset + 1)


@on(*CLEAN)
def i_099(store: Path, random: Random) -> str:
    """Another time since the file began."""
    file = _file(store, random)
    number = file.any_item(random)
    if number == 1 and file is files(store)[0]:
        number = 2
    diff = file.items[number].time_diff + random.choice((-1, 1, 60, 1 << 20))
    return file.set_item(number, "time_diff", diff)


@on(*CLEAN)
def i_100(store: Path, random: Random) -> str:
    """A hash that no key of the record has, in the same slot; or a record that is none."""
    file = _file(store, random)
    number = file.any_item(random)
    item = file.items[number]
    if random.random() < 0.7:
        other = item.key_hash + len(file.slots) * random.randrange(1, 1000)
        return file.set_item(number, "key_hash", other % (_LARGEST // 97 * 97))
    return file.set_item(number, "physical_offset", item.physical_offset + random.randrange(1, 90))


@on(*CLEAN)
def i_101(store: Path, random: Random) -> str:
    """A key in a record is changed, or the last items are taken back."""
    if random.random() < 0.3:
        file = files(store)[-1]
        fewer = random.randrange(1, min(9, len(file.items)))
        return file.set_header("index_count", file.header.index_count - fewer)
    place = random.choice([p for p in records(store)[1:] if b"UNIQ_KEY\x01" in p.values["properties"]])
    return _change_key(place, random)


def _change_key(place: Place, random: Random) -> str:
    """One character of the unique key."""
    offset, _ = place.span("properties")
    properties: bytes = place.values["properties"]
    at = properties.rindex(b"UNIQ_KEY\x01") + len(b"UNIQ_KEY\x01") + random.randrange(32)
    new = random.choice([c for c in b"0123456789ABCDEF" if c != properties[at]])
    overwrite(place.path, offset + at, bytes([new]))
    return f"record at {place.position}: byte {at} of its properties is {chr(new)}"


@on(*CLEAN)
def i_102(store: Path, random: Random) -> str:
    """An item is that of the one before it once more."""
    file = _file(store, random)
    number = file.any_item(random, lambda item: item is not file.items[1])
    before = file.items[number - 1]
    file.set_item(number, "key_hash", before.key_hash)
    return file.set_item(number, "physical_offset", before.physical_offset)


@on("5.3.3-clean", "5.5.0-clean", "4.9.7-clean")
def i_103(store: Path, random: Random) -> str:
    """An older file has room."""
    file = random.choice(files(store)[:-1])
    return file.set_header("index_count", random.randrange(1, file.header.index_count))


@on("5.3.3-clean", "5.5.0-clean", "4.9.7-clean")
def i_104(store: Path, random: Random) -> str:
    """A file begins before the one before it ends."""
    found = files(store)
    at = random.randrange(1, len(found))
    name = random.choice(("timestamp", "physical_offset"))
    end = getattr(found[at - 1].header, f"end_{name}")
    return found[at].set_header(f"begin_{name}", end - random.randrange(1, 1000))


@on(*CLEAN)
def i_105(store: Path, random: Random) -> str:
    """The index ends behind the log."""
    last = records(store)[-1]
    end = last.position + last.size + random.choice((0, 1, 4096, 1 << 40))
    return files(store)[-1].set_header("end_physical_offset", end)


@on(*CLEAN)
def i_106(store: Path, random: Random) -> str:
    """An indexed record becomes a rollback."""
    indexed = {item.physical_offset for file in files(store) for item in file.items[1:]}
    place = random.choice([p for p in records(store) if p.position in indexed])
    return place.set("sys_flag", place.values["sys_flag"] | SysFlag.ROLLBACK)


@on(*CLEAN)
def i_107(store: Path, random: Random) -> str:
    """Bytes behind the last item."""
    file = files(store)[-1]
    room = (file.room - len(file.items)) * ITEM_BYTES
    at = file.place(len(file.items)) + random.randrange(room)
    overwrite(file.path, at, bytes([random.randrange(1, 256)]))
    return f"{file.path} @{at}"


@on(*CLEAN)
def i_109(store: Path, random: Random) -> str:
    """An empty file."""
    path = _file(store, random).path
    if random.random() < 0.5:
        path = path.with_name(f"{int(path.name) + random.randrange(1, 999):017}")
    path.write_bytes(b"")
    return f"{path} is empty"
