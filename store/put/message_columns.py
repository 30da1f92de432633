"""Many new messages as columns: what a producer gives, completed and checked.

Encoding placed records buffer by buffer, and writing each buffer with one call.

With many records three threads are at work: numpy and the system copy without holding Python up.
One fills a buffer while another one is on its way to the file; and whoever gave the records finds
out meanwhile what they add to queues and index.

Which of them a store has already is what `put --resume` leaves out (`PresentKeys`). A message is known
again by topic, queue and unique key; one without, as brokers write them for transactions, by when it was
born and its body. A store may well have it more than once (retries, the life of a transaction), so they
are counted: the first n of them are left out.

Copies get numbers of their own, and records of the broker's that name the numbers of others follow them
(`CopiedNumbers`).
"""

from __future__ import annotations

from collections import ChainMap, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...formats import pop
from ...formats.derive import Ragged, encode
from ...formats.derive.ragged import Bytes, Flags, Ints, overlapping
from ...formats.hashing import crc31
from ...formats.hashing_columns import crc31_column
from ...formats.message import MESSAGE, SysFlag
from ...formats.message_properties import (
    CRC_ITEM_BYTES,
    CRC_ITEM_HEAD,
    FIRST_HALF,
    ITEM_SEPARATOR,
    REAL_TOPIC,
    TAGS,
    UNIQ_KEY,
    crc_item,
    parse,
    with_value,
)
from ...formats.op_record import OFFSET_END, offset_text, offsets_in
from ...formats.primitives import IPV4_BYTES, IPV6_BYTES
from ...formats.property_columns import PropertyItems, joined
from ...formats.sys_flag import TRANSACTION_MASK
from ..broker.system_topics import HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from ..columns import Dictionary, dictionary
from ..counted import counted
from ..disk.layout import Layout
from ..errors import InvalidInput
from ..log.write import LogWriter, Placement
from .new_message import (
    NUMBER_LIMITS,
    NewMessage,
    NoKeys,
    WriterRules,
    check_host,
    check_number,
    check_sizes,
    check_topic,
    host_bits,
)

NO_CRC = -1
"""In the column `wrong_crc`: the right checksum."""
_DEFAULTS: dict[str, int | bytes] = {
    "queue_id": 0,
    "flag": 0,
    "sys_flag": 0,
    "born_host.ip": NewMessage.born_host[0],
    "born_host.port": NewMessage.born_host[1],
    "reconsume_times": 0,
    "prepared_transaction_offset": 0,
    "properties": b"",
    "wrong_crc": NO_CRC,
}


COPIED = ("queue_offset", "physical_offset")
"""Columns of the records that messages are copies of; below 0 for none."""
_NUMBERS = (
    *("queue_id", "flag", "sys_flag", "born_timestamp", "reconsume_times"),
    *("prepared_transaction_offset", *COPIED),
)
_TEXTS = ("topic", "body", "properties")
_FIELDS = attrgetter(*_NUMBERS, *_TEXTS)


def columns_of(messages: Sequence[NewMessage]) -> dict[str, Any]:
    """Columns of messages that are given one by one. Raises InvalidInput for a number of more than 64 bits."""
    fields = zip(*map(_FIELDS, messages), strict=True) if messages else repeat(())
    columns: dict[str, Any] = {name: _int64s(name, next(fields)) for name in _NUMBERS}
    columns |= {name: Ragged.of(next(fields)) for name in _TEXTS}
    columns["born_host.ip"] = Ragged.of([message.born_host[0] for message in messages])
    columns["born_host.port"] = np.array([m.born_host[1] for m in messages], np.int64)
    times = [m.store_timestamp for m in messages]
    columns["store_timestamp"] = _int64s("store_timestamp", [-1 if t is None else t for t in times])
    wrong = [NO_CRC if m.wrong_crc is None else m.wrong_crc for m in messages]
    columns["wrong_crc"] = np.array(wrong, np.int64)
    return columns


def _int64s(name: str, numbers: Sequence[int]) -> Ints:
    try:
        return np.array(numbers, np.int64)
    except OverflowError:
        check_number(name, min(numbers), max(numbers))
        raise


