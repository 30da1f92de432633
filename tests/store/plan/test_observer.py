"""How far groups are, as config/ says, and what each of them loses."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import GroupLoss, Policy, RecoveryOptions, read_progress
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import readable
from mqstore.store.recover.recovery import analyze

from ... import stores
from ..recover.recovered import units_of

A, LIGHT = QueueId("a", 1), QueueId("%LMQ%q", 0)


def write(config: Path, name: str, text: str) -> None:
    config.mkdir(exist_ok=True)
    (config / name).write_text(text)


def test_progress_of_light_queues_and_others(tmp_path: Path) -> None:
    """A broker with light queues keeps all in another file; the later of two counts."""
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


def test_unconsumed_is_what_lies_behind_the_progress() -> None:
    loss = GroupLoss({A: {"early": 2, "late": 9}, LIGHT: {"light": 0}})
    offsets, flags = np.array([1, 2, 3], np.int64), np.ones(3, np.bool_)
    for queue in (A, LIGHT, QueueId("b", 0)):
        loss.add(Messages(queue, offsets, offsets, offsets, offsets, offsets, flags, ~flags))
    rows = {(r["group"], r["topic"]): r["unconsumed_lost"] for r in loss.to_json()}
    assert rows == {("early", "a"): 2, ("light", "%LMQ%q"): 3}


def test_a_record_of_several_queues_is_lost_to_all(tmp_path: Path) -> None:
    """Light queues name records of other topics: their consumers lose them, too."""
    name = "5.3.3-lmq"
    root = stores.unpack(name, tmp_path)
    config = BrokerConfig().with_set(stores.config_set(name, root))
    units = units_of(root, config)
    (light, offset), unit = next(
        ((queue, k), unit)
        for queue, many in units.items()
        if queue.topic.startswith("%LMQ%")
        for k, unit in sorted(many.items())[1:]
    )
    log = commit_log_of(Layout.open(root, config))
    body = log.record(unit[0]).columns.ragged("body")
    path = Path(next(f.path for f in log.files if f.start <= unit[0] < f.end))
    start = next(f.start for f in log.files if f.path == str(path))
    with path.open("r+b") as file:
        file.seek(unit[0] - start + int(body.start[0]))
        file.write(bytes([body[0][0] ^ 1]))
    table = f'{{"lmqOffsetTable":{{"{light.topic}@%LMQ%g":{offset}}},"offsetTable":{{}}}}'
    write(root / "config", "lmqConsumerOffset.json", table)
    found = analyze(Layout.open(root, config), "5.3", options=RecoveryOptions(Policy.KEEP))
    found.name_lost()
    places = {(r["topic"], r["queue_offset"]) for r in found.named["plan"]}
    named = {(q.topic, k) for q, many in units.items() for k, u in many.items() if u[0] == unit[0]}
    assert places == named and (light.topic, offset) in places and len(places) > 1
    assert found.plan is not None and found.plan.lost.messages == len(places)
    rows = {row["group"]: row["unconsumed_lost"] for row in found.plan.groups.to_json()}
    assert rows == {"%LMQ%g": 1}


@pytest.mark.skipif(not readable(), reason="the extra for RocksDB is not installed")
def test_topics_of_a_broker_itself_need_no_entry(tmp_path: Path) -> None:
    """config/rdb (v2) has the topics of users alone: delayed messages count, and their loss is told."""
    root = stores.unpack("5.5.1-config-v2", tmp_path)
    every = list(stores.messages("5.5.1-config-v2"))
    delayed = next(m for m in every if m["topic"] == "SCHEDULE_TOPIC_XXXX")
    found = analyze(Layout.open(root))
    assert found.prediction.readable == found.to_json()["summary"]["messages"] == len(every)
    with (root / "commitlog" / f"{0:020}").open("r+b") as log:
        log.seek(delayed["physical_offset"])
        log.write(bytes(delayed["total_size"]))
    assert ("SCHEDULE_TOPIC_XXXX", 1) in {
        (row["topic"], row["messages"]) for row in analyze(Layout.open(root)).to_json()["plan"]["lost"]
    }
