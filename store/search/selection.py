"""Conditions for messages and queues, applied to a single message or to a batch of columns; times as text.

A range of times is since ≤ t < until, in ms since 1970. A time is written as:

| text | meaning |
|---|---|
| `1795210681654` | epoch milliseconds, as stored |
| `2026-11-20T21:38:01.654Z`, `2026-11-20 21:38+08:00` | RFC 3339; seconds and fraction optional |
| `2026-11-20T21:38:01`, `2026-11-20` | the same in local time; a day begins at midnight |
| `21:38`, `21:38:01` | today, local time |
| `-1h`, `-90s`, `-2d12h`, `+5m` | from now; units ms s m h d w |
| `now`, `today`, `yesterday`, `tomorrow` | words; days begin at midnight, local time |
"""

from __future__ import annotations

import re
import time
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from ...formats import message_properties as names
from ...formats.hashing import utf8
from ..errors import InvalidInput, StoreError
from ..log.message import MAX_BODY_BYTES, Message

if TYPE_CHECKING:
    from datetime import datetime

    from ...formats.derive import Ragged
    from ...formats.derive.program import Noting
    from ...formats.derive.ragged import Flags, Ints
    from ...formats.property_columns import PropertyItems
    from ..broker.dispatch_record import Dispatching
    from ..broker.filter import Where
    from ..disk.layout import Layout
    from ..log.batch import Batch


