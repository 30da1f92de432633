"""`__CRC32#` items whose name is damaged while their digits prove the record, named again.

With forceVerifyPropCRC a broker ends the log at a record without the item: all behind it would be lost.
Spec 01, 1.7; I-026.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from ...formats.message_properties import CRC_DIGITS_AT, CRC_ITEM_BYTES, crc_item
from ...formats.property_columns import ends_with_misnamed_crc_item
from ..disk.edits import Edit
from ..log.commit_log import Batch, CommitLog
from ..log.record_status import Mark

_OF_THE_LOG = (Mark.NONE, Mark.AFTER_DAMAGE)


def crc_item_edits(log: CommitLog) -> Iterator[Edit]:
    """The edits, for a store whose broker demands the item. Reads the whole log. Raises Unreadable."""
    for batch in log.scan(crc=False, reuse=True):
        if not isinstance(batch, Batch) or batch.mark not in _OF_THE_LOG:
            continue
        properties, sizes = batch.columns.ragged("properties"), batch.columns.ints("total_size")
        for row in np.flatnonzero(ends_with_misnamed_crc_item(properties)).tolist():
            begin = int(batch.columns.starts[row])
            record = properties.buffer[begin : begin + int(sizes[row])].tobytes()
            item = crc_item(record[:-CRC_ITEM_BYTES])
            file = log.queue.file_at(int(batch.position[row]))
            if (
                record[-CRC_ITEM_BYTES:][CRC_DIGITS_AT:] == item[CRC_DIGITS_AT:]
                and file is not None
            ):
                at = int(batch.position[row]) - file.start + len(record) - len(item)
                reason = "the name of a checksum that is right"
                yield Edit("write", file.path, reason, ("I-026",), at, len(item), item)
