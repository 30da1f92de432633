"""Topics of records, and the version that their length asks for (docs/invariants.md, I-035 … I-037)."""

from __future__ import annotations

import re

import numpy as np

from ...formats.message import MAGIC_V2, TOPIC_BYTES_MAX_V1
from ...formats.tombstone import FILLER_TOPIC
from .catalogue import Severity
from .context import Scene
from .records import Records, add_rows
from .register import of_records

_NAME = re.compile(r"[%|a-zA-Z0-9_+-]+")
"""What brokers accept as a topic; `+` is in the names that POP makes of its retry topics."""
_NUL = b"\0"


@of_records("I-035")
def topic_name(scene: Scene, records: Records) -> None:
    """A topic is a name: not empty, UTF-8, of the characters that brokers accept."""
    topics = records.topics
    for number, value in enumerate(topics.values):
        text = _odd(value)
        if not text or value == FILLER_TOPIC:
            continue
        wrong = topics.ids == number
        told = f"topic {value[:40]!r}: {text}"
        severity = Severity.FATAL if _NUL in value else None
        add_rows(scene, records, "I-035", wrong, told, severity=severity)


def _odd(value: bytes) -> str:
    """What is wrong with a topic, "" if nothing is."""
    if not value:
        return "it is empty"
    if _NUL in value:
        return "it has a NUL byte, and no directory can have its name"
    try:
        text = value.decode("utf-8")
    except UnicodeDecodeError:
        return "it is no UTF-8"
    return "" if _NAME.fullmatch(text) else "no broker accepts such a name"


@of_records("I-036", "I-037")
def long_topics(scene: Scene, records: Records) -> None:
    """Version 2 is for topics that version 1 has no room for, and for brokers since 5.1.0."""
    newer = records.columns.ints("magic_code") == MAGIC_V2
    if not newer.any():
        return
    if not scene.profile.record.v2:
        version = scene.profile.version
        told = f"version 2, at which a broker {version} cuts the log"
        add_rows(scene, records, "I-037", newer, told)
    lengths = np.array([len(text) for text in records.topic_texts], np.int64)[records.topics.ids]
    short = newer & (lengths <= TOPIC_BYTES_MAX_V1)
    text = "version 2 for a short topic, its characters:"
    add_rows(scene, records, "I-036", short, text, lengths)
