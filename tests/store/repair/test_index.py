"""Checksum items with a damaged name, in a store whose broker demands them of each record; the checkpoint."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

from mqstore.formats.message_properties import CRC32, CRC_ITEM_BYTES, crc_item
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_checkpoint
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch, CommitLog
from mqstore.store.queues.references import commit_log_of
from mqstore.store.repair import index
from mqstore.store.repair.parts import Choice

from ... import recovery_cases, stores
from .test_repair import examined, repaired

NAME = "5.3.3-propcrc"


def store(work: Path) -> tuple[Path, BrokerConfig]:
    root = stores.unpack(NAME, work)
    options = {key: str(value) for key, value in stores.config(NAME, root).items()}
    return root, BrokerConfig({**options, "forceVerifyPropCRC": "true"})


def records(root: Path, config: BrokerConfig) -> tuple[CommitLog, list[tuple[int, int]]]:
    """The log, and begin and end of each record."""
    log = commit_log_of(Layout.open(root, config))
    found = []
    for batch in (item for item in log.scan(crc=False) if isinstance(item, Batch)):
        sizes = batch.columns.ints("total_size")
        found += list(zip(batch.position.tolist(), (batch.position + sizes).tolist(), strict=True))
    return log, found


def put(log: CommitLog, position: int, data: bytes) -> None:
    """Bytes over the log at a position."""
    file = log.queue.file_at(position)
    assert file is not None
    with Path(file.path).open("r+b") as opened:
        opened.seek(position - file.start)
        opened.write(data)


def test_behind_a_hole(tmp_path: Path) -> None:
    """A record behind damage gets its item in the same run: the broker would end the log there."""
    root, config = store(tmp_path)
    log, known = records(root, config)
    item = known[-3][1] - CRC_ITEM_BYTES
    put(log, item + 2, b"X")
    put(log, known[3][0], b"\xee" * 40)
    repaired(root, config, Choice())
    assert log.queue.read(item, len(CRC32)) == CRC32.encode()
    assert not examined(root, config, Choice()).plan.edits


def test_only_what_is_misnamed_is_hashed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A checksum of every record of the log would take for ever."""
    root, config = store(tmp_path)
    log, known = records(root, config)
    ends = [known[row][1] for row in (1, 2, 5)]
    put(log, ends[0] - CRC_ITEM_BYTES, b"\0")
    put(log, ends[1] - CRC_ITEM_BYTES + len(CRC32), b"\xff")
    put(log, ends[2] - CRC_ITEM_BYTES, b"x" * CRC_ITEM_BYTES)  # no digits: nothing proves the record
    hashed = []

    def counted(data: bytes) -> bytes:
        hashed.append(data)
        return crc_item(data)

    monkeypatch.setattr(index, "crc_item", counted)
    found = list(index.crc_item_edits(commit_log_of(Layout.open(root, config))))
    assert [edit.offset + edit.length for edit in found] == ends[:2]
    assert len(hashed) == 2 < len(known)


def test_the_checkpoint_names_a_record_of_the_log_as_it_will_be(tmp_path: Path) -> None:
    """Not the one of the bytes that lie there before: the last log file holds those of the first."""
    root = tmp_path / "store"
    shutil.copytree(recovery_cases.base("5.3.3-clean-1", tmp_path), root)
    files = sorted((root / "commitlog").iterdir())
    shutil.copyfile(files[0], files[-1])
    os.truncate(root / "checkpoint", 8)
    repaired(root, recovery_cases.CONFIG, Choice())
    made = read_checkpoint(root / "checkpoint")
    assert made is not None
    _, known = records(root, recovery_cases.CONFIG)
    assert made.confirm_phy_offset == known[-1][0]
