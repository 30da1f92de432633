"""Messages that cancel a timer message: which they name, and whether a broker heeds it (spec 04, 4.6).

A cancel message works only in the very tick of its target, and only if it names the target as that
generation of brokers does: by its unique key, or by topic and key.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np

from ...formats.derive.ragged import Ints
from ..search.store import Store
from .timer_chains import NOWHERE
from .timer_facts import Facts
from .timer_records import NO_NUMBER

BY_KEY, BY_TOPIC = "unique key", "topic+unique key"
_OPTION = "appendTopicForTimerDeleteKey"
_SINCE = "5.4"
_COMPARED = {"5.1": BY_KEY, "5.3": BY_TOPIC}
_UNREAD = "it is not in the wheel, and will not be"


@dataclass
class Cancel:
    """A message that cancels another one; positions in the log, times in ms since 1970.

    cancels: what it names, as it lies there. effective: it has cancelled its target, or will.
    reason: why not.
    """

    cancels: str
    topic: str
    position: int
    store_timestamp: int
    deliver_timestamp: int | None
    effective: bool = False
    reason: str = "no message has that key"

    def to_json(self) -> dict[str, Any]:
        """One of the cancel messages of `inspect --timers`."""
        return vars(self)


class _Named(NamedTuple):
    """A cancel message. slot: its tick. heard: the wheel has it in its tick, or had it."""

    cancel: Cancel
    slot: int
    heard: bool


class Cancels:
    """The cancel messages of a store, by what they name."""

    def __init__(self, facts: Facts, store: Store, now_ms: int) -> None:
        self.all: list[Cancel] = []
        self._compared = compared_by(store)
        self._version = store.generation.version
        self._named: dict[str, list[_Named]] = {}
        for rows in facts.messages(facts.records.cancels.length > 0):
            named = _named(facts, rows, now_ms)
            self.all.append(named.cancel)
            self._named.setdefault(named.cancel.cancels, []).append(named)

    def of(self, topic: str, unique_key: str, slot: int, delivered: bool) -> tuple[bool, str]:
        """(a message is cancelled, why a cancel message that names it does not cancel it)."""
        if not self._named or not unique_key:
            return False, ""
        cancelled, why = False, ""
        forms = {BY_KEY: unique_key, BY_TOPIC: f"{topic}+{unique_key}"}
        for form, text in forms.items():
            for named in self._named.get(text, ()):
                reason = self._why_not(named, form, slot, delivered)
                named.cancel.effective |= not reason
                named.cancel.reason = "" if named.cancel.effective else reason
                cancelled |= not reason
                why = why or (f"the cancel message at {named.cancel.position}: {reason}")
        return cancelled, "" if cancelled else why

    def _why_not(self, named: _Named, form: str, slot: int, delivered: bool) -> str:
        if delivered:
            return "its target was delivered"
        if named.slot != slot:
            return "its target is due at another tick"
        if self._compared != form:
            return f"a {self._version} broker compares the {self._compared}, not the {form}"
        return "" if named.heard else _UNREAD


def compared_by(store: Store) -> str:
    """What a broker of the store's generation compares a cancel message with."""
    version = store.generation.version
    if version >= _SINCE:
        return BY_TOPIC if store.config.get_bool(_OPTION) else BY_KEY
    return _COMPARED.get(version, BY_KEY)


def _named(facts: Facts, rows: Ints, now_ms: int) -> _Named:
    records, ticks = facts.records, facts.wheel.ticks
    last = int(rows[-1])
    out_ms = int(records.out_ms[last])
    cancel = Cancel(
        facts.text("cancels", last),
        facts.text("topic", last),
        int(records.position[last]),
        int(records.store_timestamp[rows[0]]),
        None if out_ms == NO_NUMBER else out_ms + ticks.precision_ms,
    )
    waits = facts.fires_ms[rows] != NOWHERE
    waits &= facts.cancelling[rows] | facts.rolled[rows]
    to_come = bool(facts.in_queue[last]) and out_ms >= ticks.start_ms(now_ms)
    was_there = out_ms < facts.wheel.last_read_ms and bool(
        np.any(facts.tick_ms[rows] // ticks.precision_ms == facts.slot(last))
    )
    return _Named(cancel, facts.slot(last), bool(waits.any()) or to_come or was_there)
