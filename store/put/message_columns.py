"""Many new messages as columns: what a producer gives, completed and checked."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from ...formats.derive import Ragged
from ...formats.derive.ragged import Ints, overlapping
from ...formats.message import SysFlag
from ...formats.message_properties import CRC_ITEM_BYTES, ITEM_SEPARATOR
from ...formats.primitives import IPV6_BYTES
from ..columns.dictionary import Dictionary, dictionary
from ..counted import counted
from ..errors import InvalidInput
from .new_message import (
    CRC_ITEM_HEAD,
    NewMessage,
    Rules,
    check_host,
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


def columns_of(messages: Sequence[NewMessage]) -> dict[str, Any]:
    """Columns of messages that are given one by one."""
    numbers = ("queue_id", "flag", "sys_flag", "born_timestamp", "reconsume_times")
    columns: dict[str, Any] = {
        name: np.array([getattr(message, name) for message in messages], np.int64)
        for name in (*numbers, "prepared_transaction_offset")
    }
    for name in ("topic", "body", "properties"):
        columns[name] = Ragged.of([getattr(message, name) for message in messages])
    columns["born_host.ip"] = Ragged.of([message.born_host[0] for message in messages])
    columns["born_host.port"] = np.array([m.born_host[1] for m in messages], np.int64)
    times = [m.store_timestamp for m in messages]
    columns["store_timestamp"] = np.array([-1 if t is None else t for t in times], np.int64)
    wrong = [NO_CRC if m.wrong_crc is None else m.wrong_crc for m in messages]
    columns["wrong_crc"] = np.array(wrong, np.int64)
    return columns


def count_of(columns: Mapping[str, Any]) -> int:
    bodies = columns["body"]
    if not isinstance(bodies, Ragged):
        raise InvalidInput("the column body has to be one of byte strings")
    return len(bodies)


def rows_of(columns: Mapping[str, Any], total: int, key: slice) -> dict[str, Any]:
    """Some rows of the columns that a producer gives; `total` is the number of all."""
    names = (*_DEFAULTS, "topic", "body", "born_timestamp", "store_timestamp")
    chosen: dict[str, Any] = dict(_DEFAULTS)
    for name in names:
        if name not in columns:
            continue
        column = columns[name]
        if isinstance(column, np.ndarray | Ragged):
            if len(column) != total:
                raise InvalidInput(
                    f"column {name} has {counted(len(column), 'row')}, body has {total}"
                )
            column = column[key]
        chosen[name] = column
    return chosen


def columns_where(columns: Mapping[str, Any], kept: npt.NDArray[np.bool_]) -> dict[str, Any]:
    """The rows of columns for which `kept` holds; one value for all stays one."""
    rows = np.flatnonzero(kept)
    return {
        name: column[rows] if isinstance(column, np.ndarray | Ragged) else column
        for name, column in columns.items()
    }


def prepare(columns: dict[str, Any], count: int, rules: Rules, now_ms: int) -> Dictionary:
    """Complete the columns of a step in place: what encode needs but offsets and CRC.

    Raises InvalidInput, LimitExceeded.
    """
    for name in ("queue_id", "sys_flag"):
        columns[name] = _spread(columns[name], count)
    for name in ("born_timestamp", "store_timestamp"):
        given = _spread(columns.get(name, -1), count)
        columns[name] = np.where(given < 0, now_ms, given)
    for name in ("topic", "properties", "born_host.ip"):
        if isinstance(columns[name], bytes):
            columns[name] = Ragged.repeat(columns[name], count)
    if count and int(columns["queue_id"].min()) < 0:
        raise InvalidInput(f"queue id must not be negative: {int(columns['queue_id'].min())}")
    topics = dictionary(columns["topic"])
    magic = [check_topic(topic, rules.profile) for topic in topics.values]
    columns["magic_code"] = np.array(magic, np.int64)[topics.ids]
    if rules.append_crc:
        columns["properties"] = _with_crc_items(columns["properties"])
    largest = int(columns["body"].length.max(initial=0))
    check_sizes(largest, int(columns["properties"].length.max(initial=0)), rules)
    born = columns["born_host.ip"].length
    store_ip, store_port = rules.store_host
    if (born == IPV6_BYTES).any():
        check_host(bytes(IPV6_BYTES), rules.profile)
    check_host(store_ip, rules.profile)
    plain = host_bits(b"", store_ip)
    wide = host_bits(bytes(IPV6_BYTES), store_ip)
    flags = columns["sys_flag"] & ~int(SysFlag.BORN_V6 | SysFlag.STORE_V6)
    columns["sys_flag"] = flags | np.where(born == IPV6_BYTES, wide, plain)
    columns["store_host.ip"], columns["store_host.port"] = store_ip, store_port
    return topics


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


def _closed(text: bytes) -> bytes:
    return text if not text or text.endswith(ITEM_SEPARATOR) else text + ITEM_SEPARATOR
