"""The writer: the bytes of real brokers, one by one or as columns, new or appended."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.checkpoint import read_checkpoint
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, LimitExceeded
from mqstore.store.put.message_columns import columns_of as message_columns
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.read import ConsumeQueues

from ...stores import NAMES, config, truth
from ..real_log import columns_of, layout_of, log_files, records_of
from .writing import NOW, TINY, VERSIONS, assert_whole, contents, messages, put, writer

GIVEN = (
    *("topic", "body", "properties", "queue_id", "flag", "sys_flag", "born_timestamp"),
    *("born_host.ip", "born_host.port", "reconsume_times", "prepared_transaction_offset"),
    "store_timestamp",
)
"""What a producer gives of a record, and its time."""
REAL = [
    name
    for name in NAMES
    if truth(name)["exit"] == "clean"
    and truth(name)["expected_verdict"] == "clean"
    and not any(word in name for word in ("rocksdb", "dledger", "batchcq", "expired"))
]
NEVER_RESTARTED = [name for name in REAL if "before" not in truth(name)]


def again(name: str, root: Path, target: Path) -> Layout:
    """The messages of a real store, put into a new one."""
    layout = layout_of(name, root)
    records = columns_of(layout)
    host = records.ragged("store_host.ip")[0], int(records.ints("store_host.port")[0])
    options = {k: v for k, v in config(name, root).items() if "Path" not in k}
    version = truth(name)["broker_version"]
    with StoreWriter.open(target, BrokerConfig(options), WriterOptions(version, host)) as new:
        new.append_columns({field: records[field] for field in GIVEN})
    return Layout.open(target, BrokerConfig(options))


@pytest.mark.few(8)
@pytest.mark.parametrize("name", REAL)
def test_the_log_of_a_real_broker(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(name)
    mine = again(name, root, tmp_path / "mine")
    theirs = [path.read_bytes() for path in log_files(layout_of(name, root))]
    assert [path.read_bytes() for path in log_files(mine)] == theirs


@pytest.mark.few(8)
@pytest.mark.parametrize("name", NEVER_RESTARTED)
def test_queues_and_index_of_a_real_broker(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    theirs = layout_of(name, store(name))
    mine = again(name, theirs.root, tmp_path / "mine")
    if "cqext" not in name:
        assert contents(mine.consume_queue) == contents(theirs.consume_queue)
    assert [*contents(mine.index).values()] == [*contents(theirs.index).values()]


@pytest.mark.parametrize("name", ["4.3.1-clean", "4.9.7-lmq", "5.3.3-v2", "5.5.0-ipv6"])
def test_one_by_one_is_the_same(name: str, store: Callable[[str], Path], tmp_path: Path) -> None:
    root = store(name)
    mine = again(name, root, tmp_path / "columns")
    records = records_of(layout_of(name, root))
    host = records[0].store_host
    options = WriterOptions(truth(name)["broker_version"], (host.ip, host.port))
    with StoreWriter.open(tmp_path / "single", mine.broker_config, options) as new:
        for record in records:
            born = record.born_host
            new.append(
                NewMessage(
                    record.topic,
                    record.body,
                    record.queue_id,
                    record.flag,
                    record.sys_flag,
                    record.born_timestamp,
                    (born.ip, born.port),
                    record.reconsume_times,
                    record.prepared_transaction_offset,
                    record.properties,
                    record.store_timestamp,
                )
            )
    for part in ("commitlog", "consumequeue", "checkpoint"):
        left, right = tmp_path / "single" / part, tmp_path / "columns" / part
        read = contents if left.is_dir() else Path.read_bytes
        assert read(left) == read(right)
    index = [*contents(tmp_path / "single" / "index").values()]
    assert index == [*contents(mine.index).values()]


@pytest.mark.parametrize(("version", "remembers"), [("4.3", True), ("4.9", False)])
def test_a_blank_is_what_is_in_memory(version: str, remembers: bool, tmp_path: Path) -> None:
    """An old broker fills it with earlier records, but with none from before it started (spec 1.5)."""
    wide = NewMessage(b"T", b"", properties=b"KEYS\1" + b"v" * 1500 + b"\2")
    found = [wide, NewMessage(b"T", b"x" * 20), NewMessage(b"T", b"y" * 3000)]
    put(tmp_path / "one life", found, version)
    for message in found:
        put(tmp_path / "three lives", [message], version)
    for root in (tmp_path / "one life", tmp_path / "three lives"):
        records = records_of(Layout.open(root, TINY))
        data = log_files(Layout.open(root, TINY))[0].read_bytes()
        first, blank = (record.total_size for record in records[:2])
        blank += first
        assert data[blank : blank + 8] == (4096 - blank).to_bytes(4) + bytes.fromhex("cbd43194")
        filled = b""
        if remembers and root.name == "one life":
            filled = data[first + 8 : blank] + data[blank - first : first]
        assert data[blank + 8 :] == filled.ljust(4096 - blank - 8, b"\0")


@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_clean_store_has_and_has_not(version: str, tmp_path: Path) -> None:
    found = messages(40)
    if version in ("4.9", "5.1"):
        found = [replace(m, properties=m.properties.removesuffix(b"\2")) for m in found]
    put(tmp_path, found, version)
    names = {path.name for path in tmp_path.iterdir()}
    rocksdb = {"rocksdbstore"} if version in ("5.4", "5.5", "5.5.1") else set()
    parts = {"checkpoint", "commitlog", "config", "consumequeue", "index", "lock"}
    assert names == parts | rocksdb
    checkpoint = read_checkpoint(tmp_path / "checkpoint")
    last = records_of(Layout.open(tmp_path, TINY))[-1]
    assert checkpoint is not None
    assert checkpoint.physic_msg_timestamp == last.store_timestamp == NOW + 39 * 700
    assert checkpoint.logics_msg_timestamp == last.store_timestamp
    assert 0 < checkpoint.index_msg_timestamp < last.store_timestamp
    assert checkpoint.confirm_phy_offset == (last.physical_offset if version > "5" else 0)
    assert checkpoint.logics_physical_offset == (last.physical_offset if version >= "5.5" else 0)
    again = writer(tmp_path)
    assert again.profile.version == (version if version < "5.4" else "5.5.1")
    again.close()


@pytest.mark.few(3)
@pytest.mark.parametrize(
    "name",
    [name for name in NAMES if truth(name)["expected_verdict"] == "clean" and "clean" in name]
    + ["4.9.7-expired", "5.3.3-lmq", "4.9.7-multipath", "5.3.3-killed-restarted"],
)
def test_appending_to_a_brokers_own(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    options = BrokerConfig(config(name, root))
    before = contents(root)
    records = records_of(Layout.open(root, options))
    found = messages(50)
    with writer(root, config=options) as new:
        assert new.rules.store_host == tuple(records[-1].store_host.values())[1:]
        assert truth(name)["broker_version"].startswith(new.profile.version)
        for message in found[:10]:
            new.append(message)
        new.append_columns(message_columns(found[10:]))
    layout = Layout.open(root, options)
    after = records_of(layout)
    assert after[: len(records)] == records
    assert [r.body for r in after[len(records) :]] == [m.body for m in found]
    if "expired" not in name:
        assert_whole(root, options)
    topics = "config/topics.json"
    changed = {name for name, data in contents(root).items() if before.get(name) != data}
    assert {n.split("/")[0] for n in changed} <= {
        *("commitlog", "consumequeue", "index", "checkpoint", "config", "disk2", "commitlog-a")
    }
    configured = {n for n in changed if n.startswith("config")}
    assert {topics} <= configured <= {topics, topics + ".bak"}
    assert contents(root)[topics + ".bak"] == before[topics]


PLACE = b"REAL_TOPIC\1T\2REAL_QID\x010\2"


@pytest.mark.parametrize(
    ("message", "said"),
    [
        (NewMessage(b"T", b"x", properties=b"KEYS\1a"), "properties are not a sequence of name, 01, value, 02"),
        (NewMessage(b"T", b"x", properties=b"\2\2\1"), "properties are not a sequence of name, 01, value, 02"),
        (NewMessage(b"T", b"x", properties=b"KEYS\1a\0\2"), "properties are not a sequence of name, 01, value, 02"),
        (NewMessage(b"T", b"x", properties=b"KEYS\1a\1b\2"), "properties are not a sequence of name, 01, value, 02"),
        (NewMessage(b"T", b"x", store_timestamp=0), "a store timestamp must be greater than 0: 0"),
        (NewMessage(b"T", b"x", store_timestamp=-5), "a store timestamp must be greater than 0: -5"),
        (NewMessage(b"T", b"x", born_host=(b"\n\0\0\1", 65_536)), "not a port from 0 to 65535: 65536"),
        (NewMessage(b"rmq_sys_wheel_timer", b"x", properties=PLACE), "no valid TIMER_OUT_MS"),
        (NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x", properties=PLACE), "no valid DELAY"),
        (NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x", 1, properties=b"DELAY\x011\2" + PLACE), "no valid DELAY"),
        (NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x", properties=b"DELAY\x011\2"), "no valid REAL_TOPIC and REAL_QID"),
        (
            NewMessage(b"T", b"x", properties=b"DELAY\x013\2"),
            "DELAY: a broker would keep this message in SCHEDULE_TOPIC",
        ),
        (
            NewMessage(b"T", b"x", properties=b"TIMER_DELAY_SEC\x013\2"),
            "would keep this message in rmq_sys_wheel_timer",
        ),
        (NewMessage(b"T", b"x", properties=b"TIMER_DELIVER_MS\x01%d\2" % (1 << 50)), "TIMER_DELIVER_MS: a broker"),
    ],
)
def test_what_a_broker_does_not_store_so(message: NewMessage, said: str, tmp_path: Path) -> None:
    """A copy of a record may be like that all the same."""
    with writer(tmp_path, "5.3") as store:
        with pytest.raises(InvalidInput, match=said):
            store.append(message)
        assert not (tmp_path / "commitlog").exists()
        store.append_columns(message_columns([message]))


def test_what_a_broker_stores_in_its_own_topics(tmp_path: Path) -> None:
    with writer(tmp_path, "5.3") as store:
        store.append(NewMessage(b"T", b"x", properties=b"DELAY\x010\2"))
        store.append(NewMessage(b"T", b"past", properties=b"TIMER_DELIVER_MS\x011000\2"))
        store.append(NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x", 2, properties=b"DELAY\x013\2" + PLACE))
        store.append(NewMessage(b"rmq_sys_wheel_timer", b"x", properties=b"TIMER_OUT_MS\x011000\2" + PLACE))
    with writer(tmp_path / "old", "4.9") as store:
        store.append(NewMessage(b"T", b"no timers", properties=b"TIMER_DELIVER_MS\x01%d\2" % (1 << 50)))
        store.append(NewMessage(b"T", b"x", properties=b"KEYS\1a\2TAGS\1"))  # no separator behind the last one
        store.append(NewMessage(b"T", b"x", properties=b"KEYS\1a\2"))


@pytest.mark.parametrize("port", [-1, 1 << 16])
def test_a_store_host_needs_a_port(port: int, tmp_path: Path) -> None:
    with writer(tmp_path, "5.3") as store:
        store.rules = store.rules._replace(store_host=(b"\x7f\0\0\1", port))
        with pytest.raises(InvalidInput, match=f"not a port from 0 to 65535: {port}"):
            store.append(NewMessage(b"T", b"x"))
        with pytest.raises(InvalidInput, match=f"not a port from 0 to 65535: {port}"):
            store.append_columns(message_columns([NewMessage(b"T", b"x")]))


def test_queue_offsets_go_on(tmp_path: Path) -> None:
    with writer(tmp_path) as store:
        one = [store.append(NewMessage(b"T", b"1", queue_id=q)).queue_offset for q in (0, 0, 5)]
    with writer(tmp_path) as store:
        many = store.append_columns(message_columns([NewMessage(b"T", b"2", queue_id=q) for q in (5, 0, 1)]))
        assert store.unserved == []
    with writer(tmp_path) as store:
        store.append(NewMessage(b"T", b"3", queue_id=9))
        assert store.unserved == [("T", 9, 6)]
    assert (one, many.queue_offset.tolist()) == ([0, 1, 0], [1, 2, 0])


@pytest.mark.parametrize(
    ("message", "error", "said"),
    [
        (NewMessage(b"", b"x"), InvalidInput, "needs a topic"),
        (NewMessage(b"a/../b", b"x"), InvalidInput, "no broker accepts such a topic"),
        (NewMessage(b"..", b"x"), InvalidInput, "no broker accepts such a topic"),
        (NewMessage(b"a\0", b"x"), InvalidInput, "no broker accepts such a topic"),
        (NewMessage(b"\xff", b"x"), InvalidInput, "not UTF-8"),
        (NewMessage(b"x" * 256, b"x"), InvalidInput, "topic of 256 bytes"),
        (NewMessage(b"T", b"x", queue_id=-1), InvalidInput, "negative"),
        (NewMessage(b"T", b"x", queue_id=1 << 40), InvalidInput, "queue_id: not a whole number from 0 to 2147483647"),
        (NewMessage(b"T", b"x", flag=1 << 31), InvalidInput, "flag: not a whole number from -2147483648"),
        (NewMessage(b"T", b"x", sys_flag=-1 << 32), InvalidInput, "sys_flag: not a whole number"),
        (NewMessage(b"T", b"x", reconsume_times=1 << 31), InvalidInput, "reconsume_times: not a whole number"),
        (NewMessage(b"T", b"x", born_timestamp=1 << 63), InvalidInput, "born_timestamp: not a whole number"),
        (NewMessage(b"T", b"x", born_host=(b"abc", 1)), InvalidInput, "an address of 3 bytes: not 4 or 16"),
        (NewMessage(b"T", b"x" * 5000), LimitExceeded, "does not fit into a commit log file"),
        (NewMessage(b"T", b"x" * ((4 << 20) + 1)), LimitExceeded, "maxMessageSize"),
        (NewMessage(b"T", b"x", properties=b"x" * 32768), LimitExceeded, "properties"),
    ],
)
def test_what_a_broker_refuses(message: NewMessage, error: type[Exception], said: str, tmp_path: Path) -> None:
    with writer(tmp_path) as store:
        for attempt in (
            lambda: store.append(message),
            lambda: store.append_columns(message_columns([NewMessage(b"T", b"a"), message])),
        ):
            with pytest.raises(error, match=said):
                attempt()
        store.append(NewMessage(b"T", b"good"))
    assert [r.body for r in records_of(Layout.open(tmp_path, TINY))] == [b"good"]
    assert not (tmp_path / "abort").exists()


@pytest.mark.parametrize(
    ("version", "message"),
    [("4.9", NewMessage(b"x" * 128, b"x")), ("4.3", NewMessage(b"T", b"x", born_host=(bytes(16), 1)))],
)
def test_what_an_old_broker_cannot_store(version: str, message: NewMessage, tmp_path: Path) -> None:
    with writer(tmp_path, version) as store:
        with pytest.raises(InvalidInput, match=version):
            store.append(message)
        with pytest.raises(InvalidInput, match=version):
            store.append_columns(message_columns([message]))


def test_light_queues_go_on(tmp_path: Path) -> None:
    """Records that name further queues get units there, after each other, over several puts."""

    def message(offsets: str) -> NewMessage:
        names = b"INNER_MULTI_DISPATCH\1%LMQ%a,%LMQ%b\2INNER_MULTI_QUEUE_OFFSET\1"
        return NewMessage(b"T", b"x", queue_id=2, properties=names + offsets.encode() + b"\2")

    with writer(tmp_path) as store:
        stored = [store.append(message("0,0")), store.append(message("1,1"))]
        store.append_columns(message_columns([message("2,2"), message("3,9"), message("0,4")]))
    with writer(tmp_path) as store:
        stored.append(store.append(message("4,4")))
    assert [row.queue_offset for row in stored] == [0, 1, 5]
    units = {
        (topic, queue_id): [row[0] for _, window in queue.units(0, queue.summary().max_offset) for row in window]
        for topic, queue_id, _ in ConsumeQueues(Layout.open(tmp_path, TINY))
        for queue in [ConsumeQueues(Layout.open(tmp_path, TINY)).open(topic, queue_id)]
    }
    places = [r.physical_offset for r in records_of(Layout.open(tmp_path, TINY))]
    assert units[("T", 2)] == places
    assert units[("%LMQ%a", 0)] == [*places[:4], places[5]], "an offset that is taken adds no unit"
    assert units[("%LMQ%b", 0)] == places[:5], "an offset ahead is appended all the same"


def test_older_times_hold_the_checkpoint_back(tmp_path: Path) -> None:
    """While records are written that are older than the checkpoint, it is older than they are."""
    put(tmp_path, [NewMessage(b"T", b"new", store_timestamp=NOW)])
    with writer(tmp_path) as store:
        store.append(NewMessage(b"T", b"old", store_timestamp=NOW - 5000))
        during = read_checkpoint(tmp_path / "checkpoint")
        store.append_columns(message_columns([NewMessage(b"T", b"x", store_timestamp=NOW - 9000)]))
        later = read_checkpoint(tmp_path / "checkpoint")
    assert during is not None and during.logics_msg_timestamp == NOW - 5001
    assert later is not None and later.physic_msg_timestamp == NOW - 9001
