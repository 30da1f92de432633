"""Options of a broker that its store was written with, and how each is known.

No file of a store names them. What the configuration says holds; where it is silent, what the
store shows; where that shows nothing, the broker's default, which is a guess then. `sizes.py` does the
same for the sizes of files.

messageDelayLevel, how long each delay level waits, as the store shows it (spec 01, 1.11).

The tags code of a unit in the queue of a level is the time at which its message is due, as a rule: its
store time and what the level waits.

enableMultiDispatch: a queue of the store has a message of another topic, which names the queue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from functools import cached_property
from itertools import islice
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ...formats.message_properties import DELAY
from ..broker.system_topics import SCHEDULE_TOPIC, TIMER_TOPIC, format_levels, parse_levels
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..errors import InvalidInput, NotFound, StoreError
from ..log.message import read_message

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..disk.sizes import Origin
    from ..queues.read import Unit


_SECOND_MS = 1_000
FILE_RESERVED_HOURS = 72
"""fileReservedTime, where the configuration is silent."""
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
    return Levels(every, proven, f"{counted(messages, 'unit')} of {SCHEDULE_TOPIC}" if common else "")


def level_ms(levels: tuple[int, ...], level: int) -> int:
    """What a level waits; those behind the last one wait as long as that."""
    return levels[min(level, len(levels)) - 1]


def _waits(layout: Layout) -> dict[int, Counter[int]]:
    """By level that has a queue, how many of its newest messages wait how many ms: whole seconds."""
    from ..disk.layout import has_topic
    from ..queues.read import ConsumeQueue

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
            from ..queues.ext import ext_unit

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


_TOPICS_ENOUGH = 512


def shown_multi_dispatch(layout: Layout) -> str:
    """The queue that shows it, "" where none does. What cannot be read shows nothing."""
    from ...formats.message_properties import INNER_MULTI_DISPATCH
    from ..broker.system_topics import LMQ_PREFIX
    from ..disk.layout import queue_directories
    from ..log.message import read_message
    from ..queues.read import ConsumeQueue

    if layout.rocksdb_queues:
        return ""
    first: dict[str, int] = {}
    try:
        for directory in queue_directories(layout.consume_queue):
            if directory.topic.startswith(LMQ_PREFIX):
                return f"queue {directory.topic}"
            first.setdefault(directory.topic, directory.queue_id)
        with layout.commit_log_files() as log:
            for topic, queue_id in islice(first.items(), _TOPICS_ENOUGH):
                with ConsumeQueue.open(layout, topic, queue_id) as queue:
                    unit = next(queue.newest(), None)
                try:
                    message = read_message(log, unit.physical_offset) if unit else None
                except NotFound:
                    continue
                if message is None or message.topic == topic:
                    continue
                if topic in message.properties.get(INNER_MULTI_DISPATCH, "").split(","):
                    return f"queue {topic}"
    except (StoreError, OSError):
        pass
    return ""


T = TypeVar("T")


class BrokerOption(NamedTuple, Generic[T]):
    """A value, and how it is known.

    usual: the broker's default. origin: as of a `Size`. by: what in the store shows it. shown: what the
    store shows where the configuration says something else.
    """

    name: str
    value: T
    usual: T
    origin: Origin
    by: str = ""
    shown: T | None = None

    @property
    def text(self) -> str:
        """The value as a broker.conf has it."""
        return _text(self.value)

    @property
    def is_guess(self) -> bool:
        """Nothing tells: no error is to be based on it."""
        return self.origin == "default"

    @property
    def is_given(self) -> bool:
        """The configuration says it."""
        return self.origin == "configuration"

    def note(self) -> str:
        """What somebody should know about it, empty where there is nothing to say."""
        if self.shown is not None:
            return (
                f"{self.name}={self.text} in the configuration, but the store shows {_text(self.shown)} "
                f"({self.by}): was it written with another configuration?"
            )
        if self.is_guess:
            return f"{self.name} is not known: {self.text}, the broker's default, is assumed (else --set {self.name}=…)"
        return ""

    def to_json(self) -> dict[str, Any]:
        """By the names of the fields; `shown` only where the configuration says something else."""
        found = self._asdict()
        for name in ("value", "usual", "shown"):
            found[name] = _text(found[name]) if isinstance(found[name], tuple) else found[name]
        return {k: v for k, v in found.items() if k != "shown" or v is not None}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return format_levels(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_of(layout: Layout) -> BrokerOptions:
    """Those of a store; of one layout always the same object."""
    return layout.once(BrokerOptions)


class BrokerOptions:
    """Those of one store. Each is looked for when it is asked for; nothing is raised for a file that
    cannot be read: whoever reads it for its own sake says so.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._config = layout.broker_config

    @cached_property
    def timer_precision(self) -> BrokerOption[int]:
        """timerPrecisionMs, as a broker takes it. Raises InvalidInput for one that is no number."""
        from ..timer.wheel import DEFAULT_MS, shown_precision, taken_by_a_broker  # with numpy

        name = "timerPrecisionMs"
        asked, shown = self._config.get_int(name), shown_precision(self._layout)
        if asked is None:
            if shown is None:
                return BrokerOption(name, DEFAULT_MS, DEFAULT_MS, "default")
            return BrokerOption(name, shown.precision_ms, DEFAULT_MS, "files", shown.by)
        taken = taken_by_a_broker(asked)
        if shown is None or shown.precision_ms == taken:
            return BrokerOption(name, taken, DEFAULT_MS, "configuration")
        return BrokerOption(name, taken, DEFAULT_MS, "configuration", shown.by, shown.precision_ms)

    @cached_property
    def delay_levels(self) -> BrokerOption[tuple[int, ...]]:
        """messageDelayLevel: ms of levels 1, 2, …; shown for those that have messages. Raises
        InvalidInput for one that no broker can read.
        """
        name = "messageDelayLevel"
        asked, usual, shown = self._config.get(name), parse_levels(), shown_levels(self._layout)
        if asked is None:
            origin: Origin = "files" if shown.by else "default"
            return BrokerOption(name, shown.waits_ms, usual, origin, shown.by)
        given = parse_levels(asked)
        if given and all(level_ms(given, level) == ms for level, ms in shown.proven.items()):
            return BrokerOption(name, given, usual, "configuration")
        return BrokerOption(name, given, usual, "configuration", shown.by, shown.waits_ms)

    def delay_waits(self) -> tuple[int, ...] | None:
        """ms of levels 1, 2, …; None where the configuration has what no broker can read."""
        try:
            return self.delay_levels.value
        except InvalidInput:
            return None

    @cached_property
    def multi_dispatch(self) -> BrokerOption[bool]:
        """enableMultiDispatch: messages are in queues that they name besides their own."""
        name = "enableMultiDispatch"
        if name in self._config:
            return BrokerOption(name, self._config.get_bool(name), False, "configuration")
        by = shown_multi_dispatch(self._layout)
        return BrokerOption(name, bool(by), False, "files" if by else "default", by)

    @cached_property
    def message_index(self) -> BrokerOption[bool]:
        """messageIndexEnable: there are index files, or the checkpoint knows of a full one. Where neither
        is, nobody can tell a broker without an index from one whose index is lost.
        """
        name = "messageIndexEnable"
        if name in self._config:
            return BrokerOption(name, self._config.get_bool(name), True, "configuration")
        by = ""
        try:
            if any(file.name.isdecimal() for file in self._layout.index.iterdir()):
                by = "files of the index"
        except OSError:
            pass
        if not by and self._index_time():
            by = "index_msg_timestamp of the checkpoint"
        return BrokerOption(name, True, True, "files" if by else "default", by)

    def _index_time(self) -> int:
        from ..disk.checkpoint import read_checkpoint  # with construct

        try:
            checkpoint = read_checkpoint(self._layout.checkpoint)
        except StoreError:
            return 0
        return checkpoint.index_msg_timestamp if checkpoint is not None else 0

    @property
    def used(self) -> list[BrokerOption[Any]]:
        """Those that something in the store was written with."""
        found: list[BrokerOption[Any]] = []
        if (self._layout.consume_queue / SCHEDULE_TOPIC).exists() and self.delay_waits():
            found.append(self.delay_levels)
        if self._has_timers():
            found.append(self.timer_precision)
        if self.multi_dispatch.value:
            found.append(self.multi_dispatch)
        return found

    def _has_timers(self) -> bool:
        """Somebody has asked for a time: an unused wheel alone shows nothing."""
        layout = self._layout
        try:
            return (layout.consume_queue / TIMER_TOPIC).is_dir() or any(layout.timer_log.iterdir())
        except OSError:
            return False

    def notes(self) -> list[str]:
        """What somebody should know who reads an answer that depends on them.

        Of delay levels that nothing shows nothing is said: only where there are none to be judged.
        """
        options = [o for o in self.used if not (o.is_guess and isinstance(o.value, tuple))]
        return [note for option in options if (note := option.note())]
