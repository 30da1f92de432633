"""What groups lose, and which topics count."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.plan import observer
from mqstore.store.plan.observer import GroupLoss, Policy, RecoveryOptions
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import readable
from mqstore.store.recover.recovery import Recovery, analyze
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.repair.repair import analyze as analyze_repair
from mqstore.store.start import config_load, queue_stores
from mqstore.store.start.config_load import ConfigRules, LoadedConfig

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


GONE = "payments"


def _without_topic(name: str, folder: Path) -> tuple[Path, BrokerConfig]:
    """A store that was shut down, as the deletion of a topic leaves it."""
    root = stores.unpack(name, folder)
    shutil.rmtree(root / "consumequeue" / GONE)
    path = root / "config/topics.json"
    content = json.loads(path.read_text())
    del content["topicConfigTable"][GONE]
    path.write_text(json.dumps(content))
    return root, BrokerConfig().with_set(stores.config_set(name, root))


def _asked(root: Path, config: BrokerConfig) -> Recovery:
    return analyze(Layout.open(root, config), options=RecoveryOptions(Policy.KEEP))


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
def test_a_topic_that_was_deleted_stays_so(name: str, tmp_path: Path) -> None:
    """But for a repair that names it: what is lost looks the same."""
    root, config = _without_topic(name, tmp_path)
    found = _asked(root, config)
    assert found.nothing_to_do and not found.harmful
    queues = chosen([RepairPart.QUEUE], ())
    assert analyze_repair(Layout.open(root, config), queues, None, 0).nothing_to_do
    for named in ((GONE, None), (GONE, 0)):
        repair = analyze_repair(Layout.open(root, config), chosen([RepairPart.QUEUE], (named,)), None, 0)
        assert repair.plan.edits and all(GONE in edit.path for edit in repair.plan.edits)


def _killed(root: Path) -> None:
    (root / "abort").touch()


def _in_backup_alone(root: Path) -> None:
    (root / "config/topics.json").rename(root / "config/topics.json.bak")


def _cut_off(root: Path) -> None:
    path = root / "config/topics.json"
    path.write_bytes(path.read_bytes()[:-200])
    path.with_name("topics.json.bak").unlink(missing_ok=True)


def _without_queues(root: Path) -> None:
    shutil.rmtree(root / "consumequeue")


@pytest.mark.parametrize("harm", [_killed, _in_backup_alone, _cut_off, _without_queues])
def test_where_nobody_knows_whether_it_was_deleted_its_queues_come_back(
    harm: Callable[[Path], None], tmp_path: Path
) -> None:
    root, config = _without_topic("5.3.3-clean", tmp_path)
    harm(root)
    found = _asked(root, config)
    plan = found.plan
    assert plan is not None and any(f"/{GONE}/" in edit.path for edit in plan.edits)
    told = [note for note in found.notes if f" messages ({GONE}: " in note]
    assert len(told) == (harm is _killed), found.notes


@pytest.mark.parametrize("some", [False, True])
def test_the_table_of_topics_is_not_read_by_each_who_asks(
    some: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For TTLs, as the brokers that have them, and for what is compacted, as this one; which topics were deleted only
    where one has no queue; by the prediction for the plan, too.
    """
    root, config = _without_topic("5.3.3-clean", tmp_path)
    if not some:
        shutil.rmtree(root)
        stores.unpack("5.3.3-clean", tmp_path)
    loaded, load_table = list[str](), config_load.load_table

    def noting(layout: Layout, name: str, rules: ConfigRules) -> LoadedConfig:
        loaded.append(name)
        return load_table(layout, name, rules)

    for module in (observer, queue_stores):
        monkeypatch.setattr(module, "load_table", noting)
    _asked(root, config)
    assert loaded == [config_load.TOPICS] * (2 + some)
