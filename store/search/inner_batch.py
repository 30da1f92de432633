"""Messages inside of batch records, as consumers get them (spec 01, 1.9).

In a topic with queue.type=BatchCQ a broker stores what a client sent together as one record. A
client of 5.x takes it apart: each message has its own flag, body and properties, and the queue
offset of the record plus its number. All else, the position and the message id too, is the
record's. A record whose body is no such batch stays as it is: so a client passes it on.
"""

from __future__ import annotations

import numpy as np

from ...formats import message_properties as names
from ...formats.client_batch import MESSAGE, starts_of
from ...formats.derive import Columns, Ragged, decode
from ...formats.derive.ragged import Flags, Ints
from ...formats.property_columns import find as find_property
from ..log.batch import Batch, Inner
from ..log.body import MAX_BODY_BYTES, compression_of, unpack
from ..log.message import is_batch_record


def unwrapped(batch: Batch, max_bytes: int = MAX_BODY_BYTES) -> Batch:
    """The messages of a batch of records: each record that holds several gives way to them.

    max_bytes: a body that is larger when decompressed stays a record. The columns that a message
    has of its own are `flag`, `queue_offset`, `body`, `properties` and their lengths.
    """
    rows = np.flatnonzero(is_batch_record(batch.columns.ints("sys_flag")))
    if batch.inner is not None or not len(rows):
        return batch
    bodies = _bodies(batch, rows, max_bytes)
    starts = [_starts(body) for body in bodies.tolist()]
    counts = np.array([len(found) for found in starts], np.int64)
    here = np.repeat(bodies.start, counts) + np.concatenate([*map(_ints, starts)])
    ends = np.repeat(bodies.start + bodies.length, counts)
    times = np.ones(len(batch), np.int64)
    times[rows] = np.maximum(counts, 1)
    apart = np.zeros(len(batch), np.bool_)
    apart[rows[counts > 0]] = True
    row = np.repeat(np.arange(len(batch)), times)
    number = np.arange(len(row)) - (np.cumsum(times) - times)[row]
    inside = apart[row]
    taken = batch.take(row)
    own = decode(MESSAGE, bodies.buffer, here, ends)
    _put(taken.columns, own, inside, number)
    inner = Inner(batch, row, np.where(inside, number, -1), times[row])
    return taken.replace(inner=inner)


def _ints(numbers: list[int]) -> Ints:
    return np.array(numbers, np.int64)


def _starts(body: bytes) -> list[int]:
    """Where the messages begin, none of what is no batch."""
    try:
        return starts_of(body)
    except ValueError:
        return []


def _bodies(batch: Batch, rows: Ints, max_bytes: int) -> Ragged:
    """The bodies of some records, decompressed; empty where that fails.

    All lie in one buffer, that of the batch in front.
    """
    bodies = batch.columns.ragged("body")[rows]
    start, length = bodies.start.copy(), bodies.length.copy()
    buffers = [bodies.buffer]
    size = len(bodies.buffer)
    for at, sys_flag in enumerate(batch.columns.ints("sys_flag")[rows].tolist()):
        if compression_of(sys_flag):
            body = unpack(bodies[at], sys_flag, max_bytes)
            data = b"" if body.error else body.data
            buffers.append(np.frombuffer(data, np.uint8))
            start[at], length[at] = size, len(data)
            size += len(data)
    buffer = buffers[0] if len(buffers) == 1 else np.concatenate(buffers)
    return Ragged(buffer, start, length)


def _put(columns: Columns, own: Columns, inside: Flags, number: Ints) -> None:
    """Give the rows `inside` what they have of their own, in their order."""
    for name in ("flag", "body_length", "properties_length"):
        column = columns.ints(name).copy()
        column[inside] = own.ints(name)
        columns.set(name, column)
    columns.set("queue_offset", columns.ints("queue_offset") + np.where(inside, number, 0))
    for name in ("body", "properties"):
        text, ours = columns.ragged(name), own.ragged(name)
        start, length = text.start.copy(), text.length.copy()
        start[inside], length[inside] = ours.start, ours.length
        columns.set(name, Ragged(ours.buffer, start, length))


def messages_in(batch: Batch) -> Ints:
    """How many queue offsets each record has, int64[n]: INNER_NUM of a whole batch, else 1."""
    number = np.ones(len(batch), np.int64)
    whole = is_batch_record(batch.columns.ints("sys_flag"))
    if batch.inner is not None:
        whole &= batch.inner.number < 0
    rows = np.flatnonzero(whole)
    if len(rows):
        texts = find_property(batch.columns.ragged("properties")[rows], names.INNER_NUM).tolist()
        for row, text in zip(rows.tolist(), texts, strict=True):
            if text.isdigit() and len(text) < 10:
                number[row] = max(1, int(text))
    return number


def backwards(batch: Batch) -> Batch:
    """The rows of each record the last one first; the records stay in their order."""
    if batch.inner is None:
        return batch
    row = batch.inner.row
    begins = np.flatnonzero(np.diff(row, prepend=-1))
    ends = np.append(begins[1:], len(row))
    times = ends - begins
    order = np.repeat(begins + ends - 1, times) - np.arange(len(row))
    return batch.take(order)
