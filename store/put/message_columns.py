"""Columns of new messages: completed, checked, encoded and written to the log.

Records are encoded buffer by buffer, and each buffer is written with one call. For many records three threads work, as
numpy and system calls release the GIL: one fills a buffer while another writes one, and the caller meanwhile finds the
units and index items of the records.

Copies from another store get new queue offsets and positions; broker records that name those of other messages are
changed accordingly (`CopiedNumbers`).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from itertools import repeat
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np

from ...formats import pop
from ...formats.derive import Ragged, encode
from ...formats.derive.ragged import Bytes, Flags, Ints
from ...formats.message import MESSAGE, SysFlag
from ...formats.message_properties import (
    CRC_ITEM_BYTES,
    CRC_ITEM_HEAD,
    FIRST_HALF,
    ITEM_SEPARATOR,
    REAL_TOPIC,
    TAGS,
    crc_item,
    parse,
    with_value,
)
from ...formats.op_record import OFFSET_END, offset_text, offsets_in
from ...formats.primitives import IPV4_BYTES, IPV6_BYTES
from ...formats.property_columns import ends_with_crc_item
from ...formats.sys_flag import TRANSACTION_MASK
from ..broker.system_topics import HALF_TOPIC, OP_TOPIC, TIMER_TOPIC
from ..columns import Dictionary, Renumbered, dictionary
from ..counted import counted
from ..errors import InvalidInput
from ..log.write import LogWriter, Placement
from .new_message import (
    COPIED,
    NO_TIME,
    NUMBER_LIMITS,
    STORE,
    NewMessage,
    WriterRules,
    check_host,
    check_number,
    check_sizes,
    check_topic,
    host_bits,
)

NO_CRC = -1
"""In the column `wrong_crc`: use the right checksum."""
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


_NUMBERS = (
    *("queue_id", "flag", "sys_flag", "born_timestamp", "reconsume_times"),
    *("prepared_transaction_offset", *COPIED, STORE),
)
_TEXTS = ("topic", "body", "properties")
_FIELDS = attrgetter(*_NUMBERS, *_TEXTS)


def columns_of(messages: Sequence[NewMessage]) -> dict[str, Any]:
    """The columns of single messages. Raises InvalidInput for a number of more than 64 bits."""
    fields = zip(*map(_FIELDS, messages), strict=True) if messages else repeat(())
    columns: dict[str, Any] = {name: _int64s(name, next(fields)) for name in _NUMBERS}
    columns |= {name: Ragged.of(next(fields)) for name in _TEXTS}
    columns["born_host.ip"] = Ragged.of([message.born_host[0] for message in messages])
    columns["born_host.port"] = np.array([m.born_host[1] for m in messages], np.int64)
    times = [m.store_timestamp for m in messages]
    columns["store_timestamp"] = _int64s("store_timestamp", [NO_TIME if t is None else t for t in times])
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
    """Some rows of a producer's columns, with defaults for missing columns; `total` is the number of all rows."""
    names = (*_DEFAULTS, "topic", "body", "born_timestamp", "store_timestamp", *COPIED, STORE)
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
    """The rows for which `kept` is true; a single value for all rows stays one."""
    rows = np.flatnonzero(kept)
    return {name: _some(column, rows) for name, column in columns.items()}


def prepare(columns: dict[str, Any], count: int, rules: WriterRules, now_ms: int) -> Dictionary:
    """Complete the columns of a step in place: all that encoding needs except offsets and checksums.

    Raises InvalidInput, LimitExceeded.
    """
    for name in NUMBER_LIMITS:
        _check_numbers(name, columns.get(name, 0))
    for name in ("queue_id", "sys_flag"):
        columns[name] = spread(columns[name], count)
    columns["born_timestamp"] = spread(columns.get("born_timestamp", now_ms), count)
    given = spread(columns.get("store_timestamp", NO_TIME), count)
    columns["store_timestamp"] = np.where(given < 0, now_ms, given)
    for name in ("topic", "properties", "born_host.ip"):
        if isinstance(columns[name], bytes):
            columns[name] = Ragged.repeat(columns[name], count)
    topics = dictionary(columns["topic"])
    magic = [check_topic(topic, rules.profile) for topic in topics.values]
    columns["magic_code"] = np.array(magic, np.int64)[topics.ids]
    if rules.append_crc:
        columns["properties"] = _with_crc_items(columns["properties"])
    elif rules.profile.final_separator:
        columns["properties"] = _all_ended(columns["properties"])
    largest = int(columns["body"].length.max(initial=0))
    check_sizes(largest, int(columns["properties"].length.max(initial=0)), rules)
    born = columns["born_host.ip"].length
    store_ip, store_port = rules.store_host
    for length in np.unique(born[born != IPV4_BYTES]).tolist():
        check_host(bytes(length), rules.profile)
    check_host(store_ip, rules.profile, store_port)
    plain = host_bits(b"", store_ip)
    wide = host_bits(bytes(IPV6_BYTES), store_ip)
    flags = columns["sys_flag"] & ~int(SysFlag.BORN_V6 | SysFlag.STORE_V6)
    columns["sys_flag"] = flags | np.where(born == IPV6_BYTES, wide, plain)
    columns["store_host.ip"], columns["store_host.port"] = store_ip, store_port
    return topics


