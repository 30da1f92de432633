"""Which kind the bytes of a file are, told from the first ones and its length: a copy has lost its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from construct import Construct, Struct

from ...formats import (
    batch_consume_queue,
    checkpoint,
    commit_log,
    consume_queue,
    consume_queue_ext,
    dledger,
    dledger_index,
    index_file,
    lock,
    tiered_index,
    timer_log,
    timer_wheel,
)
from ...formats.blank import MAGIC_BLANK
from ...formats.derive import columns_of
from ...formats.message import MAGIC_V1, MAGIC_V2, SMALLEST

_ENTRY_HEADER = Struct(*dledger.ENTRY.subcons[:-1])
_CHECKPOINT_TIMES = [f.name for f in columns_of(checkpoint.FIELDS) if f.name.endswith("_timestamp")]
_LATEST_MS = 1 << 43
"""A time behind the year 2248 is no time of a broker."""


def kind_of_bytes(head: bytes, size: int) -> str | None:
    """The first kind that bytes look like; None for none. size: of the whole file."""
    return next((kind for kind, looks_like in _TESTS.items() if looks_like(head, size)), None)


def _parsed(schema: Construct[Any, Any], head: bytes) -> Any:
    """A fixed-size schema at the front of `head`; None where the bytes are too few."""
    return schema.parse(head) if len(head) >= schema.sizeof() else None


def _is_commit_log(head: bytes, size: int) -> bool:
    """A record or BLANK at the front, or, where the front is damaged, a magic code soon."""
    first = _parsed(commit_log.HEAD, head)
    if first is None or first.magic_code == MAGIC_BLANK:
        return first is not None
    magics = (MAGIC_V1, MAGIC_V2)
    return any(commit_log.HEAD.magic_code.build(magic) in head for magic in magics)


def _is_dledger(head: bytes, size: int) -> bool:
    entry = _parsed(_ENTRY_HEADER, head)
    return (
        entry is not None
        and entry.magic == dledger.MAGIC_ENTRY
        and entry.size == dledger.HEADER_BYTES + entry.body_length
        and entry.index >= 0
        and entry.body_length >= SMALLEST
    )


def _is_timer_log(head: bytes, size: int) -> bool:
    unit = _parsed(timer_log.UNIT, head)
    return (
        unit is not None
        and unit.size == timer_log.UNIT_BYTES
        and 0 <= unit.magic <= timer_log.MAGIC_MAX
        and 0 < unit.curr_write_time < _LATEST_MS
    )


def _is_timer_wheel(head: bytes, size: int) -> bool:
    return size == timer_wheel.FILE_BYTES


def _is_checkpoint(head: bytes, size: int) -> bool:
    """One page, times at its front, nothing behind the fields."""
    fields = _parsed(checkpoint.FIELDS, head)
    return (
        size == checkpoint.PAGE_BYTES
        and not any(head[checkpoint.FIELDS.sizeof() :])
        and all(0 <= fields[name] < _LATEST_MS for name in _CHECKPOINT_TIMES)
        and any(fields[name] for name in _CHECKPOINT_TIMES)
    )


def _is_index_file(head: bytes, size: int) -> bool:
    header = _parsed(index_file.HEADER, head)
    return (
        header is not None
        and 0 < header.begin_timestamp <= header.end_timestamp < _LATEST_MS
        and 0 <= header.begin_physical_offset <= header.end_physical_offset
        and 0 < header.index_count <= index_file.items_of(size, 0)
        and 0 <= header.hash_slot_count <= header.index_count
    )


def _is_tiered_index(head: bytes, size: int) -> bool:
    first = _parsed(tiered_index.HEAD, head)
    return (
        first is not None
        and first.header.magic == tiered_index.MAGIC_SEALED
        and tiered_index.slots_of(size, first.first_slot.position) is not None
    )


def _is_dledger_index(head: bytes, size: int) -> bool:
    """Whole units, of which the first two follow one another, or the only one is whole."""
    schema, step = dledger_index.UNIT, dledger_index.UNIT_BYTES
    if size % step or len(head) < min(size, 2 * step):
        return False
    units = [schema.parse(head[at : at + step]) for at in range(0, min(len(head), 2 * step), step)]
    if not units or not _is_dledger_unit(units[0]):
        return False
    first, second = units[0], units[-1]
    if len(units) == 1 or not second.magic:
        return True
    return bool(
        _is_dledger_unit(second)
        and second.index == first.index + 1
        and second.pos >= first.pos + first.size
        and second.term >= first.term
    )


def _is_dledger_unit(unit: Any) -> bool:
    return bool(
        dledger.MAGIC_ENTRY <= unit.magic <= dledger.MAGIC_CONFIG_CHANGE
        and unit.size >= dledger.HEADER_BYTES
        and min(unit.pos, unit.index, unit.term) >= 0
    )


def _is_batch_consume_queue(head: bytes, size: int) -> bool:
    """Whole units, of which the first one is as every broker writes it."""
    first = _parsed(batch_consume_queue.UNIT, head)
    return (
        first is not None
        and size % batch_consume_queue.UNIT_BYTES == 0
        and first.physical_offset >= 0
        and first.size >= SMALLEST
        and 0 < first.store_time < _LATEST_MS
        and first.msg_base_offset >= 0
        and first.batch_size > 0
        and (first.compacted_offset, first.reserved) == (-1, 0)
    )


def _is_consume_queue_ext(head: bytes, size: int) -> bool:
    """A unit whose sizes say the same, with a time of a broker."""
    first = _parsed(consume_queue_ext.HEAD, head)
    return (
        first is not None
        and first.bit_map_size >= 0
        and first.size == consume_queue_ext.UNIT_BYTES_MIN + first.bit_map_size <= size
        and 0 < first.msg_store_time < _LATEST_MS
    )


def _is_consume_queue(head: bytes, size: int) -> bool:
    """Whole units, of which the first ones that are written point forward."""
    schema = consume_queue.UNIT
    if not head or size % consume_queue.UNIT_BYTES:
        return False
    units = [
        schema.parse(head[at : at + consume_queue.UNIT_BYTES])
        for at in range(0, min(len(head), 8 * consume_queue.UNIT_BYTES), consume_queue.UNIT_BYTES)
    ]
    written = [unit for unit in units if unit.size]
    offsets = [unit.physical_offset for unit in written]
    return (
        bool(written)
        and all(unit.size >= SMALLEST for unit in written)
        and offsets[0] >= 0
        and offsets == sorted(offsets)
    )


_TESTS: dict[str, Callable[[bytes, int], bool]] = {
    "lock": lambda head, size: head == lock.CONTENT,
    "timer-wheel": _is_timer_wheel,
    "dledger": _is_dledger,
    "timer-log": _is_timer_log,
    "commit-log": _is_commit_log,
    "checkpoint": _is_checkpoint,
    "index-file": _is_index_file,
    "tiered-index": _is_tiered_index,
    "dledger-index": _is_dledger_index,
    "batch-consume-queue": _is_batch_consume_queue,
    "consume-queue-ext": _is_consume_queue_ext,
    "consume-queue": _is_consume_queue,
}
"""In this order: an entry of DLedger has the magic code of its record in it."""
