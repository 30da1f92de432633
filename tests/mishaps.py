"""What goes wrong with the files of a store: seeded, of every kind, in every kind of file.

    wrong = Mishap.of(victim, chance)     # what and where: decided by the undamaged store
    wrong.befall(copy, chance)            # done to a copy; other mishaps may have come before

`tests.damage` spoils bytes; here are the others: lengths, names, files that come and go, clocks.
A mishap knows its file by its name, so any subset of several can be done alone.
"""

from __future__ import annotations

import os
import random
import shutil
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from mqstore.formats.blank import BLANK_BYTES
from mqstore.formats.checkpoint import CHECKPOINT, FIELDS
from mqstore.formats.consume_queue_ext import END, UNIT_BYTES_MAX
from mqstore.formats.message import SMALLEST
from mqstore.formats.timer_check import TIMER_CHECK
from mqstore.formats.timer_wheel import SLOT, SLOT_BYTES
from mqstore.store.disk.file_queue import file_name

from .damage import ALL_KINDS, DROP_FILE, Victim, damage

#: Kind of file → pattern below the store. A row per kind that a start reads.
FILES = {
    "log": "commitlog/*",
    "queue": "consumequeue/*/*/*",
    "batch queue": "batchconsumequeue/*/*/*",
    "ext": "consumequeue_ext/*/*/*",
    "index": "index/*",
    "checkpoint": "checkpoint",
    "abort": "abort",
    "timer log": "timerlog/*",
    "timer wheel": "timerwheel",
    "timer check": "config/timercheck",
    "timer metrics": "config/timermetrics",
    "config": "config/[!t]*.json",
    "lock": "lock",
}
#: How often each is hit, where the store has it.
WEIGHTS = {"log": 10, "queue": 6, "batch queue": 6, "ext": 6, "timer log": 9, "timer wheel": 3}
NUMBERED = ("log", "queue", "batch queue", "ext", "timer log")
#: Where `other_directory` moves log files to; no mishap but part of a configuration.
SECOND_LOG = "log-b"
WHOLE_AND_NOT = (0, 1, 100)

Do = Callable[[Victim, Path, random.Random], None]


@dataclass(frozen=True)
class Mishap:
    """One thing that goes wrong. where: kind of file. path: relative to the store."""

    where: str
    what: str
    path: str

    @classmethod
    def of(cls, victim: Victim, chance: random.Random) -> Mishap:
        """Any mishap that this store can have."""
        there = dict(_files(victim.root))
        kinds = list(there)
        where = chance.choices(kinds, [WEIGHTS.get(kind, 1) for kind in kinds])[0]
        path = chance.choice(there[where])
        return cls(where, chance.choice(_possible(where)), path)

    def befall(self, victim: Victim, chance: random.Random) -> None:
        """Do it to a store; nothing happens where its file is gone already."""
        path = victim.root / self.path
        gone = not path.exists() and self.what not in _COMES
        if gone or (path.is_dir() and self.what in ALL_KINDS):
            return
        if self.what in ALL_KINDS:
            if self.what == DROP_FILE or path.stat().st_size:
                damage(victim, chance, kind=self.what, path=path)
            return
        _DOINGS[self.what](victim, path, chance)

    def __str__(self) -> str:
        return f"{self.what} ({self.where} {self.path})"


def _files(root: Path) -> Iterator[tuple[str, list[str]]]:
    """Kind → files of it; a file that can come is there, too."""
    for kind, pattern in FILES.items():
        found = sorted(str(p.relative_to(root)) for p in root.glob(pattern) if p.is_file())
        if found or ("*" not in pattern and not kind.startswith("timer")):
            yield kind, found or [pattern]


def _possible(where: str) -> list[str]:
    """Mishaps of a kind of file."""
    if where == "abort":
        return ["toggle"]
    if where == "timer wheel":
        return [DROP_FILE, "resize", "spoil_slot"]
    found = [*ALL_KINDS, "resize"]
    if where in NUMBERED:
        found += ["odd_name", "odd_number", "directory", "next_file", "lose_all"]
    own = {
        "log": ["stale_copy", "torn_header", "spoil_number", "spoil_topic", "lose_queue_files"],
        "queue": ["no_unit", "other_type", "lose_topic"],
        "batch queue": ["other_type", "lose_topic"],
        "ext": ["huge_unit"],
        "checkpoint": ["other_times", "other_times"],
        "timer check": ["other_progress"],
    }
    return found + own.get(where, [])


