"""What goes wrong with a RocksDB of consume queues: its entries, and its files.

As `tests.mishaps` has it for the other files of a store: what goes wrong is drawn of the undamaged store, and
done to a copy. Entries are changed as `mqstore` itself changes them, without a merge of tables.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from mqstore.formats.rocksdb_consume_queue import (
    BOUND,
    BOUNDS,
    CHECKPOINT,
    CHECKPOINT_TOPIC,
    MAX,
    MIN,
    UNIT,
    UNIT_KEY,
    UNITS,
    bound_key,
    unit_key,
)
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import StoreError
from mqstore.store.queues.rocksdb import RocksDb
from mqstore.store.queues.rocksdb_write import Changes, changed

from .damage import Victim

Queue = tuple[bytes, int]
ROW = bound_key(CHECKPOINT_TOPIC, 0, MAX)
GHOST = b"Ghost", 0


@dataclass
class Entries:
    """What is in a database, and where its log ends. units: number → position, size, of each queue."""

    log_end: int
    positions: list[int]
    units: dict[Queue, dict[int, tuple[int, int]]] = field(default_factory=dict)
    change: dict[str, dict[bytes, bytes | None]] = field(default_factory=lambda: {UNITS: {}, BOUNDS: {}})

    @classmethod
    def of(cls, place: Path, victim: Victim) -> Entries:
        """Raises StoreError."""
        last = max(victim.spans, key=lambda span: span.position)
        found = cls(last.position + last.size, sorted(span.position for span in victim.spans))
        with RocksDb.open(place) as database:
            for key, value in database.items(UNITS):
                if len(key) > UNIT_KEY.queue_offset.sizeof() and len(value) >= UNIT.sizeof():
                    name, unit = UNIT_KEY.parse(key), UNIT.parse(value)
                    queue = found.units.setdefault((name.topic, name.queue_id), {})
                    queue[name.queue_offset] = unit.physical_offset, unit.size
        return found

    def unit(self, queue: Queue, number: int, position: int, size: int) -> None:
        """Put a unit."""
        fields = {"tags_code": 0, "store_timestamp": 1_795_000_000_000}
        value = UNIT.build({"physical_offset": position, "size": size, **fields})
        self.change[UNITS][unit_key(*queue, number)] = value

    def no_unit(self, queue: Queue, number: int) -> None:
        """Take a unit away."""
        self.change[UNITS][unit_key(*queue, number)] = None

    def bound(self, queue: Queue, bound: bytes, position: int, number: int) -> None:
        """Put a row."""
        value = BOUND.build({"physical_offset": position, "queue_offset": number})
        self.change[BOUNDS][bound_key(*queue, bound)] = value

    def no_bound(self, queue: Queue, bound: bytes) -> None:
        """Take a row away."""
        self.change[BOUNDS][bound_key(*queue, bound)] = None

    def row(self, position: int) -> None:
        """How far the log was dispatched."""
        self.change[BOUNDS][ROW] = CHECKPOINT.build({"physical_offset": position})


Corrupt = Callable[[Entries, Queue, random.Random], None]


def units_lost(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """Some units in a row of a queue; its rows stay."""
    numbers = sorted(entries.units[queue])
    first = chance.choice((numbers[0], chance.choice(numbers), numbers[-1]))
    for number in range(first, first + chance.choice((1, 2, 5, 50))):
        if number in entries.units[queue]:
            entries.no_unit(queue, number)


def tail_lost(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """The last units of a queue, and its row says so."""
    numbers = sorted(entries.units[queue])
    kept = numbers[: -min(len(numbers), chance.choice((1, 3, 10)))]
    for number in numbers[len(kept) :]:
        entries.no_unit(queue, number)
    if kept:
        entries.bound(queue, MAX, entries.units[queue][kept[-1]][0], kept[-1])
    else:
        entries.no_bound(queue, MAX)


def queue_lost(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """All units and rows of a queue, or its rows, or all units of all queues."""
    kind = chance.randrange(3)
    for each in entries.units if kind == 2 else [queue]:
        for number in entries.units[each] if kind != 1 else ():
            entries.no_unit(each, number)
    for bound in (MAX, MIN) if kind != 2 else ():
        entries.no_bound(queue, bound)


def earlier(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """The database as it was earlier, with or without the row that says so."""
    end = chance.choice(entries.positions)
    for each, units in entries.units.items():
        for number, (position, _) in units.items():
            if position >= end:
                entries.no_unit(each, number)
        kept = [number for number, (position, _) in units.items() if position < end]
        if kept:
            entries.bound(each, MAX, units[max(kept)][0], max(kept))
        else:
            entries.no_bound(each, MAX)
    if chance.random() < 0.6:
        entries.row(end)


def unit_wrong(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """A unit names another record, or another size."""
    number = chance.choice(sorted(entries.units[queue]))
    position, size = entries.units[queue][number]
    other = chance.choice(entries.positions)
    entries.unit(queue, number, *chance.choice(((other, size), (position, size - 7))))


def units_beyond(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """Units of records behind the log, with or without rows that say so."""
    last, at = max(entries.units[queue]), entries.log_end + 5000
    for number in range(last + 1, last + 3):
        entries.unit(queue, number, at, 300)
    entries.bound(queue, MAX, at, last + 2)
    if chance.random() < 0.5:
        entries.row(at + 300)


def max_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """The max row names another number, or another position."""
    last = max(entries.units[queue])
    position = entries.units[queue][last][0]
    rows = [(position, last - 5), (position, last + 5), (entries.log_end + 9000, last)]
    rows += [(0, last), (position, -1), (-1, last), (entries.log_end, last), (position, last + 200)]
    entries.bound(queue, MAX, *chance.choice(rows))


def min_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """The min row names another number, or another position."""
    numbers = sorted(entries.units[queue])
    last, middle = numbers[-1], chance.choice(numbers)
    rows = [(entries.units[queue][middle][0], middle), (entries.log_end + 10, last + 10)]
    rows += [(0, last + 1), (-1, 0), (-1, middle), (entries.units[queue][last][0], 0), (0, -3)]
    entries.bound(queue, MIN, *chance.choice(rows))


def no_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """A row is not there, or those of all queues."""
    bound = chance.choice((MIN, MAX, MAX))
    for each in entries.units if chance.random() < 0.3 else [queue]:
        entries.no_bound(each, bound)


def odd_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """A row is too short or too long, or has a key that is none."""
    kind = chance.randrange(4)
    if kind == 0:
        entries.change[UNITS][b"abc"] = entries.change[BOUNDS][b"abc"] = b"x"
        return
    bound = chance.choice((MIN, MAX))
    entries.change[BOUNDS][bound_key(*queue, bound)] = bytes(chance.choice((0, 9, 15, 17)))


def ghost(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """Units and rows of a topic that is not in the log."""
    there = sorted(entries.units[queue].values())[:3]
    for number, unit in enumerate(there):
        entries.unit(GHOST, number, *unit)
    entries.bound(GHOST, MAX, there[-1][0], len(there) - 1)


def other_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """The log was dispatched to another place: none, of some record, inside of one, behind the log."""
    position = chance.choice(entries.positions)
    far = [0, -1, entries.log_end, entries.log_end + 1, entries.log_end + 100_000]
    entries.row(chance.choice([position, position, position + 11, *far]))


def lost_row(entries: Entries, queue: Queue, chance: random.Random) -> None:
    """Nothing says how far the log was dispatched, or too few bytes do."""
    entries.change[BOUNDS][ROW] = chance.choice((None, None, b"", b"\0" * 3, b"\0" * 16))


ENTRIES: tuple[Corrupt, ...] = (
    *(units_lost, tail_lost, queue_lost, earlier, unit_wrong, units_beyond, max_row, min_row),
    *(no_row, odd_row, ghost, other_row, lost_row),
)
FILES = {
    "current": "CURRENT",
    "manifest": "MANIFEST-*",
    "table": "*.sst",
    "write-ahead log": "*.log",
    "options": "OPTIONS-*",
    "identity": "IDENTITY",
    "lock": "LOCK",
}
"""Kind of file → pattern in the directory of the database."""
_DIRECTORY = "directory"


@dataclass(frozen=True)
class DatabaseMishap:
    """One thing that goes wrong. where: "entries", a kind of `FILES`, or "directory". place: relative to the store."""

    where: str
    what: str
    place: str
    path: str = ""

    @classmethod
    def of(cls, victim: Victim, config: BrokerConfig, chance: random.Random) -> DatabaseMishap:
        """Any that the database of this store can have."""
        root = victim.root
        found = Layout.open(root, config).queue_database
        assert found is not None, root
        place = str(found.relative_to(root))
        if chance.random() < 0.6:
            return cls("entries", chance.choice(ENTRIES).__name__, place)
        there = {kind: sorted(p.name for p in found.glob(pattern)) for kind, pattern in FILES.items()}
        kinds = [kind for kind, names in there.items() if names]
        weights = [3 if kind in ("manifest", "table") else 1 for kind in kinds]
        where = chance.choices([*kinds, _DIRECTORY], [*weights, 2])[0]
        if where == _DIRECTORY:
            return cls(where, chance.choice(("gone", "empty", "more files")), place)
        whats = ["gone", "gone", "empty", "half", "flip", "end", "zeros", "noise"]
        return cls(where, chance.choice(whats), place, chance.choice(there[where]))

    def befall(self, victim: Victim, chance: random.Random) -> None:
        """Do it to a store; nothing happens where what it is about is gone already."""
        place = victim.root / self.place
        if not place.is_dir():
            return
        if self.where == "entries":
            self._spoil_entries(place, victim, chance)
        elif self.where == _DIRECTORY:
            self._spoil_directory(place, chance)
        elif (place / self.path).is_file():
            _spoil_file(place / self.path, self.what, chance)

    def _spoil_entries(self, place: Path, victim: Victim, chance: random.Random) -> None:
        spoil = next(each for each in ENTRIES if each.__name__ == self.what)
        try:
            entries = Entries.of(place, victim)
            queues = sorted(entries.units)
            if not queues:
                return
            spoil(entries, chance.choice(queues), chance)
            put(place, entries.change)
        except StoreError:  # a file of it was spoiled before
            return

    def _spoil_directory(self, place: Path, chance: random.Random) -> None:
        topics = any(path.is_dir() for path in place.iterdir())
        if self.what == "more files":
            tables = sorted({*place.glob("*.sst")} - {place / "000999.sst"})
            if tables:
                shutil.copyfile(chance.choice(tables), place / "000999.sst")
            (place / "notes.txt").write_bytes(b"hi")
            return
        for path in place.iterdir():
            if path.is_file():
                path.unlink()
        if self.what == "gone" and not topics:
            place.rmdir()

    def __str__(self) -> str:
        return f"{self.what} ({self.where} {self.place}/{self.path})"


def put(place: Path, changes: Changes) -> None:
    """Change entries of a database in place. Raises StoreError."""
    done = changed(place, changes)
    for name in done.gone:
        (place / name).unlink()
    for name, data in done.made.items():
        (place / name).write_bytes(data)


def _spoil_file(path: Path, what: str, chance: random.Random) -> None:
    data = path.read_bytes()
    if what == "gone":
        path.unlink()
    elif what == "half":
        os.truncate(path, len(data) // 2)
    elif what == "empty":
        path.write_bytes(b"")
    elif what == "end":
        os.truncate(path, max(0, len(data) - chance.choice((1, 5, 20))))
    elif what == "zeros":
        path.write_bytes(bytes(len(data)))
    elif what == "noise":
        path.write_bytes(data + chance.randbytes(100))
    elif data:
        at = chance.randrange(len(data))
        path.write_bytes(data[:at] + bytes([data[at] ^ 1 << chance.randrange(8)]) + data[at + 1 :])
