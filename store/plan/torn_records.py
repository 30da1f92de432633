"""Correct records that are present but wrong: their header, properties, LMQ offsets or position.

Further queues: a message for several queues is one record, whose properties name the other queues and its offset in
each (spec 2.9; 7.12, B27). If a torn write has destroyed these names, the units of the queues still name the record and
prove them. They are put back: without them a rebuilt queue lacks the message.

Torn properties (spec 01, 1.6; 7.12, B27): every broker takes such a record for good, with any bytes as names and
values. Header and body are whole, so the message stays: readable items stay, separators replace the rest. Every version
reads separators as nothing (spec 9.1, property padding), and the record keeps its size.

Wrong headers: no checksum covers a header. But a queue unit gives position and size of its record, its directory the
topic and queue id, its number the queue offset. If the remaining bytes make a whole record with these (lengths that add
up, a body with its checksum, the tag of the unit), that was the record. A body ends where the topic begins.

LMQs without an offset for each (spec 2.9; 7.12, B11): the dispatch of a broker throws at such a record, for ever, or
gives it no unit at all. Offsets that LMQs prove are put back; names without a known offset, to which no broker could
dispatch, are replaced by separators.

Wrong queue offsets: good records whose header names another place in a queue than the unit that names the record. A
broker that rebuilds queues would add them to the queue that the damaged header names.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from ...formats.client_batch import count_of
from ...formats.consume_queue import EXT_ADDRESS_MAX
from ...formats.derive import decode, decode_one
from ...formats.derive.ragged import Ints
from ...formats.hashing import crc31, java_integer, java_string, utf8
from ...formats.message import (
    COMPRESSION_MASK,
    MAGIC_V1,
    MAGIC_V2,
    MESSAGE,
    PROPERTIES_BYTES_MAX,
    SMALLEST,
    TOPIC_BYTES_MAX_V1,
    TRANSACTION_MASK,
    SysFlag,
    ends_of_body,
)
from ...formats.message_properties import (
    CRC_ITEM_BYTES,
    DELAY,
    INNER_BASE,
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    INNER_NUM,
    ITEM_SEPARATOR,
    LITE_TOPIC,
    NAME_VALUE_SEPARATOR,
    NUL,
    NUMBER_BITS,
    crc_ok,
    ends_with_crc,
    is_item,
    parse,
    with_crc_item,
    without_crc,
)
from ...formats.property_columns import PropertyItems
from ..audit.queues import QueueAudit
from ..broker.dispatch import dispatch
from ..broker.dispatch_record import OWN_QUEUES
from ..broker.load_rules import rows_not_to_store
from ..broker.profiles import RecordRules
from ..broker.snapshot import QueueId, Snapshot
from ..broker.system_topics import LITE_PREFIX, LMQ_PREFIX, SCHEDULE_TOPIC
from ..disk.file_queue import MappedFileQueue
from ..log.batch import Batch
from ..log.commit_log import CommitLog
from ..log.message import Mark, unpack
from ..queues.units import is_used, is_valid
from ..settings.options import options_of
from .fill import Piece
from .gaps import TornRecord, is_for_service, is_undispatchable
from .lost_messages import EVERYWHERE, RECORD_BYTES_MAX, LostUnits, units_at

NamedQueues = Sequence[tuple[bytes, int]]
"""Names of queues, and the queue offset of a record in each."""
FurtherQueues = Mapping[int, Mapping[bytes, int]]
"""By position of a record, the names of further queues, and its queue offset in each."""
_NAMES, _OFFSETS = INNER_MULTI_DISPATCH.encode(), INNER_MULTI_QUEUE_OFFSET.encode()
_COMMA = b","
_NO_NAME = frozenset(_COMMA + NAME_VALUE_SEPARATOR + ITEM_SEPARATOR)
"""Bytes that no record can name a queue with."""
_LITE, _LITE_TOPIC = LITE_PREFIX.encode(), LITE_TOPIC.encode()


def further_queues(snapshot: Snapshot, records: Sequence[TornRecord]) -> Mapping[int, NamedQueues]:
    """Return, by position of a record, the further queues whose units name it. Raises Unreadable.

    Empty if brokers of this store make no such units.
    """
    found: dict[int, dict[bytes, int]] = {record.position: {} for record in records}
    if not records or not options_of(snapshot.layout).multi_dispatch.value:
        return {}
    positions = np.array(sorted(found), np.int64)
    for queue in sorted(snapshot.queues):
        mine = {record.position: record for record in records if _may_name(record, queue)}
        if not mine:
            continue
        name = utf8(queue.topic)
        units = units_at(snapshot, queue, positions)
        rows = zip(units.position.tolist(), units.size.tolist(), units.queue_offset.tolist(), strict=True)
        for position, size, offset in rows:
            if position in mine and size == mine[position].size:
                found[position].setdefault(name, offset)
    return {position: list(names.items()) for position, names in found.items()}


def _may_name(record: TornRecord, queue: QueueId) -> bool:
    """Whether a queue can be a further queue of a record: same queue id, or an LMQ with id 0."""
    topic = record.topic.decode("utf-8", "surrogateescape")
    lmq = queue.topic.startswith(LMQ_PREFIX)
    return queue.topic != topic and queue.queue_id == (0 if lmq else record.queue_id)


def with_further(text: bytes, further: NamedQueues, room: int, *, ended: bool) -> bytes:
    """Return a property text with these queues, unchanged if they do not fit or if it names its own. room: most bytes
    of the text. ended: a separator has to end it.
    """
    further = [(name, offset) for name, offset in further if not _NO_NAME.intersection(name)]
    items = [item for item in text.split(ITEM_SEPARATOR) if item]
    known = dict(item.split(NAME_VALUE_SEPARATOR, 1) for item in items)
    names, offsets = known.get(_NAMES, b""), known.get(_OFFSETS, b"")
    lite = [name.split(b"$", 2)[2] for name, _ in further if name.startswith(_LITE) and name.count(b"$") > 1]
    named = bool(names and offsets) and not is_undispatchable(names, offsets)
    if not further or (named and (not lite or _LITE_TOPIC in known)):
        return text
    if not named:
        known[_NAMES] = _COMMA.join(name for name, _ in further)
        known[_OFFSETS] = _COMMA.join(b"%d" % offset for _, offset in further)
    if lite:
        known.setdefault(_LITE_TOPIC, lite[0])  # without it no client can acknowledge the message
    made = b"".join(name + NAME_VALUE_SEPARATOR + value + ITEM_SEPARATOR for name, value in known.items())
    if len(made) > room and not ended:
        made = made.removesuffix(ITEM_SEPARATOR)
    return made if len(made) <= room else text


def names_of(further: FurtherQueues) -> dict[int, bytes]:
    """Return the properties that name these queues, by position of a record."""
    return {at: with_further(b"", list(named.items()), EVERYWHERE, ended=True) for at, named in further.items()}


class CutProperties(NamedTuple):
    """A message that has lost properties. data: its new record. lost_bytes: of its property text. properties: the
    readable ones, and the further queues that units prove.
    """

    position: int
    topic: str
    queue_id: int
    queue_offset: int
    properties: dict[str, str]
    lost_bytes: int
    data: bytes

    def to_json(self) -> dict[str, Any]:
        """A row of `plan.torn_properties`."""
        row = {name: value for name, value in self._asdict().items() if name != "data"}
        return {**row, "size": len(self.data)}


def cut_properties(
    queue: MappedFileQueue, records: Sequence[TornRecord], further: Mapping[int, NamedQueues], *, with_crc: bool
) -> list[CutProperties]:
    """Correct records that have lost properties. Raises Unreadable.

    further: by position, queues that name the record. with_crc: records of this log end with a CRC over all bytes.
    """
    if not records:
        return []
    # whether this log's writer puts a separator behind the last item, by the first records of its files
    starts = np.array([file.start for file in queue.files], np.int64)
    texts = CommitLog(queue).records(starts).columns.ragged("properties").tolist()
    ended, found = any(text.endswith(ITEM_SEPARATOR) for text in texts), []
    for record in records:
        data = queue.read(record.position, record.size)
        more = further.get(record.position, ())
        text, made = mended(data, more, with_crc=with_crc, ended=ended)
        topic, lost_bytes = record.topic.decode("utf-8", "replace"), MESSAGE.parse(data).properties_length - len(text)
        place = record.position, topic, record.queue_id, record.queue_offset
        found.append(CutProperties(*place, parse(text), lost_bytes, made))
    return found


def mended(record: bytes, further: NamedQueues = (), *, with_crc: bool, ended: bool) -> tuple[bytes, bytes]:
    """Return the readable property text, and the record with that text. ended: a separator ends the last item."""
    values = MESSAGE.parse(record)
    length = len(values.properties)
    text = _whole_items(values.properties, ended=ended)
    with_crc = with_crc and length - len(text) >= CRC_ITEM_BYTES
    text = with_further(text, further, length - CRC_ITEM_BYTES * with_crc, ended=ended or with_crc)
    return text, with_text(values, text, with_crc=with_crc)


def with_text(values: Any, text: bytes, *, with_crc: bool) -> bytes:
    """Return a record of the same size with another property text, separators, and the CRC last; all must fit."""
    padding = len(values.properties) - len(text) - CRC_ITEM_BYTES * with_crc
    padded = text + ITEM_SEPARATOR * padding + bytes(CRC_ITEM_BYTES * with_crc)
    made: bytes = MESSAGE.build({**values, "properties": padded})
    return with_crc_item(made) if with_crc else made


def _whole_items(text: bytes, *, ended: bool) -> bytes:
    """Return the whole items. The value of an item that was cut may have been longer."""
    if ended and text[-2:].count(NUL) == 1 and text.endswith(NUL):
        text = text[:-1] + ITEM_SEPARATOR  # only the separator is lost
    items = text.split(ITEM_SEPARATOR)
    if text.endswith(NUL):
        items.pop()
    whole = [item for item in items if NAME_VALUE_SEPARATOR in item and (NUL not in item or is_item(item))]
    return b"".join(item + ITEM_SEPARATOR for item in whole)


class PutRightRules(NamedTuple):
    """delay_levels: ms of levels 1, 2, …; None for the usual ones. verify, record_rules: as of a `GapFinder`."""

    delay_levels: tuple[int, ...] | None
    verify: bool
    record_rules: RecordRules


_KNOWN_FLAGS = COMPRESSION_MASK | sum(SysFlag)
_CLOCK_MS = 30 * 24 * 3600 * 1000
"""Largest plausible difference between the store times of neighbours."""
_PART_BYTES = 8 << 20
_KEPT_FIELDS = ("body_crc", "flag", "sys_flag", "born_timestamp", "store_timestamp", "reconsume_times")
_PREPARED = "prepared_transaction_offset"
_NUMBERS = ("queue_id", "queue_offset", "physical_offset")
_MOST_ENDS = 8  # body ends to try: a crafted record may have many, to cost time


def all_put_right(
    log: MappedFileQueue, units: LostUnits, gap: Ints, near_ms: Ints, rules: PutRightRules
) -> dict[int, dict[int, bytes]]:
    """Return the records in gaps that their bytes prove, by gap number and position. Raises Unreadable.

    gap: number of the gap of each unit, int64[n], units of a gap together. near_ms: store time of the record before the
    gap, 0: unknown.
    """
    found: dict[int, dict[int, bytes]] = {}
    for data, rows, starts in _read_together(log, units, gap):
        columns = decode(MESSAGE, data, starts, starts + units.size[rows])
        born, stored = (columns.ints(f"{name}_timestamp") for name in ("born", "store"))
        worth = (born > 0) & (stored > 0)  # not zeros, and mostly not noise
        near = near_ms[rows]
        worth &= (near == 0) | (np.abs(stored // 2 - near // 2) <= _CLOCK_MS // 2)
        lengths, crcs = columns.ints("body_length"), columns.ints("body_crc")
        bodies, topics = columns.ragged("body"), columns.ragged("topic")
        for at in np.flatnonzero(worth).tolist():
            row = int(rows[at])
            if not _is_whole(bodies[at], int(lengths[at]), int(crcs[at])):
                record = data[starts[at] : starts[at] + units.size[row]].tobytes()
                topic = _topic_of(units, row)
                if topic not in record or (topics[at] == topic and not ends_with_crc(record)):
                    continue  # its body is another one, wherever it ends
            piece = put_right(log, units, row, int(near_ms[row]), rules)
            if piece is not None:
                found.setdefault(int(gap[row]), {})[piece[0]] = bytes(piece[1])
    return found


def _read_together(
    log: MappedFileQueue, units: LostUnits, gap: Ints
) -> Iterator[tuple[npt.NDArray[np.uint8], Ints, Ints]]:
    """Yield parts that fit in memory: bytes, whole rows, and where these begin in the bytes. Raises Unreadable."""
    known = np.flatnonzero(units.size <= RECORD_BYTES_MAX)  # a wrong size may be that of a whole gap
    if not len(known):
        return
    position, behind = units.position[known], units.end[known]
    apart = np.flatnonzero((np.diff(gap[known]) != 0) | (np.diff(position // _PART_BYTES) != 0)) + 1
    first, last = np.append(0, apart), np.append(apart, len(known))
    begins, ends = position[first], np.maximum.reduceat(behind, first)
    cuts = np.flatnonzero(np.diff(np.cumsum(ends - begins) // _PART_BYTES)) + 1
    for part in np.split(np.arange(len(first)), cuts):
        read, rows, starts, size = list[bytes](), list[Ints](), list[Ints](), 0
        for number in part.tolist():
            begin = int(begins[number])
            file = log.file_at(begin)
            if file is None:
                continue
            data = log.read_file(file, begin - file.start, int(ends[number]) - begin)
            mine = known[first[number] : last[number]]
            mine = mine[units.end[mine] <= begin + len(data)]
            rows.append(mine)
            starts.append(units.position[mine] - begin + size)
            read.append(data)
            size += len(data)
        if rows:
            yield (np.frombuffer(b"".join(read), np.uint8), np.concatenate(rows), np.concatenate(starts))


def put_right(log: MappedFileQueue, units: LostUnits, row: int, near_ms: int, rules: PutRightRules) -> Piece | None:
    """Return the original record that unit `row` names, None if its bytes do not prove it.

    near_ms: store time of a neighbour, 0: unknown. Raises Unreadable.
    """
    position, size = int(units.position[row]), int(units.size[row])
    queue = units.queues[int(units.queue[row])]
    if not SMALLEST <= size <= RECORD_BYTES_MAX:
        return None
    if queue.topic.startswith(LMQ_PREFIX):
        return None  # its units name records of other topics
    raw = log.read(position, size)
    topic = _topic_of(units, row)
    fields = _fields(raw, topic) if len(raw) == size else None
    if fields is None or not _is_plausible(fields, near_ms):
        return None
    offset = int(units.queue_offset[row])
    fields |= {"queue_id": queue.queue_id, "queue_offset": offset, "physical_offset": position}
    text_bytes = size - len(MESSAGE.build({**fields, "properties": b""}))
    if not 0 <= text_bytes <= PROPERTIES_BYTES_MAX:
        return None
    messages = int(units.batch_sizes[row]) if rules.record_rules.inner_batches else 0
    record = _with_numbers(fields, raw[size - text_bytes :], messages)
    # if only numbers differ, the header is right, and without a unit the tag is unknown
    numbers = record != raw and record.startswith(raw[: size - text_bytes])
    if (rules.verify or not numbers) and crc_ok(record) is False:
        return None
    if not numbers and not _has_tag(record, int(units.tags_code[row]), rules.delay_levels):
        return None
    columns = decode_one(MESSAGE, record)
    topics, items = columns.ragged("topic"), PropertyItems(columns.ragged("properties"))
    if len(rows_not_to_store(topics, items, rules.record_rules)):
        return None
    if items.torn()[0]:
        # a correct header does not restore them, and a service cannot use the message
        if is_for_service(topic):
            return None
        record = mended(record, with_crc=False, ended=False)[1]
    return position, record


def _with_numbers(fields: dict[str, Any], text: bytes, messages: int) -> bytes:
    """Return a record of these fields and this property text, with numbers corrected that no broker can read, or that
    make a batch of 0 messages; queue and body give the right values. A value with more digits than its place is not
    written.

    messages: in the record, by its unit; 0: brokers do not read the numbers of a batch. If the record's own CRC covers
    such a number, the CRC is made anew.
    """
    record: bytes = MESSAGE.build({**fields, "properties": text})
    values = {DELAY: fields["queue_id"] + 1} if fields["topic"] == SCHEDULE_TOPIC.encode() else {}
    if messages and INNER_NUM.encode() + NAME_VALUE_SEPARATOR in text:
        if fields["sys_flag"] & SysFlag.INNER_BATCH:
            messages = count_of(unpack(fields["body"], fields["sys_flag"]).data) or messages
        values |= {INNER_NUM: messages, INNER_BASE: fields["queue_offset"]}
    items = text.split(ITEM_SEPARATOR)
    for at, item in enumerate(items):
        name, _, old = item.partition(NAME_VALUE_SEPARATOR)
        key = java_string(name)
        if key not in values or not old:
            continue
        found = java_integer(java_string(old), NUMBER_BITS[key])
        if found is not None and not (key == INNER_NUM and found < 1):
            continue
        items[at] = name + NAME_VALUE_SEPARATOR + (b"%d" % values[key]).rjust(len(old), b"0")
    made: bytes = MESSAGE.build({**fields, "properties": ITEM_SEPARATOR.join(items)})
    if len(made) != len(record) or made == record:
        return record
    return with_crc_item(made) if crc_ok(record) else made


def _topic_of(units: LostUnits, row: int) -> bytes:
    return utf8(units.queues[int(units.queue[row])].topic)


def _fields(raw: bytes, topic: bytes) -> dict[str, Any] | None:
    """Return the fields of a record of that topic before its properties, None if its body is not whole."""
    columns = decode_one(MESSAGE, raw)
    fields: dict[str, Any] = {name: int(columns.ints(name)[0]) for name in (*_KEPT_FIELDS, _PREPARED)}
    for host in ("born_host", "store_host"):
        port = int(columns.ints(f"{host}.port")[0])
        fields[host] = {"ip": columns.ragged(f"{host}.ip")[0], "port": port}
    magic = MAGIC_V2 if len(topic) > TOPIC_BYTES_MAX_V1 else MAGIC_V1
    # no unit names a record that was prepared or rolled back
    flags = fields["sys_flag"] & ~TRANSACTION_MASK | (SysFlag.COMMIT if fields[_PREPARED] else 0)
    fields |= {"magic_code": magic, "sys_flag": flags, "topic": topic}
    length, body = int(columns.ints("body_length")[0]), columns.ragged("body")[0]
    if _is_whole(body, length, fields["body_crc"]) and length <= len(raw) - SMALLEST - len(topic):
        return {**fields, "body": body}
    numbers = {name: int(columns.ints(name)[0]) for name in _NUMBERS}
    return _with_body(raw, fields, numbers)


def _with_body(raw: bytes, fields: dict[str, Any], numbers: dict[str, int]) -> dict[str, Any] | None:
    """Return the fields with a body that ends where the topic begins and matches its CRC or the record's; else None."""
    around = len(MESSAGE.build({**fields, **numbers, "body": b"", "properties": b""}))
    for end, size in islice(ends_of_body(raw, fields["topic"]), _MOST_ENDS):
        body, text = raw[end - max(0, len(raw) - around - size) : end], raw[len(raw) - size :]
        found = {**fields, "body_crc": crc31(body), "body": body}
        if found["body_crc"] == fields["body_crc"]:
            return found
        if ends_with_crc(text) and crc_ok(MESSAGE.build({**found, **numbers, "properties": text})):
            return found
    return None


