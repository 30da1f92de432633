"""Options of a broker with which its store was written, and how each is known.

No file of a store names them. The value is that of the configuration; if that is silent, what the store shows; if that
shows nothing, the broker's default, which is a guess. `sizes.py` does the same for file sizes.

messageDelayLevel (spec 01, 1.11): the tags code of a unit in a level's queue is normally the time at which the message
is due, that is its store time plus the delay of the level.
enableMultiDispatch: a queue contains a message of another topic that names this queue.
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
_HOUR_MS = 3_600_000
FILE_RESERVED_HOURS = 72
"""Default of fileReservedTime."""
_UNITS_LOOKED_AT = 64
_MOST_LEVELS = 1_000
"""Queue ids of SCHEDULE_TOPIC from here on are not levels."""


class Levels(NamedTuple):
    """waits_ms: delays of levels 1, 2, …, the default for those that the store does not show. proven: by level, the
    delay that several messages of its queue have. by: what in the store shows them, "" if nothing does.
    """

    waits_ms: tuple[int, ...]
    proven: Mapping[int, int]
    by: str = ""


def shown_levels(layout: Layout) -> Levels:
    """The delay levels that a store shows; the broker's defaults for others.

    A level differs from the default if several messages of its queue have the same delay, in whole seconds. If one
    level does, queues with a single message count, too. Unreadable files show nothing.
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
    """The delay of a level in ms; levels above the last one have its delay."""
    return levels[min(level, len(levels)) - 1]


def _waits(layout: Layout) -> dict[int, Counter[int]]:
    """Level → delay in ms → number of its newest messages; only levels with a queue, and whole seconds."""
    from ..disk.layout import has_topic
    from ..queues.read import ConsumeQueue

    found: dict[int, Counter[int]] = {}
    if layout.rocksdb_queues or not has_topic(layout.consume_queue, SCHEDULE_TOPIC):
        return found
    try:
        with layout.commit_log_files() as log:
            for directory in (layout.consume_queue / SCHEDULE_TOPIC).iterdir():
                if not directory.name.isdecimal() or int(directory.name) >= _MOST_LEVELS:
                    continue
                level = int(directory.name) + 1
                with ConsumeQueue.open(layout, SCHEDULE_TOPIC, level - 1) as queue:
                    units = islice(queue.newest(), _UNITS_LOOKED_AT)
                    codes = _codes(layout, level, units)
                    waits = (_wait(log, level, position, code) for position, code in codes)
                    found[level] = Counter(wait for wait in waits if wait)
    except (StoreError, OSError):
        pass
    return found


def _codes(layout: Layout, level: int, units: Iterator[Unit]) -> Iterator[tuple[int, int]]:
    """Yield (log position, tags code) of units of a level; codes in consumequeue_ext are looked up."""
    ext: MappedFileQueue | None = None
    for unit in units:
        code = unit.tags_code
        if unit.ext_address is not None:
            from ..disk.lock import stream_of
            from ..queues.ext import ext_unit

            directory = layout.consume_queue_ext / SCHEDULE_TOPIC / str(level - 1)
            ext = ext or stream_of(layout, directory)
            found = ext_unit(ext, unit.ext_address)
            if found is None:
                continue
            code = found.tags_code
        yield unit.physical_offset, code
    if ext is not None:
        ext.close()


def _wait(log: MappedFileQueue, level: int, position: int, tags_code: int) -> int:
    """The delay of a unit's message in ms; 0 if it is not whole seconds, or the message is of another level."""
    try:
        message = read_message(log, position)
    except NotFound:
        return 0
    if message.topic != SCHEDULE_TOPIC or message.properties.get(DELAY) != str(level):
        return 0
    wait_ms = tags_code - message.store_timestamp
    return wait_ms if wait_ms > 0 and wait_ms % _SECOND_MS == 0 else 0


_TOPICS_LOOKED_AT = 512


def shown_multi_dispatch(layout: Layout) -> str:
    """The queue that shows enableMultiDispatch, "" if none does. Unreadable files show nothing."""
    from ...formats.message_properties import INNER_MULTI_DISPATCH
    from ..broker.system_topics import LMQ_PREFIX
    from ..disk.layout import queue_directories
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
            for topic, queue_id in islice(first.items(), _TOPICS_LOOKED_AT):
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
    """The value of an option, and how it is known.

    usual: the broker's default. origin: as of a `Size`. by: what in the store shows it. shown: what the store shows if
    the configuration says something else.
    """

    name: str
    value: T
    usual: T
    origin: Origin
    by: str = ""
    shown: T | None = None

    @property
    def text(self) -> str:
        """The value as text of a broker.conf."""
        return _text(self.value)

    @property
    def is_guess(self) -> bool:
        """Whether nothing tells the value, so that no error may be based on it."""
        return self.origin == "default"

    @property
    def is_given(self) -> bool:
        """Whether the configuration sets the value."""
        return self.origin == "configuration"

    def note(self) -> str:
        """A remark on a value that is guessed or contradicts the store; else ""."""
        if self.shown is not None:
            return (
                f"{self.name}={self.text} in the configuration, but the store shows {_text(self.shown)} "
                f"({self.by}): was it written with another configuration?"
            )
        if self.is_guess:
            return f"{self.name} is not known: {self.text}, the broker's default, is assumed (else --set {self.name}=…)"
        return ""

    def to_json(self) -> dict[str, Any]:
        """The fields by name; `shown` only if the configuration says something else."""
        found = self._asdict()
        for name in ("value", "usual", "shown"):
            found[name] = _text(found[name]) if isinstance(found[name], tuple) else found[name]
        return {k: v for k, v in found.items() if k != "shown" or v is not None}


