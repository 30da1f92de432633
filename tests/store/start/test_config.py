"""What a start makes of config/: the outcome of each file, and what is lost with it.

The real managers say the same: `tests/interop/test_config_managers.py`.
"""

from __future__ import annotations

import json
import os
import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.recover.recovery import analyze
from mqstore.store.start.config import ConfigStart, LostDelay, LostPosition, config_start, default_settings_text
from mqstore.store.start.config_load import RULES, TOPICS, LoadAction, load_config

from ... import stores, timer_precision
from ...cli.datadriven import run_here
from .configured import GARBAGE, NEEDED, VERSION, Ends, put


def start(config: Path, ends: Ends, version: str = VERSION) -> ConfigStart:
    return config_start(Layout.of(config.parent), profile_of(version), ends)


def outcome(found: ConfigStart, name: str) -> LoadAction:
    return next(file.start for file in found.files if file.file == name)


def test_a_whole_configuration_is_taken(config: Path, real: tuple[Path, Ends]) -> None:
    found = start(config, real[1])
    assert not found.harmful and not found.loses and not found.bare and not found.sentence
    assert {file.start for file in found.files if file.file != "topicQueueMapping.json"} <= {
        LoadAction.LOADS,
        LoadAction.EMPTY,
    }


@pytest.mark.parametrize("name", NEEDED)
def test_a_needed_file_that_is_lost_is_harm(name: str, config: Path, real: tuple[Path, Ends]) -> None:
    for backup, refuses in ((None, False), (b"", False), (GARBAGE, True)):
        put(config / name, GARBAGE)
        put(config / f"{name}.bak", backup)
        found = start(config, real[1])
        assert found.harmful and bool(found.refuses) is refuses
        assert f"config/{name}" in found.refuses or not refuses


def test_texts_that_a_broker_takes_for_an_empty_table(config: Path, real: tuple[Path, Ends]) -> None:
    for text in (b"null", b"{}", b'{"other":1}'):
        (config / "topics.json").write_bytes(text)
        found = start(config, real[1])
        assert outcome(found, "topics.json") is LoadAction.LOADS
        assert "orders" in found.lost_topics and found.harmful
    (config / "topics.json").write_bytes(b"[]")
    assert outcome(start(config, real[1], "5.3"), "topics.json") is LoadAction.LOADS
    assert outcome(start(config, real[1], "5.4"), "topics.json") is LoadAction.BACKUP


def test_bytes_that_are_no_utf_8_are_taken(config: Path, real: tuple[Path, Ends]) -> None:
    path = config / "topics.json"
    path.write_bytes(path.read_bytes().replace(b'"orders":{', b'"ord\xff\xfers":{', 1))
    found = start(config, real[1])
    assert outcome(found, "topics.json") is LoadAction.LOADS and not found.harmful


def test_a_table_whose_name_is_wrong_has_no_entries(tmp_path: Path) -> None:
    """It is taken, as a file without a table; what it says under the wrong name proves what is lost."""
    (tmp_path / "config").mkdir()
    ends = {QueueId("A", 0): (0, 9), QueueId(SCHEDULE_TOPIC, 0): (0, 4)}
    offsets, delays = (tmp_path / "config" / n for n in ("consumerOffset.json", "delayOffset.json"))
    offsets.write_bytes(b'{"offsetXable":{"A@G":{0:7}}}')
    delays.write_bytes(b'{"offsetXable":{1:4}}')
    found = start(tmp_path / "config", ends)
    assert found.lost_positions == (LostPosition("G", "A", 0, 7, None),)
    assert found.lost_delays == (LostDelay(1, 4, 0),)
    offsets.write_bytes(b'{"nothing":{"A@G":{0:7}}}')
    assert "the positions of all groups are lost" in start(tmp_path / "config", ends).unknown


