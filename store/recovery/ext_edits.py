"""What a plan does to consumequeue_ext: that every broker can read it, with the fewest bytes changed.

A unit whose size leads beyond its file ends the file there; no other unit moves, and those that the
queue names behind it stay where they are. A unit without its entry costs no message: a broker goes
by the record then (spec 2.6).
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np

from ...formats.consume_queue import EXT_ADDRESS_MAX, UNIT_BYTES
from ...formats.consume_queue_ext import ADDRESS_BASE, END, END_OF_FILE
from ..mapped_file_queue import file_name
from .edits import Edit
from .ext_state import ExtDamage, units_end
from .queue_edits import is_whole_file, last_byte
from .queue_units import read_units
from .snapshot import Entry, QueueId, Snapshot

_END = END.build({"size": END_OF_FILE})
_CODES = ("I-079",)


def ext_edits(snapshot: Snapshot) -> Iterator[Edit]:
    """The edits for all queues. Raises Unreadable."""
    size = snapshot.ext_file_bytes
    for queue, entries in sorted(snapshot.ext.items()):
        files = [entry for entry in entries if is_whole_file(entry, size)]
        for entry in entries:
            if entry not in files:
                yield Edit("move", entry.path, "not a whole file of consumequeue_ext", ("I-003",))
        for entry in files:
            try:
                units_end(snapshot.bytes_of(entry), entry.path)
            except ExtDamage as damage:
                yield from _ended(snapshot, queue, entry, damage.offset, last=entry is files[-1])


def _ended(
    snapshot: Snapshot, queue: QueueId, entry: Entry, offset: int, *, last: bool
) -> Iterator[Edit]:
    """Let the units of a file end at a byte.

    New units must not take the place of any that the queue names: behind the last file, a new one
    is made for them. Where the queue names none, zeros take the place of the noise.
    """
    start = int(entry.name)
    reason = "a size that leads beyond the file: a broker does not start"
    if last and _last_named(snapshot, queue) < start + offset:
        end = last_byte(entry, offset)
        yield Edit("write", entry.path, reason, _CODES, offset, end - offset)
        return
    yield Edit("write", entry.path, reason, _CODES, offset, len(_END), _END)
    if last:
        path = Path(entry.path).with_name(file_name(start + snapshot.ext_file_bytes))
        made = "new units go behind those that the queue names"
        yield Edit("create", str(path), made, _CODES, length=snapshot.ext_file_bytes)


def _last_named(snapshot: Snapshot, queue: QueueId) -> int:
    """The highest place in consumequeue_ext that a unit of the last files of the queue names."""
    highest = -1
    for entry in snapshot.queues.get(queue, ())[-2:]:
        if entry.directory:
            continue
        codes = read_units(entry, 0, entry.size // UNIT_BYTES)["tags_code"].astype(np.int64)
        named = codes[codes <= EXT_ADDRESS_MAX]
        if len(named):
            highest = max(highest, int(named.max()) - ADDRESS_BASE)
    return highest
