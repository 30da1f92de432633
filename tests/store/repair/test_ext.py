"""Units of queues with an address in consumequeue_ext whose messages are lost."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from mqstore.formats.message import MESSAGE
from mqstore.store.columns import rows_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import file_name
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.repair import ext
from mqstore.store.repair.parts import Choice
from mqstore.store.search.store import StoreReader
from mqstore.store.session.undo import session_to_undo, undo

from ... import stores
from ...cli.datadriven import run_here
from ..session.test_undo import everything
from .test_repair import examined, repaired

pytestmark = pytest.mark.long


def test_lost_messages_are_looked_up(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """In an order that is made once: not all of them are sorted for each window of units."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    with StoreReader(root) as store:
        files = store.log_files.files
    for file in files[:1]:
        with Path(file.path).open("r+b") as opened:
            for at in range(1000, 20_000, 5000):
                opened.seek(at)
                opened.write(b"\xee" * 1000)
    seen = []

    def counted(ordered: Any, wanted: Any) -> Any:
        seen.append(ordered)
        return rows_of(ordered, wanted)

    monkeypatch.setattr(ext, "_WINDOW_UNITS", 4)
    monkeypatch.setattr(ext, "rows_of", counted)
    repaired(root, BrokerConfig({}), Choice())
    assert max(len(lost) for lost in seen) > 3, "no message was lost"
    assert all((np.diff(lost) > 0).all() for lost in seen)


def test_a_record_that_is_put_right_without_its_tags(tmp_path: Path) -> None:
    """Its header comes back, its properties do not: the same recovery takes its unit off the entry."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    with StoreReader(root) as store:
        message = store.message_at(8112)
    assert message.tags
    with (root / "commitlog" / file_name(0)).open("r+b") as log:
        log.seek(message.physical_offset)
        data = bytearray(log.read(message.total_size))
        text = data.index(b"price")
        data[text:] = bytes(len(data) - text)
        log.seek(message.physical_offset)
        log.write(MESSAGE.build({**MESSAGE.parse(bytes(data)), "magic_code": 1}))
    result = run_here(["recover", str(root), "--apply", "--yes"])
    assert result.code == 0, result.stdout
    assert run_here(["recover", str(root)]).stdout.startswith("Safe to start. Nothing to do.")


def test_a_file_of_no_unit_behind_the_last_one_goes_at_once(tmp_path: Path) -> None:
    """It is not emptied first, and taken away by a second recovery."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    newest = max((root / "consumequeue_ext" / "sql" / "0").iterdir())
    behind = newest.with_name(file_name(int(newest.name) + newest.stat().st_size))
    behind.write_bytes(b"\x11" * newest.stat().st_size)
    result = run_here(["recover", str(root), "--apply", "--yes"])
    assert result.code == 0, result.stdout
    assert not behind.exists()
    assert run_here(["recover", str(root)]).stdout.startswith("Safe to start. Nothing to do.")
    assert run_here(["undo", str(root), "--yes"]).code == 0
    assert set(behind.read_bytes()) == {0x11}


def test_a_queue_that_is_moved_away_is_not_changed_first(tmp_path: Path) -> None:
    """Its units are those of another topic: what was there comes back, byte for byte."""
    root = stores.unpack("5.3.3-cqext", tmp_path)
    shutil.copytree(root / "consumequeue" / "sql", root / "consumequeue" / "Other")
    before = everything(root)
    found = examined(root, BrokerConfig({}), Choice())
    kinds = {edit.kind for edit in found.plan.edits if "Other" in Path(edit.path).parts}
    assert kinds == {"move"}, kinds
    repaired(root, BrokerConfig({}), Choice())
    layout = Layout.open(root)
    undo(layout, session_to_undo(layout), Files())
    assert everything(root) == before
