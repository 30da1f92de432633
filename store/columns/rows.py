"""Rows kept as columns: the base of classes whose fields are columns of one length."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar, Self, TypeVar, dataclass_transform

import numpy as np
import numpy.typing as npt

from ...formats.derive import Ragged
from ...formats.derive.columns import Columns
from ...formats.derive.ragged import Flags, Ints

Key = slice | Flags | Ints
_TYPES = {"Ints": np.int64, "Flags": np.bool_}
_ARRAYS = (np.ndarray, Ragged)
T = TypeVar("T", bound=npt.NDArray[Any])


@dataclass_transform(frozen_default=True, eq_default=False)
class Rows:
    """Base of classes whose annotations are their fields: given in this order, or by name. Fields that are
    arrays, `Ragged`, `Columns` or `Rows` have an item for each of n rows; other fields belong to all rows.

    No dataclass: to make one takes as long as to look at a thousand records, and columns have no `==`.
    """

    FIELDS: ClassVar[dict[str, str]] = {}
    """Name → annotation."""

    def __init_subclass__(cls) -> None:
        cls.FIELDS = cls.FIELDS | cls.__annotations__

    def __init__(self, *fields: Any, **named: Any) -> None:
        """Raises TypeError for fields that it has not, and without one that has no default."""
        own = vars(self)
        own.update(zip(self.FIELDS, fields, strict=False), **named)
        wrong = len(fields) > len(self.FIELDS) or not named.keys() <= self.FIELDS.keys()
        if wrong or (
            len(own) < len(self.FIELDS) and not all(hasattr(self, n) for n in self.FIELDS)
        ):
            raise TypeError(f"{type(self).__name__} has the fields {', '.join(self.FIELDS)}")

    def __len__(self) -> int:
        columns = (*_ARRAYS, Columns, Rows)
        return next(len(column) for column in vars(self).values() if isinstance(column, columns))

    def replace(self, **named: Any) -> Self:
        """The same with other fields."""
        return type(self)(**{name: getattr(self, name) for name in self.FIELDS} | named)

    def take(self, key: Key) -> Self:
        """Some of the rows, by slice, mask or index."""
        return type(self)(*(_taken(getattr(self, name), key) for name in self.FIELDS))

    @classmethod
    def concat(cls, parts: Iterable[Self], order: Key | None = None) -> Self:
        """One part after the other; of none: no rows, of a class that has only `Ints` and `Flags`.

        order: of the rows, if it is another; column by column, to keep memory small. Raises TypeError
        for a class that has `Columns` among its fields.
        """
        found = list(parts)
        if not found:
            return cls(*(np.zeros(0, _TYPES[name]) for name in cls.FIELDS.values()))
        if len(found) == 1:
            return found[0] if order is None else found[0].take(order)
        key = slice(None) if order is None else order
        columns = ([getattr(part, name) for part in found] for name in cls.FIELDS)
        return cls(*(_taken(_joined(column), key) for column in columns))


def kept(column: T) -> T:
    """The column for one that keeps it for longer than its batch: a view keeps all columns of that."""
    return column if column.base is None else column.copy()


def _taken(value: Any, key: Key) -> Any:
    if isinstance(value, np.ndarray) and isinstance(key, np.ndarray) and key.dtype == np.int64:
        return value.take(key)  # the same, quicker
    if isinstance(value, _ARRAYS):
        return value[key]
    return value.take(key) if isinstance(value, (Columns, Rows)) else value


def _joined(values: list[Any]) -> Any:
    if isinstance(values[0], np.ndarray):
        return np.concatenate(values)
    if isinstance(values[0], Columns):
        raise TypeError("columns of a schema are not put together here")
    if isinstance(values[0], Rows):
        return type(values[0]).concat(values)
    return Ragged.concat(values) if isinstance(values[0], Ragged) else values[0]
