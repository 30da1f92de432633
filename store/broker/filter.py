"""A condition in the filter language, asked of one message or of a batch of columns."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import reduce
from typing import TYPE_CHECKING

from .filter_fields import value_of
from .filter_grammar import parse
from .filter_tree import Constant, Name, Node
from .filter_values import Value

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    from ..log.batch import Batch
    from ..log.message import Message


class Where:
    """An expression that a broker accepts, such as `price > 50.0 AND region IS NOT NULL`.

    text: SQL92 as RocketMQ has it, over properties, and over `@fields` of the record. Raises
    InvalidInput where a broker refuses it.

    >>> where = Where("TAGS = 'Aa' OR @queue_id BETWEEN 2 AND 3")
    >>> where.matches({"TAGS": "Aa"})
    True
    """

    def __init__(self, text: str) -> None:
        self.text = text
        self._node, self.ignored = parse(text)
        """ignored: what stands behind the first complete expression; a broker does not read it."""

    @property
    def read(self) -> str:
        """The part of the text that a broker reads."""
        return self.text.removesuffix(self.ignored).rstrip()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Where) and self.text == other.text

    def __hash__(self) -> int:
        return hash(self.text)

    def __repr__(self) -> str:
        return f"Where({self.text!r})"

    def matches(self, properties: Mapping[str, str]) -> bool:
        """Whether a broker lets a message with these properties pass. Fields are unknown."""
        return self.value(properties) is True

    def value(self, properties: Mapping[str, str]) -> Value:
        """What a broker makes of these properties: True, False, None (unknown) or FAILED."""

        def named(name: Name) -> Value:
            return None if name.field else properties.get(name.name)

        return _value(self._node, named)

    def takes(self, message: Message) -> bool:
        """Whether the message is wanted."""

        def named(name: Name) -> Value:
            if name.field:
                return value_of(message, name.name)
            return message.properties.get(name.name)

        return _value(self._node, named) is True

    def mask(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """bool[n]: which records of a batch are wanted; equal to `takes` of each."""
        from .filter_columns import Source, states

        return states(self._node, Source(batch))


def _value(node: Node, named: Callable[[Name], Value]) -> Value:
    """What an expression is for one message."""
    if isinstance(node, Constant):
        return node.value
    if isinstance(node, Name):
        return named(node)
    first, *more = node.operands
    found = _value(first, named)
    if not more:
        return node.operator(found)
    return reduce(lambda left, right: node.operator(left, _value(right, named)), more, found)