LATEST_MS = (1 << 63) - 1
_UNIT_MS = {"ms": 1, "s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000, "w": 7 * 86_400_000}
_DAYS = {"yesterday": -1, "today": 0, "tomorrow": 1}
_SPAN = r"(\d+(?:\.\d+)?)(ms|[smhdw])"
_CLOCK = r"\d{1,2}:\d\d(:\d\d(\.\d+)?)?"
_HINT = "use 2026-11-20T21:38:00Z, 2026-11-20, 21:38, epoch milliseconds, -1h or yesterday"
_SPAN_HINT = "use 90s, 30m, 24h, 7d or 1h30m"


class Slice(NamedTuple):
    """A part of a queue: offset ≤ queue offset < offset + length, all by default. reverse: last message first."""

    offset: int | None = None
    length: int | None = None
    reverse: bool = False


class TimeRange(NamedTuple):
    """Times since_ms ≤ t < until_ms; by default all times, also damaged ones before 1970."""

    since_ms: int = 0
    until_ms: int = LATEST_MS

    def __contains__(self, time_ms: object) -> bool:
        within = isinstance(time_ms, int) and self.since_ms <= time_ms < self.until_ms
        return within or not self.bounded

    @property
    def bounded(self) -> bool:
        """Whether the range excludes some times."""
        return self != (0, LATEST_MS)


def parse_range(since: str | None, until: str | None, now_ms: int | None = None, *, option: str = "--") -> TimeRange:
    """The range of `--since` and `--until`. option: stands before these names in errors. Raises InvalidInput, also if
    since is later than until.
    """
    now_ms = _now_ms() if now_ms is None else now_ms
    found = TimeRange(
        parse_time(since, now_ms) if since is not None else 0,
        parse_time(until, now_ms) if until is not None else LATEST_MS,
    )
    if found.since_ms > found.until_ms:
        raise InvalidInput(f"{option}since {since} is later than {option}until {until}")
    return found


Time: TypeAlias = "str | int | datetime | None"
"""Text as in `parse_time`, ms since 1970, or a datetime; None sets no limit."""


def time_text(time: Time) -> str | None:
    """A time as text; one before 1970 becomes 0, as no range begins earlier. Raises InvalidInput."""
    from datetime import datetime

    if isinstance(time, datetime):
        try:
            time = round(time.timestamp() * 1000)
        except (ValueError, OverflowError, OSError) as error:
            raise InvalidInput(f"no such time: {time}: {error}") from None
    if isinstance(time, int):
        time = max(0, time)
    return None if time is None else str(time)


def parse_time(text: str, now_ms: int | None = None, *, earliest_ms: int = 0) -> int:
    """Milliseconds since 1970 of a time in any of the forms above.

    now_ms: the base of relative times; the clock by default. earliest_ms: an earlier time is an error. Raises
    InvalidInput.

    >>> parse_time("1970-01-02T00:00:00Z"), parse_time("-1.5h", now_ms=7_200_000)
    (86400000, 1800000)
    """
    now_ms = _now_ms() if now_ms is None else now_ms
    stripped = text.strip()
    if stripped.isascii() and stripped.isdigit():
        found: int | None = int(stripped[:20])
    elif stripped[:1] in ("-", "+"):
        found = _relative(stripped, now_ms)
    else:
        found = _calendar(stripped, now_ms)
    if found is None or not earliest_ms <= found <= LATEST_MS:
        raise InvalidInput(f"not a time: {text!r}", hint=_HINT)
    return found


def parse_span(text: str) -> int:
    """Milliseconds of a duration. Raises InvalidInput.

    >>> parse_span("1h30m")
    5400000
    """
    found = _relative(f"+{text.strip()}", 0)
    if found is None or found > LATEST_MS:
        raise InvalidInput(f"not a span of time: {text!r}", hint=_SPAN_HINT)
    return found


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def _relative(text: str, now_ms: int) -> int | None:
    """`-1h30m`: so long before now."""
    spans = re.findall(_SPAN, text[1:])
    if not spans or "".join(number + unit for number, unit in spans) != text[1:]:
        return None
    if any(len(number) > 15 for number, _ in spans):
        return None
    span_ms = sum(round(float(number) * _UNIT_MS[unit]) for number, unit in spans)
    return max(0, now_ms - span_ms) if text[0] == "-" else now_ms + span_ms


def _calendar(text: str, now_ms: int) -> int | None:
    """A word, a date, a time of day, or a date and a time."""
    from datetime import datetime, timedelta

    if text.lower() == "now":
        return now_ms
    try:
        today = datetime.fromtimestamp(now_ms / 1000).astimezone().date()
        if text.lower() in _DAYS:
            day = today + timedelta(_DAYS[text.lower()])
            return _local_ms(datetime(day.year, day.month, day.day))
        if re.fullmatch(_CLOCK, text):
            text = f"{today.isoformat()}T{text.rjust(len(text) + (text[1] == ':'), '0')}"
        if re.fullmatch(r"\d{4}-\d\d-\d\d.*", text) is None:
            return None
        return _local_ms(datetime.fromisoformat(text))
    except (ValueError, OverflowError, OSError):
        return None


def _local_ms(moment: datetime) -> int:
    """Epoch milliseconds; a time without an offset is local."""
    from datetime import UTC, datetime, timedelta

    return (moment.astimezone() - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(milliseconds=1)


class Selection(NamedTuple):
    """Conditions that must all hold; None sets no condition.

    topic: a name, or a shell pattern such as `orders*`. key: one of the parts of KEYS, or the unique key. unique_key:
    only the unique key, see `Message.has_unique_key`. tag: `A || B` for one of several, as consumers subscribe; `*` is
    no condition. times: store times. where: a condition in RocketMQ's filter language. grep: a pattern in the body,
    decompressed up to max_body_bytes and read as UTF-8 (invalid bytes become U+FFFD). whole: a batch record is wanted
    as stored if it or one of its messages is; otherwise its messages are. further: the rules by which messages of other
    topics also go to queues of this topic, as with LMQs, so that they are wanted too; None: only messages stored under
    the topic.
    """

    topic: str | None = None
    queue_id: int | None = None
    key: str | None = None
    unique_key: str | None = None
    tag: str | None = None
    times: TimeRange = TimeRange()
    where: Where | None = None
    grep: re.Pattern[str] | None = None
    max_body_bytes: int = MAX_BODY_BYTES
    whole: bool = False
    further: Dispatching | None = None

    @property
    def asks(self) -> bool:
        return self._replace(max_body_bytes=MAX_BODY_BYTES, whole=False, further=None) != Selection()

    def of_queues(self, layout: Layout | None) -> Selection:
        """The same, including messages of other topics in queues of this topic; layout: None if unknown."""
        if self.topic is None or self.further is not None:
            return self
        return self._replace(further=_further_rules(self.topic, layout))

    @property
    def asks_crc(self) -> bool:
        """Whether selecting needs the CRC of bodies."""
        return self.where is not None and self.where.asks_crc

    @property
    def _properties(self) -> set[str]:
        asked = set(self.where.properties) if self.where is not None else set()
        asked |= {names.TAGS} if self.tags else set()
        asked |= {names.UNIQ_KEY} if (self.key, self.unique_key) != (None, None) else set()
        return asked | ({names.KEYS} if self.key is not None else set())

    @property
    def noting(self) -> Noting | None:
        """The `noting` of a scan for `wanted`: None if other conditions leave few records whose properties are read."""
        from ...formats.property_columns import noting_values

        few = (self.topic, self.queue_id) != (None, None) or self.times.bounded
        return None if few else noting_values("properties", self._properties)

    @property
    def asks_more(self) -> bool:
        """Whether there is a condition besides topic and queue."""
        return self._replace(topic=None, queue_id=None).asks

    @property
    def tags(self) -> tuple[str, ...]:
        """The tags of which a message must have one; () for no condition."""
        parts = [part.strip() for part in (self.tag or ANY_TAG).split(TAG_SEPARATOR)]
        return () if ANY_TAG in parts else tuple(part for part in parts if part) or ("",)

    @property
    def one_topic(self) -> str | None:
        """The topic if it is a single one, None for any topic and for a pattern."""
        return None if self.topic is None or is_pattern(self.topic) else self.topic

    def wanted(self, batch: Batch, *, offsets: tuple[int, int] | None = None, last_first: bool = False) -> Batch:
        """The wanted records of a batch, or the messages inside them.

        offsets: only with queue offsets first ≤ k < stop. last_first: messages inside a record in reverse order.
        """
        from ..log.message import is_batch_record

        asks = self.asks or offsets is not None
        several = bool(is_batch_record(batch.columns.ints("sys_flag")).any())
        if not asks and (self.whole or not several):
            return batch
        if offsets is None and not several:
            return batch.take(self.mask(batch))
        import numpy as np

        from ..log.batch import backwards, messages_in, unwrapped

        apart = unwrapped(batch, self.max_body_bytes)
        mask = self.mask(apart)
        in_range: Flags = np.ones(len(apart), np.bool_)
        if offsets is not None:
            first = self.numbers(apart)
            in_range = (first < offsets[1]) & (first + messages_in(apart) > offsets[0])
        if not self.whole or apart.inner is None:
            found = apart.take(mask & in_range)
            return backwards(found) if last_first else found
        row = apart.inner.row
        by_inner = np.bincount(row, mask & in_range, len(batch)) > 0
        by_record = self.mask(batch) & (np.bincount(row, in_range, len(batch)) > 0)
        return batch.take(by_inner | by_record)

    def takes(self, message: Message, *, in_queue: bool = False) -> bool:
        """Whether a message is wanted. in_queue: it is known to come from the wanted queue."""
        tags = self.tags
        return (
            (in_queue or self.place_of(message) is not None)
            and message.store_timestamp in self.times
            and (not tags or message.tags in tags)
            and self._has_keys(message)
            and (self.where is None or self.where.takes(message))
            and self._greps(message)
        )

    def place_of(self, message: Message) -> tuple[int, int] | None:
        """Queue id and queue offset of a message in the wanted topic and queue, None if it is not there."""
        if (self.topic is None or _is_of(message.raw_topic, self.topic)) and self.queue_id in (None, message.queue_id):
            return message.queue_id, message.queue_offset
        how, topic = self.further, self.topic
        found = message.properties
        queues, offsets = found.get(names.INNER_MULTI_DISPATCH), found.get(names.INNER_MULTI_QUEUE_OFFSET)
        if how is None or topic is None or not queues or not offsets or message.topic.startswith(how.lmq_closed):
            return None
        from ...formats.sys_flag import SysFlag
        from ..broker.dispatch import java_split, numbered_names

        if message.sys_flag & SysFlag.PREPARED:
            return None
        for _, name, offset in numbered_names(java_split(utf8(queues)), java_split(utf8(offsets)), how):
            queue_id = how.queue_id_of(name, message.queue_id)
            if offset is not None and matches(name, topic) and self.queue_id in (None, queue_id):
                return queue_id, offset
        return None

    def _has_keys(self, message: Message) -> bool:
        """Whether the keys fit; a message inside a batch record also has the keys of the record."""
        if message.inner is not None and self._has_keys(message.inner.record):
            return True
        return (self.unique_key is None or message.has_unique_key(self.unique_key)) and (
            self.key is None or self.key in message.keys or message.has_unique_key(self.key)
        )

    def _greps(self, message: Message) -> bool:
        if self.grep is None:
            return True
        text = message.body(self.max_body_bytes).data.decode("utf-8", "replace")
        return self.grep.search(text) is not None

    def mask(self, batch: Batch) -> Flags:
        """bool[n]: which records of a batch are wanted; agrees with `takes` for each."""
        import numpy as np

        columns = batch.columns
        mask: Flags = np.ones(len(batch), np.bool_)
        if (self.topic, self.queue_id) != (None, None):
            mask &= self._placed(batch)[0]
        if self.times.bounded:
            stored = columns.ints("store_timestamp")
            mask &= (stored >= self.times.since_ms) & (stored < self.times.until_ms)
        if (self.tags or (self.key, self.unique_key) != (None, None)) and mask.any():
            mask[mask] = self._properties_mask(batch if mask.all() else batch.take(mask))
        if self.where is not None and mask.any():
            mask[mask] = self.where.mask(batch if mask.all() else batch.take(mask))
        if self.grep is not None and mask.any():
            mask[mask] = self._grep_mask(batch.take(mask))
        return mask

    def numbers(self, batch: Batch) -> Ints:
        """int64[n]: the queue offsets in the wanted queue, of records that are in it."""
        return self._placed(batch)[1]

    def _placed(self, batch: Batch) -> tuple[Flags, Ints]:
        """(bool[n]: whether the record is in a wanted queue; int64[n]: its queue offset there)."""
        import numpy as np

        columns = batch.columns
        placed: Flags = np.ones(len(batch), np.bool_)
        if self.topic is not None:
            placed &= topic_mask(columns.ragged("topic"), self.topic)
        if self.queue_id is not None:
            placed &= columns.ints("queue_id") == self.queue_id
        numbers = columns.ints("queue_offset")
        if self.further is None or placed.all():
            return placed, numbers
        from ...formats.property_columns import find

        others = np.flatnonzero(~placed)
        named = find(columns.ragged("properties")[others], names.INNER_MULTI_DISPATCH).length > 0
        return self._with_further(batch, placed, numbers, others[named])

    def _with_further(self, batch: Batch, placed: Flags, numbers: Ints, rows: Ints) -> tuple[Flags, Ints]:
        """Add the records in `rows` that were dispatched to a wanted queue besides their own."""
        import numpy as np

        from ..broker.dispatch import dispatch

        how, topic = self.further, self.topic
        if how is None or topic is None or not len(rows):
            return placed, numbers
        dispatched = dispatch(batch.take(rows), how)
        units = dispatched.units
        meant = np.array([matches(name, topic) for name in dispatched.topics], np.bool_)[units.topic_id]
        if self.queue_id is not None:
            meant &= units.queue_id == self.queue_id
        found = np.flatnonzero(meant)[::-1]  # of several units of a record the first one counts, so it is assigned last
        numbers = numbers.astype(np.int64)
        at = rows[units.record[found]]
        placed[at], numbers[at] = True, units.queue_offset[found]
        return placed, numbers

    def _properties_mask(self, batch: Batch) -> Flags:
        import numpy as np

        from ...formats.property_columns import PropertyItems

        items = PropertyItems(batch.columns.ragged("properties"), self._properties)
        mask = self._keys_mask(items, len(batch))
        if batch.inner is not None:
            records = batch.inner.records
            of_records = PropertyItems(records.columns.ragged("properties"), self._properties)
            mask |= self._keys_mask(of_records, len(records))[batch.inner.row]
        if self.tags:
            found = items.find(names.TAGS)
            mask &= np.logical_or.reduce([found.equals(utf8(tag)) for tag in self.tags])
        return mask

    def _keys_mask(self, items: PropertyItems, count: int) -> Flags:
        import numpy as np

        mask: Flags = np.ones(count, np.bool_)
        if self.unique_key is not None:
            mask &= _has_id(items, utf8(self.unique_key))
        if self.key is not None:
            key = utf8(self.key)
            mask &= _has_id(items, key) | _has_part(items.find(names.KEYS), key)
        return mask

    def _grep_mask(self, batch: Batch) -> Flags:
        import numpy as np

        from ..log.batch import messages

        return np.fromiter((self._greps(m) for m in messages(batch)), np.bool_, len(batch))


TAG_SEPARATOR = "||"
ANY_TAG = "*"


def is_pattern(topic: str) -> bool:
    """Whether a topic is a pattern. No broker makes a topic with one of these characters."""
    return any(character in topic for character in "*?[")


def _is_of(stored: bytes, topic: str) -> bool:
    if stored == utf8(topic):
        return True
    return is_pattern(topic) and matches(stored.decode("utf-8", "surrogateescape"), topic)


def matches(name: str, topic: str) -> bool:
    """Whether a name is the given topic or fits the given pattern; case-sensitive."""
    from fnmatch import fnmatchcase

    return name == topic or fnmatchcase(name, topic)


def _further_rules(topic: str, layout: Layout | None) -> Dispatching | None:
    """The rules by which messages of other topics also go to queues of such topics; None if they do not.

    LMQ names begin with %LMQ%. Brokers 4.9.3 and later 4.x take any name, which is considered only if the configuration
    enables it: looking for other signs costs more than many a search. Damage elsewhere in the store does not prevent
    reading.
    """
    from ..broker.dispatch_record import Dispatching
    from ..broker.system_topics import LMQ_PREFIX

    begin = re.split(r"[*?[]", topic, maxsplit=1)[0]
    light = begin.startswith(LMQ_PREFIX) or (is_pattern(topic) and LMQ_PREFIX.startswith(begin))
    unknown = Dispatching(items=False) if light else None
    if layout is None:
        return unknown
    config = layout.broker_config
    if not config.get_bool("enableMultiDispatch", light):
        return None
    from ..broker.profiles import profile_of
    from ..queues.hybrid import lmq_in_database, selective_double_write
    from ..settings.generation import generation_of

    try:
        rules = profile_of(generation_of(layout).version).dispatch
        lite_only, in_database = selective_double_write(layout), bool(lmq_in_database(layout))
    except StoreError:
        return unknown
    if not light and not rules.any_queue:
        return None
    lmq_zero = config.get_bool("enableLmq", "enableMultiDispatch" not in config)
    how = rules.how(items=False, lmq_zero=lmq_zero, lite_only=lite_only)
    slashes = how.slash_names or layout.rocksdb_queues or in_database
    return how._replace(multi_dispatch=True, slash_names=slashes)


def topic_mask(stored: Ragged, topic: str) -> Flags:
    """bool[n]: the topic is the given one or fits the given pattern."""
    if not is_pattern(topic):
        return stored.equals(utf8(topic))
    import numpy as np

    from ..columns import dictionary

    found = dictionary(stored)
    meant = np.array([_is_of(name, topic) for name in found.values], np.bool_)
    mask: Flags = meant[found.ids]
    return mask


def _has_id(items: PropertyItems, key: bytes) -> Flags:
    """bool[n]: `key` is a UNIQ_KEY; the bulk form of `Message.has_unique_key`."""
    mask = items.find(names.UNIQ_KEY).equals(key)
    mask[[row for row, _ in items.repeated_values(names.UNIQ_KEY, key)]] = True
    return mask


def _has_part(keys: Ragged, key: bytes) -> Flags:
    """bool[n]: `key` is one of the parts of KEYS, which are separated by single spaces."""
    import numpy as np

    mask = keys.equals(key)
    several = np.flatnonzero((keys.length > len(key)) & ~mask)
    separator = names.KEY_SEPARATOR.encode()
    for row in several.tolist():
        mask[row] = key in keys[row].split(separator)
    return mask & (len(key) > 0)


def queue_of(text: str) -> tuple[str, int | None]:
    """Parse `TOPIC` or `TOPIC/ID`; a topic that ends like an id is written with a final `/`."""
    topic, slash, number = text.rpartition("/")
    if not slash:
        return text, None
    if not number:
        return topic, None
    if not (number.isascii() and number.isdigit()):
        return text, None
    return topic, int(number)


def queue_text(queue: tuple[str, int | None]) -> str:
    """The text that `queue_of` parses to a queue, or to a whole topic."""
    topic, number = queue
    if number is not None:
        return f"{topic}/{number}"
    return f"{topic}/" if queue_of(topic) != (topic, None) else topic