def _is_whole(body: bytes, length: int, crc: int) -> bool:
    """Whether a body has its length and CRC: an empty body with another CRC was not empty."""
    return len(body) == length and crc31(body) == crc


def _is_plausible(fields: dict[str, Any], near_ms: int) -> bool:
    """Whether a broker could have written these times and flags: no zeros, no noise."""
    stored, born = fields["store_timestamp"], fields["born_timestamp"]
    near = not near_ms or abs(stored - near_ms) <= _CLOCK_MS
    return stored > 0 and born > 0 and near and not fields["sys_flag"] & ~_KNOWN_FLAGS


def _has_tag(record: bytes, tags_code: int, delay_levels: tuple[int, ...] | None) -> bool:
    """Whether the record would get a unit with this tags code, which may be an address in the ext file."""
    columns = decode_one(MESSAGE, record)
    batch = Batch(columns, columns.ints("physical_offset").astype(np.int64), Mark.NONE, None)
    made = dispatch(batch, OWN_QUEUES._replace(delay_levels=delay_levels)).units
    return len(made) == 1 and (tags_code <= EXT_ADDRESS_MAX or int(made.tags_code[0]) == tags_code)


NumberOf = Callable[[bytes], int | None]
"""The queue offset of a record in an LMQ, None: unknown."""
_NUMBER = re.compile(rb"\+?[0-9]{1,18}")