def test_a_counter_of_null_is_refused_behind_the_table(config: Path) -> None:
    for name in ("topics.json", "delayOffset.json"):
        path, backup = config / name, config / f"{name}.bak"
        path.write_bytes(re.sub(rb'"counter":\s*\d+', b'"counter":null', path.read_bytes()))
        assert load_config(config, name, RULES["5.3"]).start is LoadAction.BACKUP
        backup.unlink()
        assert load_config(config, name, RULES["5.3"]).start is LoadAction.LOADS
        backup.write_bytes(GARBAGE)
        assert load_config(config, name, RULES["5.3"]).start is LoadAction.REFUSES


@pytest.mark.parametrize(("counter", "lost"), [(0, True), (2, False)])
def test_groups_that_somebody_deleted_are_not_lost(
    counter: int, lost: bool, config: Path, real: tuple[Path, Ends]
) -> None:
    """A broker that makes the table anew writes its own groups, uncounted. Deleting a group leaves its positions."""
    content = {"subscriptionGroupTable": {"TOOLS_CONSUMER": {}}, "dataVersion": {"counter": counter}}
    (config / "subscriptionGroup.json").write_text(json.dumps(content))
    assert bool(start(config, real[1]).lost_groups) is lost


def test_topics_without_an_entry_are_named(config: Path, real: tuple[Path, Ends]) -> None:
    for name in ("topics.json", "topics.json.bak"):
        (config / name).unlink()
    found = start(config, real[1])
    assert {"orders", "logs", "%RETRY%group-a-retry"} <= set(found.lost_topics)
    assert not {SCHEDULE_TOPIC, "RMQ_SYS_TRANS_HALF_TOPIC"} & set(found.lost_topics)
    assert not found.lost_groups and not found.lost_positions
    assert "no longer served" in found.sentence


def test_an_older_bak_lacks_a_topic_that_has_messages(config: Path, real: tuple[Path, Ends]) -> None:
    path, backup = config / "topics.json", config / "topics.json.bak"
    backup.write_bytes(backup.read_bytes().replace(b'"orders"', b'"others"'))
    assert not start(config, real[1]).harmful
    path.write_bytes(GARBAGE)
    found = start(config, real[1])
    assert found.lost_topics == ("orders",) and found.backups == ("topics.json",)


def test_groups_are_known_from_offsets_and_retries(config: Path, real: tuple[Path, Ends]) -> None:
    for name in ("subscriptionGroup.json", "subscriptionGroup.json.bak"):
        (config / name).write_bytes(b"")
    found = start(config, real[1])
    assert "group-a-retry" in found.lost_groups and not found.lost_topics
    assert not any(group.startswith("CID_") for group in found.lost_groups)


def test_positions_that_the_rest_of_a_file_tells(config: Path, real: tuple[Path, Ends]) -> None:
    path = config / "consumerOffset.json"
    text = b'{"offsetTable":{"orders@group-a":{0:3,1:2},"gone@group-a":{0:7}'
    path.write_bytes(text)
    (config / "consumerOffset.json.bak").write_bytes(b'{"offsetTable":{"orders@group-a":{0:1}}}')
    assert start(config, real[1]).lost_positions == (
        LostPosition("group-a", "orders", 0, 3, 1),
        LostPosition("group-a", "orders", 1, 2, None),
    )
    (config / "consumerOffset.json.bak").unlink()
    found = start(config, real[1])
    assert [(lost.before, lost.after) for lost in found.lost_positions] == [(3, None), (2, None)]
    assert next(file for file in found.files if file.file == path.name).overwritten


def test_positions_behind_the_damage_are_lost_too(config: Path, real: tuple[Path, Ends]) -> None:
    path = config / "consumerOffset.json"
    path.with_name(path.name + ".bak").unlink()
    for noted, told in (("", "offsetTable"), ('"groupTopicMap":{"group-a":["orders"],"b":["orders"]},', "b on orders")):
        path.write_text(f'{{{noted}"offsetTable":{{"orders@group-a":{{0:3}},"ord')
        found = start(config, real[1])
        assert found.unknown == (f"a part of consumerOffset.json is lost ({told})",)
        assert [lost.group for lost in found.lost_positions] == ["group-a"]
    path.write_text('{"offsetTable":{"orders@group-a":{0:3}},"dataVersion":{"cou')
    assert not start(config, real[1]).unknown


