"""What a fuzz target is, and the files that one makes.

A target takes any bytes and raises nothing: errors of the store's family are answers. Anything
else, an assertion, a hang or memory without bound is a bug of mqstore.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from mqstore.store.errors import StoreError

Target = Callable[[bytes], None]
TARGETS: dict[str, Target] = {}
CORPUS = Path(__file__).parent / "corpus"
MEMORY = Path("/dev/shm")


def target(function: Target) -> Target:
    """Register a function as a target of its name; errors of the store's family are answers."""

    @functools.wraps(function)
    def answered(data: bytes) -> None:
        with contextlib.suppress(StoreError):
            function(data)

    TARGETS[function.__name__] = answered
    return answered


def corpus(name: str) -> list[Path]:
    """The committed inputs of a target."""
    return sorted((CORPUS / name).iterdir())


@functools.cache
def _folder() -> Path:
    """One folder a process, in memory where there is a file system for that."""
    folder = Path(tempfile.mkdtemp(dir=MEMORY if os.access(MEMORY, os.W_OK) else None))
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


@contextmanager
def files(content: Mapping[str, bytes]) -> Iterator[Path]:
    """A folder with these files, gone afterwards."""
    root = _folder() / "store"
    for name, data in content.items():
        path = root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    try:
        yield root
    finally:
        shutil.rmtree(root)


def cut(data: bytes, count: int) -> list[bytes]:
    """`data` in `count` parts; two bytes before each part but the last say how long it is."""
    parts = []
    for _ in range(count - 1):
        size = int.from_bytes(data[:2], "big")
        parts.append(data[2 : 2 + size])
        data = data[2 + size :]
    return [*parts, data]


def joined(parts: list[bytes]) -> bytes:
    """What `cut` takes apart."""
    *front, last = parts
    return b"".join(len(part).to_bytes(2, "big") + part for part in front) + last
