"""Join messages of a batch record, which `dump` prints one by one, into one record again, for `put`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

from ..store.put.message_json import INNER, is_message
from .arrow_input import NumberedRows
from .ndjson_input import Line

Portion = Sequence[Line] | NumberedRows

_NUMBER, _SIZE, _RECORD = "inner_number", "batch_size", "batch_record"
_PLACE = ("message_id", "position", "physical_offset", "topic", "queue_id", _RECORD)
"""Fields that all messages of one record have in common."""


def joined(portions: Iterable[Portion]) -> Iterator[Portion]:
    """Yield the portions; consecutive lines that are messages of one batch record become one line with a list of them.

    An incomplete record waits for the next portion only. An empty portion (no input for a while) makes it a line as it
    is. A message without the fields of its record stays a line of its own.
    """
    waiting: list[Line] = []
    for portion in portions:
        if isinstance(portion, NumberedRows):
            if waiting:
                yield [_joined(waiting)]
                waiting = []
            yield portion
            continue
        if not waiting and not any(_NUMBER in line.record for line in portion):
            yield portion
            continue
        lines: list[Line] = []
        if not portion and waiting:
            lines, waiting = [_joined(waiting)], []
        for line in portion:
            if waiting and not _belongs(line, waiting[-1]):
                lines.append(_joined(waiting))
                waiting = []
            if not _is_inner(line):
                lines.append(line)
                continue
            waiting.append(line)
            if line.record[_NUMBER] + 1 == line.record.get(_SIZE):
                lines.append(_joined(waiting))
                waiting = []
        yield lines
    if waiting:
        yield [_joined(waiting)]


def _is_inner(line: Line) -> bool:
    record = line.record
    return is_message(record) and isinstance(record.get(_RECORD), dict) and isinstance(record.get(_NUMBER), int)


def _belongs(line: Line, before: Line) -> bool:
    """Whether a line is a later message of the same record as the line before."""
    if not _is_inner(line) or line.record[_NUMBER] <= before.record[_NUMBER]:
        return False
    return all(line.record.get(name) == before.record.get(name) for name in _PLACE)


def _joined(lines: Sequence[Line]) -> Line:
    first: dict[str, Any] = lines[0].record
    of_record = {name: value for name, value in first.items() if name in _OF_RECORD}
    records = [line.record for line in lines]
    return Line(lines[0].number, {**of_record, **first[_RECORD], INNER: records})


_OF_RECORD = (
    *("topic", "topic_base64", "queue_id", "sys_flag", "born_timestamp", "born_host"),
    *("store_timestamp", "reconsume_times", "prepared_transaction_offset", "body_crc_ok"),
    *("body_compression", "store"),
)
