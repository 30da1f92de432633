"""The bytes of tombstones, fillers and BLANKs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ....formats.blank import BLANK, MAGIC_BLANK
from ....formats.derive import Ragged, encode, sizes
from ....formats.hashing import crc31
from ....formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, TOPIC_BYTES_MAX_V1
from ....formats.tombstone import FILLER_SYS_FLAG, FILLER_TOPIC, LOST_ITEM
from .fill import Fill

Ints = npt.NDArray[np.int64]
_HOST = b"\x7f\0\0\1"
_CHUNK_BYTES = 8 << 20
Piece = tuple[int, bytes]
"""Log position and bytes."""


def encoded(fill: Fill) -> Iterator[Piece]:
    """The bytes that close a gap, in pieces of some MiB: records whole, of a BLANK its head."""
    lost = fill.lost
    ends = np.cumsum(lost.size) // _CHUNK_BYTES
    for rows in np.split(np.arange(len(lost)), np.flatnonzero(np.diff(ends)) + 1):
        if len(rows):
            yield from _tombstones(fill, rows)
    for position, size in fill.fillers:
        yield position, _records(_filler(position, fill), np.array([size], np.int64))[0]
    if fill.blank is not None:
        position, size = fill.blank
        yield position, BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})


def _tombstones(fill: Fill, rows: Ints) -> Iterator[Piece]:
    """Neighbouring tombstones as one piece."""
    lost = fill.lost.take(rows)
    topics = [queue.topic.encode("utf-8", "surrogateescape") for queue in lost.queues]
    queue_ids = np.array([queue.queue_id for queue in lost.queues], np.int64)
    long = np.array([len(topic) > TOPIC_BYTES_MAX_V1 for topic in topics])
    columns = {
        **_common(fill),
        "magic_code": np.where(long, MAGIC_V2, MAGIC_V1)[lost.queue],
        "queue_id": queue_ids[lost.queue],
        "queue_offset": lost.queue_offset,
        "physical_offset": lost.position,
        "sys_flag": 0,
        "topic": Ragged.of([topics[queue] for queue in lost.queue.tolist()]),
    }
    encoded_records = _records(columns, lost.size)
    begins = np.flatnonzero(np.r_[True, lost.position[1:] != lost.end[:-1]])
    for part in np.split(np.arange(len(lost)), begins[1:]):
        yield int(lost.position[part[0]]), b"".join(encoded_records[row] for row in part.tolist())


def _filler(position: int, fill: Fill) -> dict[str, Any]:
    return {
        **_common(fill),
        "magic_code": MAGIC_V1,
        "queue_id": 0,
        "queue_offset": 0,
        "physical_offset": np.array([position], np.int64),
        "sys_flag": FILLER_SYS_FLAG,
        "topic": FILLER_TOPIC,
    }


def _common(fill: Fill) -> dict[str, Any]:
    time = fill.gap.store_timestamp
    hosts = {
        f"{name}.{part}": value
        for name in ("born_host", "store_host")
        for part, value in (("ip", _HOST), ("port", 0))
    }
    return {
        **hosts,
        "flag": 0,
        "born_timestamp": time,
        "store_timestamp": time,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }


def _records(columns: dict[str, Any], wanted: Ints) -> Sequence[bytes]:
    """Records of exactly the `wanted` sizes: zeros as body, the mark where there is room for it."""
    marked = Ragged.repeat(LOST_ITEM, len(wanted))
    bare = {**columns, "body": Ragged.repeat(b"", len(wanted)), "body_crc": 0}
    room = wanted - sizes(MESSAGE, {**bare, "properties": marked})
    unmarked = room < 0
    marked.length[unmarked] = 0
    room[unmarked] += len(LOST_ITEM)
    zeros = np.zeros(int(room.max(initial=0)), np.uint8)
    body = Ragged(zeros, np.zeros(len(room), np.int64), room)
    crc = np.array([_crc_of_zeros(length) for length in room.tolist()], np.int64)
    made = encode(MESSAGE, {**columns, "properties": marked, "body": body, "body_crc": crc})
    return Ragged(made.buffer, made.starts, made.sizes).tolist()


@lru_cache(maxsize=4096)
def _crc_of_zeros(length: int) -> int:
    return crc31(bytes(length)) if length else 0
