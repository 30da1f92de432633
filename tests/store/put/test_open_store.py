"""Stores that are not written to: who refuses, why, and that nothing was touched."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.broker.topics import Topics
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InUse, InvalidInput, Refused
from mqstore.store.put.message_columns import columns_of
from mqstore.store.put.new_message import NewMessage

from ...stores import config
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


def test_topics_are_there_before_the_answer(tmp_path: Path) -> None:
    """With as many queues as the messages so far need."""
    with writer(tmp_path) as store:
        for queue_id in (0, 5):
            store.append(NewMessage(b"T", b"x", queue_id=queue_id))
            assert store.lacks_topics
            store.sync()
            assert not store.lacks_topics
            assert Topics.read(tmp_path / "config").queues("T") == max(4, queue_id + 1)
        assert store.unserved == []


def test_a_topic_that_was_deleted_begins_anew(store: Callable[[str], Path]) -> None:
    """Its queue is no lost one, also once the first message has brought the topic back."""
    root, topic = store("5.3.3-clean"), "T%a|b_c-D"
    options = BrokerConfig(config("5.3.3-clean", root))
    shutil.rmtree(root / "consumequeue" / topic)
    topics = root / "config" / "topics.json"
    topics.write_text(topics.read_text().replace(f'"{topic}":', '"other":'))
    with writer(root, config=options) as opened:
        for offset in range(2):
            assert opened.append(NewMessage(topic.encode(), b"x")).queue_offset == offset
            opened.sync()
    assert topic in Topics.read(root / "config")
