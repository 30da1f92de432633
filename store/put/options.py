"""What a writer is told, and what it answers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from .new_message import Host

DEFAULT_HOST: Host = (b"\x7f\0\0\1", 10911)
DEFAULT_WAIT_SECONDS = 10.0


class Stored(NamedTuple):
    """Where a message was put. store_host: the address that its message id names."""

    topic: str
    queue_id: int
    queue_offset: int
    physical_offset: int
    total_size: int
    store_host: Host


@dataclass(frozen=True)
class WriterOptions:
    """as_broker: generation of a new store, or of one whose own cannot be told. store_host: None
    takes that of the last record. topic_config: add topics to config/topics.json. follow_links: the
    store's own directories may be links to other disks.
    """

    as_broker: str | None = None
    store_host: Host | None = None
    topic_config: bool = True
    wait_seconds: float = DEFAULT_WAIT_SECONDS
    follow_links: bool = False
