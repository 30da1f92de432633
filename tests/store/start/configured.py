"""A real configuration, and bytes that are none."""

from __future__ import annotations

from pathlib import Path

from mqstore.store.broker.snapshot import QueueId

NAME, VERSION = "5.3.3-clean", "5.3"
GARBAGE = b"\x8f\x02 no configuration \xff"
Ends = dict[QueueId, tuple[int, int]]
NEEDED = ("topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json")


def put(path: Path, data: bytes | None) -> None:
    """Write a file, or have none."""
    if data is None:
        path.unlink(missing_ok=True)
    else:
        path.write_bytes(data)