def _check_numbers(name: str, column: Any) -> None:
    """Check a column, or one value for all. Raises InvalidInput for a value that does not fit its field."""
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


def spread(column: Any, count: int) -> Ints:
    """int64[count] from an array or from one value for all."""
    if isinstance(column, np.ndarray):
        return column.astype(np.int64, copy=False)
    return np.full(count, column, np.int64)


def rows_with_crc(properties: Ragged) -> Ints:
    """The rows whose properties end with a `__CRC32#` item."""
    return np.flatnonzero(ends_with_crc_item(properties))


def _with_crc_items(properties: Ragged) -> Ragged:
    """Property texts with room for a `__CRC32#` item at the end, as a broker makes them (spec 1.7)."""
    room = CRC_ITEM_HEAD.ljust(CRC_ITEM_BYTES - 1, b"0") + ITEM_SEPARATOR
    texts = properties.tolist()
    for row in rows_with_crc(properties).tolist():
        texts[row] = texts[row][:-CRC_ITEM_BYTES]
    return Ragged.of([_ended(text) + room for text in texts])


def _all_ended(properties: Ragged) -> Ragged:
    """Property texts that end with a separator: copies from a store of 4.9 to 5.1 do not."""
    filled = properties.length > 0
    last = properties.buffer[(properties.start + properties.length - 1)[filled]]
    is_ended = (last == ord(ITEM_SEPARATOR)).all()
    return properties if is_ended else Ragged.of([_ended(text) for text in properties.tolist()])


def _ended(text: bytes) -> bytes:
    return text if not text or text.endswith(ITEM_SEPARATOR) else text + ITEM_SEPARATOR


BUFFER_BYTES = 4 << 20
"""The size of a buffer; it grows to the size of the largest record."""
_WRITES = 2
"""Buffers being written while another is filled; with only one, encoding and writing would wait for each other."""


class RecordWriter:
    """Writes columns of records to a log; reuses its buffers."""

    def __init__(self, log: LogWriter) -> None:
        self._log = log
        self._buffers = [np.empty(0, np.uint8) for _ in range(_WRITES + 1)]
        self._encoder = _Worker("records")
        self._writer = _Worker("log", _WRITES)

    def write_aside(self, columns: dict[str, Any], placement: Placement) -> None:
        """`write` in another thread; `drain` waits for it. Until then log and columns must not be changed."""
        self._encoder.wait()
        self._encoder.begin(self.write, columns, placement)

    def drain(self) -> None:
        """Wait until everything is written. Raises the error of writing: NoSpace, Unreadable."""
        self._encoder.wait()

    def write(self, columns: dict[str, Any], placement: Placement) -> None:
        """Encode complete columns of MESSAGE and write them. Raises NoSpace, Unreadable."""
        positions = placement.positions
        ends = positions + columns["total_size"]
        blanks = {blank.position: blank for blank in placement.blanks}
        crc_rows = rows_with_crc(columns["properties"])
        first, position = 0, self._log.position  # the log's own position lags during writes
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
        """The buffer used longest ago, which is no longer being written."""
        buffer = self._buffers.pop(0)
        if len(buffer) < max(least_bytes, BUFFER_BYTES):
            buffer = np.empty(max(least_bytes, BUFFER_BYTES), np.uint8)
        self._buffers.append(buffer)
        return buffer

    def close(self) -> None:
        """End the threads, even after errors."""
        self._encoder.close()
        self._writer.close()


class _Worker:
    """A thread, started when needed, that runs calls one after the other.

    room: how many calls may be waiting or running. After a call fails, no other is run.
    """

    def __init__(self, name: str, room: int = 1) -> None:
        self._name = name
        self._room = room
        self._pool: ThreadPoolExecutor | None = None
        self._begun = deque[Future[None]]()
        self._failure: BaseException | None = None

    def begin(self, work: Callable[..., None], *arguments: Any) -> None:
        """Run a call as soon as there is room. Raises the error of an earlier call."""
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
        """Wait until all calls are done. Raises their error."""
        while self._begun:
            self._begun.popleft().result()

    def close(self) -> None:
        """Wait for the calls without raising their error, and end the thread."""
        if self._pool is not None:
            self._pool.shutdown()
            self._pool = None