def resize(_victim: Victim, path: Path, chance: random.Random) -> None:
    """Any length but its own."""
    size = path.stat().st_size
    os.truncate(path, chance.choice((0, size // 2, max(0, size - 1), size + 1, size * 2)))


def odd_name(_victim: Victim, path: Path, chance: random.Random) -> None:
    """A copy under a name that is no number; of the right length or not."""
    copy = path.with_name(chance.choice((f"{path.name}.bak", "copy", "core", "0x10")))
    shutil.copyfile(path, copy)
    size = path.stat().st_size
    os.truncate(copy, chance.choice((size, size, *WHOLE_AND_NOT)))


def odd_number(_victim: Victim, path: Path, chance: random.Random) -> None:
    """The file has another number."""
    start, size = int(path.name), path.stat().st_size
    other = max(0, start + chance.choice((1, -1, 8, size // 2, size, 10 * size)))
    target = path.with_name(chance.choice((file_name(other), str(other))))
    if not target.exists():
        path.rename(target)


def directory(_victim: Victim, path: Path, chance: random.Random) -> None:
    """A directory among the files."""
    name = chance.choice(("old", "lost+found", file_name(int(path.name) * 2 + 1)))
    path.with_name(name).mkdir(exist_ok=True)


def next_file(_victim: Victim, path: Path, chance: random.Random) -> None:
    """A file behind the last one: empty, short, all zeros or garbage."""
    numbers = [p for p in path.parent.iterdir() if p.is_file() and p.name.isdigit()]
    last = max(numbers, key=lambda p: int(p.name), default=path)
    size = path.stat().st_size
    new = last.with_name(file_name(int(last.name) + size))
    new.write_bytes(b"" if chance.random() < 0.5 else chance.randbytes(chance.randrange(size + 1)))
    if chance.random() < 0.7:
        os.truncate(new, chance.choice((0, 1, size, size)))


def lose_all(_victim: Victim, path: Path, chance: random.Random) -> None:
    """All files of the directory are gone, or the directory, too."""
    shutil.rmtree(path.parent)
    if chance.random() < 0.5:
        path.parent.mkdir()


def lose_topic(_victim: Victim, path: Path, _chance: random.Random) -> None:
    """All queues of a topic."""
    shutil.rmtree(path.parents[1])


def lose_queue_files(victim: Victim, _path: Path, chance: random.Random) -> None:
    """All queues, or some files of them."""
    for queue in sorted((victim.root / "consumequeue").glob("*/*")):
        if chance.random() < 0.8:
            shutil.rmtree(queue)


def stale_copy(victim: Victim, path: Path, chance: random.Random) -> None:
    """Records of an earlier life right behind the end of the log."""
    spans = sorted(victim.spans, key=lambda span: span.position)
    last = spans[-1]
    first = chance.choice([s for s in spans if s.path == path] or spans)
    if not (last.path.is_file() and first.path.is_file()):
        return
    whole = first.path.read_bytes()[first.offset : first.offset + first.size]
    with last.path.open("r+b") as file:
        room = last.path.stat().st_size - last.offset - last.size
        file.seek(last.offset + last.size)
        file.write((whole * chance.randint(1, 3))[: max(0, room)])


def spoil_number(victim: Victim, path: Path, chance: random.Random) -> None:
    """The list of queue offsets of a light message holds something that is no number."""
    name = b"INNER_MULTI_QUEUE_OFFSET\x01"
    data = path.read_bytes()
    places = [at for at in range(len(data)) if data.startswith(name, at)]
    if places:
        _write(path, chance.choice(places[-3:]) + len(name), b"x")


def spoil_topic(victim: Victim, path: Path, _chance: random.Random) -> None:
    """NUL in the topic of the last record: no file can be named so."""
    last = max((s for s in victim.spans if s.path == path), default=None, key=lambda s: s.offset)
    if last is None or path.stat().st_size < last.offset + last.size:
        return
    data = path.read_bytes()[last.offset : last.offset + last.size]
    for topic in (p.name.encode() for p in (victim.root / "consumequeue").glob("*")):
        at = data.find(bytes([len(topic)]) + topic)
        if at >= 0:
            _write(path, last.offset + at + 1, b"\0")
            return


def torn_header(victim: Victim, path: Path, chance: random.Random) -> None:
    """Of the last record of a file its size is there, and something of its head."""
    last = max((s for s in victim.spans if s.path == path), default=None, key=lambda s: s.offset)
    if last is not None and path.stat().st_size >= last.offset + last.size:
        kept = chance.randrange(BLANK_BYTES, SMALLEST)
        _write(path, last.offset + kept, bytes(last.size - kept))


def no_unit(_victim: Victim, path: Path, chance: random.Random) -> None:
    """The queue has one file, without a unit; the files before it have expired, or not."""
    size = path.stat().st_size
    for other in path.parent.iterdir():
        shutil.rmtree(other) if other.is_dir() else other.unlink()
    path.with_name(file_name(size * chance.choice((0, 1, 3)))).write_bytes(bytes(size))


def other_type(_victim: Victim, path: Path, _chance: random.Random) -> None:
    """The topic's queues in the directory of the other type."""
    topic = path.parents[1]
    kinds = {"consumequeue": "batchconsumequeue", "batchconsumequeue": "consumequeue"}
    target = topic.parents[1] / kinds[topic.parent.name] / topic.name
    if not target.exists():
        shutil.copytree(topic, target)
        shutil.rmtree(topic)


def huge_unit(_victim: Victim, path: Path, chance: random.Random) -> None:
    """The size of the first unit is more than its file has."""
    size = END.size.build(chance.choice((UNIT_BYTES_MAX, 30000, 20000)))
    if path.stat().st_size >= len(size):
        _write(path, 0, size)


def toggle(_victim: Victim, path: Path, _chance: random.Random) -> None:
    """A crash becomes a clean exit, or the other way round."""
    path.unlink() if path.exists() else path.touch()


def other_times(victim: Victim, path: Path, chance: random.Random) -> None:
    """The checkpoint of another moment: zeros, of some record, of the future."""
    fields = dict.fromkeys((str(field.name) for field in FIELDS.subcons), 0)
    moment, position = chance.choice([(0, 0), (2**62, 2**40), *victim.moments])
    for name in fields:
        if chance.random() < 0.9:
            fields[name] = moment if name.endswith("timestamp") else position
    path.write_bytes(CHECKPOINT.build(fields))


def other_progress(victim: Victim, path: Path, chance: random.Random) -> None:
    """The timer's checkpoint of another moment."""
    fields = dict(TIMER_CHECK.parse(path.read_bytes().ljust(TIMER_CHECK.sizeof(), b"\0")))
    fields.pop("_io", None)
    name = chance.choice([n for n in fields if n.startswith("last")])
    fields[name] = max(0, fields[name] + chance.choice((-1, 1, -1000, 600, -(10**9), 10**9)))
    path.write_bytes(TIMER_CHECK.build(fields))


def spoil_slot(_victim: Victim, path: Path, chance: random.Random) -> None:
    """Noise in a slot of the timer wheel that is in use, or in any."""
    if path.stat().st_size < SLOT_BYTES:
        return
    with path.open("rb") as file:
        try:
            begin = os.lseek(file.fileno(), 0, os.SEEK_DATA)
        except OSError:
            begin = 0  # nothing but a hole
        file.seek(begin)
        data = file.read(1 << 16)
    used = [at for at in range(0, len(data) - SLOT_BYTES, SLOT_BYTES) if any(data[at : at + 8])]
    at = begin // SLOT_BYTES * SLOT_BYTES + (chance.choice(used) if used else 0)
    place = at + chance.randrange(SLOT.sizeof())
    _write(path, place, chance.randbytes(chance.randint(1, 8)))


def other_directory(victim: Victim, path: Path, chance: random.Random) -> None:
    """The log is spread over two directories; a file may be in both, one of the two all zeros."""
    first, second = path.parent, victim.root / SECOND_LOG
    second.mkdir()
    files = sorted(first.iterdir())
    for number, file in enumerate(files):
        if number % 2:
            file.rename(second / file.name)
    if chance.random() < 0.7:
        name = chance.choice(files).name
        double = (first if (second / name).exists() else second) / name
        double.write_bytes(bytes(files[0].stat().st_size))


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)


_DOINGS: dict[str, Do] = {
    do.__name__: do
    for do in (
        *(resize, odd_name, odd_number, directory, next_file, lose_all, lose_topic),
        *(lose_queue_files, stale_copy, torn_header, spoil_number, spoil_topic, no_unit, other_type),
        *(huge_unit, toggle, other_times, other_progress, spoil_slot, other_directory),
    )
}
#: What needs no file to be there.
_COMES = ("toggle", "other_times", "lose_queue_files")