def lmq_items(records: Iterable[Piece], audits: Mapping[QueueId, QueueAudit]) -> Iterator[Piece]:
    """Yield the corrected records. audits: of the queues, which have seen the log. Raises Unreadable."""
    given = set[tuple[bytes, int]]()
    for position, data in records:

        def number(name: bytes, position: int = position) -> int | None:
            topic = name.decode("utf-8", "surrogateescape")
            audit = audits.get(QueueId(topic, 0))
            found = _number_in(audit, position) if audit is not None else None
            if found is None or (name, found) in given:
                return None
            given.add((name, found))
            return found

        made = with_numbers(bytes(data), number)
        if made is not None:
            yield position, made


def lacks_numbers(record: bytes) -> bool:
    """Whether a record names LMQs with offsets that no broker can read."""
    items = without_crc(MESSAGE.parse(record).properties)[0].split(ITEM_SEPARATOR)
    names, offsets = (_value(items, _rows_named(items, part)) for part in (_NAMES, _OFFSETS))
    return bool(names and offsets) and is_undispatchable(names, offsets)


def _number_in(audit: QueueAudit, position: int) -> int | None:
    """Return the offset by the unit that names the record, or by the hole between its neighbours in the queue."""
    for first, units in audit.stream.windows():
        rows = (is_used(units) & (units["physical_offset"] == position)).nonzero()[0]
        if len(rows):
            return first + int(rows[0])
    if audit.first < 0:
        return None
    for hole in audit.missing():
        if hole.end - hole.begin == 1 and hole.low <= position < hole.high:
            return hole.begin
    return audit.next if position > audit.last_position else None