def _some(column: Any, rows: slice | Ints) -> Any:
    return column[rows] if isinstance(column, np.ndarray | Ragged) else column


def _remember(log: LogWriter, data: Bytes, at: Ints, size: Ints) -> None:
    """Tell the log what the memory of an old broker holds after these records: for each byte its last writer."""
    covered = np.maximum.accumulate(size[::-1])[::-1]
    visible = np.append(size[:-1] > covered[1:], True)
    for begin, length in zip(at[visible].tolist(), size[visible].tolist(), strict=True):
        log.remember(data[begin : begin + length].tobytes())


def _set_crc(buffer: Bytes, at: int, size: int) -> None:
    """Set the `__CRC32#` of a record that is otherwise complete."""
    split = at + size - CRC_ITEM_BYTES
    item = crc_item(buffer[at:split].tobytes())
    buffer[split : at + size] = np.frombuffer(item, np.uint8)


HALF, OP, _TIMER, _REVIVE = (topic.encode() for topic in (HALF_TOPIC, OP_TOPIC, TIMER_TOPIC, pop.REVIVE_TOPIC))


Queue = tuple[int, str, int]
"""A queue of a store that messages are copied from: number of the store, topic, queue id."""


class Copies(NamedTuple):
    """Copies as they are to be stored. kept: which rows remain, None for all. moved: queues in which messages have new
    queue offsets.
    """

    columns: dict[str, Any]
    topics: Dictionary
    kept: Flags | None
    moved: set[Queue]
    op_records: int
    pop_records: int


class CopiedNumbers:
    """The new numbers of copied messages, for copied records that name them and follow them in the log.

    An op record names half messages copied before it; it is left out if none was. Check points and acknowledgements of
    POP are left out if their queue has new offsets: a broker would bring back other messages. If the copies tell which
    of several stores they are from (`STORE`), numbers of each store are kept apart; otherwise the logs must come one
    after the other. Memory: four numbers for each half message.
    """

    def __init__(self) -> None:
        #: of half messages, by their store
        self._offsets, self._places = Renumbered(), Renumbered()
        self.moved = set[Queue]()
        self.op_records = self.pop_records = 0

    def fitted(
        self,
        columns: dict[str, Any],
        topics: Dictionary,
        new: Ints,
        queues_of: Callable[[Flags], Iterable[tuple[str, int]]],
    ) -> Copies:
        """The rows of a step, changed to name the numbers of this store; nothing is remembered yet.

        new: their queue offsets here. queues_of: returns the queues of the flagged rows.
        """
        columns = columns | {name: spread(columns.get(name, -1), len(topics.ids)) for name in (*COPIED, STORE)}
        given, stores = columns["queue_offset"], columns[STORE]
        anew = (given >= 0) & (given != new)
        numbers = np.unique(stores[anew]).tolist()
        moved = self.moved.union((n, *queue) for n in numbers for queue in queues_of(anew & (stores == n)))
        bodies, texts = self._renumbered(columns, topics, new)
        lost = {row for row, body in bodies.items() if not body}
        op_records, popped = len(lost), _lost_pop_rows(columns, topics, moved)
        lost |= popped
        for name, changed in (("body", bodies), ("properties", texts)):
            if changed:
                columns[name] = Ragged.of([changed.get(row, text) for row, text in enumerate(columns[name].tolist())])
        kept = None
        if lost:
            kept = np.ones(len(given), np.bool_)
            kept[list(lost)] = False
            columns, topics = columns_where(columns, kept), Dictionary(topics.ids[kept], topics.values)
        return Copies(columns, topics, kept, moved, op_records, len(popped))

    def _renumbered(self, columns: dict[str, Any], topics: Dictionary, new: Ints) -> tuple[dict[int, bytes], ...]:
        """By row: new bodies of op records (empty: it names no known message), new properties of half messages."""
        bodies, texts = dict[int, bytes](), dict[int, bytes]()
        own = [number for number, topic in enumerate(topics.values) if topic in (HALF, OP)]
        found = np.isin(topics.ids, own) & (columns["queue_offset"] >= 0) if own else np.zeros(0, np.bool_)
        named, pairs = dict[int, set[int]](), list[tuple[int, int]]()
        for row in found.nonzero()[0].tolist():
            is_half = topics.values[topics.ids[row]] == HALF
            named[row] = _first_half(columns["properties"][row]) if is_half else offsets_in(columns["body"][row])
            pairs += [(int(columns[STORE][row]), number) for number in named[row]]
        known = dict(zip(pairs, self._offsets.of(*np.array(pairs, np.int64).reshape(-1, 2).T).tolist(), strict=True))
        for row, numbers in named.items():
            store, body = int(columns[STORE][row]), columns["body"][row]
            is_half = topics.values[topics.ids[row]] == HALF
            if is_half:
                known[store, int(columns["queue_offset"][row])] = int(new[row])
            new_numbers = {known[store, number] for number in numbers}
            if is_half and numbers:
                text = columns["properties"][row]
                ended = text.endswith(ITEM_SEPARATOR)
                texts[row] = with_value(text, FIRST_HALF, str(*new_numbers), final_separator=ended)
            elif not is_half and (text := _renumbered_body(body, numbers, new_numbers - {-1})) != body:
                bodies[row] = text
        return bodies, texts

    def note(self, copies: Copies, old: Mapping[str, Ints]) -> None:
        """Remember a step that was placed; make its commits name the new positions of their half messages."""
        self.moved = copies.moved
        self.op_records += copies.op_records
        self.pop_records += copies.pop_records
        columns, count = copies.columns, len(copies.topics.ids)
        if HALF in copies.topics.values:
            rows = np.flatnonzero(copies.topics.ids == copies.topics.values.index(HALF))
            self.add_halves(old[STORE][rows], *((old[name][rows], columns[name][rows]) for name in COPIED))
        commits = (columns["sys_flag"] & TRANSACTION_MASK == SysFlag.COMMIT) & (old["physical_offset"] >= 0)
        if commits.any():
            named = spread(columns["prepared_transaction_offset"], count)
            new = self._places.of(old[STORE], named)
            columns["prepared_transaction_offset"] = np.where(commits & (new >= 0), new, named)

    def add_halves(self, stores: Ints, offsets: tuple[Ints, Ints], places: tuple[Ints, Ints]) -> None:
        """Remember n half messages: their stores; old and new queue offsets; old and new positions."""
        for known, (old, new) in ((self._offsets, offsets), (self._places, places)):
            copied = old >= 0
            known.add(stores[copied], old[copied], new[copied])


