"""A store that looks like a terabyte: sparse log files of 1 GiB, only the last one with a log in it.

    python -m tests.huge_store DIRECTORY [MEBIBYTES]

fills the last file with that much (default 1,000) for measurements by hand.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.formats.derive import dtype_of, encode
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MAGIC_V1, MESSAGE

LOG_FILE_BYTES = 1 << 30
QUEUE_FILE_BYTES = 6_000_000
OLD_UNITS = 1000
"""Units of each queue that point at the first records of the log's files."""
FIRST_MS = 1_700_000_000_000
_BODY = b"ten bytes!"
_BATCH = 1 << 16


@dataclass(frozen=True)
class HugeStore:
    """What was made. log_end: behind the last record; messages: number of them in each queue."""

    root: Path
    log_start: int
    log_end: int
    last_store_timestamp: int
    messages: Mapping[tuple[str, int], int]


def _columns(topics: int, queues: int, first: int, position: Any) -> dict[str, Any]:
    """Records number `first` on, dealt out to all queues in turn; 100 bytes each, about."""
    number = first + np.arange(len(position), dtype=np.int64)
    queue = number % (topics * queues)
    return {
        "magic_code": MAGIC_V1,
        "body_crc": crc31(_BODY),
        "queue_id": queue % queues,
        "flag": 0,
        "queue_offset": OLD_UNITS + number // (topics * queues),
        "physical_offset": position,
        "sys_flag": 0,
        "born_timestamp": FIRST_MS + number,
        "born_host.ip": bytes([127, 0, 0, 1]),
        "born_host.port": 1,
        "store_timestamp": FIRST_MS + number,
        "store_host.ip": bytes([127, 0, 0, 1]),
        "store_host.port": 10911,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "body": _BODY,
        "topic": b"topic",
        "properties": b"",
    }


def make(root: Path, files: int, topics: int, queues: int, log_bytes: int) -> HugeStore:
    """Make a store of `files` log files, `log_bytes` of records in the last one."""
    log = root / "commitlog"
    log.mkdir(parents=True)
    for number in range(files):
        start = number * LOG_FILE_BYTES
        with (log / f"{start:020d}").open("wb") as file:
            file.write(encode(MESSAGE, _columns(1, 1, 0, np.array([start]))).buffer.tobytes())
            file.truncate(LOG_FILE_BYTES)
    start = (files - 1) * LOG_FILE_BYTES
    size = len(encode(MESSAGE, _columns(1, 1, 0, np.zeros(1, np.int64))).buffer)
    count = log_bytes // size
    with (log / f"{start:020d}").open("r+b") as file:
        for first in range(0, count, _BATCH):
            many = np.arange(first, min(first + _BATCH, count), dtype=np.int64)
            columns = _columns(topics, queues, first, start + many * size)
            file.write(encode(MESSAGE, columns).buffer.tobytes())
    messages = {}
    for queue in range(topics * queues):
        name = (f"topic-{queue // queues:05d}", queue % queues)
        messages[name] = _queue(root, name, queue, topics * queues, start, size, count)
    (root / "checkpoint").write_bytes(bytes(4096))
    (root / "lock").write_bytes(b"lock")
    return HugeStore(root, 0, start + count * size, FIRST_MS + count - 1, messages)


def _queue(root: Path, name: tuple[str, int], queue: int, all_queues: int, start: int, size: int, count: int) -> int:
    """The file of one queue; returns its number of units."""
    own = np.arange(queue, count, all_queues, dtype=np.int64)
    units = np.zeros(OLD_UNITS + len(own), dtype_of(UNIT))
    units["physical_offset"][OLD_UNITS:] = start + own * size
    units["size"] = size
    directory = root / "consumequeue" / name[0] / str(name[1])
    directory.mkdir(parents=True)
    with (directory / f"{0:020d}").open("wb") as file:
        file.write(units.tobytes())
        file.truncate(QUEUE_FILE_BYTES)
    assert len(units) * UNIT_BYTES < QUEUE_FILE_BYTES
    return len(units)


if __name__ == "__main__":
    mebibytes = int(sys.argv[2]) if len(sys.argv) > 2 else 1000
    made = make(Path(sys.argv[1]), 1024, 2000, 8, mebibytes << 20)
    print(f"log end {made.log_end}, last store time {made.last_store_timestamp}")
