"""Which messages are wanted: the same question to one message and to a batch of columns."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from ..formats import message_properties as names
from .body import MAX_BODY_BYTES
from .message import Message
from .time_range import TimeRange

if TYPE_CHECKING:
    import re

    import numpy as np
    import numpy.typing as npt

    from ..formats.derive import Ragged
    from .commit_log import Batch

    Mask = npt.NDArray[np.bool_]


class Selection(NamedTuple):
    """Conditions that all must hold; None asks nothing.

    key: one of the parts of KEYS, or the unique key. unique_key: the unique key only. times: by
    store time. grep: a pattern to be found in the body, decompressed up to max_body_bytes and read
    as UTF-8 (bytes that are none become U+FFFD).
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    unique_key: str | None = None
    tag: str | None = None
    times: TimeRange = TimeRange()
    grep: re.Pattern[str] | None = None
    max_body_bytes: int = MAX_BODY_BYTES

    @property
    def asks(self) -> bool:
        """Whether there is a condition at all."""
        return self._replace(max_body_bytes=MAX_BODY_BYTES) != Selection()

    def takes(self, message: Message, *, in_queue: bool = False) -> bool:
        """Whether a message is wanted. in_queue: it comes from the queue that is asked for."""
        own_queue = in_queue or (
            (self.topic is None or message.raw_topic == utf8(self.topic))
            and (self.queue_id is None or message.queue_id == self.queue_id)
        )
        return (
            own_queue
            and message.store_timestamp in self.times
            and (self.tag is None or message.tags == self.tag)
            and (self.unique_key is None or message.unique_key == self.unique_key)
            and (self.key is None or self.key in (*message.keys, message.unique_key))
            and self._greps(message)
        )

    def _greps(self, message: Message) -> bool:
        if self.grep is None:
            return True
        text = message.body(self.max_body_bytes).data.decode("utf-8", "replace")
        return self.grep.search(text) is not None

    def mask(self, batch: Batch) -> Mask:
        """bool[n]: which records of a batch are wanted; equal to `takes` of each."""
        import numpy as np

        columns = batch.columns
        mask: Mask = np.ones(len(batch), np.bool_)
        if self.topic is not None:
            mask &= equal(columns.ragged("topic"), utf8(self.topic))
        if self.queue_id is not None:
            mask &= columns.ints("queue_id") == self.queue_id
        if self.times.bounded:
            stored = columns.ints("store_timestamp")
            mask &= (stored >= self.times.since_ms) & (stored < self.times.until_ms)
        if self._asks_properties and mask.any():
            mask[mask] = self._properties_mask(columns.ragged("properties")[mask])
        if self.grep is not None and mask.any():
            mask[mask] = self._grep_mask(batch.take(mask))
        return mask

    @property
    def _asks_properties(self) -> bool:
        return (self.key, self.unique_key, self.tag) != (None, None, None)

    def _properties_mask(self, properties: Ragged) -> Mask:
        from ..formats.property_columns import Items

        items = Items(properties)
        import numpy as np

        mask: Mask = np.ones(len(properties), np.bool_)
        if self.tag is not None:
            mask &= equal(items.find(names.TAGS), utf8(self.tag))
        if self.unique_key is not None:
            mask &= equal(items.find(names.UNIQ_KEY), utf8(self.unique_key))
        if self.key is not None:
            key = utf8(self.key)
            mask &= equal(items.find(names.UNIQ_KEY), key) | _has_part(items.find(names.KEYS), key)
        return mask

    def _grep_mask(self, batch: Batch) -> Mask:
        import numpy as np

        from .message import messages

        return np.fromiter((self._greps(m) for m in messages(batch)), np.bool_, len(batch))


def equal(strings: Ragged, text: bytes) -> Mask:
    """bool[n]: the string is `text`. Absent strings are equal to none."""
    import numpy as np

    rows = np.flatnonzero(strings.length == len(text))
    for k, byte in enumerate(text):
        rows = rows[strings.buffer[strings.start[rows] + k] == byte]
    mask = np.zeros(len(strings), np.bool_)
    mask[rows] = True
    return mask


def _has_part(keys: Ragged, key: bytes) -> Mask:
    """bool[n]: `key` is one of the parts that single spaces separate."""
    import numpy as np

    mask = equal(keys, key)
    several = np.flatnonzero((keys.length > len(key)) & ~mask)
    separator = names.KEY_SEPARATOR.encode()
    for row in several.tolist():
        mask[row] = key in keys[row].split(separator)
    return mask & (len(key) > 0)


def utf8(text: str) -> bytes:
    """Bytes of a text from a command line or a directory name."""
    return text.encode("utf-8", "surrogateescape")