def test_positions_that_nothing_tells(config: Path, real: tuple[Path, Ends]) -> None:
    path, backup = config / "consumerOffset.json", config / "consumerOffset.json.bak"
    backup.unlink()
    for left in (GARBAGE, b"", None):
        put(path, left)
        found = start(config, real[1])
        assert found.harmful and found.unknown == ("the positions of all groups are lost",)


def test_a_null_for_the_offsets_is_taken_and_fails(config: Path, real: tuple[Path, Ends]) -> None:
    (config / "consumerOffset.json").write_bytes(b'{"offsetTable":null}')
    found = start(config, real[1], "5.3")
    assert outcome(found, "consumerOffset.json") is LoadAction.LOADS and found.harmful
    assert any("null" in text for text in found.unknown)


def test_delays_that_go_on_behind_what_was_not_delivered(config: Path, real: tuple[Path, Ends]) -> None:
    """Nothing is missing of the file, and a log with its queues alone has the same harm."""
    levels = {queue.queue_id + 1: end for queue, (_, end) in real[1].items() if queue.topic == SCHEDULE_TOPIC}
    level, end = max(levels.items(), key=lambda one: one[1])
    (config / "delayOffset.json").write_text(f'{{"offsetTable":{{{level}:{end + 9}}}}}')
    profile = profile_of(VERSION)
    found = config_start(Layout.of(config.parent), profile, real[1], lambda passed: dict.fromkeys(passed, end - 1))
    assert found.lost_delays == (LostDelay(level, end - 1, end),) and found.forgets and not found.forgotten
    assert found.sentence == "1 delay level leaves messages undelivered"
    assert found._replace(bare=True).forgets and not found._replace(refuses="no start").forgets
    assert not config_start(Layout.of(config.parent), profile, real[1], lambda _: {}).lost_delays
    assert not config_start(Layout.of(config.parent), profile, real[1]).lost_delays
    (config / "delayOffset.json.bak").write_bytes((config / "delayOffset.json").read_bytes())
    (config / "delayOffset.json").write_text(f'{{"offsetTable":{{{level}:{end + 9}')
    cut = config_start(Layout.of(config.parent), profile, real[1], lambda passed: dict.fromkeys(passed, end - 1))
    assert cut.lost_delays == (LostDelay(level, end - 1, end),), "told once"


def test_delays_begin_again(config: Path, real: tuple[Path, Ends]) -> None:
    ends = {queue: end for queue, end in real[1].items() if queue.topic == SCHEDULE_TOPIC}
    first = {queue.queue_id + 1: low for queue, (low, high) in ends.items() if high > low}
    (config / "delayOffset.json").write_bytes(b"")
    (config / "delayOffset.json.bak").unlink()
    found = start(config, real[1])
    assert found.lost_delays == tuple(LostDelay(level, None, first[level]) for level in first)
    assert found.harmful and first
    waits = config_start(
        Layout.of(config.parent),
        profile_of(VERSION),
        real[1],
        lambda passed: {level: end - 1 for level, end in passed.items()},
    )
    assert not waits.lost_delays, "no first message of a level can have been delivered"


def test_entries_of_other_files_are_named(config: Path, real: tuple[Path, Ends]) -> None:
    text = b'{"messageRequestModeMap":{"orders":{"g":{"mode":"POP","topic":"orders"}}'
    (config / "messageRequestMode.json").write_bytes(text)
    found = start(config, real[1])
    assert found.lost_entries == (("messageRequestMode.json", "orders@g"),) and found.harmful