def with_numbers(record: bytes, number: NumberOf) -> bytes | None:
    """Return the record with as many offsets as names, None if they cannot be told."""
    values = MESSAGE.parse(record)
    text, with_crc = without_crc(values.properties)
    items = text.split(ITEM_SEPARATOR)
    named = {part: _rows_named(items, part) for part in (_NAMES, _OFFSETS)}
    if len(named[_NAMES]) != 1 or len(named[_OFFSETS]) > 1:
        return None
    names = _value(items, named[_NAMES]).split(_COMMA)
    offsets = _value(items, named[_OFFSETS]).split(_COMMA)
    if len(offsets) > len(names):
        offsets = []  # nobody can tell which offset belongs to which name
    offsets += [b""] * (len(names) - len(offsets))
    pairs = [(name, _offset_text(name, offset, number)) for name, offset in zip(names, offsets, strict=True)]
    kept = [(name, offset) for name, offset in pairs if name and offset]
    for part, row in ((_NAMES, 0), (_OFFSETS, 1)):
        value = _COMMA.join(pair[row] for pair in kept)
        for at in named[part]:
            items[at] = part + NAME_VALUE_SEPARATOR + value if kept else b""
    made = ITEM_SEPARATOR.join(item for item in items if item) + ITEM_SEPARATOR
    if len(made) > len(text):
        made = made.removesuffix(ITEM_SEPARATOR)
    return with_text(values, made, with_crc=with_crc) if len(made) <= len(text) else None