def count_of(columns: Mapping[str, Any]) -> int:
    bodies = columns["body"]
    if not isinstance(bodies, Ragged):
        raise InvalidInput("the column body has to be one of byte strings")
    return len(bodies)


def rows_of(columns: Mapping[str, Any], total: int, key: slice) -> dict[str, Any]:
    """Some rows of the columns that a producer gives; `total` is the number of all."""
    names = (*_DEFAULTS, "topic", "body", "born_timestamp", "store_timestamp", *COPIED)
    chosen: dict[str, Any] = dict(_DEFAULTS)
    for name in names:
        if name not in columns:
            continue
        column = columns[name]
        if isinstance(column, np.ndarray | Ragged):
            if len(column) != total:
                raise InvalidInput(f"column {name} has {counted(len(column), 'row')}, body has {total}")
            column = column[key]
        chosen[name] = column
    return chosen


def columns_where(columns: Mapping[str, Any], kept: Flags) -> dict[str, Any]:
    """The rows of columns for which `kept` holds; one value for all stays one."""
    rows = np.flatnonzero(kept)
    return {
        name: column[rows] if isinstance(column, np.ndarray | Ragged) else column for name, column in columns.items()
    }


def prepare(columns: dict[str, Any], count: int, rules: WriterRules, now_ms: int) -> Dictionary:
    """Complete the columns of a step in place: what encode needs but offsets and CRC.

    Raises InvalidInput, LimitExceeded.
    """
    for name in NUMBER_LIMITS:
        _check_numbers(name, columns.get(name, 0))
    for name in ("queue_id", "sys_flag"):
        columns[name] = _spread(columns[name], count)
    for name in ("born_timestamp", "store_timestamp"):
        given = _spread(columns.get(name, -1), count)
        columns[name] = np.where(given < 0, now_ms, given)
    for name in ("topic", "properties", "born_host.ip"):
        if isinstance(columns[name], bytes):
            columns[name] = Ragged.repeat(columns[name], count)
    topics = dictionary(columns["topic"])
    magic = [check_topic(topic, rules.profile) for topic in topics.values]
    columns["magic_code"] = np.array(magic, np.int64)[topics.ids]
    if rules.append_crc:
        columns["properties"] = _with_crc_items(columns["properties"])
    elif rules.profile.final_separator:
        columns["properties"] = _all_closed(columns["properties"])
    largest = int(columns["body"].length.max(initial=0))
    check_sizes(largest, int(columns["properties"].length.max(initial=0)), rules)
    born = columns["born_host.ip"].length
    store_ip, store_port = rules.store_host
    for length in np.unique(born[born != IPV4_BYTES]).tolist():
        check_host(bytes(length), rules.profile)
    check_host(store_ip, rules.profile)
    plain = host_bits(b"", store_ip)
    wide = host_bits(bytes(IPV6_BYTES), store_ip)
    flags = columns["sys_flag"] & ~int(SysFlag.BORN_V6 | SysFlag.STORE_V6)
    columns["sys_flag"] = flags | np.where(born == IPV6_BYTES, wide, plain)
    columns["store_host.ip"], columns["store_host.port"] = store_ip, store_port
    return topics


def _check_numbers(name: str, column: Any) -> None:
    """Of a column, or of one value for all. Raises InvalidInput for what its field has no room for."""
    if isinstance(column, int):
        check_number(name, column, column)
        return
    values = np.asarray(column)
    if values.dtype.kind == "f" and not (np.isfinite(values) & (np.floor(values) == values)).all():
        raise InvalidInput(f"{name}: not whole numbers")
    if values.dtype.kind not in "biuf":
        raise InvalidInput(f"{name}: no numbers, or larger ones than it has room for")
    if values.size and (values.dtype.kind not in "iu" or NUMBER_LIMITS[name][1] < np.iinfo(values.dtype).max):
        check_number(name, int(values.min()), int(values.max()))


def _spread(column: Any, count: int) -> Ints:
    """int64[count] of an array or of one value for all."""
    if isinstance(column, np.ndarray):
        return column.astype(np.int64, copy=False)
    return np.full(count, column, np.int64)


