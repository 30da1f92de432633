"""Topics of batches of records, by the table of those that were met before."""

from __future__ import annotations

from ...formats.derive import Ragged
from .dictionary import Dictionary, dictionary
from .known_topics import KnownTopics

_TOPICS_MAX = 1000
"""More are numbered batch by batch: what is made of each of them would be made too often."""


class TopicTable:
    """Numbers the topics of a log. A batch with one that is new takes longer."""

    def __init__(self) -> None:
        self._names: dict[bytes, None] = {}
        self._table: KnownTopics | None = None

    def of(self, topics: Ragged) -> Dictionary:
        """The topics as in `dictionary`; values may have some that none of these records has."""
        if self._table is not None:
            numbers = self._table.numbers(topics)
            if numbers is not None:
                return Dictionary(numbers, list(self._names))
        found = dictionary(topics)
        self._names |= dict.fromkeys(found.values)
        self._table = KnownTopics(list(self._names)) if len(self._names) <= _TOPICS_MAX else None
        return found
