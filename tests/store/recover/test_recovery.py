"""What a recovery finds before it plans anything."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.inspect.description import describe
from mqstore.store.inspect.timers import timers
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import at_first_sight
from mqstore.store.verify.verdict import Status, first_sentence, starts_last
from tests.archives import extract

from ...stores import config
from ...verdict import apply_recovery, said_of


def test_a_store_without_a_log_may_be_a_new_one(tmp_path: Path) -> None:
    """It is safe to start, so its case is no alarm alone."""
    (tmp_path / "dledger-n0" / "data").mkdir(parents=True)
    found = analyze(Layout.open(tmp_path, BrokerConfig({})), None)
    assert found.prediction.case.label == "no-commit-log"
    assert found.prediction.case.found.endswith("or the store new?")
    assert not [note for note in found.notes if "index" in note]  # there is nothing to index


def test_without_the_timer_wheel_no_popped_message_comes_back(tmp_path: Path) -> None:
    extract(Path(__file__).parents[2] / "pop" / "5.5.1-no-json.tar.gz", tmp_path)
    for value, wanted in (("false", ["5 queues of the revive topic"]), ("true", [])):
        notes = analyze(Layout.open(tmp_path, BrokerConfig({"timerWheelEnable": value}))).notes
        assert [note[:28] for note in notes if "revive" in note] == wanted


def test_without_the_timer_wheel_timed_messages_wait(store: Callable[[str], Path]) -> None:
    for name, value, wanted in (("timer-clean", "false", 1), ("timer-clean", "true", 0), ("clean", "false", 0)):
        layout = Layout.open(store(f"5.3.3-{name}"), BrokerConfig({"timerWheelEnable": value}))
        assert len([note for note in analyze(layout).notes if "timed messages" in note]) == wanted, (name, value)
        told: list[str] = []
        with StoreReader(layout) as reader:
            timers(reader, 0, told.append)
        assert len([note for note in told if "timerWheelEnable=false" in note]) == wanted, (name, value)


def test_topics_that_the_table_of_topics_lacks_are_noted(store: Callable[[str], Path]) -> None:
    """A real 5.3.3 gives a new group no message of them; a start changes nothing of that, and does no harm."""
    root = store("5.3.3-clean")
    path = root / "config" / "topics.json"
    layout = Layout.open(root, BrokerConfig())
    assert not [note for note in analyze(layout).notes if "I-150" in note]
    table = json.loads(path.read_text())
    for topic in ("later", "orders", "logs", "empty"):
        table["topicConfigTable"].pop(topic, None)
    path.write_text(json.dumps(table))
    found = analyze(Layout.open(root, BrokerConfig()))
    [note] = [note for note in found.notes if "I-150" in note]
    assert note.startswith("no broker serves ")
    assert " messages of 3 topics without an entry in topics.json (later, logs, orders)" in note
    assert note.endswith(f"`mqstore repair {root} --config --apply` (I-150)")
    assert found.nothing_to_do and found.prediction.config is not None and not found.prediction.config.harmful
    slave = Layout.open(root, BrokerConfig({"brokerRole": "SLAVE"}))
    assert not [note for note in analyze(slave).notes if "I-150" in note]  # it gets them from its master


@pytest.mark.parametrize(
    ("gone", "named"),
    [
        (("orders", "logs"), "1 topic ('orders')"),
        (("later", "logs"), "2 topics ('later', 'logs')"),  # the newest message is of later: topics.json is older
        (("payments", "logs"), ""),
    ],
)
def test_topics_without_an_entry_that_are_in_use(
    gone: tuple[str, ...], named: str, store: Callable[[str], Path]
) -> None:
    """Where no group has a position, a topic may have been deleted, and its messages wait to expire."""
    root = store("5.3.3-clean")
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    for topic in gone:
        del table["topicConfigTable"][topic]
    path.write_text(json.dumps(table))
    offsets = root / "config" / "consumerOffset.json"
    offsets.with_name(offsets.name + ".bak").unlink(missing_ok=True)
    offsets.write_text(json.dumps({"offsetTable": {"orders@group-a_tags": {"0": 1}}}))
    said = said_of(root, BrokerConfig({}))
    assert said.status is (Status.DAMAGED if named else Status.CLEAN), said
    seen = at_first_sight(describe(Layout.open(root)))  # what `inspect` says
    assert (seen.status, seen.serious) == (said.status, said.verdict.serious), seen
    assert (f"no entry for {named}, so that no broker serves " in str(said)) == bool(named), said
    assert said.found is not None
    assert any("I-150" in note for note in said.found.notes) == (not named)


def test_positions_in_a_topic_that_4_x_has_deleted_stay(store: Callable[[str], Path]) -> None:
    """There deleteTopic leaves them (javap: AdminBrokerProcessor of 4.3.1 and 4.9.7)."""
    root = store("4.9.7-clean")
    path = root / "config" / "topics.json"
    table = json.loads(path.read_text())
    del table["topicConfigTable"]["orders"]
    path.write_text(json.dumps(table))
    (root / "config" / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"orders@group-a": {"0": 1}}}))
    said = said_of(root, BrokerConfig(config("4.9.7-clean", root)))
    assert said.status is Status.CLEAN, said


def test_the_messages_of_a_slave_that_lacks_its_topics_are_not_served(store: Callable[[str], Path]) -> None:
    """A real 5.3.3 gives none of the 386 where it starts as a master, and all once the topics have entries."""
    root = store("5.3.3-ha-slave")
    as_slave = said_of(root, BrokerConfig(config("5.3.3-ha-slave", root)))
    assert as_slave.status is Status.UNCLEAN, as_slave  # it gets them from its master
    said = said_of(root, BrokerConfig({}))
    assert said.codes == ["I-150"], said
    sentence = "no entry for 2 topics ('TopicA', 'TopicB'), so that no broker serves 386 messages; a slave gets"
    assert f"config/topics.json: {sentence}" in str(said)
    seen = at_first_sight(describe(Layout.open(root)))
    assert first_sentence(seen, root) == first_sentence(said.verdict, root), seen
    assert apply_recovery(said, BrokerConfig({}))
    assert said_of(root, BrokerConfig({})).status is Status.CLEAN


def zeros_in(log: Path) -> None:
    """The last record of the slave, which stands at 170088, is torn."""
    with (log / f"{131072:020d}").open("r+b") as file:
        file.seek(170500 - 131072)
        file.write(bytes(388))


def noise_in(log: Path) -> None:
    """In its place are bytes that are no record."""
    with (log / f"{131072:020d}").open("r+b") as file:
        file.seek(170088 - 131072)
        file.write(b"\x11" * 800)


def test_the_last_message_of_a_slave_comes_again_with_its_properties(store: Callable[[str], Path]) -> None:
    """A master keeps it without those that were torn off; in the middle of its log a slave does, too."""
    root = store("5.3.3-ha-slave")
    with (root / "commitlog" / f"{131072:020d}").open("r+b") as file:
        file.seek(170888 - 60 - 131072)
        file.write(bytes(60))
    for role, end, resent in (("ASYNC_MASTER", 170888, 0), ("SLAVE", 170088, 1)):
        options = BrokerConfig(config("5.3.3-ha-slave", root)).with_set([f"brokerRole={role}"])
        before = said_of(root, options)
        assert before.found is not None and (plan := before.found.plan) is not None
        assert (plan.log_end, plan.resent, plan.lost_messages) == (end, resent, 0)
        assert bool(plan.cut) == (not resent) and list(before.contradictions()) == []
    apply_recovery(before, options)
    assert said_of(root, options).verdict.status is Status.CLEAN


def test_a_start_without_any_queue_makes_those_of_lmqs_too(store: Callable[[str], Path]) -> None:
    """Their messages count as those of other queues do."""
    root = store("5.3.3-lmq")
    options = BrokerConfig(config("5.3.3-lmq", root))
    before = analyze(Layout.open(root, options), "5.3")
    shutil.rmtree(root / "consumequeue")
    (root / "abort").touch()
    (root / "checkpoint").unlink()
    found = analyze(Layout.open(root, options), "5.3")
    assert found.prediction.readable == found.messages == before.messages == before.prediction.readable


def test_a_message_that_several_queues_name_comes_again_once(store: Callable[[str], Path]) -> None:
    """The last 22 records are gone, of which 27 units name 22."""
    root = store("4.9.7-lmq")
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(63250)
        file.write(bytes(262144 - 63250))
    options = BrokerConfig(config("4.9.7-lmq", root)).with_set(["brokerRole=SLAVE"])
    found = said_of(root, options).found
    assert found is not None and found.plan is not None and found.plan.resent == 22


def test_what_a_start_of_a_slave_cuts_off_the_master_may_send_again(store: Callable[[str], Path]) -> None:
    """The verdict says so, as that is what helps."""
    root = store("5.3.3-ha-slave")
    with (root / "commitlog" / f"{0:020d}").open("r+b") as file:
        file.seek(86598)
        file.write(bytes(486))
    for role, said in (("ASYNC_MASTER", False), ("SLAVE", True)):
        options = BrokerConfig(config("5.3.3-ha-slave", root)).with_set([f"brokerRole={role}"])
        [text] = [each.message for each in said_of(root, options).verdict.serious if each.code == "I-181"]
        assert text.startswith("a broker 5.3 would lose 185 messages of 2 topics")
        assert text.endswith(", unless the master sends them again") == said


@pytest.mark.parametrize("peers", ["n0-h:1", "n0-h:1;n1-h:2"])
def test_what_a_start_of_a_dledger_node_cuts_off_the_leader_may_send_again(
    peers: str, store: Callable[[str], Path]
) -> None:
    root = store("5.3.3-dledger")
    with (root / "dledger-n0" / "data" / f"{49152:020d}").open("r+b") as file:
        file.seek(4096)
        file.write(bytes(500))
    before = said_of(root, BrokerConfig({"dLegerPeers": peers}))
    [text] = [each.message for each in before.verdict.serious if each.code == "I-181"]
    assert text.endswith(", unless the leader sends them again") == (";" in peers)


@pytest.mark.parametrize(
    ("name", "option", "copies"),
    [
        ("5.3.3-dledger", "dLegerPeers=n0-h:1;n1-h:2", False),
        ("5.3.3-ha-slave", "brokerRole=SLAVE", True),
        ("5.3.3-ha-slave", "brokerRole=ASYNC_MASTER", False),
    ],
)
@pytest.mark.parametrize("gone", [False, True])
def test_who_follows_has_no_topics_before_it_has_copied_them(
    name: str, option: str, copies: bool, gone: bool, store: Callable[[str], Path]
) -> None:
    """A node of a group that leads takes its topics from all others (real 5.3.3): there it is a loss."""
    root = store(name)
    (root / "config" / "topics.json").write_text('{"dataVersion":{"counter":14},"topicConfigTable":{}}')
    for path in root.glob("config/[tcs]*.json*") if gone else ():  # topics, positions, groups
        path.unlink()
    before = said_of(root, BrokerConfig(config(name, root)).with_set([option]))
    codes = {each.code for each in before.verdict.serious}
    assert (codes.isdisjoint({"I-150", "I-188"})) == copies
    assert before.found is not None
    assert any("if it may lead before that" in note for note in before.found.notes) == copies


def without_last_files(log: Path) -> None:
    """Units name the record that stood at 262144, and those behind it."""
    for start in (262144, 393216):
        (log / f"{start:020d}").unlink()


@pytest.mark.parametrize(
    ("name", "hurt", "end", "lost"),
    [
        ("ha-slave", zeros_in, 170088, 1),
        ("ha-slave", noise_in, 170088, 1),
        ("ha-master", without_last_files, 262144, 89),
    ],
)
def test_the_end_of_a_slaves_log_comes_again_from_its_master(
    name: str, hurt: Callable[[Path], None], end: int, lost: int, store: Callable[[str], Path]
) -> None:
    """A real 5.3.3 master sends all from there on; a tombstone would make the two logs differ for good."""
    root = store(f"5.3.3-{name}")
    hurt(root / "commitlog")
    for role, wanted in (("ASYNC_MASTER", lost), ("SLAVE", 0), ("ASYNC_MASTER", 0)):
        options = BrokerConfig(config(f"5.3.3-{name}", root)).with_set([f"brokerRole={role}"])
        elected = role != "SLAVE" and not wanted
        if elected:  # each broker of a controller's group may be made a slave, or the master
            options = options.with_set(["enableControllerMode=true"])
        before = said_of(root, options)
        assert before.found is not None and before.found.plan is not None
        plan = before.found.plan
        assert (plan.lost_messages, before.found.prediction.lost.messages) == (wanted, 0)
        assert bool(plan.fills or plan.gone) == bool(wanted)
        end_is_lost = {"I-020", "I-021", "I-022", "I-186", "I-191"} & {
            finding.code for finding in before.verdict.serious
        }
        seen = at_first_sight(describe(before.found.layout))  # what `inspect` says
        assert not elected or "I-191" in {finding.code for finding in seen.serious}
        assert end_is_lost == {"I-191"} if elected else bool(end_is_lost) == bool(wanted)
        assert list(before.contradictions()) == []
        assert plan.resent == lost - wanted
    apply_recovery(before, options)
    after = said_of(root, options)
    assert starts_last(after.verdict) and list(after.contradictions()) == []
    with StoreReader(Layout.open(root, options)) as reader:
        assert not any(reader.log.read(end, reader.log.max_file_end - end))


@pytest.mark.parametrize("name", ["5.3.3-killed-bit-restarted", "5.3.3-killed-page-restarted"])
def test_no_unit_stays_that_a_start_would_keep_behind_the_last_message(name: str, store: Callable[[str], Path]) -> None:
    """Those that name a place inside of a record go, and those that end behind the log's end."""
    root = store(name)
    options = BrokerConfig(config(name, root))
    before = said_of(root, options)
    assert "I-062" in before.codes and before.found is not None and before.found.plan is not None
    wanted = {row.queue: row.max_offset for row in before.found.plan.queues}
    apply_recovery(before, options)
    after = said_of(root, options)
    assert after.found is not None and after.found.nothing_to_do
    assert not {f.code for f in after.verdict.findings} & {"I-062", "I-067", "I-075"}
    ends = {QueueId(row.topic, row.queue_id): row.max_offset for row in after.found.prediction.queues}
    assert ends == wanted
