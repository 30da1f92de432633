"""consumequeue_ext of one queue as a broker holds it during load and recovery (spec 02, 2.6).

Only sizes count here: what a start reads of the units to find where they end, and the room that the
units take which its dispatch adds. A broker believes each size; where one leads beyond its file it
throws, and the load fails (B37).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.consume_queue_ext import ADDRESS_BASE, END, HEAD, UNIT_BYTES_MAX, UNIT_BYTES_MIN
from ...formats.derive import dtype_of
from ...formats.derive.ragged import overlapping
from ..broker.load_rules import LoadedFile, truncate
from ..broker.snapshot import Bytes, Entry, FileBytes, Snapshot
from .filter_bits import BloomFilter, consumer_filters, read_filters

Ints = npt.NDArray[np.int64]
_SIZE = dtype_of(END)
_HEAD = dtype_of(HEAD)
_SIZE_BYTES = END.sizeof()
_ROOM = 2 * _SIZE_BYTES
"""Bytes that a broker leaves at the end of a file."""
_AT_ONCE = 4096


class ExtDamage(Exception):
    """What a broker throws when it reads the units; `reason` in its words.

    offset: of the unit in the file whose size leads beyond it.
    """

    def __init__(self, reason: str, path: str, offset: int) -> None:
        super().__init__(reason, path, offset)
        self.reason, self.path, self.offset = reason, path, offset


def units_end(data: Bytes, path: str) -> int:
    """Byte behind the last unit of a file, by their sizes alone. Raises ExtDamage."""
    sizes = overlapping(data, _SIZE)["size"]
    at = before = 0
    while at < len(sizes):
        step = int(sizes[at])
        if step <= 0:
            return at
        alike = sizes[at : at + step * _AT_ONCE : step] == step
        count = len(alike) if alike.all() else int(alike.argmin())
        before = at + (count - 1) * step
        at += count * step
    if at > len(data):
        reason = f"IllegalArgumentException: newPosition > limit: ({at} > {len(data)})"
        raise ExtDamage(reason, path, before)
    raise ExtDamage("BufferUnderflowException", path, before)


@dataclass
class ExtFile(LoadedFile):
    """A file; `added_at`: where units begin that this run adds, None without any."""

    added_at: int | None = None


@dataclass
class ExtState:
    """The files after load; `read` gives the bytes of one. Written to are only sizes."""

    file_bytes: int
    read: Callable[[Entry], FileBytes]
    files: list[ExtFile] = field(default_factory=list)
    removed: list[ExtFile] = field(default_factory=list)

    def load(self, loaded: Sequence[LoadedFile]) -> None:
        """Take these files, all of them for full."""
        self.files = [ExtFile(f.start, f.wrote, f.entry) for f in loaded]

    def recover(self, last_address: int) -> None:
        """Find the end of the units, then cut behind the one that the queue names last.

        last_address: tags_code of the queue's last unit that has an address. Raises ExtDamage.
        """
        if not self.files:
            return
        end = 0
        for file in self.files:
            assert file.entry is not None
            end = file.start + units_end(self.read(file.entry)[:], file.entry.path)
        self._truncate(end)
        if last_address <= EXT_ADDRESS_MAX:
            self._cut_behind(last_address - ADDRESS_BASE)

    def _cut_behind(self, position: int) -> None:
        """Give up what lies behind the unit at a position; nothing, where there is none."""
        file = next((f for f in self.files if 0 <= position - f.start < self.file_bytes), None)
        if file is None and not position and self.files:
            file = self.files[0]
        offset = position % self.file_bytes
        if file is None or file.entry is None or not 0 <= offset < file.wrote - 1:
            return
        left = file.wrote - offset
        data = self.read(file.entry)[offset : file.wrote]
        size = int(overlapping(data, _SIZE)["size"][0])
        if size < 1:
            return
        heads = overlapping(data, _HEAD)
        if not len(heads) or max(0, int(heads["bit_map_size"][0])) > left - UNIT_BYTES_MIN:
            raise ExtDamage("BufferUnderflowException", file.entry.path, offset)
        self._truncate(position + size)

    def _truncate(self, end: int) -> None:
        files: list[LoadedFile] = list(self.files)
        removed = truncate(files, end, self.file_bytes)
        self.removed += [file for file in self.files if file in removed]
        self.files = [file for file in self.files if file not in removed]

    def drop_before(self, address: int) -> None:
        """Delete the files before the one of the queue's first unit, if that has an address."""
        if address > EXT_ADDRESS_MAX:
            return
        position = address - ADDRESS_BASE
        self.removed += [f for f in self.files if f.start + self.file_bytes < position]
        self.files = [f for f in self.files if f.start + self.file_bytes >= position]

    def clear(self) -> None:
        """Delete all files."""
        self.removed += self.files
        self.files = []

    def append(self, count: int, size: int) -> Ints | None:
        """Add units of one size: their addresses, int64[count]; None for what is too long."""
        if size > min(UNIT_BYTES_MAX, self.file_bytes - _ROOM):
            return None
        addresses = np.zeros(count, np.int64)
        done = 0
        while done < count:
            file = self._file_for(size)
            taken = min(count - done, (self.file_bytes - file.wrote - _ROOM) // size)
            first = ADDRESS_BASE + file.start + file.wrote
            addresses[done : done + taken] = first + size * np.arange(taken, dtype=np.int64)
            file.added_at = file.wrote if file.added_at is None else file.added_at
            file.wrote += taken * size
            done += taken
        return addresses

    def _file_for(self, size: int) -> ExtFile:
        """The last file, if it has room for a unit, else a new one behind it."""
        if self.files and size > self.file_bytes - self.files[-1].wrote - _ROOM:
            self.files[-1].wrote = self.file_bytes
        if not self.files or self.files[-1].wrote == self.file_bytes:
            start = self.files[-1].start + self.file_bytes if self.files else 0
            self.files.append(ExtFile(start, 0, None))
        return self.files[-1]


@dataclass(frozen=True)
class ExtRules:
    """consumequeue_ext of a broker: how large its files are, and the bit maps in its units.

    filtered: topics whose messages get a bit map, of `bit_map_bytes`.
    """

    snapshot: Snapshot
    filtered: frozenset[str] = frozenset()
    bit_map_bytes: int = 0

    @classmethod
    def of(cls, snapshot: Snapshot) -> ExtRules:
        """As the store's configuration says. Raises Unsupported, InvalidInput."""
        layout = snapshot.layout
        if not layout.broker_config.get_bool("enableCalcFilterBitMap"):
            return cls(snapshot)
        bloom = BloomFilter.from_config(layout.broker_config)
        filters = consumer_filters(read_filters(layout), bloom)
        return cls(snapshot, frozenset(filters), bloom.bytes)

    def new(self) -> ExtState:
        """Of a queue that has no file yet."""
        return ExtState(self.snapshot.ext_file_bytes, self.snapshot.bytes_of)

    def unit_bytes(self, topic: str) -> int:
        """Size of the units of a topic's messages."""
        return UNIT_BYTES_MIN + (self.bit_map_bytes if topic in self.filtered else 0)
