"""config/ mended: from the .bak, from what is left, from what the store proves; offsets clamped."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.formats.pop import REVIVE_GROUP, REVIVE_TOPIC
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC, TRANSACTION_POSITIONS, is_system_group
from mqstore.store.broker.topics import Topics, dumps, loads
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import next_commands
from mqstore.store.offsets.move import clamped_in_database
from mqstore.store.offsets.positions import Bounds
from mqstore.store.repair import config
from mqstore.store.repair.parts import RepairPart, chosen
from mqstore.store.repair.recheck import unrepairable_of
from mqstore.store.repair.repair import Repair, analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.settings.read import read_config_file
from mqstore.store.start.config_load import MAPPING, TIERED
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify
from mqstore.store.verify.verdict import Verdict

from ... import stores, tiered
from ...cli.datadriven import run_here
from ...verdict import said_of
from ..offsets.moved import positions
from .mended import check_mended
from .test_config_values import planned
from .test_repair import NOW_MS, examined, repaired

pytestmark = pytest.mark.long

CONFIG = chosen([RepairPart.CONFIG], ())
NAME = "5.3.3-clean"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return stores.unpack(NAME, tmp_path)


def mended(root: Path) -> Repair:
    """The plan that was carried out."""
    found = examined(root, BrokerConfig({}), CONFIG)
    repaired(root, BrokerConfig({}), CONFIG)
    return found


@pytest.mark.few(1)
@pytest.mark.parametrize("size", [0, 1, 300, 5000])
def test_a_file_that_is_cut_is_taken_from_its_bak(size: int, root: Path) -> None:
    path = root / "config" / "topics.json"
    whole = path.read_bytes()
    path.write_bytes(whole[:size])
    mended(root)
    assert path.read_bytes() == whole


def test_a_file_that_is_missing_is_taken_from_its_bak(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    whole = path.read_bytes()
    path.unlink()
    mended(root)
    assert path.read_bytes() == whole


def test_nul_bytes_at_the_end_are_taken_by_a_broker(root: Path) -> None:
    path = root / "config" / "topics.json"
    path.write_bytes(path.read_bytes() + bytes(100))
    assert examined(root, BrokerConfig({}), CONFIG).nothing_to_do


def test_topics_that_both_files_lack_come_from_the_store(root: Path) -> None:
    """Every topic with a queue is served again, with as many queues as it has."""
    path = root / "config" / "topics.json"
    queues: dict[str, int] = {}
    for queue in sorted((root / "consumequeue").glob("*/*")):
        topic = queue.parent.name
        queues[topic] = max(queues.get(topic, 0), int(queue.name) + 1)
    for broken in (path, path.with_name("topics.json.bak")):
        broken.write_bytes(broken.read_bytes()[:700])
    kept = read_config_file(path, "topics").value["topicConfigTable"]
    assert 0 < len(kept) < len(queues)
    mended(root)
    topics = Topics.read(root / "config")
    for topic, count in queues.items():
        assert (topics.queues(topic) or 0) >= count, topic
    assert set(kept) <= set(topics.known)


@pytest.mark.parametrize("role", ["SLAVE", "ASYNC_MASTER"])
def test_a_slave_gets_its_topics_from_its_master(role: str, root: Path) -> None:
    """None are made up, whether the table is empty or not there, and whatever else is mended."""
    options, path = BrokerConfig({"brokerRole": role}), root / "config" / "topics.json"
    path.with_name("topics.json.bak").unlink()
    path.with_name("subscriptionGroup.json").write_bytes(b"{")
    for content in ('{"topicConfigTable":{}}', None):
        path.unlink() if content is None else path.write_text(content)
        edits = examined(root, options, CONFIG).plan.edits
        assert any(edit.path.endswith("topics.json") for edit in edits) == (role != "SLAVE")
        assert any(edit.path.endswith("subscriptionGroup.json") for edit in edits)


def test_a_topic_whose_messages_are_compacted_stays_one(tmp_path: Path) -> None:
    """Its compaction files prove it; without the policy consumers are answered from the plain queue."""
    root = stores.unpack("5.3.3-compaction", tmp_path)
    before = Topics.read(root / "config")
    for path in (root / "config").glob("topics.json*"):
        path.unlink()
    mended(root)
    policies = {"state": "COMPACTION", "plain": None}
    for topics in (before, Topics.read(root / "config")):
        assert {name: topics.attribute(name, "cleanup.policy") for name in policies} == policies


def test_groups_that_both_files_lack_come_from_retry_topics_and_offsets(root: Path) -> None:
    path = root / "config" / "subscriptionGroup.json"
    groups = {
        folder.name.removeprefix("%RETRY%")
        for folder in (root / "consumequeue").iterdir()
        if folder.name.startswith("%RETRY%")
    }
    offsets = read_config_file(path.with_name("consumerOffset.json"), "consumer-offset")
    keys = {key.partition("@")[2] for key in offsets.value["offsetTable"]}
    committed = {group for group in keys if not is_system_group(group)}
    assert committed - groups
    for broken in (path, path.with_name(path.name + ".bak")):
        broken.write_bytes(b"{")
    mended(root)
    table = loads(path.read_text())["subscriptionGroupTable"]
    assert groups and set(table) == groups | committed
    assert all(entry["groupName"] == name for name, entry in table.items())


@pytest.mark.parametrize("content", [b"null", b""])
def test_a_file_that_is_no_object_is_made_anew(content: bytes, root: Path) -> None:
    """A broker takes it for an empty table; no other sound file looks like it."""
    path = root / "config" / "consumerFilter.json"
    path.write_bytes(content)
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    mended(root)
    assert isinstance(loads(path.read_text()), dict)
    assert examined(root, BrokerConfig({}), CONFIG).nothing_to_do


def test_an_offset_with_a_point_in_a_broken_file_is_a_whole_number(root: Path) -> None:
    """Nobody clamps or checks another one, and the repair would leave it as damage."""
    path = root / "config" / "delayOffset.json"
    path.write_text('{"dataVersion":{"counter":0,"stateVersion":0,"timestamp":1},"offsetTable":{1:1.\n2:1}}')
    path.with_name(path.name + ".bak").unlink(missing_ok=True)
    mended(root)
    assert "." not in path.read_text()
    assert set(loads(path.read_text())["offsetTable"]) >= {1, 2}


@pytest.mark.parametrize(("name", "code"), [("delayOffset.json", "I-146"), ("consumerOffset.json", "I-144")])
def test_offsets_that_only_a_broker_reads_as_numbers(name: str, code: str, root: Path) -> None:
    """Its parser takes 1.5, `true` and texts of digits; there was no repair for them."""
    path = root / "config" / name
    content = loads(path.read_text())
    table = content["offsetTable"] if code == "I-146" else content["offsetTable"]["orders@group-a_tags"]
    before = dict(table)
    first, second, *_ = table
    table[first], table[second] = before[first] + 0.5, str(before[second])
    path.write_text(dumps(content))

    def told() -> list[str]:
        with StoreReader(root) as store:
            found = verify(store, Scope(groups=frozenset({"config"}))).findings
        return [each.code for each in found if each.severity >= Severity.ERROR]

    assert told() == [code]
    mended(root)
    assert not told()
    assert str(before) in str(loads(path.read_text()))


def test_offsets_outside_of_their_queue(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    row = content["offsetTable"]["orders@group-a_tags"]
    known = dict(row)
    row[0], row[1] = 10**15, -7
    content["offsetTable"]["gone@group-a_tags"] = {0: 10**15}
    path.write_text(dumps(content))
    found = mended(root)
    told = {(c.group, str(c.queue), c.before) for c in found.clamped}
    assert told == {("group-a_tags", "orders/0", 10**15), ("group-a_tags", "orders/1", -7)}
    after = loads(path.read_text())["offsetTable"]
    assert after["orders@group-a_tags"][0] == known[0], "it had consumed all of the queue"
    assert after["orders@group-a_tags"][1] == 0
    assert after["gone@group-a_tags"] == {0: 10**15}, "nothing is known of that topic's queue"


def test_an_empty_table_whose_name_has_a_wrong_letter(root: Path) -> None:
    """The file that is told is the one that is written, no other."""
    path = root / "config" / "consumerFilter.json"
    offsets = (root / "config" / "consumerOffset.json").read_bytes()
    path.write_text('{"filterDataByTapic":{}}')
    mended(root)
    assert loads(path.read_text()) == {"filterDataByTopic": {}}
    assert (root / "config" / "consumerOffset.json").read_bytes() == offsets


def test_offsets_of_consumers_that_pull(root: Path) -> None:
    """5.5 keeps them in a table of their own, and they are held against the same queues (I-144)."""
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    content["pullOffsetTable"] = {"orders@group-a_tags": {0: 10**15}}
    path.write_text(dumps(content))
    mended(root)
    after = loads(path.read_text())
    inside = after["offsetTable"]["orders@group-a_tags"][0]
    assert after["pullOffsetTable"]["orders@group-a_tags"] == {0: inside}


def test_positions_in_revive_queues(tmp_path: Path) -> None:
    """Each is that of the last record read: at the end of its queue it is one too far, and a broker passes over the
    next record (real 5.5.1: 29 of 30 popped messages came back).
    """
    root = stores.unpack("5.5.0-pop", tmp_path)
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    row = content["offsetTable"][f"{REVIVE_TOPIC}TestCluster@{REVIVE_GROUP}"]
    newest = {0: 36, 1: 30, 2: 99, 3: 92, 4: 20, 5: 26, 6: 89, 7: 95}
    row.update(newest)
    row[2] = -1
    path.write_text(dumps(content))
    assert examined(root, BrokerConfig({}), CONFIG).nothing_to_do, "all read, and nothing"
    row.update({queue: offset + 1 for queue, offset in newest.items()})
    path.write_text(dumps(content))
    with StoreReader(root) as store:
        (told,) = verify(store, Scope(groups=frozenset({"config"}))).findings
    assert (told.code, told.count) == ("I-144", len(newest))
    found = mended(root)
    assert {one.queue.queue_id: one.after for one in found.clamped} == newest
    assert loads(path.read_text())["offsetTable"] == content["offsetTable"] | {
        f"{REVIVE_TOPIC}TestCluster@{REVIVE_GROUP}": newest
    }


def test_offsets_of_delay_levels(root: Path) -> None:
    path = root / "config" / "delayOffset.json"
    content = loads(path.read_text())
    known = dict(content["offsetTable"])
    level = next(level for level, offset in known.items() if offset > 0)
    content["offsetTable"][level] = 10**6
    path.write_text(dumps(content))
    found = mended(root)
    (moved,) = found.clamped
    assert (moved.group, moved.queue.topic) == ("", SCHEDULE_TOPIC)
    assert moved.queue.queue_id == level - 1
    assert loads(path.read_text())["offsetTable"][level] == moved.after >= known[level]


@pytest.mark.parametrize("offset", [1, 99])
def test_an_offset_behind_a_delayed_message_that_was_not_delivered(offset: int, root: Path) -> None:
    """Also inside of the queue: the log ends before the message is due, and what is delivered is written to it."""
    path = root / "config" / "delayOffset.json"
    text = path.read_text()
    path.write_text(text.replace("18:0", f"18:{offset}"))
    with StoreReader(root) as store:
        verdict = verify(store, Scope())
    told = {f.code: f.message for f in verdict.serious}
    assert told.keys() == {"I-146", "I-188"} and "level 18: offset" in told["I-146"]
    assert told["I-188"].endswith("1 delay level leaves messages undelivered")
    (moved,) = mended(root).clamped
    assert (moved.queue, moved.before, moved.after) == (QueueId(SCHEDULE_TOPIC, 17), offset, 0)
    assert loads(path.read_text()) == loads(text)


def test_offsets_of_a_store_without_a_log_begin_at_0(root: Path) -> None:
    """The first message gets the queue offset 0, and no group is to pass it over."""
    for part in ("commitlog", "consumequeue", "index"):
        shutil.rmtree(root / part)
    (root / "commitlog").mkdir()
    mended(root)
    groups = loads((root / "config" / "consumerOffset.json").read_text())["offsetTable"]
    levels = loads((root / "config" / "delayOffset.json").read_text())["offsetTable"]
    assert groups and levels and {offset for row in [*groups.values(), levels] for offset in row.values()} == {0}


def test_what_is_no_table_is_taken_from_its_bak(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    known = loads(path.with_name("consumerOffset.json.bak").read_text())["offsetTable"]
    for text in ('{"offsetTable":[1]}', '{"offsetTable":{"a@b":7,"@":{"x":1}}}', "{}"):
        path.write_text(text)
        mended(root)
        assert loads(path.read_text())["offsetTable"] == known, text


def test_positions_of_transactions_come_back_both_or_none(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """With one of them alone a broker asks for transactions that are decided, and delivers them again."""
    path, (half, op) = root / "config" / "consumerOffset.json", TRANSACTION_POSITIONS
    backup = path.with_name(path.name + ".bak")
    backup.unlink()
    path.write_text(f'{{"offsetTable":{{"{op}":{{0:3}},"orders@a":{{0:1}},"{half[:20]}')
    assert planned(root)[path.name][1]["offsetTable"] == {"orders@a": {0: 1}, half: {0: 32}, op: {0: 1}}
    monkeypatch.setattr(config, "transaction_queues", lambda _, **__: None)
    reason, content = planned(root)[path.name]
    assert content["offsetTable"] == {"orders@a": {0: 1}} and f"{op} removed" in reason
    backup.write_text(f'{{"offsetTable":{{"{op}":{{0:0}},"{half}":{{0:0}}}},')
    assert planned(root)[path.name][1]["offsetTable"] == {op: {0: 0}, half: {0: 0}, "orders@a": {0: 1}}
    path.write_text(f'{{"offsetTable":{{"{op}":{{0:1}},"{half}":{{0:2}},')
    assert planned(root)[path.name][1]["offsetTable"] == {op: {0: 1}, half: {0: 2}}


@pytest.mark.few(1)
@pytest.mark.parametrize("code", ["I-076", "I-077", "I-142", "I-144", "I-146", "I-149", "I-154", "I-189"])
def test_the_finding_is_mended(code: str, tmp_path: Path) -> None:
    check_mended(code, "mend", tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("code", ["I-143", "I-150", "I-152"])
def test_the_other_findings_are_mended(code: str, tmp_path: Path) -> None:
    check_mended(code, "mend", tmp_path)


def test_what_no_queue_proves_is_not_invented(root: Path) -> None:
    """A level that only this broker's configuration has keeps its offset while it has a queue."""
    path = root / "config" / "delayOffset.json"
    content = loads(path.read_text())
    content["offsetTable"] |= {19: 5, 0: 3}
    path.write_text(dumps(content))
    found = mended(root)
    told = {(c.queue.queue_id, c.before, c.after) for c in found.clamped}
    assert told == {(18, 5, None), (-1, 3, None)}
    assert set(loads(path.read_text())["offsetTable"]) == set(content["offsetTable"]) - {0, 19}


