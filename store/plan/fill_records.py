"""The bytes of tombstones, fillers and BLANKs."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.blank import BLANK, MAGIC_BLANK
from ...formats.derive import Ragged, encode, sizes
from ...formats.hashing import crc31
from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, PROPERTIES_BYTES_MAX, TOPIC_BYTES_MAX_V1
from ...formats.message_properties import CRC_ITEM_BYTES, ITEM_SEPARATOR, crc_item, ends_with_crc
from ...formats.tombstone import FILLER_SYS_FLAG, FILLER_TOPIC, LOST_ITEM, lost_item
from ..counted import counted
from ..disk.edits import Content
from .fill import Fill
from .lost_units import LostUnits
from .tombstones import Forms, batch_text

Ints = npt.NDArray[np.int64]
_HOST = b"\x7f\0\0\1"
_CHUNK_BYTES = 8 << 20
Piece = tuple[int, Content]
"""Log position and bytes."""


def encoded(fill: Fill, forms: Forms, bodies: Mapping[int, bytes]) -> Iterator[Piece]:
    """The bytes that close a gap, in pieces of some MiB: records whole, of a BLANK its head.

    bodies: by position, of tombstones whose body means something.
    """
    ends = np.cumsum(fill.lost.size) // _CHUNK_BYTES
    for rows in np.split(np.arange(len(fill.lost)), np.flatnonzero(np.diff(ends)) + 1):
        if len(rows):
            yield from _tombstones(fill, fill.lost.take(rows), forms, bodies)
    for position, size in fill.fillers:
        columns = {
            **_common(fill.gap.store_timestamp),
            "magic_code": MAGIC_V1,
            "queue_id": 0,
            "queue_offset": 0,
            "physical_offset": np.array([position], np.int64),
            "sys_flag": FILLER_SYS_FLAG,
            "born_timestamp": fill.gap.store_timestamp,
            "topic": FILLER_TOPIC,
        }
        yield position, _records(columns, np.array([size], np.int64), [b""], {}, forms)[0]
    if fill.blank is not None:
        position, size = fill.blank
        yield position, BLANK.build({"total_size": size, "magic_code": MAGIC_BLANK})


def padded(record: bytes, count: int) -> bytes:
    """A record with `count` bytes more in its property text, which every version reads the same.

    Raises ValueError where the text would be too long for its length field.
    """
    values = MESSAGE.parse(record)
    text: bytes = values.properties
    own_crc = ends_with_crc(text)
    if own_crc:
        text = text[:-CRC_ITEM_BYTES]
    text += ITEM_SEPARATOR * count
    if len(text) > PROPERTIES_BYTES_MAX - CRC_ITEM_BYTES * own_crc:
        raise ValueError(f"no room for {counted(count, 'byte')} more in the properties")
    crc = bytes(CRC_ITEM_BYTES if own_crc else 0)
    made: bytes = MESSAGE.build({**values, "properties": text + crc})
    return made[: -len(crc)] + crc_item(made[: -len(crc)]) if own_crc else made


def _tombstones(
    fill: Fill, lost: LostUnits, forms: Forms, bodies: Mapping[int, bytes]
) -> Iterator[Piece]:
    """Neighbouring tombstones as one piece."""
    topics = [queue.topic.encode("utf-8", "surrogateescape") for queue in lost.queues]
    shapes = [forms.of(queue.topic) for queue in lost.queues]
    time = fill.gap.store_timestamp
    born = [time if shape.born_timestamp is None else shape.born_timestamp for shape in shapes]
    queue_ids = [queue.queue_id for queue in lost.queues]
    long = np.array([len(topic) > TOPIC_BYTES_MAX_V1 for topic in topics])
    rows = lost.queue.tolist()
    columns = {
        **_common(time),
        "magic_code": np.where(long, MAGIC_V2, MAGIC_V1)[lost.queue],
        "queue_id": np.array(queue_ids, np.int64)[lost.queue],
        "queue_offset": lost.queue_offset,
        "physical_offset": lost.position,
        "sys_flag": 0,
        "born_timestamp": np.array(born, np.int64)[lost.queue],
        "topic": Ragged.of([topics[queue] for queue in rows]),
    }
    own = {row: bodies[at] for row, at in enumerate(lost.position.tolist()) if at in bodies}
    around = [
        forms.smallest(queue.topic) - len(shape.small)
        for queue, shape in zip(lost.queues, shapes, strict=True)
    ]
    room = [size - around[queue] for queue, size in zip(rows, lost.size.tolist(), strict=True)]
    texts = [shapes[queue].text(left) for queue, left in zip(rows, room, strict=True)]
    for row in np.flatnonzero(lost.batch_sizes > 1).tolist():
        text = batch_text(int(lost.queue_offset[row]), int(lost.batch_sizes[row]))
        both = texts[row] + text
        texts[row] = both if room[row] >= len(LOST_ITEM) + len(both) else text
    made = _records(columns, lost.size, texts, own, forms)
    begins = np.flatnonzero(np.r_[True, lost.position[1:] != lost.end[:-1]])
    for part in np.split(np.arange(len(lost)), begins[1:]):
        yield int(lost.position[part[0]]), b"".join(made[row] for row in part.tolist())


def _common(time: int) -> dict[str, Any]:
    hosts = ("born_host", "store_host")
    return {
        **{f"{host}.ip": _HOST for host in hosts},
        **{f"{host}.port": 0 for host in hosts},
        "flag": 0,
        "store_timestamp": time,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
    }


def _records(
    columns: dict[str, Any],
    wanted: Ints,
    texts: Sequence[bytes],
    bodies: Mapping[int, bytes],
    forms: Forms,
) -> list[bytes]:
    """Records of exactly the `wanted` sizes: the mark where there is room, `texts` behind it.

    The body is zeros, or that of `bodies` by row; then the value of the mark fills the record.
    """
    count = len(wanted)
    bare = {**columns, "body": Ragged.repeat(b"", count), "body_crc": 0}
    crc = bytes(CRC_ITEM_BYTES if forms.append_crc else 0)
    room = wanted - sizes(MESSAGE, {**bare, "properties": Ragged.of([t + crc for t in texts])})
    properties, made_bodies = [], []
    for row, (text, left) in enumerate(zip(texts, room.tolist(), strict=True)):
        body = bodies.get(row)
        if body is not None:
            properties.append(lost_item(left - len(body)) + text + crc)
        else:
            mark = LOST_ITEM if left >= len(LOST_ITEM) else b""
            properties.append(mark + text + crc)
            body = _zeros(left - len(mark))
        made_bodies.append(body)
    checksums = np.array([_crc(body) for body in made_bodies], np.int64)
    filled = {
        **columns,
        "properties": Ragged.of(properties),
        "body": Ragged.of(made_bodies),
        "body_crc": checksums,
    }
    made = encode(MESSAGE, filled)
    records = Ragged(made.buffer, made.starts, made.sizes).tolist()
    if not crc:
        return records
    return [record[: -len(crc)] + crc_item(record[: -len(crc)]) for record in records]


@lru_cache(maxsize=256)
def _zeros(length: int) -> bytes:
    return bytes(length)


def _crc(body: bytes) -> int:
    return crc31(body) if body else 0
