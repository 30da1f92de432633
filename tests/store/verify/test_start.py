"""What a start would do as findings, and when nobody predicts one."""

from __future__ import annotations

import gzip
import json
import os
import shutil
from pathlib import Path
from random import Random

import pytest

from mqstore.formats.timer_check import FILE as TIMER_CHECK
from mqstore.store.broker.topics import json_bytes, read_json
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import TimerCheck
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import Unreadable
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.next_commands import cure_of
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.recover import broker_bugs
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.store import StoreReader
from mqstore.store.session.journal import MOVES, InterruptedChange
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.run import verify
from mqstore.store.verify.start import predict, refused_by_config, start_beside, unfinished_change, why_not

from ...stores import unpack
from ..inspect.test_pop import KEPT, KEPT_KEY, given_out_by
from .damaged import give_twice
from .mutations import NOW_MS, mutations
from .mutations.timer import Timer


@pytest.fixture(scope="module")
def root(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A sound store."""
    return unpack("5.3.3-clean", tmp_path_factory.mktemp("start"))


@pytest.mark.parametrize("empty", [False, True])
def test_a_quick_run_tells_that_the_log_is_not_there(empty: bool, tmp_path: Path) -> None:
    """So it does in a run that predicts nothing."""
    root = unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "commitlog")
    if empty:
        (root / "commitlog").mkdir()
    for scope in (Scope(quick=True), Scope(topic="orders")):
        found = {one.code: one.message for one in verify(root, scope, now_ms=NOW_MS).findings}
        assert "no commit log, but full queues: is the path wrong, or a disk not mounted?" in found["I-187"]


def test_a_quick_run_tells_that_all_queues_are_gone(tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    shutil.rmtree(root / "consumequeue")
    (found,) = (one for one in verify(root, Scope(quick=True), now_ms=NOW_MS).findings if one.code == "I-114")
    assert "consumequeue is missing" in found.message
    assert found.count > 1


@pytest.mark.parametrize(("gone", "code"), [("consumequeue", "I-070"), ("index", "I-101")])
def test_what_a_group_has_committed_is_missing(gone: str, code: str, tmp_path: Path) -> None:
    """The other one of queues and index proves it, whatever the checkpoint of a node of several says."""
    root = unpack("5.3.3-dledger", tmp_path)
    config = BrokerConfig({"dLegerPeers": "n0-h:1;n1-h:2"})
    shutil.rmtree(root / gone)
    (root / "dledger-n0" / "checkpoint").write_text("endIndex=204\ncommittedIndex=-1\n")
    with StoreReader(root, config) as store:
        found = [one for one in verify(store, now_ms=NOW_MS).findings if one.code == code]
    assert found and found[0].severity >= Severity.WARNING


def test_a_compressed_file_of_a_group_stops_no_reader(tmp_path: Path) -> None:
    """No plan can be made for such a store, but it can be looked at."""
    root = unpack("5.3.3-dledger", tmp_path)
    path = min((root / "dledger-n0" / "data").iterdir())
    Path(f"{path}.gz").write_bytes(gzip.compress(path.read_bytes()))
    path.unlink()
    shutil.rmtree(root / "index")
    with StoreReader(root, BrokerConfig({"dLegerPeers": "n0-h:1;n1-h:2"})) as store:
        assert "I-005" in {one.code for one in verify(store, now_ms=NOW_MS).findings}


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.3.3-dledger"])
@pytest.mark.parametrize("named", [True, False])
def test_two_messages_of_one_queue_offset(named: bool, name: str, tmp_path: Path) -> None:
    """Where the unit of the later one is behind its queue offset, consumers get both, and no repair moves it. Where it
    is in the place of the unit of the earlier one, nobody gets that; a plain store has units for both.
    """
    root = unpack(name, tmp_path)
    give_twice(root, named=named)
    verdict = verify(root, Scope(), now_ms=NOW_MS)
    found = {one.code: one for one in verdict.findings if one.severity >= Severity.WARNING}
    if named:
        assert not {"I-070", "I-182"} & found.keys()
        assert {(found[code].severity, cure_of(found[code])) for code in ("I-064", "I-075")} == {(Severity.WARNING, "")}
        return
    assert "another message has this queue offset" in found["I-070"].message and "I-182" in found
    assert ("--convert plain" in cure_of(found["I-070"])) is name.endswith("dledger")


@pytest.mark.parametrize(
    ("left", "told", "cure"),
    [
        (None, [], []),
        (InterruptedChange("s1"), ["session s1 was interrupted"], ["recover"]),
        (InterruptedChange("s1", undoing=True), ["the undo of session s1 was interrupted"], ["mqstore undo {store}"]),
        (InterruptedChange(""), ["a start barrier is left over: it keeps brokers from starting"], ["recover"]),
        (
            InterruptedChange("s1", ended_by=MOVES["files"]),
            ["session s1 was interrupted"],
            ["mqstore repair {store} --queues --as files --apply"],
        ),
        (
            InterruptedChange("s1", journal=Path("/a {b}")),
            ["session s1 was interrupted; its journal is in /a {b}"],
            ["mqstore recover {store} --apply --journal '/a {{b}}'"],
        ),
    ],
)
def test_a_change_that_is_not_over_is_told_once(
    left: InterruptedChange | None, told: list[str], cure: list[str]
) -> None:
    found = list(unfinished_change("/s", left))
    assert [finding.message for finding in found] == told
    assert [cure_of(finding) for finding in found] == cure
    assert {finding.code for finding in found} <= {"I-185"}


@pytest.mark.parametrize(
    ("scope", "reason"),
    [
        (Scope(), None),
        (Scope(groups=frozenset({"start"})), None),
        (Scope(quick=True), "--quick"),
        (Scope(topic="t"), "--topic"),
        (Scope(since_ms=0), "--since"),
        (Scope(sample_percent=10), "--sample"),
        (Scope(max_duration_s=60), "--max-duration"),
    ],
)
def test_a_run_over_a_part_predicts_nothing(scope: Scope, reason: str | None, root: Path) -> None:
    with StoreReader(root) as store:
        context = VerifyContext(store, scope)
        assert why_not(context) == reason
        with start_beside(context):
            found = context.start()
        assert (found.why_not == "") is (reason is None)
        assert bool(found.facts) is (reason is None)
        in_use = VerifyContext(store, scope, changing=True)
        assert why_not(in_use) == ""


def test_nothing_is_predicted_for_other_groups(root: Path) -> None:
    with StoreReader(root) as store:
        context = VerifyContext(store, Scope(groups=frozenset({"layout"})))
        with start_beside(context):
            assert context.start().facts == ()


def test_a_start_that_loses_messages(root: Path, tmp_path: Path) -> None:
    """A sound store starts without a finding; of one that lost log what is lost is told with its number."""
    assert predict(Layout.open(root), None, None, NOW_MS).findings == []
    killed = Layout.open(unpack("4.9.7-killed-hole", tmp_path))
    found = predict(killed, None, None, NOW_MS)
    assert found.why_not == "" and found.findings
    assert {finding.code for finding in found.findings} <= {f"I-{code}" for code in range(180, 191)}
    for finding in found.findings:
        if finding.code in {"I-181", "I-182"}:
            assert f"{finding.count:,} message" in finding.message


def test_a_time_that_the_timer_cannot_have_read(tmp_path: Path) -> None:
    """By the clock of the one who asks: what is due before a time to come is never delivered."""
    timer = Timer(unpack("5.3.3-timer-clean", tmp_path))
    layout, read_ms = Layout.open(timer.store), timer.check.last_read_time_ms
    timer.set_check("last_read_time_ms", read_ms + 7 * 86_400_000)
    (found,) = predict(layout, None, None, read_ms).findings
    assert found.code == "I-183" and found.severity is Severity.ERROR and found.count > 20
    assert not predict(layout, None, None, read_ms + 7 * 86_400_000).findings
    timer.set_check("last_read_time_ms", 1)
    (found,) = predict(layout, None, None, read_ms).findings  # what was delivered in seven days comes again
    assert (found.code, found.count, found.repair) == ("I-184", 12, "")


@pytest.mark.parametrize(("read_to", "severity"), [(0, Severity.WARNING), (5, Severity.ERROR)])
def test_a_clock_set_back_without_timed_messages(read_to: int, severity: Severity, tmp_path: Path) -> None:
    """What is sent then does not fire (real 5.5.1): where nobody has used the timer before, that is only a warning."""
    root = unpack("5.3.3-clean", tmp_path)
    check = TimerCheck(last_read_time_ms=NOW_MS + 864_000_000, last_timer_queue_offset=read_to)
    (root / "config" / TIMER_CHECK).write_bytes(check.to_bytes())
    (found,) = predict(Layout.open(root), None, None, NOW_MS).findings
    assert (found.code, found.severity) == ("I-183", severity) and "fire no timed message before" in found.message
    assert not predict(Layout.open(root), None, None, check.last_read_time_ms).findings


def test_a_configuration_that_keeps_a_broker_from_a_start(root: Path, tmp_path: Path) -> None:
    assert list(refused_by_config(Layout.open(root), None)) == []
    spoiled = unpack("5.3.3-clean", tmp_path)
    for path in (spoiled / "config").glob("topics.json*"):
        path.write_text("{", "utf-8")
    (finding,) = refused_by_config(Layout.open(spoiled), None)
    assert finding.code == "I-180" and "would not start" in finding.message


def _not_read(root: Path, version: str | None = None, **options: str) -> dict[str, int]:
    """What a start leaves waiting, by its reason."""
    found = predict(Layout.open(root, BrokerConfig(options)), version, None, NOW_MS).findings
    return {one.message.split(": ")[1].split(";")[0]: one.count for one in found if one.code == "I-190"}


def test_what_pop_consumers_have_in_a_database_that_is_not_read(tmp_path: Path) -> None:
    """Real brokers: 5.5.1 gave 20 of 20 again with popConsumerKVServiceInit, 0 without, 20 after a reset; 5.3.3 20."""
    root = unpack("5.5.0-clean", tmp_path)
    assert not _not_read(root, "5.1")
    given_out_by(root, KEPT_KEY, json.dumps(KEPT).encode())
    assert _not_read(root, "5.1") == {"5.1 reads no messages in kvStore": 1}
    off = {"popConsumerKVServiceInit": "false"}
    assert _not_read(root, **off) == {"without popConsumerKVServiceInit no broker reads messages in kvStore": 1}
    assert not _not_read(root, **off, brokerRole="SLAVE")
    assert not _not_read(root, popConsumerKVServiceEnable="false")
    assert not _not_read(root) and not _not_read(root, "5.3")
    path = root / "config" / "consumerOffset.json"
    content = read_json(path) or {}
    content["offsetTable"]["orders@shoppers"] = {0: 3}
    path.write_bytes(json_bytes(content))
    assert not _not_read(root, **off)


def test_open_transactions_in_a_database_that_is_not_read(tmp_path: Path) -> None:
    """A real 5.3.3, and 5.5.1 without the option, checked none of them in 40 s, 5.5.1 with it all 10."""
    root = unpack("5.5.1-rocks-trans-open", tmp_path)
    assert _not_read(root, "5.3") == {"5.3 reads no transactions in rocksdbstore": 10}
    (told,) = _not_read(root, transRocksDBEnable="false")
    assert told == "without transRocksDBEnable no broker reads transactions in rocksdbstore"
    assert not _not_read(root) and not _not_read(root, "5.4")
    (manifest,) = (root / "rocksdbstore").glob("MANIFEST-*")
    os.truncate(manifest, 20)  # nobody knows what is in it
    assert not _not_read(root, "5.3")
    off = BrokerConfig({"transRocksDBEnable": "false"})
    assert "it is not known what waits" in predict(Layout.open(root, off), None, None, NOW_MS).why_not


def test_check_points_in_the_revive_topic_of_another_cluster(tmp_path: Path) -> None:
    """A real 5.3.3 gave 20 of 20 messages again, and none with another brokerClusterName."""
    root = unpack("5.3.3-pop", tmp_path)
    mutations()["I-190"].mutate(root, Random("renamed"))
    own, old = (f"rmq_sys_REVIVE_LOG_{name}Cluster" for name in ("Test", "Last"))
    told = _not_read(root, brokerClusterName="TestCluster")
    assert told == {f"with brokerClusterName=TestCluster a broker reads {own}, not {old}": 30}
    assert _not_read(root, "4.9") == {f"4.9 reads no check points in {old}": 30}
    assert not _not_read(root) and not _not_read(root, brokerClusterName="LastCluster")


def test_readers_know_the_version_that_is_named_also_where_no_start_is_simulated(tmp_path: Path) -> None:
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store:
        verify(store, Scope(groups=frozenset({"checkpoint"}), broker_version="5.1"))
        assert store.version == "5.1"


def test_a_revive_topic_that_cannot_be_read_is_told_beside_what_else_a_start_does(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def unreadable(*_: object) -> None:
        raise Unreadable("cannot read", path="f")

    monkeypatch.setattr(broker_bugs, "pop", unreadable)
    layout = Layout.open(unpack("5.3.3-pop", tmp_path), BrokerConfig({"brokerClusterName": "Other"}))
    shutil.rmtree(layout.consume_queue / "work")
    found = predict(layout, None, None, NOW_MS)
    assert found.why_not == "it is not known what waits where a start does not read it: cannot read: f"
    assert "I-182" in {each.code for each in found.findings}
    assert found.why_not in analyze(layout, options=RecoveryOptions(Policy.KEEP, NOW_MS)).notes