def rows_with_crc(properties: Ragged) -> Ints:
    """Rows whose properties end with a `__CRC32#`."""
    rows = np.flatnonzero(properties.length >= CRC_ITEM_BYTES)
    if not len(rows):
        return rows
    at = properties.start[rows] + properties.length[rows] - CRC_ITEM_BYTES
    heads = overlapping(properties.buffer, np.dtype((np.void, len(CRC_ITEM_HEAD))))[at]
    found: Ints = rows[heads == np.void(CRC_ITEM_HEAD)]
    return found


def _with_crc_items(properties: Ragged) -> Ragged:
    """Property texts with room for a `__CRC32#` behind them, as a broker makes it (spec 1.7)."""
    room = CRC_ITEM_HEAD.ljust(CRC_ITEM_BYTES - 1, b"0") + ITEM_SEPARATOR
    texts = properties.tolist()
    for row in rows_with_crc(properties).tolist():
        texts[row] = texts[row][:-CRC_ITEM_BYTES]
    return Ragged.of([_closed(text) + room for text in texts])


def _all_closed(properties: Ragged) -> Ragged:
    """Property texts, each with a separator at its end: a copy out of a store of 4.9 … 5.1 has none there."""
    some = properties.length > 0
    last = properties.buffer[(properties.start + properties.length - 1)[some]]
    is_ended = (last == ord(ITEM_SEPARATOR)).all()
    return properties if is_ended else Ragged.of([_closed(text) for text in properties.tolist()])


def _closed(text: bytes) -> bytes:
    return text if not text or text.endswith(ITEM_SEPARATOR) else text + ITEM_SEPARATOR


BUFFER_BYTES = 4 << 20
"""Size of each buffer; one grows to the size of the largest record."""
_WRITES = 2
"""Buffers that are on their way to the log while another one is filled: with one less the two wait for each other."""


class RecordWriter:
    """Writes columns of records to a log; reuses its buffers."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._buffers = [np.empty(0, np.uint8) for _ in range(_WRITES + 1)]
        self._encoder = _Aside("records")
        self._writer = _Aside("log", _WRITES)

    def write_aside(self, columns: dict[str, Any], placement: Placement) -> None:
        """`write` by another thread; `drain` waits for it. Log and columns are not to be changed."""
        self._encoder.wait()
        self._encoder.begin(self.write, columns, placement)

    def drain(self) -> None:
        """Wait until everything is written. Raises what went wrong: NoSpace, Unreadable."""
        self._encoder.wait()

    def write(self, columns: dict[str, Any], placement: Placement) -> None:
        """Encode complete columns of MESSAGE and write them. Raises NoSpace, Unreadable."""
        positions = placement.positions
        ends = positions + columns["total_size"]
        blanks = {blank.position: blank for blank in placement.blanks}
        crc_rows = rows_with_crc(columns["properties"])
        first, position = 0, self._log.position  # that of the log is behind, as long as something is on its way
        while first < len(positions):
            begin = int(positions[first])
            if position in blanks and begin != position:
                self._writer.wait()
                self._log.write_blank(blanks[position])
            file_end = begin - begin % self._log.file_size + self._log.file_size
            buffer = self._next_buffer(int(columns["total_size"][first]))
            limit = min(file_end, begin + len(buffer))
            last = int(np.searchsorted(ends, limit, side="right"))
            rows = slice(first, last)
            part = {name: _some(column, rows) for name, column in columns.items()}
            at = positions[rows] - begin
            encode(MESSAGE, part, at, buffer)
            for row in crc_rows[(crc_rows >= first) & (crc_rows < last)].tolist():
                _set_crc(buffer, int(positions[row]) - begin, int(columns["total_size"][row]))
            position = int(ends[last - 1])
            data = buffer[: position - begin]
            if last < len(positions):
                self._writer.begin(self._log.write, begin, data.data)
            else:
                self._writer.wait()
                self._log.write(begin, data.data)
            if self._log.remembers:
                _remember(self._log, data, at, columns["total_size"][rows])
            first = last
        self._writer.wait()

    def _next_buffer(self, least_bytes: int) -> Bytes:
        """The buffer that is not on its way: the one that was sent first."""
        buffer = self._buffers.pop(0)
        if len(buffer) < max(least_bytes, BUFFER_BYTES):
            buffer = np.empty(max(least_bytes, BUFFER_BYTES), np.uint8)
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        """Let the threads go, whatever became of their work."""
        self._encoder.close()
        self._writer.close()


class _Aside:
    """A thread, made when it is needed, that does one thing after the other.

    room: so many of them may be begun and not done. Behind one that fails nothing else is done.
    """

    def __init__(self, name: str, room: int = 1) -> None:
        self._name = name
        self._room = room
        self._pool: ThreadPoolExecutor | None = None
        self._begun = deque[Future[None]]()
        self._failure: BaseException | None = None

    def begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Let it do something, once there is room. Raises what work before it has raised."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, self._name)
        if len(self._begun) == self._room:
            self._begun.popleft().result()
        self._begun.append(self._pool.submit(self._do, work, arguments))

    def _do(self, work: Callable[..., None], arguments: tuple[Any, ...]) -> None:
        if self._failure is not None:
            raise self._failure
        try:
            work(*arguments)
        except BaseException as error:
            self._failure = error
            raise

    def wait(self) -> None:
        """Wait until all is done. Raises what the work has raised."""
        while self._begun:
            self._begun.popleft().result()

    def close(self) -> None:
        """Wait for the work without asking what became of it, and end the thread."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _some(column: Any, rows: slice) -> Any:
    return column[rows] if isinstance(column, np.ndarray | Ragged) else column


