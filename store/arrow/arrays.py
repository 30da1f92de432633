"""Columns of the decoder as Arrow arrays: byte strings, texts, few different values."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from ...formats.derive import Ragged
from ...formats.derive.ragged import Ints
from ...formats.hashing import java_string
from ..columns.dictionary import dictionary
from ..errors import LimitExceeded

_NO_TEXT = re.compile("[\ud800-\udfff]")
_OFFSET_MAX = int(np.iinfo(np.int32).max)
"""Arrow's plain strings count their bytes in 32 bits."""


def bit_map(flags: npt.NDArray[np.bool_]) -> pa.Buffer | None:
    """Arrow's validity bits; None where all are valid."""
    if flags.all():
        return None
    return pa.py_buffer(np.packbits(flags, bitorder="little").tobytes())


def offsets_of(lengths: Ints) -> npt.NDArray[np.int32]:
    """int32[n + 1]: where each item begins and the last ends. Raises LimitExceeded."""
    ends = np.cumsum(lengths)
    if len(ends) and ends[-1] > _OFFSET_MAX:
        raise LimitExceeded("a column of one batch has more than 2 GiB")
    return np.concatenate([np.zeros(1, np.int64), ends]).astype(np.int32)


def binary_of(strings: Ragged) -> pa.Array:
    """Byte strings; a missing one (length -1) is null."""
    return _from_buffers(strings, pa.binary())


def text_of(strings: Ragged) -> pa.Array:
    """UTF-8 strings as Java reads them: malformed bytes become U+FFFD. A missing one is null."""
    array = _from_buffers(strings, pa.string())
    try:
        array.validate(full=True)
    except pa.ArrowInvalid:
        texts = [java_string(value) for value in strings.tolist()]
        given = (strings.length >= 0).tolist()
        return pa.array(
            [text if there else None for text, there in zip(texts, given, strict=True)], pa.string()
        )
    return array


def few_texts(strings: Ragged, text: Callable[[bytes], str] = java_string) -> pa.Array:
    """The same for a column of few different values; `text` is asked once for each."""
    found = dictionary(strings)
    values = pa.array([text(value) for value in found.values], pa.string())
    return values.take(pa.array(found.ids))


def constant(value: Any, count: int, arrow_type: pa.DataType) -> pa.Array:
    """The same value in every row."""
    value = path_text(value) if isinstance(value, str) else value
    return pa.repeat(pa.scalar(value, arrow_type), count)


def path_text(path: str) -> str:
    """A path, or a text of Java, as text: what is none in it becomes U+FFFD.

    >>> path_text("caf\\udce9"), path_text("half of a \\ud83d")
    ('caf\ufffd', 'half of a \ufffd')
    """
    return path if path.isascii() else _NO_TEXT.sub("\N{REPLACEMENT CHARACTER}", path)


def numbers(column: npt.NDArray[Any], arrow_type: pa.DataType) -> pa.Array:
    """Numbers of any byte order, copied: a scan uses its buffer again."""
    return pa.array(column.astype(column.dtype.newbyteorder("="))).cast(arrow_type)


def batch_of(names: Sequence[str], arrays: Sequence[pa.Array], schema: pa.Schema) -> pa.RecordBatch:
    """Some of the columns of `schema`, in the order of `names`."""
    wanted = pa.schema([schema.field(name) for name in names])
    return pa.RecordBatch.from_arrays(list(arrays), schema=wanted)


def _from_buffers(strings: Ragged, arrow_type: pa.DataType) -> pa.Array:
    offsets = offsets_of(np.maximum(strings.length, 0))
    packed = strings.packed()
    buffers = [bit_map(strings.length >= 0), pa.py_buffer(offsets), pa.py_buffer(packed.buffer)]
    return pa.Array.from_buffers(arrow_type, len(strings), buffers)
