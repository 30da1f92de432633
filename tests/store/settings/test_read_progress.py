"""How far groups are, as config/ says."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.queues.rocksdb import readable
from mqstore.store.settings.read import read_progress

from ... import stores

A, LIGHT = QueueId("a", 1), QueueId("%LMQ%q", 0)


def write(config: Path, name: str, text: str) -> None:
    config.mkdir(exist_ok=True)
    (config / name).write_text(text)


def test_progress_of_light_queues_and_others(tmp_path: Path) -> None:
    """A broker with LMQs keeps all in another file; the later of two counts."""
    old = '{"dataVersion":{"timestamp":1},"offsetTable":{"a@g":{1:5},"%RETRY%g@g":{0:2}}}'
    new = '{"dataVersion":{"timestamp":2},"lmqOffsetTable":{"%LMQ%q@%LMQ%g":7},"offsetTable":{"a@g":{1:8}}}'
    write(tmp_path, "consumerOffset.json", old)
    write(tmp_path, "lmqConsumerOffset.json", new)
    found = read_progress(tmp_path)
    assert found == {A: {"g": 8}, QueueId("%RETRY%g", 0): {"g": 2}, LIGHT: {"%LMQ%g": 7}}
    write(tmp_path, "consumerOffset.json", old.replace('"timestamp":1', '"timestamp":3'))
    assert read_progress(tmp_path)[A] == {"g": 5}


def test_a_file_that_cannot_be_read_has_a_backup(tmp_path: Path) -> None:
    write(tmp_path, "consumerOffset.json.bak", '{"offsetTable":{"a@g":{1:5}}}')
    (tmp_path / "consumerOffset.json").mkdir()
    assert read_progress(tmp_path) == {A: {"g": 5}}


@pytest.mark.skipif(not readable(), reason="the extra for RocksDB is not installed")
def test_progress_in_a_rocksdb(tmp_path: Path) -> None:
    root = stores.unpack("5.5.0-rocksdb-killed", tmp_path)
    progress = read_progress(root / "config")
    queues = stores.truth("5.5.0-rocksdb-killed")["queues"]
    assert any(progress.values())
    for queue, groups in progress.items():
        for offset in groups.values():
            assert 0 <= offset <= queues.get(str(queue), {"max_offset": offset})["max_offset"]