def _remember(log: LogWriter, data: Bytes, at: Ints, size: Ints) -> None:
    """What an old broker's memory holds after these records: of each byte the last writer."""
    covered = np.maximum.accumulate(size[::-1])[::-1]
    visible = np.append(size[:-1] > covered[1:], True)
    for begin, length in zip(at[visible].tolist(), size[visible].tolist(), strict=True):
        log.remember(data[begin : begin + length].tobytes())


def _set_crc(buffer: Bytes, at: int, size: int) -> None:
    """Compute the `__CRC32#` of a record that is complete but for it."""
    split = at + size - CRC_ITEM_BYTES
    item = crc_item(buffer[at:split].tobytes())
    buffer[split : at + size] = np.frombuffer(item, np.uint8)


_HALF, _OP, _TIMER, _REVIVE = (topic.encode() for topic in (HALF_TOPIC, OP_TOPIC, TIMER_TOPIC, pop.REVIVE_TOPIC))


Queues = Iterable[tuple[str, int]]


class Copies(NamedTuple):
    """Copies as they are to be stored. kept: which stay, None for all. halves: old and new queue offsets. moved: queues
    in which copies have other numbers than before."""

    columns: dict[str, Any]
    topics: Dictionary
    kept: Flags | None
    halves: dict[int, int]
    moved: set[tuple[str, int]]
    op_records: int
    pop_records: int