@pytest.mark.parametrize("name", ["timermetrics", "transactionMetrics"])
def test_lost_statistics_are_no_loss(name: str, config: Path, real: tuple[Path, Ends]) -> None:
    (config / name).write_bytes(GARBAGE)
    (config / f"{name}.bak").unlink()
    assert not start(config, real[1]).harmful
    (config / f"{name}.bak").write_bytes(GARBAGE)
    assert bool(start(config, real[1]).refuses) is (name == "timermetrics")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("size", "outcome_", "outcome_alone"),
    [
        (1 << 40, LoadAction.BACKUP, LoadAction.EMPTY),  # its length as an int: 0
        (3 << 30, LoadAction.BACKUP, LoadAction.EMPTY),  # below 0
        ((1 << 40) + 6000, LoadAction.LOADS, LoadAction.LOADS),  # the first 6000 bytes
        (100 << 20, LoadAction.LOADS, LoadAction.LOADS),
        (5 << 30, LoadAction.REFUSES, LoadAction.REFUSES),  # 1 GiB, more than a heap has
    ],
)
def test_a_huge_file_is_read_as_a_broker_reads_it(
    size: int, outcome_: LoadAction, outcome_alone: LoadAction, config: Path, real: tuple[Path, Ends]
) -> None:
    """Asked of the real managers in tests/interop/test_config_managers.py."""
    for name in ("topics.json", "timermetrics", "transactionMetrics"):
        os.truncate(config / name, size)
        found = start(config, real[1])
        assert outcome(found, name) is outcome_
        assert bool(found.refuses) == found.harmful == (outcome_ is LoadAction.REFUSES)
        backup = config / f"{name}.bak"
        content = backup.read_bytes()
        backup.unlink()
        assert outcome(start(config, real[1]), name) is outcome_alone
        backup.write_bytes(content)
        os.truncate(config / name, 0)


def test_a_configuration_that_was_emptied(config: Path, real: tuple[Path, Ends]) -> None:
    for path in config.iterdir():
        path.unlink()
    for _ in ("an empty directory", "none"):
        found = start(config, real[1])
        assert found.harmful and "orders" in found.lost_topics and not found.bare
        shutil.rmtree(config, ignore_errors=True)


def test_a_log_with_its_queues_alone_is_told_apart(tmp_path: Path) -> None:
    ends = {QueueId("orders", 0): (0, 5)}
    found = start(tmp_path / "config", ends)
    assert found.bare and found.lost_topics == ("orders",) and not found.harmful
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "topics.json").write_bytes(b"")
    assert start(tmp_path / "config", ends).harmful
    (tmp_path / "config" / "topics.json").write_bytes(b'{"topicConfigTable":{"orders":{"perm":6}}}')
    assert not start(tmp_path / "config", ends).harmful


def test_light_queues_have_a_file_of_their_own(tmp_path: Path) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "lmqConsumerOffset.json").write_bytes(GARBAGE)
    (tmp_path / "config" / "lmqConsumerOffset.json.bak").write_bytes(GARBAGE)
    assert "lmqConsumerOffset.json" in start(tmp_path / "config", {}).refuses


def test_who_has_no_group_has_lost_no_position(tmp_path: Path) -> None:
    """A broker that was killed before it first wrote its offsets, and nobody had consumed."""
    store = timer_precision.unpack("5.3.3-500ms-killed", tmp_path)
    assert not (store / "config" / "consumerOffset.json").exists()
    assert not analyze(Layout.open(store)).prediction.forgets
    topics = store / "config" / "topics.json"
    table = json.loads(topics.read_text("utf-8"))
    entry = {"topicName": "%RETRY%g", "perm": 6, "readQueueNums": 1, "writeQueueNums": 1}
    table["topicConfigTable"]["%RETRY%g"] = entry
    topics.write_text(json.dumps(table), "utf-8")
    assert analyze(Layout.open(store)).prediction.forgets


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-clean", "5.3.3-clean", "5.5.0-clean"])
def test_messages_that_came_through_a_broker_had_a_configuration(name: str, tmp_path: Path) -> None:
    """Without `config/` and any other trace: a client's message has what a broker added to it."""
    root = stores.unpack(name, tmp_path)
    shutil.rmtree(root / "config")
    found = start(root / "config", {QueueId("orders", 0): (0, 5)})
    assert not found.bare and found.forgets and found.lost_topics == ("orders",)


