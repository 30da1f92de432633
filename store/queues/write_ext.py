"""Appending to consumequeue_ext: tags code, time and bit map of each unit of a queue (spec 02, 2.6).

Only with enableConsumeQueueExt; with enableCalcFilterBitMap, too, a unit says which of the SQL
filters of config/consumerFilter.json its message passes. Units of the queue then name these.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.consume_queue_ext import (
    ADDRESS_BASE,
    END,
    END_MARK,
    HEAD,
    UNIT_BYTES_MAX,
    UNIT_BYTES_MIN,
)
from ...formats.fixed import numbers_of
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Files
from ..disk.layout import Layout
from ..errors import Refused
from .write import queue_directory

if TYPE_CHECKING:
    from ...formats.derive import Columns
    from ..broker.dispatch import Units
    from ..columns.dictionary import Dictionary
    from .filter_bits import BloomFilter, ConsumerFilter

_HEAD = numbers_of(HEAD)
_ROOM = 2 * END.sizeof()
"""Bytes that a broker leaves at the end of a file."""


class BitMaps:
    """Which SQL filters the messages of a store pass; empty maps unless enableCalcFilterBitMap."""

    def __init__(self, layout: Layout) -> None:
        config = layout.broker_config
        self._filters: dict[str, list[ConsumerFilter]] = {}
        self._bloom: BloomFilter | None = None
        if config.get_bool("enableCalcFilterBitMap"):
            from .filter_bits import BloomFilter, consumer_filters, read_filters

            self._bloom = BloomFilter.from_config(config)
            self._filters = consumer_filters(read_filters(layout), self._bloom)

    def of(self, records: Columns, topics: Dictionary) -> list[bytes]:
        """The bit maps of n records."""
        import numpy as np

        from ..log.batch import Batch
        from ..log.record_status import Mark
        from .filter_bits import bit_maps

        maps = [b""] * len(topics.ids)
        for number, topic in enumerate(topics.values):
            filters = self._filters.get(topic.decode("utf-8", "replace"))
            if not filters or self._bloom is None:
                continue
            rows = np.flatnonzero(topics.ids == number)
            batch = Batch(records.take(rows), np.zeros(len(rows), np.int64), Mark.NONE, None)
            for row, bits in zip(rows.tolist(), bit_maps(filters, self._bloom, batch), strict=True):
                maps[row] = bits.tobytes()
        return maps


class ExtWriter:
    """Appends units for all queues of a store; bytes are in the files at once, on disk by `sync`."""

    def __init__(self, files: Files, layout: Layout) -> None:
        config = layout.broker_config
        self._files = files
        self._root = layout.consume_queue_ext
        self._file_size = config.size("mappedFileSizeConsumeQueueExt")[0]
        self._ends: dict[Path, int] = {}
        self._touched: set[Path] = set()
        self._maps: list[bytes] = []
        self._bit_maps = BitMaps(layout)

    def look_at(self, records: Columns, topics: Dictionary) -> None:
        """Find the bit maps of n records, for the units that `add` gets of them."""
        self._maps = self._bit_maps.of(records, topics)

    def take_maps(self, maps: list[bytes]) -> None:
        """The same where they were found elsewhere: bit maps of n records."""
        self._maps = maps

    def add(self, topic: str, queue_id: int, units: Units) -> list[int]:
        """Append a unit for each of these units of one queue; what to write as their tags_code.

        A unit that would be too long is left out, as a broker does; its unit keeps its own code.
        """
        directory = self.check(topic, queue_id)
        end = self._ends[directory]
        codes, pieces = [], dict[int, tuple[int, bytearray]]()
        columns = (units.tags_code.tolist(), units.store_timestamp.tolist(), units.record.tolist())
        for code, time, record in zip(*columns, strict=True):
            bits = self._maps[record]
            size = UNIT_BYTES_MIN + len(bits)
            if size > UNIT_BYTES_MAX:
                codes.append(code)
                continue
            room = self._file_size - end % self._file_size
            if size > room - _ROOM:
                self._piece(pieces, end).extend(END_MARK)
                end += room
            self._piece(pieces, end).extend(_HEAD.pack(size, code, time, len(bits)) + bits)
            codes.append(end + ADDRESS_BASE)
            end += size
        self._write(directory, pieces.items())
        self._ends[directory] = end
        return codes

    def check(self, topic: str, queue_id: int) -> Path:
        """The directory of a queue's units. Raises Refused for one that cannot be gone on with."""
        directory = queue_directory(self._root, topic, queue_id)
        if directory not in self._ends:
            self._files.check_inside(directory)
            self._ends[directory] = self._end(directory)
        return directory

    def _piece(self, pieces: dict[int, tuple[int, bytearray]], position: int) -> bytearray:
        """The bytes for the file that holds a position; they go on where they end."""
        offset = position % self._file_size
        return pieces.setdefault(position - offset, (offset, bytearray()))[1]

    def _write(self, directory: Path, pieces: Iterable[tuple[int, tuple[int, bytearray]]]) -> None:
        self._files.make_directory(directory)
        for start, (offset, data) in pieces:
            path = directory / file_name(start)
            with self._files.open_or_create(path) as file:
                if file.size < self._file_size:
                    file.truncate(self._file_size)
                file.pwrite(data, offset)
            self._touched.add(path)

    def _end(self, directory: Path) -> int:
        """Where the next unit goes. Raises Refused for damage."""
        from .read_ext import ExtUnits, ext_units

        with MappedFileQueue.open(directory, self._file_size) as files:
            if not files.files:
                return 0
            last = files.files[-1]
            end = last.start
            for part in ext_units(files, end):
                if isinstance(part, ExtUnits):
                    end = int(part.position[-1]) + int(part.columns.ints("size")[-1])
                elif part.kind == "end":
                    end = last.start + self._file_size
                elif part.kind == "damage":
                    raise Refused("damaged", path=last.path, offset=part.position - last.start)
            return end

    def sync(self) -> None:
        """Bring what was written to the disk, names included."""
        for path in sorted(self._touched):
            with self._files.open(path) as file:
                file.sync()
        for directory in sorted({path.parent for path in self._touched}):
            self._files.sync_directory(directory)
        self._touched.clear()