class CopiedNumbers:
    """What copies are numbered in this store, for records that name them: they follow them in a log.

    Op records name the half messages that came along before them; one without any is left out. Check points and
    acknowledgements of POP are left out where their queue is numbered anew: a broker would bring back other messages.
    Of several logs one behind the other each names its own; of logs that are mixed nothing tells which one a record is
    of. Memory: that of four numbers for each half message.
    """

    def __init__(self) -> None:
        #: old queue offset and place of a half message → the new ones
        self.halves: dict[int, int] = {}
        self.places: dict[int, int] = {}
        self._moved: set[tuple[str, int]] = set()
        self.op_records = self.pop_records = 0

    def fitted(self, columns: dict[str, Any], topics: Dictionary, new: Ints, moved: Queues) -> Copies:
        """The rows of a step with what they name in this store; nothing is noted yet.

        new: their queue offsets here. moved: queues in which copies have other numbers than before.
        """
        halves, bodies, texts = dict[int, int](), dict[int, bytes](), dict[int, bytes]()
        known, lost = ChainMap(halves, self.halves), set[int]()
        columns = columns | {name: _spread(columns.get(name, -1), len(topics.ids)) for name in COPIED}
        given = columns["queue_offset"]
        own = [number for number, topic in enumerate(topics.values) if topic in (_HALF, _OP)]
        for row in np.flatnonzero(np.isin(topics.ids, own)).tolist() if own else ():
            old = int(given[row])
            if topics.values[topics.ids[row]] == _HALF:
                if old >= 0:
                    halves[old] = int(new[row])
                    if FIRST_HALF.encode() in (text := columns["properties"][row]):
                        texts[row] = _with_first_half(text, known)
            elif old >= 0:
                body = _named_anew(columns["body"][row], known)
                if body is None:
                    lost.add(row)
                elif body != columns["body"][row]:
                    bodies[row] = body
        anew = self._moved.union(moved)
        op_records, popped = len(lost), _popped(columns, topics, anew)
        lost |= popped
        for name, changed in (("body", bodies), ("properties", texts)):
            if changed:
                columns[name] = Ragged.of([changed.get(row, text) for row, text in enumerate(columns[name].tolist())])
        kept = None
        if lost:
            kept = np.ones(len(given), np.bool_)
            kept[list(lost)] = False
            columns, topics = columns_where(columns, kept), Dictionary(topics.ids[kept], topics.values)
        return Copies(columns, topics, kept, halves, anew, op_records, len(popped))

    def note(self, copies: Copies, old_places: Ints) -> None:
        """Remember a step that has its places, and let commits in it name the new ones of their half messages."""
        self.halves |= copies.halves
        self._moved = copies.moved
        self.op_records += copies.op_records
        self.pop_records += copies.pop_records
        columns, count = copies.columns, len(old_places)
        if _HALF in copies.topics.values:
            halves = np.flatnonzero((copies.topics.ids == copies.topics.values.index(_HALF)) & (old_places >= 0))
            self.places |= zip(old_places[halves].tolist(), columns["physical_offset"][halves].tolist(), strict=True)
        commits = np.flatnonzero((columns["sys_flag"] & TRANSACTION_MASK == SysFlag.COMMIT) & (old_places >= 0))
        if self.places and len(commits):
            named = _spread(columns["prepared_transaction_offset"], count).copy()
            named[commits] = [self.places.get(place, place) for place in named[commits].tolist()]
            columns["prepared_transaction_offset"] = named


def _popped(columns: dict[str, Any], topics: Dictionary, moved: set[tuple[str, int]]) -> set[int]:
    """Rows that name messages of a queue that is numbered anew for POP; a check point waits in the timer first."""
    own = [number for number, topic in enumerate(topics.values) if topic == _TIMER or topic.startswith(_REVIVE)]
    if not own or not moved:
        return set()
    lost = set[int]()
    for row in np.flatnonzero(np.isin(topics.ids, own) & (columns["queue_offset"] >= 0)).tolist():
        found = parse(columns["properties"][row])
        fields = pop.parse(found.get(TAGS, ""), columns["body"][row])
        of_pop = topics.values[topics.ids[row]] != _TIMER or found.get(REAL_TOPIC, "").startswith(pop.REVIVE_TOPIC)
        if of_pop and fields is not None and (fields["topic"], fields["queue_id"]) in moved:
            lost.add(row)
    return lost


def _with_first_half(text: bytes, known: Mapping[int, int]) -> bytes:
    """Properties of a half message with the new number of the first one."""
    old = parse(text).get(FIRST_HALF, "")
    if not (old.isascii() and old.isdigit()):
        return text
    new = str(known.get(int(old), -1))
    return with_value(text, FIRST_HALF, new, final_separator=text.endswith(ITEM_SEPARATOR))


def left_out(op_records: int, pop_records: int) -> Iterator[str]:
    """What people should know of records that `CopiedNumbers` has left out."""
    if op_records:
        left = counted(op_records, "op record")
        yield f"{left} left out: the half messages of transactions that they decide did not come along"
    if pop_records:
        left = counted(pop_records, "check point or acknowledgement", "check points and acknowledgements")
        yield f"{left} of POP left out: the queue offsets that they name are those of other messages here"


def _named_anew(body: bytes, known: Mapping[int, int]) -> bytes | None:
    """The body of an op record with the numbers of this store; None where it knows none of them."""
    old = offsets_in(body)
    new = {known[number] for number in old if number in known}
    if old == new:
        return body
    text = b"".join(offset_text(number, ended=True) for number in sorted(new))
    return (text if body.endswith(OFFSET_END) else text.removesuffix(OFFSET_END)) or None


