"""The answers of `put --from` as NDJSON, encoded column by column: the same text as from `answers_of`."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from ..formats.derive import Ragged
from ..formats.json_lines import JsonLines, in_order
from ..formats.message_properties import UNIQ_KEY
from ..formats.property_columns import find
from ..formats.quick import OFFSET_DIGITS, broker_digits
from ..store.output.escaped import RANGES
from ..store.put.bulk import StoredColumns
from .json_text import dumps
from .put_target import answers_of

_FEW = 32
"""Up to this number of answers they are made one by one."""


def lines_of(stored: StoredColumns, properties: Iterable[bytes]) -> Iterator[dict[str, Any] | memoryview]:
    """Yield the answers for messages with these properties as lines of JSON; a dict where a line cannot be encoded."""
    texts = properties if isinstance(properties, Ragged) else Ragged.of(properties)
    if len(texts) <= _FEW:
        yield from answers_of(stored.rows(), texts)
        return
    for part in _template(stored, texts).parts():
        odd = (part.ends < 0).nonzero()[0] + part.first
        answers = answers_of(stored.some(odd).rows(), texts[odd]) if len(odd) else iter(())
        for some in in_order(part.data, part.ends):
            yield next(answers) if some is None else some[0]


def _template(stored: StoredColumns, texts: Ragged) -> JsonLines:
    made = JsonLines(len(texts), RANGES)
    made.constant('{"type":"stored","physical_offset":')
    made.number(stored.physical_offset)
    made.constant(',"total_size":')
    made.number(stored.total_size)
    made.chosen(stored.topic_id, [f',"topic":{dumps(topic)}' for topic in stored.topics])
    made.constant(',"queue_id":')
    made.number(stored.queue_id)
    made.constant(',"queue_offset":')
    made.number(stored.queue_offset)
    made.constant(f',"message_id":"{broker_digits(*stored.store_host)}')
    made.hexadecimal(stored.physical_offset, OFFSET_DIGITS)
    made.constant('","unique_key":')
    made.string(find(texts, UNIQ_KEY), or_null=True)
    made.constant("}\n")
    return made