def test_a_position_that_no_broker_looks_for_stays(tmp_path: Path) -> None:
    """Of a group that is none of LMQs, in their table."""
    root = stores.unpack("4.9.7-lmq", tmp_path)
    path = root / "config" / "lmqConsumerOffset.json"
    path.write_text(path.read_text().replace("{}", '{"%LMQ%a@g":99999,"%LMQ%a@%LMQ%g":99999}'))
    (clamped,) = examined(root, BrokerConfig({}), CONFIG).clamped
    assert clamped.group == "%LMQ%g"
    with StoreReader(root) as store:
        found = [row for row in verify(store, Scope(groups=frozenset({"config"}))).findings if row.code == "I-152"]
    assert {("'g'" in row.message, row.severity) for row in found} == {(True, Severity.INFO), (False, Severity.WARNING)}


@pytest.mark.few(1)
@pytest.mark.parametrize("levels", ["soon", "1s 99999999999s", "1 2 3", ""])
def test_delay_levels_that_no_broker_reads(levels: str, root: Path) -> None:
    """What does not depend on them is mended; no offset of a level is taken out."""
    path = root / "config" / "delayOffset.json"
    content = loads(path.read_text())
    content["offsetTable"] |= {19: 5, 0: 3}
    path.write_text(dumps(content))
    topics = root / "config" / "topics.json"
    whole = topics.read_bytes()
    topics.write_bytes(whole[:300])
    config = BrokerConfig({"messageDelayLevel": levels})
    found = examined(root, config, CONFIG)
    assert {(row.queue.queue_id, row.after) for row in found.clamped} == {(-1, None)}
    repaired(root, config, CONFIG)
    assert topics.read_bytes() == whole
    assert 19 in loads(path.read_text())["offsetTable"]


