"""The native kernel: compiled loops over bulk bytes (kernel/, Rust), where it could be built.

It knows nothing of RocketMQ: schemas are passed to it as tables (`derive.program`). Code that can do the same with
numpy asks `is_wanted` which way to go; tests compare both with construct. The environment variable MQSTORE_KERNEL=numpy
turns the kernel off.

One library serves all Python versions: it is called through ctypes, which lets other threads run meanwhile.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from enum import IntEnum
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

VERSION = 7
"""Version of the library's operations; changes with them."""
NAME = "_kernel.so"
_MANY = 256
"""Fewer rows are not worth loading the library."""


class Operation(IntEnum):
    """Operations of the library; their arguments are described in kernel/src/lib.rs."""

    VERSION = 0
    CHAIN = 1
    DECODE = 2
    CHECKSUM = 3
    ITEMS = 4
    JAVA_HASH = 5
    DICTIONARY = 6
    COPY = 7
    WORD_SUMS = 8
    MEET = 9
    GO_ON = 10
    LINES = 11
    LINK = 12
    TALLY = 13


def is_wanted(rows: int = _MANY) -> bool:
    """Whether the library is available and worth a call for so many rows; once it is loaded, any number is."""
    if rows < _MANY and not _library.cache_info().currsize:
        return False
    return _library() is not None


def describe() -> str:
    """Which of kernel and numpy is in use, and why, for people."""
    if _library() is not None:
        return f"native kernel {VERSION}"
    if _is_refused():
        return "numpy, as MQSTORE_KERNEL says"
    return (
        "numpy: the native kernel was not built"
        if not _path().exists()
        else "numpy: the native kernel does not load, or is of another version of mqstore"
    )


def run(operation: Operation, arrays: Sequence[npt.NDArray[Any]], numbers: Sequence[int] = ()) -> int:
    """Do one operation on arrays and return its answer. Arrays that are written must be C-contiguous.

    Raises ValueError for senseless arguments, such as a range outside its buffer.
    """
    library = _library()
    assert library is not None
    answer = library(operation, [np.ascontiguousarray(array) for array in arrays], numbers)
    if answer < 0:
        raise ValueError(f"kernel: {operation.name} of arguments that make no sense")
    return answer


def _is_refused() -> bool:
    return os.environ.get("MQSTORE_KERNEL", "") == "numpy"


def _path() -> Path:
    return Path(__file__).with_name(NAME)


@lru_cache(maxsize=1)
def _library() -> _Library | None:
    if _is_refused() or not _path().exists():
        return None
    try:
        library = _Library(_path())
    except (OSError, AttributeError):  # built for another machine, or too old for this code
        return None
    return library if library(Operation.VERSION, (), ()) == VERSION else None


class _Library:
    def __init__(self, path: Path) -> None:
        import ctypes

        self._run = ctypes.CDLL(os.fspath(path)).mqstore_run
        self._run.restype = ctypes.c_int64
        self._run.argtypes = (ctypes.c_int64, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p, ctypes.c_size_t)

    def __call__(self, operation: int, arrays: Sequence[npt.NDArray[Any]], numbers: Sequence[int]) -> int:
        places = [array.__array_interface__["data"][0] for array in arrays]
        spans = np.array([*zip(places, [array.nbytes for array in arrays], strict=True)], np.uint64)
        given = np.array(numbers, np.int64)
        where = (spans.__array_interface__["data"][0], given.__array_interface__["data"][0])
        answer: int = self._run(operation, where[0], len(arrays), where[1], len(given))
        return answer
