"""What producers are refused: by their client, or by the front of the broker (spec 05; 01, 1.4).

These are limits of sending, not of storing: a copy of a record is asked only what the store can hold
(`new_message`), since what lies in a store may have any name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from ...formats import message_properties as names
from ...formats.hashing import java_string
from ...formats.message import TOPIC_BYTES_MAX_V1
from ..counted import counted
from ..errors import InvalidInput
from .new_message import NewMessage, check_sizes

if TYPE_CHECKING:
    from .writer import StoreWriter

_TOPIC = re.compile(r"[%|a-zA-Z0-9_-]+")
_LONG_TOPICS = ("%RETRY%", "%DLQ%")


def check_producer_topic(topic: bytes, long_topics: tuple[str, ...] = _LONG_TOPICS) -> None:
    """Refuse a topic that every client and broker refuses. Raises InvalidInput.

    long_topics: how a topic of more than 127 characters has to begin.
    """
    text = topic.decode("utf-8", "replace")
    if not _TOPIC.fullmatch(text):
        raise InvalidInput(
            f"no topic for a producer: {text!r}", hint="letters, digits and % | _ - are allowed"
        )
    if len(text) > TOPIC_BYTES_MAX_V1 and not text.startswith(long_topics):
        raise InvalidInput(f"a topic of {len(text)} characters: brokers take {TOPIC_BYTES_MAX_V1}")


def check_producer(message: NewMessage, writer: StoreWriter) -> None:
    """Refuse what a client of the generation, or its broker, refuses; the body is not compressed yet.

    Raises InvalidInput, LimitExceeded; the error names the limit.
    """
    check_producer_topic(message.topic, writer.profile.long_topics)
    topic = java_string(message.topic)
    if topic in writer.profile.closed_topics:
        raise InvalidInput(
            f"{topic} is a topic of the broker's own: brokers of {writer.profile.version} let nobody"
            " send to it",
            hint="a copy of its records goes with --from",
        )
    if not message.body:
        raise InvalidInput(
            "an empty body: clients refuse it", hint="a copy of such a record goes with --from"
        )
    check_sizes(len(message.body), 0, writer.rules)
    named = names.parse(message.properties).get(names.INNER_MULTI_DISPATCH, "")
    if "/" in named and writer.profile.modern_topics:
        raise InvalidInput(
            f"{names.INNER_MULTI_DISPATCH}: clients refuse a name with a slash: {named}"
        )
    count = writer.topics.queues(topic) if writer.topics else None
    if count is not None and message.queue_id >= count:
        raise InvalidInput(
            f"queue {message.queue_id}: {topic} has {counted(count, 'queue')} in topics.json",
            hint="a smaller --queue, or --no-topic-config",
        )
