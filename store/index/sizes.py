"""All file sizes of a store, those of its index files with them; see `disk/sizes.py`."""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

from ..disk.layout import Layout
from ..disk.sizes import Size, commit_log_size, consume_queue_size, timer_log_size
from .files import Geometry
from .read import geometry_of


class Sizes(NamedTuple):
    """File sizes in bytes; of an index file the numbers of slots and of items."""

    commit_log: Size
    consume_queue: Size
    index_slots: Size
    index_items: Size
    timer_log: Size

    @property
    def of_index(self) -> Geometry:
        """Numbers of slots and of items of an index file."""
        return Geometry(self.index_slots.value, self.index_items.value)


@lru_cache(maxsize=16)
def sizes_of(layout: Layout) -> Sizes:
    """All sizes of a store; of one layout they are looked for once. Raises Unreadable, InvalidInput."""
    slots, items = geometry_of(layout.index, layout.broker_config)
    return Sizes(
        commit_log=commit_log_size(layout),
        consume_queue=consume_queue_size(layout),
        index_slots=slots,
        index_items=items,
        timer_log=timer_log_size(layout),
    )
