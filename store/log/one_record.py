"""One record by its position, without construct and numpy.

`get` of one message is over before they would be imported (`cli/declared.py` has the budget).
`CommitLog.records` reads many; a test holds the two together.
"""

from __future__ import annotations

import zlib

from ...formats import quick
from ...formats.hashing import CRC_MASK
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound
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
        raise _in_no_file(log, position)
    at = position - file.start
    data = log.readable(file, at, _PEEK_BYTES, quick.SMALLEST)
    if len(data) >= quick.SMALLEST:
        size = quick.total_size(data)
        if len(data) < size <= file.size - at:
            data = log.readable(file, at, size, size)
        if quick.SMALLEST <= size <= len(data):
            message = _message(data[:size], position)
            if message is not None:
                return message
    never = "" if any(data) else ": zeros, nothing was written"
    raise NotFound(f"no record begins here{never}", path=file.path, offset=at)


def _in_no_file(log: MappedFileQueue, position: int) -> NotFound:
    """Why no file of the log has a position."""
    if not log.files:
        return NotFound("no log file holds this position: there is none", offset=position)
    why, path = f"the log has {log.start} to {log.end}", None
    before = [file for file in log.files if file.start <= position]
    if position < log.end and before:
        why = "a file is missing"
    for file in before:
        if position < file.end:  # it is longer than the others, and the next one begins earlier
            why, path = (
                f"what is longer than {counted(log.file_size, 'byte')} belongs to none",
                file.path,
            )
    return NotFound(f"no log file holds this position: {why}", path=path, offset=position)


def _message(data: bytes, position: int) -> Message | None:
    """The message in `data`, None where its fields do not add up to exactly these bytes."""
    found = quick.message(data)
    if found is None:
        return None
    body = found["body"]
    return Message(
        position=position,
        born_host=(found["born_host.ip"], found["born_host.port"]),
        store_host=(found["store_host.ip"], found["store_host.port"]),
        stored_body=body,
        raw_topic=found["topic"],
        raw_properties=found["properties"],
        body_crc_ok=not body or zlib.crc32(body) & CRC_MASK == found["body_crc"],
        **{name: found[name] for name in _SAME},
    )


_SAME = (
    *("total_size", "magic_code", "body_crc", "queue_id", "flag", "queue_offset"),
    *("physical_offset", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times"),
    "prepared_transaction_offset",
)
"""Fields that a message has as they are."""
