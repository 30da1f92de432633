"""The commit log of a real store, read the slow and obvious way: construct, record by record."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.derive import Columns, decode
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout

from ..stores import config


def layout_of(name: str, root: Path) -> Layout:
    """The layout of a store with the options its broker ran with."""
    return Layout.open(root, BrokerConfig(config(name, root)))


def log_files(layout: Layout) -> list[Path]:
    """Commit log files in log order."""
    found = (p for d in layout.commit_log_directories if d.is_dir() for p in d.iterdir())
    return sorted((p for p in found if p.name.isdigit()), key=lambda path: int(path.name))


def starts_in(data: bytes) -> list[int]:
    """Where the records of one file begin, up to its BLANK or its end of data."""
    starts, at = [], 0
    while at + BLANK.sizeof() <= len(data):
        head = BLANK.parse(data[at : at + BLANK.sizeof()])
        if head.magic_code == MAGIC_BLANK or head.magic_code not in (MAGIC_V1, MAGIC_V2):
            break
        starts.append(at)
        at += head.total_size
    return starts


def columns_of(layout: Layout) -> Columns:
    """All records of the log."""
    parts, starts, base = [], [], 0
    for path in log_files(layout):
        data = path.read_bytes()
        starts += [base + at for at in starts_in(data)]
        parts.append(data)
        base += len(data)
    buffer = np.frombuffer(b"".join(parts), np.uint8)
    return decode(MESSAGE, buffer, np.array(starts, np.int64))


def records_of(layout: Layout) -> list[Any]:
    """All records of the log as construct parses them."""
    found = []
    for path in log_files(layout):
        data = path.read_bytes()
        found += [MESSAGE.parse(data[at:]) for at in starts_in(data)]
    return found
