"""A store whose broker was changed to DLedger: both logs lie in it, one behind the other (spec 1.13)."""

from __future__ import annotations

import os
from pathlib import Path

from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.formats.dledger import ENTRY, HEADER_BYTES, MAGIC_ENTRY
from mqstore.formats.dledger_index import FILE_BYTES
from mqstore.formats.dledger_index import UNIT as INDEX_UNIT
from mqstore.formats.message import MESSAGE
from mqstore.store.disk.file_queue import file_name
from mqstore.store.search.store import StoreReader

from . import stores

PLAIN, FILE_BYTES_OF_LOG, DIVIDED = "5.3.3-clean", 262_144, 524_288
"""The store with the plain log, the size of its files, and where the DLedger log begins."""
TOPIC, MORE = "orders", 3
"""Queue 0 of this topic gets so many messages in the DLedger log."""


def mixed_store(directory: Path) -> Path:
    """Copies of the queue's last message stand in the DLedger log, without a key or a tag."""
    root = stores.unpack(PLAIN, directory)
    (queue,) = (root / "consumequeue" / TOPIC / "0").iterdir()
    units = queue.read_bytes()
    count = len(units.rstrip(b"\0")) // UNIT_BYTES + 1
    count -= not any(units[(count - 1) * UNIT_BYTES : count * UNIT_BYTES])
    last = UNIT.parse(units[(count - 1) * UNIT_BYTES :])
    files = sorted((root / "commitlog").iterdir())
    log = b"".join(path.read_bytes() for path in files)
    record = MESSAGE.parse(log[last.physical_offset :])
    with StoreReader(root) as store:
        end = store.log_end
    blank = BLANK.build({"total_size": DIVIDED - end.position, "magic_code": MAGIC_BLANK})
    _write(files[-1], end.position - int(files[-1].name), blank)
    data, index = b"", b""
    for number in range(MORE):
        pos = DIVIDED + len(data)
        place = {"physical_offset": pos + HEADER_BYTES, "queue_offset": count + number}
        body = MESSAGE.build({**record, **place, "properties": b"", "store_timestamp": end.store_timestamp})
        head = {"magic": MAGIC_ENTRY, "index": number, "term": 0, "pos": pos}
        entry = ENTRY.build({**head, "channel": 0, "chain_crc": 0, "body_crc": 0, "body": body})
        index += INDEX_UNIT.build({**head, "size": len(entry)})
        data += entry
        _write(queue, (count + number) * UNIT_BYTES, UNIT.build({**last, **place, "size": len(body), "tags_code": 0}))
    member = root / "dledger-n0"
    for name, content, size in (("data", data, FILE_BYTES_OF_LOG), ("index", index, FILE_BYTES)):
        (member / name).mkdir(parents=True)
        path = member / name / file_name(DIVIDED if name == "data" else 0)
        path.write_bytes(content)
        os.truncate(path, size)
    (member / "checkpoint").write_text(f"endIndex={MORE - 1}\ncommittedIndex={MORE - 1}\n")
    (member / "currterm").write_text("currTerm=0\nvoteLeader=n0\n")
    return root


def _write(path: Path, offset: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(data)
