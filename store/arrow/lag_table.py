"""How many messages of a queue a consumer group has still before it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, ClassVar

from ..disk.layout import BATCH_CONSUME_QUEUE, CONFIG, CONSUME_QUEUE, Layout
from ..errors import Missing, NotAStore
from ..put.tail import batch_queues
from ..queues.read import QueueSummary
from ..search.store import Store
from .ask import Ask
from .offset_table import offsets_of
from .table import Table, Values


class LagTable(Table):
    """A row is a group in a queue: where it goes on, where the queue ends, how far that is.

    max_offset and lag are null where the store has nothing of the queue. A group that has never
    committed has no row; nor has one in another table than the offsets (`Ask.tables`).
    """

    of = "lag"
    columns: ClassVar = {
        "topic": "string",
        "group": "string",
        "queue_id": "int",
        "offset": "bigint",
        "max_offset": "bigint",
        "lag": "bigint",
    }

    needs: ClassVar = {CONFIG, CONSUME_QUEUE, BATCH_CONSUME_QUEUE}

    def parts(self, layout: Layout, ask: Ask) -> list[bool]:
        return [True] if layout.config.is_dir() else []

    def rows(self, layout: Layout, ask: Ask, part: bool) -> Iterator[tuple[int, Values]]:
        ends = {(one.topic, one.queue_id): one.max_offset for one in _queues(layout, ask)}
        for entries, problems in offsets_of(layout, ask.tables):
            if entries:
                yield len(entries), _columns(entries, ends)
            yield from ((1, {name: p[name] for name in p if name != "file"}) for p in problems)


def _columns(entries: list[dict[str, Any]], ends: dict[tuple[str, int], int]) -> Values:
    offsets = [entry["offset"] for entry in entries]
    behind = [ends.get((entry["topic"], entry["queue_id"])) for entry in entries]
    return {
        **{name: [entry.get(name) for entry in entries] for name in ("topic", "group", "queue_id")},
        "offset": offsets,
        "max_offset": behind,
        "lag": [
            None if end is None else end - offset
            for offset, end in zip(offsets, behind, strict=True)
        ],
    }


def _queues(layout: Layout, ask: Ask) -> list[QueueSummary]:
    """All queues; where the log is there, without units that it does not have any more."""
    with Store(layout.root, ask.broker_config) as store:
        found = store.queue_summaries if _has_log(store) else store.queues.summaries()
    return [*found, *batch_queues(layout)]


def _has_log(store: Store) -> bool:
    """Of a store in object storage only the queues are here."""
    try:
        return bool(store.log_files.files)
    except (Missing, NotAStore):
        return False
