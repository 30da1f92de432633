"""Records whose header is wrong and whose body is right: put right from what a queue unit says.

No checksum covers a header. A unit names the place and the size of a record; its directory the topic
and the queue; its number the queue offset. Where the rest of the bytes makes a whole record with them
(fields that add up, a body with its checksum, the tag of the unit) that is the record which was there.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive import Columns, decode
from ...formats.hashing import crc31
from ...formats.message import (
    COMPRESSION_MASK,
    MAGIC_V1,
    MAGIC_V2,
    MESSAGE,
    PROPERTIES_BYTES_MAX,
    SMALLEST,
    TOPIC_BYTES_MAX_V1,
    TRANSACTION_MASK,
    SysFlag,
)
from ...formats.message_properties import crc_ok
from ..broker.dispatch import LMQ_PREFIX, dispatch
from ..disk.file_queue import MappedFileQueue
from ..log.batch import Batch
from ..log.record_status import Mark
from ..log.torn_properties import torn_properties
from .cut_properties import mended
from .fill_records import Piece
from .lost_units import LostUnits
from .tombstones import is_for_service

Ints = npt.NDArray[np.int64]
Levels = tuple[int, ...] | None
_KNOWN_FLAGS = COMPRESSION_MASK | sum(SysFlag)
_CLOCK_MS = 30 * 24 * 3600 * 1000
"""How far the time of a record may lie from that of its neighbour."""
_RECORD_BYTES_MAX = 64 << 20
_PART_BYTES = 8 << 20
_KEPT = ("body_crc", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times")
_PREPARED = "prepared_transaction_offset"


def all_put_right(
    log: MappedFileQueue, units: LostUnits, near_ms: int, delay_levels: Levels
) -> dict[int, bytes]:
    """By position, the records of one gap that their bytes prove. Raises Unreadable.

    near_ms: store time of the record before the gap, 0: not known. delay_levels: ms of levels 1, 2, …;
    None for the usual ones.
    """
    found: dict[int, bytes] = {}
    for rows in np.split(np.arange(len(units)), _cuts(units.position)):
        if not len(rows):
            continue
        begin, end = int(units.position[rows[0]]), int(units.end[rows].max())
        file = log.file_at(begin)
        if file is None:
            continue
        data = np.frombuffer(log.read_file(file, begin - file.start, end - begin), np.uint8)
        rows = rows[units.end[rows] <= begin + len(data)]
        starts, ends = units.position[rows] - begin, units.end[rows] - begin
        columns = decode(MESSAGE, data, starts, ends)
        born, stored = (columns.ints(f"{name}_timestamp") for name in ("born", "store"))
        worth = (born > 0) & (stored > 0)  # neither zeros nor, mostly, noise
        if near_ms:
            worth &= np.abs(stored // 2 - near_ms // 2) <= _CLOCK_MS // 2
        for row in rows[worth].tolist():
            piece = put_right(log, units, row, near_ms, delay_levels)
            if piece is not None:
                found[piece[0]] = bytes(piece[1])
    return found


def _cuts(positions: Ints) -> Ints:
    """Where a new part begins, of so many bytes that they can be read at once."""
    cuts: Ints = np.flatnonzero(np.diff(positions // _PART_BYTES)) + 1
    return cuts


def put_right(
    log: MappedFileQueue, units: LostUnits, row: int, near_ms: int, delay_levels: Levels
) -> Piece | None:
    """The record that unit `row` names as it was, None where its bytes do not prove it.

    near_ms: store time of a neighbour, 0: not known. delay_levels: as in `all_put_right`. Raises Unreadable.
    """
    position, size = int(units.position[row]), int(units.size[row])
    queue = units.queues[int(units.queue[row])]
    file = log.file_at(position)
    if file is None or not SMALLEST <= size <= _RECORD_BYTES_MAX:
        return None
    if queue.topic.startswith(LMQ_PREFIX):
        return None  # what its units name are records of other topics
    raw = log.read_file(file, position - file.start, size)
    topic = queue.topic.encode("utf-8", "surrogateescape")
    fields = _fields(raw, topic) if len(raw) == size else None
    if fields is None or not _is_plausible(fields, near_ms):
        return None
    offset = int(units.queue_offset[row])
    fields |= {"queue_id": queue.queue_id, "queue_offset": offset, "physical_offset": position}
    text_bytes = size - len(MESSAGE.build({**fields, "properties": b""}))
    if not 0 <= text_bytes <= PROPERTIES_BYTES_MAX:
        return None
    record: bytes = MESSAGE.build({**fields, "properties": raw[size - text_bytes :]})
    if crc_ok(record) is False or not _has_tag(record, int(units.tags_code[row]), delay_levels):
        return None
    if torn_properties(_decoded(record))[0]:
        # a header that is right does not bring them back: for a service the message is nothing
        if is_for_service(topic):
            return None
        record = mended(record, with_crc=False, ended=False)[1]
    return position, record


def _fields(raw: bytes, topic: bytes) -> dict[str, Any] | None:
    """What a record of that topic has before its properties, None where its body is not whole."""
    limits = np.zeros(1, np.int64), np.full(1, len(raw), np.int64)
    columns = decode(MESSAGE, np.frombuffer(raw, np.uint8), *limits)
    length = int(columns.ints("body_length")[0])
    if not 0 <= length <= len(raw) - SMALLEST - len(topic):
        return None
    body = columns.ragged("body")[0]
    if len(body) != length or (body and crc31(body) != int(columns.ints("body_crc")[0])):
        return None
    fields: dict[str, Any] = {name: int(columns.ints(name)[0]) for name in (*_KEPT, _PREPARED)}
    for host in ("born_host", "store_host"):
        port = int(columns.ints(f"{host}.port")[0])
        fields[host] = {"ip": columns.ragged(f"{host}.ip")[0], "port": port}
    magic = MAGIC_V2 if len(topic) > TOPIC_BYTES_MAX_V1 else MAGIC_V1
    # no unit names a prepared record or one that was rolled back
    state = SysFlag.COMMIT if fields[_PREPARED] else 0
    flags = fields["sys_flag"] & ~TRANSACTION_MASK | state
    return {**fields, "magic_code": magic, "sys_flag": flags, "topic": topic, "body": body}


def _is_plausible(fields: dict[str, Any], near_ms: int) -> bool:
    """Times and flags that a broker could have written: no zeros, no noise."""
    stored, born = fields["store_timestamp"], fields["born_timestamp"]
    near = not near_ms or abs(stored - near_ms) <= _CLOCK_MS
    return stored > 0 and born > 0 and near and not fields["sys_flag"] & ~_KNOWN_FLAGS


def _has_tag(record: bytes, tags_code: int, delay_levels: Levels) -> bool:
    """The record would get a unit with this tags code, which may be an address in the ext file."""
    columns = _decoded(record)
    batch = Batch(columns, columns.ints("physical_offset").astype(np.int64), Mark.NONE, None)
    made = dispatch(
        batch, index_tags=False, index=False, multi_dispatch=False, delay_levels=delay_levels
    ).units
    return len(made) == 1 and (tags_code <= EXT_ADDRESS_MAX or int(made.tags_code[0]) == tags_code)


def _decoded(record: bytes) -> Columns:
    """The fields of one record."""
    limits = np.zeros(1, np.int64), np.full(1, len(record), np.int64)
    return decode(MESSAGE, np.frombuffer(record, np.uint8), *limits)
