"""Options of a broker that its store was written with, and how each is known.

No file of a store names them. What the configuration says holds; where it is silent, what the
store shows; where that shows nothing, the broker's default, which is a guess then. `sizes.py` does the
same for the sizes of files.
"""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from ..broker.delay_level import SCHEDULE_TOPIC, TIMER_TOPIC, format_levels, parse_levels
from ..disk.checkpoint import read_checkpoint
from ..errors import InvalidInput, StoreError
from ..timer.precision import DEFAULT_MS, shown_precision, taken_by_a_broker
from .shown_levels import level_ms, shown_levels
from .shown_multi_dispatch import shown_multi_dispatch

if TYPE_CHECKING:
    from ..disk.layout import Layout
    from ..index.sizes import Origin


T = TypeVar("T")


class Option(NamedTuple, Generic[T]):
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
                f"{self.name}={self.text} was given, but the store shows {_text(self.shown)} "
                f"({self.by}): was it written with another configuration?"
            )
        if self.is_guess:
            return (
                f"{self.name} is not in the store: {self.text}, the broker's default, is taken "
                f"(--set {self.name}=…)"
            )
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


class Options:
    """Those of one store. Each is looked for when it is asked for; nothing is raised for a file that
    cannot be read: whoever reads it for its own sake says so.
    """

    def __init__(self, layout: Layout) -> None:
        self._layout = layout
        self._config = layout.broker_config

    @cached_property
    def timer_precision(self) -> Option[int]:
        """timerPrecisionMs, as a broker takes it. Raises InvalidInput for one that is no number."""
        name = "timerPrecisionMs"
        asked, shown = self._config.get_int(name), shown_precision(self._layout)
        if asked is None:
            if shown is None:
                return Option(name, DEFAULT_MS, DEFAULT_MS, "default")
            return Option(name, shown.precision_ms, DEFAULT_MS, "files", shown.by)
        taken = taken_by_a_broker(asked)
        if shown is None or shown.precision_ms == taken:
            return Option(name, taken, DEFAULT_MS, "configuration")
        return Option(name, taken, DEFAULT_MS, "configuration", shown.by, shown.precision_ms)

    @cached_property
    def delay_levels(self) -> Option[tuple[int, ...]]:
        """messageDelayLevel: ms of levels 1, 2, …; shown for those that have messages. Raises
        InvalidInput for one that no broker can read.
        """
        name = "messageDelayLevel"
        asked, usual, shown = self._config.get(name), parse_levels(), shown_levels(self._layout)
        if asked is None:
            origin: Origin = "files" if shown.by else "default"
            return Option(name, shown.waits_ms, usual, origin, shown.by)
        given = parse_levels(asked)
        if given and all(level_ms(given, level) == ms for level, ms in shown.proven.items()):
            return Option(name, given, usual, "configuration")
        return Option(name, given, usual, "configuration", shown.by, shown.waits_ms)

    def delay_waits(self) -> tuple[int, ...] | None:
        """ms of levels 1, 2, …; None where the configuration has what no broker can read."""
        try:
            return self.delay_levels.value
        except InvalidInput:
            return None

    @cached_property
    def multi_dispatch(self) -> Option[bool]:
        """enableMultiDispatch: messages are in queues that they name besides their own."""
        name = "enableMultiDispatch"
        if name in self._config:
            return Option(name, self._config.get_bool(name), False, "configuration")
        by = shown_multi_dispatch(self._layout)
        return Option(name, bool(by), False, "files" if by else "default", by)

    @cached_property
    def message_index(self) -> Option[bool]:
        """messageIndexEnable: there are index files, or the checkpoint knows of a full one. Where neither
        is, nobody can tell a broker without an index from one whose index is lost.
        """
        name = "messageIndexEnable"
        if name in self._config:
            return Option(name, self._config.get_bool(name), True, "configuration")
        by = ""
        try:
            if any(file.name.isdecimal() for file in self._layout.index.iterdir()):
                by = "files of the index"
        except OSError:
            pass
        if not by and self._index_time():
            by = "index_msg_timestamp of the checkpoint"
        return Option(name, True, True, "files" if by else "default", by)

    def _index_time(self) -> int:
        try:
            checkpoint = read_checkpoint(self._layout.checkpoint)
        except StoreError:
            return 0
        return checkpoint.index_msg_timestamp if checkpoint is not None else 0

    @property
    def used(self) -> list[Option[Any]]:
        """Those that something in the store was written with."""
        found: list[Option[Any]] = []
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
