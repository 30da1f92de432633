"""What is measured, one subject per process: ``python -m tests.bench.subjects NAME ARGUMENT...``.

A subject imports first, then takes the time of its work alone, and prints one JSON object.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

CONSTRUCT_RECORDS = 3000


def walk(root: str) -> dict[str, Any]:
    """Walk and check every record: chain, offsets, lengths, CRC."""
    from mqstore.store.commit_log import Batch, CommitLog
    from mqstore.store.layout import Layout

    start = time.process_time()
    messages = damaged = 0
    for item in CommitLog.open(Layout.open(Path(root))).scan(crc=True):
        if isinstance(item, Batch):
            messages += len(item.columns)
            assert item.body_crc_ok is not None
            damaged += int((~item.body_crc_ok).sum())
        else:
            damaged += item.kind == "damage"
    return {"cpu_s": time.process_time() - start, "messages": messages, "damaged": damaged}


def decode(root: str, strings: str = "views") -> dict[str, Any]:
    """Decode every field of every record to columns; `packed`: strings to copies of their own."""
    from mqstore.formats.derive import Ragged
    from mqstore.store.commit_log import Batch, CommitLog
    from mqstore.store.layout import Layout

    start = time.process_time()
    messages = 0
    for item in CommitLog.open(Layout.open(Path(root))).scan(crc=False):
        if isinstance(item, Batch):
            messages += len(item.columns)
            for name in list(item.columns):
                column = item.columns[name]
                if isinstance(column, Ragged) and strings == "packed":
                    column.packed()
    return {"cpu_s": time.process_time() - start, "messages": messages}


def construct(root: str) -> dict[str, Any]:
    """Parse the first records with construct, one by one."""
    from mqstore.formats.message import MESSAGE
    from mqstore.store.commit_log import Batch, CommitLog
    from mqstore.store.layout import Layout

    log = CommitLog.open(Layout.open(Path(root)))
    batch = next(item for item in log.scan() if isinstance(item, Batch))
    places = zip(batch.position, batch.columns.ints("total_size"), strict=True)
    records = [log.read(int(at), int(size)) for at, size in places][:CONSTRUCT_RECORDS]
    start = time.process_time()
    for record in records:
        MESSAGE.parse(record)
    return {"cpu_s": time.process_time() - start, "messages": len(records)}


SUBJECTS: dict[str, Callable[..., dict[str, Any]]] = {
    subject.__name__: subject for subject in (walk, decode, construct)
}

if __name__ == "__main__":
    print(json.dumps(SUBJECTS[sys.argv[1]](*sys.argv[2:])))
