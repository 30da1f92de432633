"""Records that a torn write has left without some of their properties (spec 01, 1.6; 7.12, B27).

Every broker takes them for good, with what happens to stand there as names and values. Header and
body are whole, so the message stays: the items that can be read stay as they are, separators take
the place of the rest. Every version reads these as nothing (spec 9.1, property padding), and
the record keeps its size. Further queues whose units name the record are named again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from ...formats.message import MESSAGE
from ...formats.message_properties import (
    CRC32,
    CRC_ITEM_BYTES,
    ITEM_SEPARATOR,
    NAME_VALUE_SEPARATOR,
    crc_item,
    parse,
)
from ..disk.file_queue import MappedFileQueue
from ..log.commit_log import CommitLog
from .gaps import TornRecord
from .multi_dispatch import Further, with_further

_NUL = b"\0"
_CRC_NAME = CRC32.encode() + NAME_VALUE_SEPARATOR


@dataclass(frozen=True)
class CutProperties:
    """A message that has lost properties. data: its record as it will be; lost_bytes: of its
    property text. properties: those that are left, and the further queues that units prove.
    """

    position: int
    topic: str
    queue_id: int
    queue_offset: int
    properties: dict[str, str]
    lost_bytes: int
    data: bytes

    def to_json(self) -> dict[str, Any]:
        """A row of `plan.torn_properties`."""
        row = {name: value for name, value in vars(self).items() if name != "data"}
        return {**row, "size": len(self.data)}


def cut_properties(
    queue: MappedFileQueue,
    records: Sequence[TornRecord],
    further: Mapping[int, Further],
    *,
    with_crc: bool,
) -> list[CutProperties]:
    """What becomes of records that have lost properties. Raises Unreadable.

    further: by position, queues that name the record. with_crc: records of this log end with a
    checksum of the whole.
    """
    if not records:
        return []
    ended = _items_are_ended(queue)
    found = []
    for record in records:
        data = queue.read(record.position, record.size)
        more = further.get(record.position, ())
        text, made = mended(data, more, with_crc=with_crc, ended=ended)
        found.append(
            CutProperties(
                record.position,
                record.topic.decode("utf-8", "replace"),
                record.queue_id,
                record.queue_offset,
                parse(text),
                MESSAGE.parse(data).properties_length - len(text),
                made,
            )
        )
    return found


def mended(
    record: bytes, further: Further = (), *, with_crc: bool, ended: bool
) -> tuple[bytes, bytes]:
    """The property text that is left, and the record with it; ended: a separator ends the last item."""
    values = MESSAGE.parse(record)
    length = len(values.properties)
    text = _readable(values.properties, ended=ended)
    with_crc = with_crc and length - len(text) >= CRC_ITEM_BYTES
    text = with_further(text, further, length - CRC_ITEM_BYTES * with_crc, ended=ended or with_crc)
    return text, with_text(values, text, with_crc=with_crc)


def with_text(values: Any, text: bytes, *, with_crc: bool) -> bytes:
    """A record with another property text, as long as it is: separators, and the checksum last.

    values: of the record; there is room for both.
    """
    padding = len(values.properties) - len(text) - CRC_ITEM_BYTES * with_crc
    padded = text + ITEM_SEPARATOR * padding + bytes(CRC_ITEM_BYTES * with_crc)
    made: bytes = MESSAGE.build({**values, "properties": padded})
    return made[:-CRC_ITEM_BYTES] + crc_item(made[:-CRC_ITEM_BYTES]) if with_crc else made


def without_crc(text: bytes) -> tuple[bytes, bool]:
    """A property text without the checksum of the whole record that may end it; whether it does."""
    has = text[-CRC_ITEM_BYTES:].startswith(_CRC_NAME)
    return (text[:-CRC_ITEM_BYTES] if has else text), has


def _readable(text: bytes, *, ended: bool) -> bytes:
    """The items that are whole. Of one that was cut nobody knows how far its value went."""
    if ended and text[-2:].count(_NUL) == 1 and text.endswith(_NUL):
        text = text[:-1] + ITEM_SEPARATOR  # nothing but the separator is lost
    items = text.split(ITEM_SEPARATOR)
    whole = [item for item in items if NAME_VALUE_SEPARATOR in item and _NUL not in item]
    return b"".join(item + ITEM_SEPARATOR for item in whole)


def _items_are_ended(queue: MappedFileQueue) -> bool:
    """This log's writer puts a separator behind the last item, as the first records of files tell."""
    starts = np.array([file.start for file in queue.files], np.int64)
    texts = CommitLog(queue).records(starts).columns.ragged("properties").tolist()
    return any(text.endswith(ITEM_SEPARATOR) for text in texts)