def test_messages_that_were_put_had_none(tmp_path: Path) -> None:
    root = tmp_path / "store"
    assert run_here(["put", str(root), "orders", "x", "--no-topic-config"]).code == 0
    found = start(root / "config", {QueueId("orders", 0): (0, 1)})
    assert found.bare and not found.forgets and found.lost_topics == ("orders",)


def test_a_database_without_its_current_is_no_start(config: Path, real: tuple[Path, Ends]) -> None:
    """The real managers: `tests/interop/test_config_databases.py`."""
    (config / "topics").mkdir()
    assert not start(config, real[1]).refuses  # a broker makes a new one, and takes the file
    (config / "topics" / "MANIFEST-000005").write_bytes(b"x")
    assert "RocksDB topics has no file CURRENT" in start(config, real[1]).refuses


@pytest.mark.parametrize(
    ("name", "directory", "options"),
    [
        ("5.5.1-config-single", "metadata", {"storeType": "defaultRocksDB", "useSingleRocksDBForAllConfigs": "true"}),
        ("5.5.1-config-v2", "rdb", {"configManagerVersion": "v2"}),
        ("5.5.1-rocksdb", "topics", {"storeType": "defaultRocksDB"}),
        ("5.5.1-rocksdb", "subscriptionGroups", {"storeType": "defaultRocksDB"}),
    ],
)
def test_what_comes_back_of_a_database_has_its_settings(
    name: str, directory: str, options: dict[str, str], tmp_path: Path
) -> None:
    """Its CURRENT alone was lost; a file that is made anew has default settings."""
    root, config = stores.unpack(name, tmp_path), BrokerConfig(options)
    ends = {QueueId("TopicA", 0): (0, 18), QueueId("TopicB", 0): (0, 22)}
    before = config_start(Layout.open(root, config), profile_of("5.5.1"), ends)
    assert not before.loses and not before.refuses
    (root / "config" / directory / "CURRENT").unlink()
    before = config_start(Layout.open(root, config), profile_of("5.5.1"), ends)
    assert before.refuses and any(before.unsettled) and default_settings_text(before, None) == ""
    assert "default settings" in default_settings_text(before._replace(databases=frozenset()), None)


@pytest.mark.parametrize(("name", "positions"), [("5.5.1-config-single", [18, 7]), ("5.5.1-config-v2", [23, 6])])
def test_an_older_broker_reads_no_database(name: str, positions: list[int], tmp_path: Path) -> None:
    """Before 5.3 topics, groups and positions are in files: what a RocksDB has is forgotten."""
    layout = Layout.open(stores.unpack(name, tmp_path))
    ends = {QueueId("TopicA", 0): (0, 18), QueueId("TopicA", 1): (0, 7), QueueId("TopicB", 0): (0, 22)}
    assert not config_start(layout, profile_of("5.5"), ends).loses
    for version in ("4.9", "5.1"):
        found = config_start(layout, profile_of(version), ends)
        assert outcome(found, "topics.json") is LoadAction.EMPTY
        assert (found.lost_topics, found.lost_groups) == (("TopicA", "TopicB"), ("rg",))
        assert [lost.before for lost in found.lost_positions] == positions
        assert not found.unknown  # all has a name, and so comes back
        assert not any(file.overwritten for file in found.files)
    (layout.config / "topics.json").write_text('{"topicConfigTable":{"TopicA":{},"TopicB":{}}}')
    assert not config_start(Layout.open(layout.root), profile_of("4.9"), ends).lost_topics


