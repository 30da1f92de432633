"""Lines of JSON for messages, made from columns: the same text as `Message.to_json`."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np

from ...formats import message_properties as names
from ...formats.derive import Columns
from ...formats.derive.ragged import Flags, Ints
from ...formats.host import host_text
from ...formats.json_lines import JsonLines, in_order
from ...formats.property_columns import PropertyItems
from ...formats.quick import OFFSET_DIGITS, broker_digits
from ..columns import distinct
from ..output.escaped import RANGES
from .batch import Batch, messages
from .message import FORMS, MARKS, Message

_FEW = 32
"""So few messages, or fewer, are converted one by one."""


class Lines(NamedTuple):
    """Lines of JSON, and how many there are."""

    data: memoryview
    records: int


def lines(batch: Batch) -> Iterator[Lines | Message]:
    """Yield the records of a batch in order: lines, and a `Message` where columns cannot give its line.

    That is a message with a compressed or non-text body, or with anything unusual.
    """
    if len(batch) <= _FEW or batch.inner is not None:
        yield from messages(batch)
        return
    items = PropertyItems(batch.columns.ragged("properties"))
    rows = np.flatnonzero(_is_plain(batch, items))
    at = 0
    for part in _template(batch, items, rows).parts():
        until = int(rows[part.end]) if part.end < len(rows) else len(batch)
        ends = np.full(until - at, -1, np.int64)
        ends[rows[part.first : part.end] - at] = part.ends
        odd = messages(batch.take(at + np.flatnonzero(ends < 0)))
        for some in in_order(part.data, ends):
            yield next(odd) if some is None else Lines(*some)
        at = until
    yield from messages(batch.take(slice(at, len(batch))))


def _is_plain(batch: Batch, items: PropertyItems) -> Flags:
    """bool[n]: the line has only the usual JSON members, with values as they are stored."""
    columns = batch.columns
    plain: Flags = batch.position == columns.ints("physical_offset")
    plain &= columns.ints("sys_flag") & FORMS == 0
    plain &= columns.ints("store_host.port") != 0
    return plain & ~items.repeated()


def _template(batch: Batch, items: PropertyItems, rows: Ints) -> JsonLines:
    """Lines of the plain records in `rows`; members and their order are those of `Message.to_json`."""
    tags, keys, unique_key = (items.find(n)[rows] for n in (names.TAGS, names.KEYS, names.UNIQ_KEY))
    batch = batch.take(rows)
    columns, position = batch.columns, batch.columns.ints("physical_offset")
    stored_by, hosts = batch.hosts("store_host")
    made = JsonLines(len(batch), RANGES)
    made.constant('{"type":"message","physical_offset":')
    made.number(position)
    _numbers(made, columns, "total_size")
    magics, known = distinct(columns.ints("magic_code"))
    made.chosen(magics, [f',"magic_code":"{magic:08x}"' for magic in known])
    _numbers(made, columns, "body_crc")
    if batch.body_crc_ok is None:
        made.constant(',"body_crc_ok":null')
    else:
        states = [f',"body_crc_ok":{state}' for state in ("false", "true")]
        made.chosen(batch.body_crc_ok.astype(np.int64), states)
    _numbers(made, columns, "queue_id", "flag", "queue_offset", "sys_flag", "born_timestamp")
    made.chosen(*_host_texts("born_host", batch.hosts("born_host")))
    _numbers(made, columns, "store_timestamp")
    made.chosen(*_host_texts("store_host", (stored_by, hosts)))
    _numbers(made, columns, "reconsume_times", "prepared_transaction_offset")
    made.constant(',"topic":')
    made.string(columns.ragged("topic"))
    made.constant(',"properties":')
    separators = (names.NAME_VALUE_SEPARATOR, names.ITEM_SEPARATOR)
    made.object(columns.ragged("properties"), *separators)
    made.constant(',"tags":')
    made.string(tags, or_null=True)
    made.constant(',"keys":')
    made.list(keys, names.KEY_SEPARATOR.encode())
    made.constant(',"unique_key":')
    made.string(unique_key, or_null=True)
    made.chosen(stored_by, [f',"message_id":"{broker_digits(*host)}' for host in hosts])
    made.hexadecimal(position, OFFSET_DIGITS)
    made.constant('","body":')
    made.string(columns.ragged("body"))
    marks = "".join(f',"{name}":{json.dumps(value)}' for name, value in MARKS[batch.mark].items())
    made.constant(marks + "}\n")
    return made


def _numbers(made: JsonLines, columns: Columns, *fields: str) -> None:
    for field in fields:
        made.constant(f',"{field}":')
        made.number(columns.ints(field).astype(np.int64))


def _host_texts(field: str, hosts: tuple[Ints, list[tuple[bytes, int]]]) -> tuple[Ints, list[str]]:
    return hosts[0], [f',"{field}":"{host_text(*host)}"' for host in hosts[1]]
