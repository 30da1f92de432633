"""Messages that a search found, and how."""

from __future__ import annotations

from collections.abc import Callable
from enum import StrEnum
from typing import NamedTuple

from .mapped_file_queue import MappedFileQueue
from .message import Message

Note = Callable[[str], None]
"""Told in one line what is worth knowing about an answer: damage met, another way taken."""


class Via(StrEnum):
    """How a message was found."""

    ADDRESS = "address"
    QUEUE = "queue"
    INDEX = "index"
    SCAN = "scan"


class Found(NamedTuple):
    """A message, and how it was found. log: where its position is one, if not in the commit log."""

    message: Message
    via: Via
    log: MappedFileQueue | None = None
