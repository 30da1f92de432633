"""Messages that are wanted, in log order: what `Store.messages` and `Store.to_arrow` read."""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from datetime import datetime
from functools import reduce
from typing import TYPE_CHECKING, Literal

import numpy as np

from ..broker.filter import Where
from ..counted import counted
from ..disk.byte_reader import Noted, each_noting, noting
from ..errors import Corrupted, InvalidInput
from ..log.batch import Batch, Extent, ExtentKind
from ..log.body import MAX_BODY_BYTES
from ..log.message import is_batch_record
from ..log.record_status import Mark
from .inner_batch import unwrapped
from .log_search import time_bounds
from .selection import Selection
from .time_range import TimeRange, parse_range

if TYPE_CHECKING:
    from .store import Store

Time = str | int | datetime | None
"""As people write it (`time_range`), ms since 1970, or a time; None asks nothing."""
OnDamage = Literal["warn", "raise", "skip"]
"""What becomes of a range of the log that cannot be read: a `DamageWarning`, an error, nothing."""
_DAMAGE = (ExtentKind.DAMAGE, ExtentKind.MISSING)
_CALLER = 5
"""So many calls away is whoever asks `Store.messages` or a reader for the next ones."""


class DamageWarning(UserWarning):
    """A range of the log cannot be read: what was in it is missing in the answer."""


def times_of(since: Time, until: Time) -> TimeRange:
    """The range since ≤ store time < until. Raises InvalidInput."""
    return parse_range(_text(since), _text(until))


def _text(time: Time) -> str | None:
    """A time as people write it; one before 1970 is 0, for no range begins earlier."""
    if isinstance(time, datetime):
        try:
            time = round(time.timestamp() * 1000)
        except (ValueError, OverflowError, OSError) as error:
            raise InvalidInput(f"no such time: {time}: {error}") from None
    if isinstance(time, int):
        time = max(0, time)
    return None if time is None else str(time)


def selected(
    store: Store,
    *,
    topics: str | Sequence[str] = (),
    since: Time = None,
    until: Time = None,
    where: str | Where | None = None,
    on_damage: OnDamage = "warn",
    crc: bool = False,
    inner: bool = False,
) -> Iterator[Batch]:
    """The records of a store that are wanted, those behind the end of the log left out.

    topics: names or patterns as a shell's, none for all. crc: compute the CRC of bodies. inner:
    messages inside of batch records in the place of these (spec 01, 1.9). A batch is valid until the
    next one is asked for. Raises InvalidInput, Unreadable, and Corrupted for damage where that is
    asked for, UnreadableRange for bytes that the disk does not give.
    """
    if on_damage not in ("warn", "raise", "skip"):
        raise InvalidInput(f"on_damage is warn, raise or skip, not {on_damage!r}")
    times = times_of(since, until)
    condition = Where(where) if isinstance(where, str) else where
    one = Selection(times=times, where=condition)
    names = [topics] if isinstance(topics, str) else topics
    either = [one._replace(topic=name) for name in names] or [one]
    around = on_damage != "raise"
    with noting(around=around):
        start, stop = time_bounds(store, times)
        end = store.log_end.position
    items = store.log.scan(start, stop, crc=crc, reuse=True) if start < stop else iter(())
    batches = _readable(store, each_noting(items, Noted(around=around)), end, on_damage)
    return _selected(map(_apart, batches) if inner else batches, either)


def _selected(batches: Iterator[Batch], either: Sequence[Selection]) -> Iterator[Batch]:
    """What one of some selections wants."""
    for batch in batches:
        mask = reduce(np.logical_or, [selection.mask(batch) for selection in either])
        if mask.any():
            yield batch if mask.all() else batch.take(mask)


def _apart(batch: Batch) -> Batch:
    several = bool(is_batch_record(batch.columns.ints("sys_flag")).any())
    return unwrapped(batch, MAX_BODY_BYTES) if several else batch


def _readable(
    store: Store, items: Iterator[Batch | Extent], end: int, on_damage: OnDamage
) -> Iterator[Batch]:
    """The records before the end of the log among the items; damage is told, also that behind it."""
    for item in items:
        if isinstance(item, Extent):
            if item.kind in _DAMAGE:
                _tell(store, item, on_damage)
        elif item.mark <= Mark.AFTER_DAMAGE and item.position[0] < end:
            yield item


def _tell(store: Store, damage: Extent, on_damage: OnDamage) -> None:
    text = f"{counted(damage.size, 'byte')} of the log cannot be read: {damage.reason}"
    error = Corrupted(text, path=store.layout.root, offset=damage.position)
    if on_damage == "raise":
        raise error
    if on_damage == "warn":
        warnings.warn(str(error), DamageWarning, stacklevel=_CALLER)
