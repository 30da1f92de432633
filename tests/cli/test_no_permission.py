"""A file that this user may not read says nothing about a store: it is named, and exit code 5."""

from __future__ import annotations

import ctypes
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from .. import stores
from .datadriven import run_here

_VERSION = 0x20080522
_OVERRIDE = 1 << 1 | 1 << 2
"""CAP_DAC_OVERRIDE and CAP_DAC_READ_SEARCH: with them the superuser reads every file."""


@contextmanager
def as_other_users() -> Iterator[None]:
    """Have no right to read files beyond that of their permissions, also as the superuser."""
    library = ctypes.CDLL(None)
    header, rights = (ctypes.c_uint32 * 2)(_VERSION, 0), (ctypes.c_uint32 * 6)()
    assert library.capget(header, rights) == 0
    kept = rights[0]
    rights[0] &= ~_OVERRIDE
    assert library.capset(header, rights) == 0
    try:
        yield
    finally:
        rights[0] = kept
        assert library.capset(header, rights) == 0


@pytest.mark.parametrize("file", ["consumequeue/000011.sst", "config/topics/000011.sst", "consumequeue/CURRENT"])
@pytest.mark.parametrize("command", ["verify", "recover", "offsets", "repair --all"])
def test_a_database_without_permission_is_not_damaged(command: str, file: str, tmp_path: Path) -> None:
    root = stores.unpack("5.5.1-rocksdb", tmp_path)
    denied = root / file
    denied.chmod(0)
    with as_other_users():
        done = run_here([*command.split(), str(root)])
    if command == "offsets" and "topics" in file:
        assert done.code == 0  # it does not need them
        return
    assert (done.code, done.stdout) == (5, "")
    assert done.stderr == f"mqstore: cannot read (Permission denied): {denied}\n"
