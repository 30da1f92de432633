"""Columns of decoded records."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .ragged import Flags, Ints, Ragged

Column = npt.NDArray[Any] | Ragged


class Columns(Mapping[str, Column]):
    """The fields of n records by dotted path: integer arrays (native byte order) and `Ragged`.

    starts, ends: int64[n], first byte of each record and byte behind its last field, as positions in the buffer. ok:
    bool[n], all lengths are non-negative and inside the limit; in a record that is not ok only the fields before the
    bad length are valid. A field that a record does not have (because of a condition) reads as 0 or length -1, see
    `present`.
    """

    def __init__(self, starts: Ints) -> None:
        self.starts = starts
        self.ends = starts
        self.ok: Flags = np.ones(len(starts), np.bool_)
        #: path → (structured array, field): converted when first needed
        self._pending: dict[str, tuple[npt.NDArray[Any], str]] = {}
        self._columns: dict[str, Column] = {}
        self._present: dict[str, Flags] = {}
        #: Fields that are decoded when the first of them is needed, and the function that decodes them.
        self._later: tuple[tuple[str, ...], Callable[[], Columns]] | None = None

    def __len__(self) -> int:
        """Number of records (not of fields)."""
        return len(self.starts)

    def __iter__(self) -> Iterator[str]:
        later = self._later[0] if self._later else ()
        known = dict.fromkeys([*self._columns, *self._pending, *later])
        return iter(known)

    def __contains__(self, path: object) -> bool:
        if self._later is not None and path in self._later[0]:
            return True
        return path in self._columns or path in self._pending

    def __getitem__(self, path: str) -> Column:
        column = self._columns.get(path)
        if column is None and self._later is not None and path in self._later[0]:
            self._decode_later()
            column = self._columns.get(path)
        if column is None:
            records, name = self._pending[path]
            field = records[name]
            column = field.astype(field.dtype.newbyteorder("="))
            self._columns[path] = column
        return column

    def ints(self, path: str) -> npt.NDArray[Any]:
        """An integer column: array[n]. Raises KeyError, and TypeError for a column of bytes."""
        column = self[path]
        if isinstance(column, Ragged):
            raise TypeError(f"{path} is not a number")
        return column

    def ragged(self, path: str) -> Ragged:
        """A column of bytes. Raises KeyError, and TypeError for numbers."""
        column = self[path]
        if not isinstance(column, Ragged):
            raise TypeError(f"{path} is a number")
        return column

    def present(self, path: str) -> Flags:
        """bool[n]: the record has the field."""
        partial = self._present.get(path)
        if partial is not None:
            return partial
        return np.full(len(self), path in self, np.bool_)

    def set(self, path: str, column: Column) -> None:
        self._pending.pop(path, None)
        self._columns[path] = column

    def lack(self, path: str, column: Column) -> None:
        """Add a field that no record has. column: all values are 0 or of length -1."""
        self.set(path, column)
        self._present[path] = np.zeros(len(self), np.bool_)

    def add_run(self, records: npt.NDArray[Any]) -> None:
        """Add the fields of a structured array; each is converted when first needed."""
        for name in records.dtype.names or ():
            self._pending[name] = (records, name)

    def add_later(self, paths: tuple[str, ...], decode: Callable[[], Columns]) -> None:
        """Add fields that `decode` returns when one of them is needed; the buffer must be valid until then."""
        self._later = paths, decode

    def _decode_later(self) -> Columns:
        if self._later is not None:
            paths, decode = self._later
            self._later = None
            found = decode()
            for path in paths:
                self.set(path, found[path])
        return self

    def take(self, key: slice | npt.NDArray[Any]) -> Columns:
        """Some of the records, by slice, mask or index."""
        part = Columns(self.starts[key])
        part.ends, part.ok = self.ends[key], self.ok[key]
        part._columns = {path: column[key] for path, column in self._columns.items()}
        taken: dict[int, npt.NDArray[Any]] = {}
        for path, (records, name) in self._pending.items():
            if path not in part._columns:
                if id(records) not in taken:
                    taken[id(records)] = records[key]
                part._pending[path] = (taken[id(records)], name)
        part._present = {path: mask[key] for path, mask in self._present.items()}
        if self._later is not None:
            part.add_later(self._later[0], lambda: self._decode_later().take(key))
        return part


def merge(count: int, starts: Ints, parts: list[tuple[Ints, Columns]]) -> Columns:
    """Merge groups of records, each with its index in the whole; all must have the same fields."""
    whole = Columns(starts)
    whole.ends = np.empty(count, np.int64)
    for index, part in parts:
        whole.ends[index] = part.ends
        whole.ok[index] = part.ok
    for path in parts[0][1]:
        whole.set(path, _merge_column(count, [(index, part[path]) for index, part in parts]))
        if any(path in part._present for _, part in parts):
            mask = np.zeros(count, np.bool_)
            for index, part in parts:
                mask[index] = part.present(path)
            whole._present[path] = mask
    return whole


def _merge_column(count: int, parts: list[tuple[Ints, Column]]) -> Column:
    first = parts[0][1]
    if isinstance(first, Ragged):
        start, length = np.zeros(count, np.int64), np.full(count, -1, np.int64)
        for index, column in parts:
            assert isinstance(column, Ragged)
            start[index], length[index] = column.start, column.length
        return Ragged(first.buffer, start, length)
    arrays = [column for _, column in parts if not isinstance(column, Ragged)]
    out = np.zeros((count, *arrays[0].shape[1:]), np.result_type(*arrays))
    for (index, _), array in zip(parts, arrays, strict=True):
        out[index] = array
    return out
