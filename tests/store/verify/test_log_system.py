"""Half messages, and what names them: the same wherever the batches and parts of the log begin."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from mqstore.formats.message_properties import format_properties
from mqstore.formats.pop import CHECK_POINT_TAG, REVIVE_GROUP, REVIVE_TOPIC
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.broker.topics import dumps
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.log.message import MAX_BODY_BYTES, pack
from mqstore.store.put.message_columns import columns_of as message_columns
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.search.store import StoreReader
from mqstore.store.settings import read
from mqstore.store.settings.parse import Grammar
from mqstore.store.verify import log_pass, log_system
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import stores
from ...cli.datadriven import run_here
from ...cli.putting import mqstore
from .apart import APART, CUT, NOW_MS, SIZES, told, written


@pytest.fixture(autouse=True)
def _short_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_pass, "CUT_BYTES", CUT)


@pytest.mark.parametrize("jobs", [1, 2])
def test_a_commit_of_nothing_far_in_front_is_told(tmp_path: Path, jobs: int) -> None:
    """The batches in front of it have neither half messages nor such that name one."""
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=1)
    root = written(tmp_path / "commit", [*APART, commit, *APART])
    assert len(told(root, "I-047", jobs)) == 1


def test_a_sample_does_not_miss_what_it_has_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The half message stands in a piece that was not drawn."""
    monkeypatch.setattr(log_pass, "SLICE_BYTES", CUT)
    drawn = [log_pass.ReadRange(0, CUT), log_pass.ReadRange(5 * CUT, None)]
    monkeypatch.setattr(log_pass, "_sample", lambda *_: drawn)
    half = NewMessage(b"RMQ_SYS_TRANS_HALF_TOPIC", b"h")
    with StoreReader(written(tmp_path / "s", [*APART, half]), SIZES) as store:
        at = next(store.queues.open("RMQ_SYS_TRANS_HALF_TOPIC", 0).units(0, 1))[1]
    named = int(at["physical_offset"][0])
    assert CUT < named < 5 * CUT
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=named)
    root = written(tmp_path / "t", [*APART, half, *APART, commit])
    assert told(root, "I-047", sample_percent=50) == []


@pytest.mark.parametrize("named", [-1, -CUT])
def test_a_sample_tells_of_a_half_message_in_front_of_the_log(tmp_path: Path, named: int) -> None:
    """No piece can have it, whether it was drawn or not."""
    commit = NewMessage(b"orders", b"c", sys_flag=int(SysFlag.COMMIT), prepared_transaction_offset=named)
    root = written(tmp_path / "s", [*APART, commit])
    for scope in (dict[str, float](), {"sample_percent": 50}):
        assert len(told(root, "I-047", **scope)) == 1


def test_a_batch_that_ends_the_log_of_a_broker_is_told(tmp_path: Path) -> None:
    """Whatever its flags say; where one of the two is missing a broker reads neither."""
    texts = ({"INNER_NUX": "\x03n", "INNER_BASE": "5"}, {"INNER_NUX": "x"}, {"INNER_NUX": "2", "INNER_BASE": "5"})
    strange = [NewMessage(b"orders", b"b", properties=format_properties(text)) for text in texts]
    root = written(tmp_path / "s", [*APART, *strange])
    log = root / "commitlog" / f"{0:020d}"
    log.write_bytes(log.read_bytes().replace(b"INNER_NUX", b"INNER_NUM"))
    (found,) = told(root, "I-044")
    assert "'\\x03n'" in found.message and "a broker's log ends" in found.message


@pytest.mark.parametrize(("kind", "count"), [("default", 15), ("defaultRocksDB", 0)])
def test_a_broker_with_queues_in_a_rocksdb_names_no_first_number_of_a_batch(
    kind: str, count: int, tmp_path: Path
) -> None:
    root = stores.unpack("5.3.3-batchcq", tmp_path)
    for path in (root / "commitlog").iterdir():
        path.write_bytes(path.read_bytes().replace(b"INNER_BASE", b"INNER_BASX"))
    config = BrokerConfig(stores.config("5.3.3-batchcq", root)).with_set([f"storeType={kind}"])
    with StoreReader(root, config) as store:
        found = verify(store, Scope(broker_version="5.3.3")).findings
    assert len([finding for finding in found if finding.code == "I-044"]) == count


