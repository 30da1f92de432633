"""What a plan does to consumequeue_ext: that every broker can read it, with the fewest bytes changed.

A unit whose size leads beyond its file gets a size that leads to the next unit that the queue names;
none moves. Where the queue names none behind it in that file, the file ends there. A unit without its
entry costs no message: a broker goes by the record then (spec 2.6).
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ...formats.consume_queue_ext import (
    ADDRESS_BASE,
    END,
    END_MARK,
    HEAD,
    UNIT,
    UNIT_BYTES_MAX,
    UNIT_BYTES_MIN,
)
from ..disk.edits import Edit
from ..disk.snapshot import Entry, QueueId, Snapshot
from ..queues.edits import is_whole_file, last_byte
from ..queues.start_ext import ExtDamage, units_end
from ..queues.units import read_units

_CODES = ("I-079",)
_REASON = "a size that leads beyond the file: a broker does not start"

Bytes = npt.NDArray[np.uint8]
Ints = npt.NDArray[np.int64]


def ext_edits(snapshot: Snapshot) -> Iterator[Edit]:
    """The edits for all queues. Raises Unreadable."""
    size = snapshot.ext_file_bytes
    for queue, entries in sorted(snapshot.ext.items()):
        files = [entry for entry in entries if is_whole_file(entry, size)]
        for entry in entries:
            if entry not in files:
                yield Edit("move", entry.path, "not a whole file of consumequeue_ext", ("I-003",))
        named = _named(snapshot, queue)
        for entry in _spare(files, named):
            files.remove(entry)
            yield Edit("remove", entry.path, "empty file behind the last unit of the queue", ())
        for entry in files:
            yield from _mended(snapshot.bytes_of(entry)[:], entry, named, last=entry is files[-1])


def _spare(files: list[Entry], named: Ints) -> list[Entry]:
    """Files of zeros behind the one with the last unit that the queue names: a start deletes them."""
    if not len(named):
        return []
    end = int(named.max())
    return [entry for entry in files if int(entry.name) > end and not last_byte(entry, 0)]


def _mended(data: Bytes, entry: Entry, named: Ints, *, last: bool) -> Iterator[Edit]:
    """Let the units of a file lead from one to the next, up to the last that the queue names."""
    start, mended = int(entry.name), data
    while (offset := _damaged(mended, entry.path)) is not None:
        here = named[(named >= start + offset) & (named < start + len(data))] - start
        size = int(here[here > offset].min(initial=offset)) - offset
        if not size and offset in here:
            size = min(UNIT_BYTES_MIN, len(data) - offset)
        if size and _fits(size):
            new = _unit(mended[offset:], size)
            mended = mended.copy()
            mended[offset : offset + len(new)] = np.frombuffer(new, np.uint8)
        elif last and not len(here):
            # nothing is named here, and new units begin here: zeros take the place of the noise
            length = last_byte(entry, offset) - offset
            yield Edit("write", entry.path, _REASON, _CODES, offset, length)
            return
        else:
            yield Edit("write", entry.path, _REASON, _CODES, offset, len(END_MARK), END_MARK)
            return
        yield Edit("write", entry.path, _REASON, _CODES, offset, len(new), new)


def _damaged(data: Bytes, path: str) -> int | None:
    """Byte of the unit whose size leads beyond its file, None where none does."""
    try:
        units_end(data, path)
    except ExtDamage as damage:
        return damage.offset
    return None


def _fits(size: int) -> bool:
    return UNIT_BYTES_MIN <= size <= UNIT_BYTES_MAX


def _unit(data: Bytes, size: int) -> bytes:
    """What has to be written at the head of a unit of that size; a bit map that is off goes."""
    head = HEAD.parse(data[: HEAD.sizeof()].tobytes())
    field: bytes = END.build({"size": size})
    if head.bit_map_size in (0, size - HEAD.sizeof()):
        return field
    plain: bytes = UNIT.build({**head, "bit_map": b""})
    return field + plain[len(field) :]


def _named(snapshot: Snapshot, queue: QueueId) -> Ints:
    """The places in consumequeue_ext that the queue's units name, int64[n]."""
    found = [np.zeros(0, np.int64)]
    for entry in snapshot.queues.get(queue, ()):
        if not entry.directory:
            codes = read_units(entry, 0, entry.size // UNIT_BYTES)["tags_code"].astype(np.int64)
            found.append(codes[codes <= EXT_ADDRESS_MAX] - ADDRESS_BASE)
    return np.concatenate(found)