def _text(value: object) -> str:
    if isinstance(value, tuple):
        return format_levels(value)
    return str(value).lower() if isinstance(value, bool) else str(value)


def options_of(layout: Layout) -> BrokerOptions:
    """The options of a store; always the same object for one layout."""
    return layout.once(BrokerOptions)


class BrokerOptions:
    """The options of one store. Each is determined when first used. An unreadable file raises nothing here: code that
    needs the file itself reports it.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._config = layout.broker_config

    @cached_property
    def timer_precision(self) -> BrokerOption[int]:
        """timerPrecisionMs, as a broker takes it. Raises InvalidInput if it is not a number."""
        from ..timer.wheel import DEFAULT_MS, broker_precision, shown_precision  # imports numpy

        name = "timerPrecisionMs"
        asked, shown = self._config.get_int(name), shown_precision(self._layout)
        if asked is None:
            if shown is None:
                return BrokerOption(name, DEFAULT_MS, DEFAULT_MS, "default")
            return BrokerOption(name, shown.precision_ms, DEFAULT_MS, "files", shown.by)
        taken = broker_precision(asked)
        if shown is None or shown.precision_ms == taken:
            return BrokerOption(name, taken, DEFAULT_MS, "configuration")
        return BrokerOption(name, taken, DEFAULT_MS, "configuration", shown.by, shown.precision_ms)

    @cached_property
    def delay_levels(self) -> BrokerOption[tuple[int, ...]]:
        """messageDelayLevel: ms of levels 1, 2, …; the store shows the levels that have messages. Raises InvalidInput
        for a text that no broker can read.
        """
        name = "messageDelayLevel"
        asked, usual, shown = self._config.get(name), parse_levels(), shown_levels(self._layout)
        if asked is None:
            origin: Origin = "files" if shown.by else "default"
            return BrokerOption(name, shown.waits_ms, usual, origin, shown.by)
        given = parse_levels(asked)
        if all(level_ms(given, level) == ms for level, ms in shown.proven.items()):
            return BrokerOption(name, given, usual, "configuration")
        return BrokerOption(name, given, usual, "configuration", shown.by, shown.waits_ms)

    def delay_waits(self) -> tuple[int, ...] | None:
        """ms of levels 1, 2, …; None if no broker can read the configured text."""
        try:
            return self.delay_levels.value
        except InvalidInput:
            return None

    def lacks_level(self, level: int) -> bool:
        """Whether the configured messageDelayLevel ends before this level: no broker reads the queue of such a level.
        Raises InvalidInput.
        """
        return self.delay_levels.is_given and level > len(self.delay_levels.value)

    @cached_property
    def multi_dispatch(self) -> BrokerOption[bool]:
        """enableMultiDispatch: messages are also in queues that they name."""
        name = "enableMultiDispatch"
        if name in self._config:
            return BrokerOption(name, self._config.get_bool(name), False, "configuration")
        by = shown_multi_dispatch(self._layout)
        return BrokerOption(name, bool(by), False, "files" if by else "default", by)

    @cached_property
    def message_index(self) -> BrokerOption[bool]:
        """messageIndexEnable: there are index files, or the checkpoint tells of a full one. Otherwise a broker without
        an index cannot be told from one whose index is lost.
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
        from ..disk.checkpoint import seen_checkpoint  # imports construct

        try:
            checkpoint = seen_checkpoint(self._layout.checkpoint)
        except StoreError:
            return 0
        return checkpoint.index_msg_timestamp if checkpoint is not None else 0

    @property
    def reserved_hours(self) -> int:
        """fileReservedTime: hours after which files are deleted, and undecided half messages are given up."""
        return self._config.get_int("fileReservedTime", FILE_RESERVED_HOURS)

    @property
    def reserved_ms(self) -> int:
        """`reserved_hours` in ms."""
        return self.reserved_hours * _HOUR_MS

    @property
    def used(self) -> list[BrokerOption[Any]]:
        """The options that something in the store was written with."""
        found: list[BrokerOption[Any]] = []
        if (self._layout.consume_queue / SCHEDULE_TOPIC).exists() and self.delay_waits():
            found.append(self.delay_levels)
        if self._has_timers():
            found.append(self.timer_precision)
        if self.multi_dispatch.value:
            found.append(self.multi_dispatch)
        return found

    def _has_timers(self) -> bool:
        """Whether a timer message was ever sent; an unused wheel alone does not show that."""
        layout = self._layout
        try:
            return (layout.consume_queue / TIMER_TOPIC).is_dir() or any(layout.timer_log.iterdir())
        except OSError:
            return False

    def notes(self) -> list[str]:
        """Remarks for readers of an answer that depends on these options.

        Guessed delay levels get none: they are guessed only if there is no delayed message to judge.
        """
        options = [o for o in self.used if not (o.is_guess and isinstance(o.value, tuple))]
        return [note for option in options if (note := option.note())]