def test_what_is_told_of_an_entry_is_short_and_on_one_line(root: Path) -> None:
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    content["offsetTable"]["no\ngroup" + "x" * 5000] = dict.fromkeys(range(3000), 7)
    path.write_text(dumps(content))
    (edit,) = mended(root).plan.edits
    assert "I-144" in edit.codes and edit.reason.isprintable()
    assert "no\\ngroupx" in edit.reason and len(edit.reason) < 300


def test_a_log_file_whose_name_is_no_number(root: Path) -> None:
    """It sorts before all others, and says nothing of where the log begins."""
    (root / "commitlog" / "(copy)").write_bytes(bytes(100))
    assert examined(root, BrokerConfig({}), CONFIG).nothing_to_do


@pytest.mark.few(1)
@pytest.mark.parametrize("name", ["5.3.3-rocksdb", "5.5.1-config-single", "5.5.1-config-v2"])
def test_positions_in_a_rocksdb_behind_the_end_of_their_queues(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before, queue = positions(root), QueueId("TopicA", 0)
    bounds = Bounds({queue: (1 << 20, 1 << 20)}, frozenset(), None, from_zero=False)
    for edit in clamped_in_database(Layout.open(root), bounds)[0]:
        path = Path(edit.path)
        path.unlink(missing_ok=True)
        if edit.kind == "create":
            path.write_bytes(edit.pieces[0][1])
    assert before != positions(root)
    assert {(each.before, each.queue) for each in mended(root).clamped} == {(1 << 20, queue)}
    others = {key: at for key, at in before.items() if key[2:] != queue}
    after = positions(root)
    assert after.keys() == before.keys() and others.items() <= after.items()


def test_a_table_in_a_rocksdb_that_does_not_open_is_no_file_to_make(tmp_path: Path) -> None:
    """A broker reads none in its place: such a file would be proposed again and again."""
    name = "5.3.3-rocksdb"
    root = stores.unpack(name, tmp_path)
    (root / "config" / "consumerOffsets" / "CURRENT").unlink()
    edits = examined(root, BrokerConfig(stores.config(name, root)), CONFIG).plan.edits
    assert [Path(edit.path).name for edit in edits] == ["CURRENT"]


def test_a_rocksdb_that_opens_with_fewer_topics_is_no_file_to_make(tmp_path: Path) -> None:
    """A broker reads none in its place: it was written again and again, and proposed itself."""
    layout = Layout.open(stores.unpack("5.5.1-config-v2", tmp_path))
    found = _with_half_a_manifest(layout, "rdb")
    assert not examined(layout.root, BrokerConfig({}), CONFIG).plan.edits
    assert found.findings[0].path == str(layout.config / "rdb")
    assert found.findings[0].code == "I-155"
    assert not any(command.changes for command in next_commands(found.findings, layout.root, least=Severity.WARNING))
    assert [each.code for each in unrepairable_of(found, layout)] == ["I-155"]


def test_topics_that_a_rocksdb_has_lost_are_added_by_a_file(tmp_path: Path) -> None:
    """Also if there is one that was written less often than the RocksDB."""
    layout = Layout.open(stores.unpack("5.3.3-rocksdb", tmp_path))
    found = _with_half_a_manifest(layout, "topics")
    (told,) = [each for each in found.findings if each.severity is Severity.WARNING]
    assert told.code == "I-150" and told.message.endswith("a broker does not serve it")
    commands = next_commands(found.findings, layout.root, least=Severity.WARNING)
    assert ["--config" in command.words for command in commands if command.changes] == [True]
    (layout.config / "topics.json").write_text('{"topicConfigTable":{}}')
    (edit,) = examined(layout.root, BrokerConfig({}), CONFIG).plan.edits
    assert (Path(edit.path).name, edit.codes) == ("topics.json", ("I-150",))


def _with_half_a_manifest(layout: Layout, database: str) -> Verdict:
    """The verdict on config/."""
    (manifest,) = (layout.config / database).glob("MANIFEST-*")
    manifest.write_bytes(manifest.read_bytes()[: manifest.stat().st_size // 2])
    with StoreReader(layout.root) as store:
        return verify(store, Scope(groups=frozenset({"config"})))


def _cut_metadata(root: Path, first: tuple[str, ...], cut: str) -> Path:
    """tieredStoreMetadata.json, these members first, up to what `cut` begins with."""
    path = root / "config" / TIERED
    content = tiered.metadata(tiered.unpack("5.3.3", root.parent))
    text = dumps({member: content[member] for member in [*first, *sorted(set(content) - set(first))]})
    path.write_text(text[: text.index(cut)])
    return path


def test_of_cut_tiered_metadata_stays_what_is_whole(root: Path) -> None:
    """The number of the last topic, and segments but the one that is cut: without its size it is none."""
    members = ("topicSerialNumber", "topicMetadataTable", "commitLogFileSegmentTable")
    path = _cut_metadata(root, members, '"endTimestamp":1795210651517')
    done = run_here(["recover", str(root), "--apply", "--yes"])
    assert done.code == 1, done.stdout
    assert "Not restored: 1 other entry is lost, a part of tieredStoreMetadata.json is lost (" in done.stdout
    kept = loads(path.read_text())
    assert kept["topicSerialNumber"] == 0
    assert list(kept["topicMetadataTable"]) == ["orders"]
    (segments,) = kept["commitLogFileSegmentTable"].values()
    assert list(segments) == [0]
    assert "queueMetadataTable" not in kept


def test_a_static_topic_of_which_a_part_is_left_goes(root: Path) -> None:
    """With a mapping that has lost the number of queues, its last member, no client finds a route to the topic. Without
    one a broker serves it as any other.
    """
    path = root / "config" / MAPPING
    part = {"bname": "b1", "gen": 0, "logicOffset": 0, "queueId": 0, "startOffset": 0, "endOffset": -1}
    row = {"bname": "b1", "currIdMap": {}, "epoch": 1, "hostedQueues": {"0": [part]}, "totalQueues": 1}
    text = dumps({"topicQueueMappingInfoMap": {"whole": row, "cut": row}})
    path.write_text(text[: text.rindex("endOffset")])
    done = run_here(["recover", str(root), "--apply", "--yes"])
    assert (done.code, f"cut of config/{MAPPING}" in done.stdout) == (1, True), done.stdout
    assert loads(path.read_text())["topicQueueMappingInfoMap"].keys() == {"whole"}


def test_numbers_of_tiered_topics_are_not_given_twice(root: Path) -> None:
    """Where the last one that was given is not known no file is written; it is not below one that is in use."""
    path = _cut_metadata(root, ("topicMetadataTable",), ":0\n}")
    assert not examined(root, BrokerConfig({}), CONFIG).plan.edits
    path.write_text('{"topicSerialNumber":3,"topicMetadataTable":{"a":{"topicId":12}},')
    mended(root)
    assert loads(path.read_text())["topicSerialNumber"] == 12


def test_an_empty_bak_of_a_file_that_is_missing_is_repaired(root: Path) -> None:
    path = root / "config" / "consumerOrderInfo.json"
    path.unlink()
    path.with_name(path.name + ".bak").write_bytes(b"")
    (told,) = [each for each in said_of(root, BrokerConfig({}), None).verdict.findings if each.code == "I-140"]
    assert told.path.endswith(".json.bak")
    assert told.message == "cannot be read at byte 0: empty; there is no consumerOrderInfo.json"
    mended(root)
    assert not [each for each in said_of(root, BrokerConfig({}), None).verdict.findings if each.code == "I-140"]


def test_files_for_a_broker_that_reads_no_database(tmp_path: Path) -> None:
    """One that goes down to 4.9 finds topics, groups and positions as the RocksDB has them."""
    layout = Layout.open(stores.unpack("5.5.1-config-single", tmp_path))
    edits = analyze(layout, CONFIG, "4.9", NOW_MS).plan.edits
    made = {Path(edit.path).name: loads(bytes(edit.pieces[0][1]).decode()) for edit in edits}
    assert made["consumerOffset.json"]["offsetTable"] == {"TopicA@rg": {0: 18, 1: 7}}
    assert made["topics.json"]["topicConfigTable"]["BenchmarkTest"]["writeQueueNums"] == 1024
    assert "rg" in made["subscriptionGroup.json"]["subscriptionGroupTable"]


@pytest.mark.parametrize(
    ("name", "topic", "forgotten"), [("4.9.7-clean", "fifo-topic", True), ("4.9.7-lmq", "copy_topic", False)]
)
def test_a_forgotten_topic_of_4_9_has_records_of_its_own(
    name: str, topic: str, forgotten: bool, tmp_path: Path
) -> None:
    """It gets an entry. What has a queue only because messages named it besides needs none (I-150)."""
    root = stores.unpack(name, tmp_path)
    path = root / "config" / "topics.json"
    content = loads(path.read_text())
    content["topicConfigTable"].pop(topic, None)
    path.write_text(dumps(content))
    (told,) = [each for each in said_of(root, BrokerConfig({}), None).verdict.findings if each.code == "I-150"]
    assert told.severity is (Severity.WARNING if forgotten else Severity.INFO)
    mended(root)
    assert (topic in loads(path.read_text())["topicConfigTable"]) == forgotten


@pytest.mark.parametrize("name", ["consumerOffset.json", "lmqConsumerOffset.json"])
@pytest.mark.parametrize("half", [11, 99])
def test_positions_of_transactions_are_put_right_at_once(name: str, half: int, tmp_path: Path) -> None:
    """In the file that a broker reads, also where one lies behind the end of its queue."""
    root, options = stores.unpack("4.9.7-clean", tmp_path), BrokerConfig({"enableLmq": str(name[0] == "l").lower()})
    path = root / "config" / "consumerOffset.json"
    content = loads(path.read_text())
    positions = dict(zip(TRANSACTION_POSITIONS, ({0: half}, {0: 10}), strict=True))
    path.write_text(dumps({**content, "offsetTable": content["offsetTable"] | positions}))
    path.with_name("consumerOffset.json.bak").unlink(missing_ok=True)
    path = path.rename(path.with_name(name))
    with StoreReader(root, options) as store:
        told = [Path(finding.path).name for finding in verify(store).findings if finding.code == "I-189"]
    assert told == [name]
    repaired(root, options, CONFIG)
    table = loads(path.read_text())["offsetTable"]
    assert [table[key] for key in TRANSACTION_POSITIONS] == [{0: 21}, {0: 10}]
    with StoreReader(root, options) as store:
        assert not {finding.code for finding in verify(store).findings} & {"I-189", "I-144"}


@pytest.mark.parametrize("name", ["4.9.7-killed", "5.5.0-killed"])
def test_a_killed_store_without_positions_is_recovered(name: str, tmp_path: Path) -> None:
    """The plan is made without the lock, and the same with it."""
    root = stores.unpack(name, tmp_path)
    for path in (root / "config").glob("consumerOffset.json*"):
        path.unlink()
    done = run_here(["recover", str(root), "--apply", "--yes"])
    assert "A broker can be started." in done.stdout, done
    assert not run_here(["verify", str(root)]).code
