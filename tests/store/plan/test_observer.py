"""What groups lose, and which topics count."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.observer import GroupLoss, Policy, RecoveryOptions
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import readable
from mqstore.store.recover.recovery import analyze

from ... import stores
from ..recover.recovered import units_of

A, LIGHT = QueueId("a", 1), QueueId("%LMQ%q", 0)


def test_unconsumed_is_what_lies_behind_the_progress() -> None:
    loss = GroupLoss({A: {"early": 2, "late": 9}, LIGHT: {"light": 0}})
    offsets, flags = np.array([1, 2, 3], np.int64), np.ones(3, np.bool_)
    for queue in (A, LIGHT, QueueId("b", 0)):
        loss.add(Messages(queue, offsets, offsets, offsets, offsets, offsets, flags, ~flags))
    rows = {(r["group"], r["topic"]): r["unconsumed_lost"] for r in loss.to_json()}
    assert rows == {("early", "a"): 2, ("light", "%LMQ%q"): 3}


def test_a_record_of_several_queues_is_lost_to_all(tmp_path: Path) -> None:
    """LMQs name records of other topics: their consumers lose them, too."""
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
    (root / "config").mkdir(exist_ok=True)
    (root / "config" / "lmqConsumerOffset.json").write_text(table)
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
