"""The bit map of a consumequeue_ext unit: which SQL filters a message passes (spec 2.6).

With enableCalcFilterBitMap a broker gives each consumer group with an SQL92 filter some bits of a bloom filter, and
keeps them in config/consumerFilter.json. When it dispatches a message, it sets the bits of each filter that the message
passes in the message's bit map. All but `read_filters` is pure.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from ...formats import consumer_filter as formats
from ...formats.config import BACKUP
from ...formats.json_table import EXPRESSION_TYPE
from ...formats.murmur3 import murmur3_low
from ..broker import topics
from ..counted import counted
from ..disk.compressed import read_regular
from ..errors import InvalidInput, Missing, Unsupported

if TYPE_CHECKING:
    from pathlib import Path

    from ...formats.derive.ragged import Bytes
    from ..broker.filter import Where
    from ..disk.broker_conf import BrokerConfig
    from ..disk.layout import Layout
    from ..log.batch import Batch

_INT_VALUES = 1 << 32
_CONFIG_BYTES = 16 << 20
_BYTE = 8
SQL92 = "SQL92"
ERROR_RATE_PERCENT = 20
CONSUMERS = 32
"""Defaults of a broker's `maxErrorRateOfBloomFilter` and `expectConsumerNumUseFilter`."""
BITS_MAX = 8 * ((1 << 15) - 1)
"""A larger bit map fits into no unit, whose size has 16 bits."""