def _offset_text(name: bytes, offset: bytes, number: NumberOf) -> bytes:
    """Return the offset as it is, or as the LMQ has it; b"" if unknown."""
    if _NUMBER.fullmatch(offset):
        return offset
    found = number(name) if name else None
    return b"" if found is None else b"%d" % found


def _rows_named(items: Sequence[bytes], name: bytes) -> list[int]:
    return [at for at, item in enumerate(items) if item.partition(NAME_VALUE_SEPARATOR)[0] == name]


def _value(items: Sequence[bytes], at: Sequence[int]) -> bytes:
    return items[at[0]].partition(NAME_VALUE_SEPARATOR)[2] if at else b""


Place = tuple[int, int, int, int, int]
"""Position, size, number of the queue, queue offset, tags code."""


def wrong_offsets(
    log: CommitLog, audits: Mapping[QueueId, QueueAudit], misplaced: Sequence[TornRecord], silent: Sequence[Ints]
) -> LostUnits:
    """Return the places that units give to records with a wrong header.

    audits: of all simple queues, which have seen the log. misplaced: records that name another position than theirs.
    silent: positions of records that get no unit. Raises Unreadable.
    """
    queues = sorted(queue for queue in audits if not queue.topic.startswith(LMQ_PREFIX))
    queues = [queue for queue in queues if not audits[queue].is_foreign()]
    rows: list[Place] = []
    if any(audits[queue].is_odd() for queue in queues):
        unreferenced = [audits[queue].unreferenced() for queue in queues]
        wanted = np.unique(np.concatenate([*unreferenced, *silent, np.zeros(0, np.int64)]))
        for number, queue in enumerate(queues):
            rows += _named_elsewhere(log, audits[queue], number, wanted)
    known = {row[0] for row in rows}
    for record in misplaced:
        if record.position in known or record.sys_flag & TRANSACTION_MASK:
            continue
        queues.append(QueueId(record.topic.decode("utf-8", "surrogateescape"), record.queue_id))
        place = (len(queues) - 1, record.queue_offset, EXT_ADDRESS_MAX)
        rows.append((record.position, record.size, *place))
    columns = np.array(rows, np.int64).reshape(-1, 5).T
    found = LostUnits(queues, *columns)
    # a record that two queues claim is left alone
    positions, counts = np.unique(found.position, return_counts=True)
    return found.take(np.isin(found.position, positions[counts == 1]))


def _named_elsewhere(log: CommitLog, audit: QueueAudit, number: int, wanted: Ints) -> Iterable[Place]:
    """Yield units of a queue that name a record which no unit at its own offset names, if the log has no other record
    for their offset: otherwise the unit is wrong, not the header.
    """
    for first, units in audit.stream.windows():
        position = units["physical_offset"].astype(np.int64)
        rows = np.flatnonzero(is_valid(units) & np.isin(position, wanted))
        for at in rows[audit.has_room(first + rows, position[rows])].tolist():
            if audit.has_wrong_offset_at(log, first + at):
                size, tags = int(units["size"][at]), int(units["tags_code"][at])
                yield int(position[at]), size, number, first + at, tags
