"""Batches of made records, for conditions to be asked of."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

import numpy as np

from mqstore.formats.derive import decode
from mqstore.formats.message import MAGIC_V1, MESSAGE
from mqstore.formats.message_properties import format_properties
from mqstore.store.log.batch import Batch
from mqstore.store.log.message import Mark


def batch_of(properties: Iterable[Mapping[str, str] | bytes], **fields: Any) -> Batch:
    """One record for each set of properties; bytes are the stored text. fields: of all of them."""
    built = []
    position = 0
    for found in properties:
        text = found if isinstance(found, bytes) else format_properties(dict(found))
        built.append(MESSAGE.build(_RECORD | {"physical_offset": position, "properties": text} | fields))
        position += len(built[-1])
    sizes = np.array([len(record) for record in built], np.int64)
    starts = np.cumsum(sizes) - sizes
    columns = decode(MESSAGE, np.frombuffer(b"".join(built), np.uint8), starts)
    return Batch(columns, starts, Mark.NONE, np.ones(len(built), np.bool_))


_HOST = {"ip": bytes([127, 0, 0, 1]), "port": 10911}
_RECORD = {
    "magic_code": MAGIC_V1,
    "body_crc": 0,
    "queue_id": 3,
    "flag": 0,
    "queue_offset": 7,
    "sys_flag": 0,
    "born_timestamp": 1_700_000_000_000,
    "born_host": _HOST,
    "store_timestamp": 1_700_000_000_001,
    "store_host": _HOST,
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "body": b"body",
    "topic": b"orders",
}
