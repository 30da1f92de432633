"""Stores that are not written to: who refuses, why, and that nothing was touched."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InUse, InvalidInput, Refused
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage

from ..disk.test_lock import other_process
from .writing import assert_refused, contents, writer


def test_a_broker_runs(store: Callable[[str], Path]) -> None:
    root = store("5.3.3-clean")
    (root / "abort").write_text("1")
    with other_process(root / "lock") as pid:
        assert_refused(root, InUse, f"process {pid}")


def test_options_that_make_no_sense(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="not a broker version"):
        writer(tmp_path / "new", "banana")
    with pytest.raises(InvalidInput, match="messageDelayLevel"):
        writer(tmp_path / "new", config=BrokerConfig({"messageDelayLevel": "1x"}))
    with pytest.raises(InvalidInput, match="index of 5000000 slots and 1 item"):
        writer(tmp_path / "new", config=BrokerConfig({"maxIndexNum": "1"}))
    assert {path.name for path in tmp_path.rglob("*")} <= {"new", "lock"}


def test_an_empty_directory_becomes_a_store(tmp_path: Path) -> None:
    with writer(tmp_path) as store:
        assert {path.name for path in tmp_path.iterdir()} == {"lock"}
        store.append(NewMessage(b"T", b"x"))
    assert (tmp_path / "commitlog").is_dir()


def test_a_closed_writer_leaves_the_store_to_others(tmp_path: Path) -> None:
    """Its lock is gone: the next message is another writer's, and so is `abort`."""
    new = NewMessage(b"T", b"x")
    with writer(tmp_path) as first:
        first.append(new)
        first.close()
        with writer(tmp_path) as second:
            second.append(new)
            second.sync()
            before = contents(tmp_path)
            first.close()
            for late in (
                first.sync,
                lambda: first.append(new),
                lambda: first.append_columns(columns_of([new])),
                lambda: first.append_ahead(columns_of([new])),
                lambda: first.append_together([new]),
            ):
                with pytest.raises(Refused, match="the writer is closed"):
                    late()
            assert contents(tmp_path) == before
            assert "abort" in before
    assert not (tmp_path / "abort").exists()