def test_a_body_that_is_longer_than_what_is_looked_at_is_no_damage(tmp_path: Path) -> None:
    """Up to there it decompresses; one that is damaged before is as damaged as any."""
    flags = int(SysFlag.COMPRESSED | SysFlag.ZSTD)
    body = pack(bytes(MAX_BODY_BYTES + 1), flags)
    torn = bytearray(body)
    torn[len(body) // 2 : len(body) // 2 + 64] = b"\xff" * 64
    for data, severity in ((body, Severity.INFO), (bytes(torn), Severity.ERROR)):
        root = written(tmp_path / severity.name, [NewMessage(b"orders", data, sys_flag=flags), *APART])
        (found,) = told(root, "I-039")
        assert found.severity is severity, found.message
        assert ("was not checked" in found.message) is (severity is Severity.INFO) and "--" not in found.message
    wrapped = format_properties({"INNER_NUM": "2", "INNER_BASE": "0"})
    batch = NewMessage(b"orders", body, sys_flag=flags | int(SysFlag.INNER_BATCH), properties=wrapped)
    assert told(written(tmp_path / "batch", [batch]), "I-044") == []


@pytest.mark.parametrize(
    ("next_offset", "version", "halts"), [(0, "4.9", True), (1, "4.9", False), (0, "4.3", False), (0, "4.9.2", False)]
)
def test_a_level_stands_still_at_a_plain_tombstone_that_waits(
    next_offset: int, version: str, halts: bool, tmp_path: Path
) -> None:
    """Recover writes one for brokers of 4.3; for one of 4.9 its place gets one that the service reads past."""
    good = {"DELAY": "1", "REAL_TOPIC": "orders", "REAL_QID": "0"}
    lost = {"DELAY": "1", "LOST": "t", "x": "y" * 60}
    size = f"mappedFileSizeCommitLog={SIZES['mappedFileSizeCommitLog']}"
    more = ["--broker-version", version, "--set", size]
    with StoreWriter.open(tmp_path, SIZES, WriterOptions(as_broker="4.3", store_host=(b"\x7f\0\0\1", 0))) as store:
        for topic, properties, second in ((b"SCHEDULE_TOPIC_XXXX", lost, 0), (b"SCHEDULE_TOPIC_XXXX", good, 9)):
            text, at = format_properties(properties), NOW_MS + 1000 * second
            store.append_columns(message_columns([NewMessage(topic, b"x", properties=text, store_timestamp=at)]))
        store.append_columns(message_columns([NewMessage(b"T", b"x", store_timestamp=at)]))
    (tmp_path / "config" / "delayOffset.json").write_text(dumps({"offsetTable": {"1": next_offset}}))
    before = run_here(["verify", str(tmp_path), *more])
    assert ("deliver no later message of delay level 1  [I-045]" in before.stdout) is halts, before
    done = run_here(["recover", str(tmp_path), *more, "--apply", "--yes"])
    assert not done.code and ("no message lost" in done.stdout) is halts, done
    assert "I-045" not in run_here(["verify", str(tmp_path), *more]).stdout
    texts = [row["properties"] for row in mqstore("dump", tmp_path, "--set", size) if row["type"] == "message"]
    form = {"LOST": "t", "REAL_TOPIC": "RMQ_SYS_TRANS_HALF_TOPIC", "REAL_QID": "0"}
    assert texts == [form if halts else lost, good, {}]


@pytest.mark.parametrize("reached", [2**63 - 1, 10**20, -(10**20), 0])
def test_an_offset_of_any_size_is_compared(reached: int, tmp_path: Path) -> None:
    """delayOffset.json may name any number; for one beyond 64 bits brokers refuse the file, and begin anew."""
    bad = NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x", properties=format_properties({"DELAY": "1"}))
    with StoreWriter.open(tmp_path, SIZES, WriterOptions(as_broker="5.3")) as store:
        store.append_columns(message_columns([bad]))
    (tmp_path / "config" / "delayOffset.json").write_text(dumps({"offsetTable": {"1": reached}}))
    (finding,) = told(tmp_path, "I-045")
    assert ("the broker drops the message" in finding.message) == (reached != 2**63 - 1)


def test_positions_are_not_read_for_each_revive_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    properties = format_properties({"TAGS": CHECK_POINT_TAG})
    root = written(tmp_path / "s", [NewMessage(REVIVE_TOPIC.encode() + b"c", b"x", properties=properties)] * 3)
    read_progress, times = read.read_progress, list[Path]()

    def counting(config: Path, options: Mapping[str, str] | None = None) -> read.Progress:
        times.append(config)
        return read_progress(config, options)

    monkeypatch.setattr(read, "read_progress", counting)
    assert sum(finding.count for finding in told(root, "I-057")) == 3 > len(times)


def test_bodies_that_a_broker_has_read_are_not_parsed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two queues: the third record of one and both of the other are left."""
    topic, properties = REVIVE_TOPIC + "c", format_properties({"TAGS": CHECK_POINT_TAG})
    bodies = (b"x", b"x", b"x", b"x", b'{"q":"x"}')
    records = [NewMessage(topic.encode(), b, queue_id=n % 2, properties=properties) for n, b in enumerate(bodies)]
    root = written(tmp_path / "s", records)
    (root / "config").mkdir(exist_ok=True)
    positions = {f"{topic}@{REVIVE_GROUP}": {"0": 1}}  # the last one that was read
    (root / "config" / "consumerOffset.json").write_text(dumps({"offsetTable": positions}))
    parsed, read_pop = list[bytes](), read.read_pop

    def noting(tag: str, body: bytes, grammar: Grammar) -> tuple[dict[str, object] | None, str]:
        parsed.append(body)
        return read_pop(tag, body, grammar)

    monkeypatch.setattr(log_system, "read_pop", noting)
    assert sum(finding.count for finding in told(root, "I-057")) == 3 == len(parsed)
