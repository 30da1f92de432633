"""Tiered stores of the POSIX provider, written by the real classes of 5.3.3 and 5.5.0.

`VERSION.tar.gz` holds what `tests/interop/java/tiered` made of the messages of the topic `orders` in the
store `VERSION-clean` of `tests/stores`, those above 4 KiB left out: segments of at most 8,192
bytes of log, 10 units, 7 slots. `VERSION-killed.tar.gz` holds the files of an index that was not shut down.
"""

from __future__ import annotations

import hashlib
from pathlib import Path
from typing import Any

from mqstore.formats.hashing import index_hash
from mqstore.store.log.message import Message
from mqstore.store.settings.parse import parse

from .. import stores
from ..archives import extract

HERE = Path(__file__).resolve().parent
VERSIONS = ("5.3.3", "5.5.0")
TOPIC = "orders"
LARGEST_BYTES = 4096
CLUSTER = Path("1e06047a_TestCluster")
INDEX = CLUSTER / "TestCluster" / "broker-a" / "rmq_sys_INDEX" / "0" / "INDEX"
INDEX_FILES = "tiered_index_file"
PLACES = {
    "tiered-commit-log": CLUSTER / "broker-a" / TOPIC / "0" / "COMMIT_LOG",
    "tiered-consume-queue": CLUSTER / "broker-a" / TOPIC / "0" / "CONSUME_QUEUE",
    "tiered-index": INDEX,
}
"""Kind → a directory of it."""


def unpack(version: str, target: Path) -> Path:
    """Unpack a tiered store into `target` and return its root."""
    extract(HERE / f"{version}.tar.gz", target)
    return target / f"{version}-tiered"


def unpack_killed(version: str, target: Path) -> Path:
    """The same for `VERSION-killed.tar.gz`: the index was not shut down, nothing else is in it."""
    extract(HERE / f"{version}-killed.tar.gz", target)
    return target / f"{version}-tiered-killed"


def queue_path(root: Path, queue_id: int, kind: str) -> Path:
    """The directory of segments of one kind of a queue."""
    return root / CLUSTER / "broker-a" / TOPIC / str(queue_id) / kind


def truth(version: str) -> dict[tuple[int, int], dict[str, Any]]:
    """The messages that were put, by queue id and queue offset."""
    return {
        (m["queue_id"], m["queue_offset"]): m
        for m in stores.messages(f"{version}-clean")
        if m["topic"] == TOPIC and m["total_size"] <= LARGEST_BYTES
    }


def metadata(root: Path) -> Any:
    """tieredStoreMetadata.json, whose keys are numbers without quotes."""
    return parse((root / "config" / "tieredStoreMetadata.json").read_bytes()).value


def hashes(message: dict[str, Any]) -> set[int]:
    """What the index has of a message, with 0 for the hash that has no slot: segments lack its item."""
    keys = message["properties"].get("KEYS", "").split()
    return {index_hash(TOPIC, key) for key in keys}


def same(found: Message, known: dict[str, Any]) -> bool:
    """The message is that of the truth, its position left out."""
    return (
        hashlib.sha1(found.stored_body).hexdigest() == known["body_sha1"]
        and found.properties == known["properties"]
        and all(
            getattr(found, name) == known[name]
            for name in ("total_size", "born_timestamp", "store_timestamp", "sys_flag", "body_crc")
        )
    )
