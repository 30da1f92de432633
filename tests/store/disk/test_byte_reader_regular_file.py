"""What is no file is never opened: a FIFO would wait, a device would act."""

from __future__ import annotations

import os
import socket
from pathlib import Path

import pytest

from mqstore.store.disk.byte_reader import open_regular
from mqstore.store.disk.compressed import read_regular
from mqstore.store.errors import Missing, Unreadable


def test_a_file_and_a_link_to_one(tmp_path: Path) -> None:
    """Up to the limit."""
    (tmp_path / "file").write_bytes(b"abcdef")
    (tmp_path / "link").symlink_to("file")
    assert read_regular(tmp_path / "file", 4) == b"abcd"
    assert read_regular(tmp_path / "link", 100) == b"abcdef"


def test_what_is_no_file(tmp_path: Path) -> None:
    """An error that says what it is; none of them is waited for."""
    os.mkfifo(tmp_path / "fifo")
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(tmp_path / "socket"))
    (tmp_path / "loop").symlink_to("loop")
    (tmp_path / "device").symlink_to(os.devnull)
    for name, what in (
        *(("fifo", "a FIFO"), ("socket", "a socket"), ("device", "a device")),
        *((".", "a directory"), ("loop", "symbolic links")),
    ):
        with pytest.raises(Unreadable, match=what):
            open_regular(tmp_path / name)
    with pytest.raises(Missing):
        open_regular(tmp_path / "nothing")