class BloomFilter(NamedTuple):
    """The bloom filter of a broker: `bits` in a bit map, `hashes` of them for each group."""

    bits: int
    hashes: int

    @classmethod
    def of(cls, error_rate_percent: int = ERROR_RATE_PERCENT, consumers: int = CONSUMERS) -> Self:
        """Make a bloom filter for an error rate and a number of consumer groups; defaults are a broker's.

        Raises InvalidInput for values with which a broker does not start.

        BloomFilter.of() BloomFilter(bits=112, hashes=3)
        """
        if not 1 <= error_rate_percent < 100 or consumers < 1:
            raise InvalidInput(f"no bloom filter: error rate {error_rate_percent}, of {consumers}")
        rate = error_rate_percent / 100.0
        hashes = math.ceil(_log(0.5, rate))
        bits = math.ceil(consumers * _log(2, 1 / rate) * _log(2, math.e))
        if bits > BITS_MAX:
            raise InvalidInput(f"no bloom filter: {counted(bits, 'bit fits', 'bits fit')} into no unit")
        return cls(_BYTE * math.ceil(bits / _BYTE), hashes)

    @classmethod
    def from_config(cls, config: BrokerConfig) -> Self:
        """The bloom filter of a broker with this configuration. Raises InvalidInput."""
        rate = config.get_int("maxErrorRateOfBloomFilter", ERROR_RATE_PERCENT)
        return cls.of(rate, config.get_int("expectConsumerNumUseFilter", CONSUMERS))

    @property
    def bytes(self) -> int:
        return self.bits // _BYTE

    def positions(self, group: str, topic: str) -> tuple[int, ...]:
        """The bits of a consumer group in a topic; may contain duplicates."""
        found = murmur3_low(f"{group}#{topic}".encode())
        first, step = found % _INT_VALUES, found // _INT_VALUES
        combined = ((first + number * step) % _INT_VALUES for number in range(1, self.hashes + 1))
        return tuple((n if n < _INT_VALUES // 2 else _INT_VALUES - 1 - n) % self.bits for n in combined)


def _log(base: float, number: float) -> float:
    return math.log(number) / math.log(base)


class ConsumerFilter(NamedTuple):
    """The SQL filter of a consumer group in a topic.

    where: None if a broker cannot compile the expression, and then sets no bits. positions: the group's bits in a bit
    map of `bits`. born_ms: messages stored at or before it do not have its bits.
    """

    group: str
    topic: str
    expression: str
    where: Where | None
    positions: tuple[int, ...]
    bits: int
    born_ms: int

    def may_pass(self, bit_map: bytes, store_timestamp: int) -> bool:
        """Whether a broker goes on to look at a message with this bit map; False: the message does not pass."""
        if store_timestamp <= self.born_ms or _BYTE * len(bit_map) != self.bits:
            return True
        number = int.from_bytes(bit_map, "little")
        return all(number >> at & 1 for at in self.positions)


def read_filters(layout: Layout) -> dict[str, object]:
    """config/consumerFilter.json, parsed; its .bak if it is broken, missing or empty; {} if there is no .bak either.

    Raises Unsupported if the .bak is needed and broken: no broker starts then.
    """
    path, broken = layout.config / formats.FILE, None
    for each in (path, path.with_name(f"{path.name}{BACKUP}")):
        try:
            found = _read_object(each)
        except (ValueError, RecursionError) as error:
            broken = Unsupported(f"not the JSON of a broker: {error}", path=each)
            continue
        if found is not None:
            return found
        broken = None
    if broken is not None:
        raise broken
    return {}


def _read_object(path: Path) -> dict[str, object] | None:
    """A JSON object, `null` and an empty list included, which a broker reads as empty; None without file or content.

    Raises ValueError, RecursionError.
    """
    try:
        text = read_regular(path, _CONFIG_BYTES).decode()
    except Missing:
        return None
    found = topics.loads(text) if text else None
    if found and not isinstance(found, dict):
        raise ValueError("not an object")
    return found or {} if text else None


def consumer_filters(config: Mapping[str, Any], bloom: BloomFilter | None) -> dict[str, list[ConsumerFilter]]:
    """The filters of a parsed consumerFilter.json by topic.

    bloom: the broker's filter; None: each group's own bits count. Empty if a group's bits are of another bloom filter:
    a broker then forgets all filters. Raises InvalidInput if the object does not have the form that brokers write.
    """
    found: dict[str, list[ConsumerFilter]] = {}
    for topic, groups in _object(_object(config).get(formats.FILTER_DATA_BY_TOPIC)).items():
        for group, data in _object(_object(groups).get(formats.GROUP_FILTER_DATA)).items():
            if data is None:
                continue
            one = _consumer_filter(str(topic), str(group), _object(data), bloom)
            if one is None:
                return {}
            found.setdefault(one.topic, []).append(one)
    return found


def _object(value: Any) -> Mapping[str, Any]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidInput("consumerFilter.json does not have the form that a broker writes")
    return value


def _consumer_filter(
    topic: str, group: str, data: Mapping[str, Any], bloom: BloomFilter | None
) -> ConsumerFilter | None:
    """The filter of one group; None if its bits are not of this bloom filter."""
    bits = _object(data.get(formats.BLOOM_FILTER_DATA))
    positions = bits.get(formats.BIT_POS)
    if bloom is None:
        bloom, positions = _bloom_of_group(bits)
    if bits.get(formats.BIT_NUM) != bloom.bits or not isinstance(positions, list):
        return None
    if len(positions) != bloom.hashes:
        return None
    if not all(isinstance(at, int) and 0 <= at < bloom.bits for at in positions):
        raise InvalidInput(f"consumerFilter.json: bits of {group} outside of the bit map")
    born = data.get(formats.BORN_TIME, 0)
    expression = data.get("expression")
    where = _compiled(expression) if data.get(EXPRESSION_TYPE) == SQL92 else None
    return ConsumerFilter(
        group,
        topic,
        expression if isinstance(expression, str) else "",
        where,
        tuple(positions),
        bloom.bits,
        born if isinstance(born, int) else 0,
    )


def _bloom_of_group(bits: Mapping[str, Any]) -> tuple[BloomFilter, list[Any]]:
    """The bloom filter that one group's data names, and the group's bits; no bits if they are odd."""
    number, positions = bits.get(formats.BIT_NUM), bits.get(formats.BIT_POS)
    if not isinstance(number, int):
        return BloomFilter(0, 0), []
    if isinstance(positions, list) and all(isinstance(at, int) and 0 <= at < number for at in positions):
        return BloomFilter(number, len(positions)), positions
    return BloomFilter(number, 0), []


def _compiled(expression: object) -> Where | None:
    """The compiled expression; None if a broker refuses it, too."""
    from ..broker.filter import Where  # loading its grammar takes time, and few stores have such filters

    try:
        return Where(expression) if isinstance(expression, str) else None
    except InvalidInput:
        return None


def bit_maps(filters: Sequence[ConsumerFilter], bloom: BloomFilter, batch: Batch) -> Bytes:
    """uint8[n, bytes of a bit map]: the bit map of each record of the filters' topic; without filters, of 0 bytes.

    Bit n of the map is bit n % 8 of byte n // 8.
    """
    import numpy as np

    out = np.zeros((len(batch), bloom.bytes if filters else 0), np.uint8)
    for one in filters:
        if one.where is not None:
            passing = one.where.mask(batch)
            for at in one.positions:
                out[passing, at // _BYTE] |= np.uint8(1 << at % _BYTE)
    return out