def _lost_pop_rows(columns: dict[str, Any], topics: Dictionary, moved: set[Queue]) -> set[int]:
    """The rows of POP that name messages of a queue with new offsets; a check point first waits in the timer topic."""
    own = [number for number, topic in enumerate(topics.values) if topic == _TIMER or topic.startswith(_REVIVE)]
    if not own or not moved:
        return set()
    lost = set[int]()
    for row in np.flatnonzero(np.isin(topics.ids, own) & (columns["queue_offset"] >= 0)).tolist():
        found = parse(columns["properties"][row])
        fields = pop.parse(found.get(TAGS, ""), columns["body"][row])
        of_pop = topics.values[topics.ids[row]] != _TIMER or found.get(REAL_TOPIC, "").startswith(pop.REVIVE_TOPIC)
        store = int(columns[STORE][row])
        if of_pop and fields is not None and (store, fields["topic"], fields["queue_id"]) in moved:
            lost.add(row)
    return lost


def _first_half(text: bytes) -> set[int]:
    """The offset of the first half message that the properties of a rewritten half message name; else empty."""
    old = parse(text).get(FIRST_HALF, "") if FIRST_HALF.encode() in text else ""
    return offsets_in(old.encode()) if old.isascii() and old.isdigit() else set()


def times_replaced(columns: Mapping[str, Any], count: int) -> int:
    """How many of the rows give a store time before 1970, for which `prepare` takes the current time."""
    given = spread(columns.get("store_timestamp", NO_TIME), count)
    return int(((given < 0) & (given != NO_TIME)).sum())


def new_times(replaced: int) -> Iterator[str]:
    """A note about the number of `times_replaced`."""
    if replaced:
        one, more = (f"{what} with a store_timestamp before 1970" for what in ("message", "messages"))
        yield counted(replaced, f"{one} has the current time instead", f"{more} have the current time instead")


def left_out(op_records: int, pop_records: int, tombstones: int) -> Iterator[str]:
    """Notes about the records that `CopiedNumbers` left out, and about tombstones."""
    if tombstones:
        yield f"{counted(tombstones, 'tombstone')} left out: the messages in whose place recover wrote them are lost"
    if op_records:
        text = counted(op_records, "op record")
        yield f"{text} left out: the half messages that they decide were not copied"
    if pop_records:
        text = counted(pop_records, "check point or acknowledgement", "check points and acknowledgements")
        yield f"{text} of POP left out: their queue offsets belong to other messages in this store"


def _renumbered_body(body: bytes, old: set[int], new: set[int]) -> bytes:
    """The body of an op record with the offsets of this store; empty if there are none."""
    if old == new:
        return body
    text = b"".join(offset_text(number, ended=True) for number in sorted(new))
    return text if body.endswith(OFFSET_END) else text.removesuffix(OFFSET_END)