@pytest.mark.parametrize(
    ("name", "directory", "positions"),
    [("5.5.1-config-single", "metadata", [(18, 3), (7, None)]), ("5.5.1-config-v2", "rdb", [(23, 3), (6, None)])],
)
def test_files_older_than_a_database(
    name: str, directory: str, positions: list[tuple[int, int | None]], tmp_path: Path
) -> None:
    """A broker before 5.3 goes back to them, or to a .bak; nothing is lost by it if it has already run with them."""
    layout = Layout.open(stores.unpack(name, tmp_path))
    ends = {QueueId("TopicA", 0): (0, 18), QueueId("TopicA", 1): (0, 7), QueueId("TopicB", 0): (0, 22)}
    files: dict[str, dict[str, Any]] = {
        "consumerOffset.json": {"offsetTable": {"TopicA@rg": {"0": 3}}},
        "topics.json": {"topicConfigTable": {"TopicA": {}}, "dataVersion": {"timestamp": 1, "counter": 1}},
        "subscriptionGroup.json": {"subscriptionGroupTable": {"other": {}}},
    }
    written_ns = max(file.stat().st_mtime_ns for file in (layout.config / directory).iterdir())

    def started(after_s: int, version: str = "5.1") -> ConfigStart:
        for file, content in files.items():
            path = layout.config / file
            path.write_text(json.dumps(content))
            os.utime(path, ns=(path.stat().st_atime_ns, written_ns + after_s * 1_000_000_000))
        return config_start(Layout.open(layout.root), profile_of(version), ends)

    found = started(-60)
    assert [(lost.before, lost.after) for lost in found.lost_positions] == positions
    own = (("TopicB",), ("rg",)) if directory == "metadata" else ((), ())  # v2 does not have those that were made alone
    assert (found.lost_topics, found.lost_groups) == own
    assert found.sentence.endswith(f"because it does not read config/{directory}")
    assert not started(-60, "5.5").lost_positions
    assert not started(60).loses  # the database is the older one
    assert not started(-5).loses  # all was copied in one go
    if directory == "metadata":
        files["topics.json"]["dataVersion"]["timestamp"] = 1 << 42
        assert not started(-60).loses  # a topic was changed later
        files["topics.json"]["dataVersion"]["timestamp"] = 1
    started(-60)
    path = layout.config / "consumerOffset.json"
    path.rename(f"{path}.bak")
    del files["consumerOffset.json"]
    assert started(-60).lost_positions == found.lost_positions
    os.utime(f"{path}.bak", ns=(0, written_ns + 60_000_000_000))
    assert not started(-60).lost_positions


def test_once_for_a_layout(config: Path, real: tuple[Path, Ends]) -> None:
    """Verdict, plan and repair of one run ask the same."""
    layout = Layout.of(config.parent)
    found = config_start(layout, profile_of(VERSION), real[1])
    assert config_start(layout, profile_of(VERSION), {**real[1]}) is found
    assert config_start(layout, profile_of("4.9"), real[1]).version == "4.9"
    assert config_start(layout, profile_of(VERSION), {}) is not found


def test_no_file_stands_in_for_the_database_of_version_2(tmp_path: Path) -> None:
    """Its managers read nothing else, and make an empty one where it is gone (TopicConfigManagerV2.load)."""
    root, config = stores.unpack("5.5.1-config-v2", tmp_path), BrokerConfig({"configManagerVersion": "v2"})
    ends = {QueueId("TopicA", 0): (0, 18), QueueId("TopicB", 0): (0, 22)}
    shutil.rmtree(root / "config" / "rdb")
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"TopicA":{},"TopicB":{}}}')
    told, older = (config_start(Layout.open(root, config), profile_of(version), ends) for version in ("5.5.1", "4.9"))
    assert (told.lost_topics, told.refuses) == (("TopicA", "TopicB"), "")
    assert TOPICS in told.databases & told.forgotten
    assert not older.lost_topics
    (root / "config" / "rdb").write_bytes(b"x")
    assert "rdb is a file" in config_start(Layout.open(root, config), profile_of("5.5.1"), ends).refuses
