"""One record by its position, without numpy.

`get` of one message is over before numpy would be imported. `CommitLog.records` reads many; a test
holds the two together.
"""

from __future__ import annotations

import io
import zlib

from construct import ConstructError

from ..formats.hashing import CRC_MASK
from ..formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SMALLEST
from .errors import NotFound
from .mapped_file_queue import MappedFileQueue
from .message import Message

_PEEK_BYTES = 4096
"""Read at once; a second time only for a larger record."""


def read_message(log: MappedFileQueue, position: int) -> Message:
    """The whole record that begins at a position of the log.

    A body whose CRC is wrong is no reason to refuse it: `Message.body_crc_ok` tells. Raises NotFound
    where no whole record begins, Unreadable.
    """
    file = log.file_at(position)
    if file is None:
        raise NotFound("no log file holds this position", offset=position)
    at = position - file.start
    data = log.read_file(file, at, _PEEK_BYTES)
    if len(data) >= SMALLEST:
        size = MESSAGE.total_size.parse(data)
        if len(data) < size <= file.size - at:
            data = log.read_file(file, at, size)
        if SMALLEST <= size <= len(data):
            message = _message(data[:size], position)
            if message is not None:
                return message
    raise NotFound("no record begins here", path=file.path, offset=position)


def _message(data: bytes, position: int) -> Message | None:
    """The message in `data`, None where its fields do not add up to exactly these bytes."""
    stream = io.BytesIO(data)
    try:
        found = MESSAGE.parse_stream(stream)
    except ConstructError:
        return None
    if stream.tell() != len(data) or found.magic_code not in (MAGIC_V1, MAGIC_V2):
        return None
    fits = not found.body or zlib.crc32(found.body) & CRC_MASK == found.body_crc
    return Message(
        position=position,
        total_size=found.total_size,
        magic_code=found.magic_code,
        body_crc=found.body_crc,
        queue_id=found.queue_id,
        flag=found.flag,
        queue_offset=found.queue_offset,
        physical_offset=found.physical_offset,
        sys_flag=found.sys_flag,
        born_timestamp=found.born_timestamp,
        born_host=(found.born_host.ip, found.born_host.port),
        store_timestamp=found.store_timestamp,
        store_host=(found.store_host.ip, found.store_host.port),
        reconsume_times=found.reconsume_times,
        prepared_transaction_offset=found.prepared_transaction_offset,
        stored_body=found.body,
        raw_topic=found.topic,
        raw_properties=found.properties,
        body_crc_ok=fits,
    )