_SEPARATOR = b"\0"


class PresentKeys:
    """Counts of messages by topic, queue and key. Memory: that of the keys.

    copies: learns the numbers of half messages that are there, when they come again.
    """

    def __init__(self, copies: CopiedNumbers | None = None) -> None:
        self._left: dict[bytes, int] = {}
        self._halves: dict[bytes, deque[tuple[int, int]]] = {}
        self._copies = copies or CopiedNumbers()

    @classmethod
    def of(cls, layout: Layout, copies: CopiedNumbers | None = None) -> PresentKeys:
        """Those of a store, read from its log once."""
        from ..search.store import StoreReader  # where it is asked: most puts do without

        present = cls(copies)
        left = present._left
        with StoreReader(layout) as store:
            for batch in store.good_records():
                columns = batch.columns
                topics = columns.ragged("topic")
                names = _names(topics, columns.ints("queue_id"), _keys(columns, columns.ints("born_timestamp")))
                for name in names:
                    left[name] = left.get(name, 0) + 1
                offsets, places = (columns.ints(name) for name in COPIED)
                for row in topics.equals(_HALF).nonzero()[0].tolist():
                    present._halves.setdefault(names[row], deque()).append((int(offsets[row]), int(places[row])))
        return present

    def lacks(self, columns: Mapping[str, Any]) -> Flags:
        """Which rows the store does not have. Of those without a unique key the time of birth has to be given."""
        count = len(columns["body"])
        keys = _keys(columns, _spread(columns["born_timestamp"], count))
        names = _names(columns["topic"], _spread(columns.get("queue_id", 0), count), keys)
        old = zip(*(_spread(columns.get(name, -1), count).tolist() for name in COPIED), strict=True)
        return np.array([not self._take(name, *numbers) for name, numbers in zip(names, old, strict=True)], np.bool_)

    def has(self, message: NewMessage, *, dated: bool) -> bool:
        """Whether the store has a message. dated: its time of birth was given. Raises InvalidInput for one with
        neither that nor a unique key.
        """
        key = parse(message.properties).get(UNIQ_KEY, "").encode("utf-8", "surrogatepass")
        if not key:
            crc = 0 if message.topic == _OP else crc31(message.body)
            key = _key_of(message.born_timestamp, crc) if dated else NoKeys().next().encode()
        name = _SEPARATOR.join((message.topic, key, b"%d" % message.queue_id))
        return self._take(name, message.queue_offset, message.physical_offset)

    def _take(self, name: bytes, old_offset: int, old_place: int) -> bool:
        left = self._left.get(name, 0)
        if left:
            self._left[name] = left - 1
            if halves := self._halves.get(name):
                self._copies.halves[old_offset], self._copies.places[old_place] = halves.popleft()
        return left > 0


def _keys(columns: Mapping[str, Any], born: Ints) -> Ragged:
    """What tells the messages of a queue from one another: unique keys, where there is none what `_key_of` makes.

    The body of an op record is not that of the one that it was copied from: it does not count.
    """
    keys = PropertyItems(columns["properties"]).find(UNIQ_KEY)
    rows = np.flatnonzero(keys.length <= 0)
    if not len(rows):
        return keys
    texts = keys.tolist()
    crcs = np.where(columns["topic"][rows].equals(_OP), 0, crc31_column(columns["body"][rows]))
    for row, time, crc in zip(rows.tolist(), born[rows].tolist(), crcs.tolist(), strict=True):
        texts[row] = _key_of(time, crc)
    return Ragged.of(texts)


def _key_of(born_timestamp: int, body_crc: int) -> bytes:
    """Of a message without a unique key; no unique key looks like it."""
    return b"%b%d %d" % (ITEM_SEPARATOR, born_timestamp, body_crc)


def _names(topics: Ragged, queue_ids: Ints, keys: Ragged) -> list[bytes]:
    separators = Ragged.repeat(_SEPARATOR, len(keys))
    queues = Ragged.of([b"%d" % queue_id for queue_id in queue_ids.tolist()])
    return joined([topics, separators, keys, separators, queues]).tolist()
