"""messageDelayLevel, how long each delay level waits, as the store shows it (spec 01, 1.11).

The tags code of a unit in the queue of a level is the time at which its message is due, as a rule: its
store time and what the level waits.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from ...formats.message_properties import DELAY
from ..broker.delay_level import SCHEDULE_TOPIC, parse_levels
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..errors import NotFound, StoreError
from ..log.one_record import read_message

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..queues.read import Unit

_SECOND_MS = 1_000
_UNITS_ENOUGH = 64
_LEVELS_MAX = 1_000
"""More queues of the topic than that are no levels."""


class Levels(NamedTuple):
    """ms of levels 1, 2, …; what nothing shows is the default. proven: by level, what several messages
    of its queue wait. by: what shows them, "" for nothing.
    """

    waits_ms: tuple[int, ...]
    proven: Mapping[int, int]
    by: str = ""


def shown_levels(layout: Layout) -> Levels:
    """The delay levels as a store shows them; the broker's default where it does not.

    A level of its own counts where several messages of its queue wait equally long, whole seconds; once
    there is one, that of a queue with one message, too. Files that cannot be read show nothing.
    """
    usual = parse_levels()
    waits = _waits(layout)
    common = {level: found.most_common(1)[0] for level, found in waits.items() if found}
    proven = {level: wait_ms for level, (wait_ms, count) in common.items() if count > 1}
    shown = {}
    if any(wait_ms != level_ms(usual, level) for level, wait_ms in proven.items()):
        shown = {level: wait_ms for level, (wait_ms, _) in common.items()}
    count = max([len(usual), *waits])
    every = tuple(shown.get(level) or level_ms(usual, level) for level in range(1, count + 1))
    messages = sum(found.total() for found in waits.values())
    return Levels(
        every, proven, f"{counted(messages, 'unit')} of {SCHEDULE_TOPIC}" if common else ""
    )


def level_ms(levels: tuple[int, ...], level: int) -> int:
    """What a level waits; those behind the last one wait as long as that."""
    return levels[min(level, len(levels)) - 1]


def _waits(layout: Layout) -> dict[int, Counter[int]]:
    """By level that has a queue, how many of its newest messages wait how many ms: whole seconds."""
    from ..queues.read import ConsumeQueue, has_topic

    found: dict[int, Counter[int]] = {}
    if layout.rocksdb_queues or not has_topic(layout.consume_queue, SCHEDULE_TOPIC):
        return found
    try:
        with layout.commit_log_files() as log:
            for directory in (layout.consume_queue / SCHEDULE_TOPIC).iterdir():
                if not directory.name.isdecimal() or int(directory.name) >= _LEVELS_MAX:
                    continue
                level = int(directory.name) + 1
                with ConsumeQueue.open(layout, SCHEDULE_TOPIC, level - 1) as queue:
                    units = islice(queue.newest(), _UNITS_ENOUGH)
                    codes = _codes(layout, level, units)
                    waits = (_wait(log, level, position, code) for position, code in codes)
                    found[level] = Counter(wait for wait in waits if wait)
    except (StoreError, OSError):
        pass
    return found


def _codes(layout: Layout, level: int, units: Iterator[Unit]) -> Iterator[tuple[int, int]]:
    """(log position, tags code) of units of a level, those that are in consumequeue_ext, too."""
    ext: MappedFileQueue | None = None
    for unit in units:
        code = unit.tags_code
        if unit.ext_address is not None:
            from ..queues.read_ext import ext_unit

            directory = layout.consume_queue_ext / SCHEDULE_TOPIC / str(level - 1)
            ext = ext or MappedFileQueue.open(directory)
            found = ext_unit(ext, unit.ext_address)
            if found is None:
                continue
            code = found.tags_code
        yield unit.physical_offset, code
    if ext is not None:
        ext.close()


def _wait(log: MappedFileQueue, level: int, position: int, tags_code: int) -> int:
    """What the message of a unit waits, 0 where that is not whole seconds or it is of another level."""
    try:
        message = read_message(log, position)
    except NotFound:
        return 0
    if message.topic != SCHEDULE_TOPIC or message.properties.get(DELAY) != str(level):
        return 0
    wait_ms = tags_code - message.store_timestamp
    return wait_ms if wait_ms > 0 and wait_ms % _SECOND_MS == 0 else 0
