"""A log all of whose messages go to one queue.

python -m tests.hot_queue DIRECTORY MESSAGES
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from mqstore.formats.blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from mqstore.formats.consume_queue import UNIT
from mqstore.formats.derive import dtype_of, encode
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MAGIC_V1, MESSAGE

TOPIC, QUEUE_ID = "hot", 0
LOG_FILE_BYTES = 1 << 30
_BODY = b"ten bytes!"
_FIRST_MS = 1_700_000_000_000
_BATCH = 1 << 16


def _records(first: int, position: npt.NDArray[np.int64]) -> bytes:
    """Records number `first` on, all of the same size."""
    number = first + np.arange(len(position), dtype=np.int64)
    columns: dict[str, Any] = {
        "magic_code": MAGIC_V1,
        "body_crc": crc31(_BODY),
        "queue_id": QUEUE_ID,
        "flag": 0,
        "queue_offset": number,
        "physical_offset": position,
        "sys_flag": 0,
        "born_timestamp": _FIRST_MS + number // 1000,
        "born_host.ip": bytes([127, 0, 0, 1]),
        "born_host.port": 1,
        "store_timestamp": _FIRST_MS + number // 1000,
        "store_host.ip": bytes([127, 0, 0, 1]),
        "store_host.port": 10911,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": _BODY,
        "topic": TOPIC.encode(),
        "properties": b"",
    }
    return encode(MESSAGE, columns).buffer.tobytes()


def make(root: Path, messages: int) -> npt.NDArray[np.void]:
    """Write the log below `root`; the units that its queue must have.

    Files end with a BLANK, the last one with zeros.
    """
    size = len(_records(0, np.zeros(1, np.int64)))
    per_file = (LOG_FILE_BYTES - BLANK_BYTES) // size
    number = np.arange(messages, dtype=np.int64)
    position = number // per_file * LOG_FILE_BYTES + number % per_file * size
    (root / "commitlog").mkdir(parents=True)
    for start in range(0, messages, per_file):
        stop = min(messages, start + per_file)
        path = root / "commitlog" / f"{position[start]:020d}"
        with path.open("wb") as file:
            for first in range(start, stop, _BATCH):
                file.write(_records(first, position[first : min(stop, first + _BATCH)]))
            if stop < messages:
                rest = LOG_FILE_BYTES - file.tell()
                file.write(BLANK.build({"total_size": rest, "magic_code": MAGIC_BLANK}))
            file.truncate(LOG_FILE_BYTES)
    units = np.zeros(messages, dtype_of(UNIT))
    units["physical_offset"], units["size"] = position, size
    return units


if __name__ == "__main__":
    make(Path(sys.argv[1]), int(sys.argv[2]))
