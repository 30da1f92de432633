"""Batches: split into records, or one record of a topic with batch queues."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import message_properties as names
from mqstore.formats.client_batch import MESSAGE
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.file_queue import MappedFileQueue
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, LimitExceeded, Refused
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.message import Message
from mqstore.store.put.new_message import NewBatch, NewMessage, encoded
from mqstore.store.put.writer import Stored, StoreWriter
from mqstore.store.queues.batches import BatchConsumeQueue
from mqstore.store.search.store import StoreReader

from .writing import NOW, TINY, VERSIONS, writer

CONFIG = BrokerConfig({**TINY, "mapperFileSizeBatchConsumeQueue": "92"})


def text(**properties: str) -> bytes:
    return names.format_properties(properties)


def batch(topic: bytes, *bodies: bytes, key: str = "", **request: Any) -> NewBatch:
    properties = text(UNIQ_KEY=key) if key else b""
    first = NewMessage(topic, b"", properties=properties, born_timestamp=NOW, **request)
    return NewBatch(first, tuple(NewMessage(b"", b, properties=text(a=str(n))) for n, b in enumerate(bodies)))


def put_batch(open_store: StoreWriter, what: NewBatch) -> list[Stored]:
    return open_store.append_together(open_store.records_of(what))


def batch_topic(root: Path, *topics: str) -> None:
    """A store to be, whose topics.json gives these topics batch queues."""
    table = {t: {"attributes": {"queue.type": "BatchCQ"}} for t in topics}
    (root / "config").mkdir(parents=True)
    (root / "config" / "topics.json").write_text(json.dumps({"topicConfigTable": table}))


def log_of(root: Path) -> list[Message]:
    with StoreReader(root, CONFIG) as store:
        return [m for item in store.log.scan() if isinstance(item, Batch) for m in messages(item)]


def units(root: Path, topic: str, queue_id: int = 0) -> list[tuple[int, int, int]]:
    """Position, first queue offset, messages of each unit."""
    path = Layout.open(root, CONFIG).batch_consume_queue / topic / str(queue_id)
    with BatchConsumeQueue(topic, queue_id, MappedFileQueue.open(path)) as queue:
        found = [queue.unit(number) for number in range(queue.first, queue.stop)]
        return [(u.physical_offset, u.msg_base_offset, u.batch_size) for u in found if u]


def test_the_body_of_a_request() -> None:
    """The example of the specification (1.9)."""
    properties = b"KEYS\1key0\2WAIT\1true\2TAGS\1Tag0\2"
    what = NewBatch(NewMessage(b"T", b""), (NewMessage(b"", b"b0", properties=properties),))
    head = "0000003600000000000000000000000000000002" + "6230" + "001e"
    assert encoded(what) == bytes.fromhex(head) + properties
    assert MESSAGE.parse(encoded(what)).body == b"b0"


@given(st.lists(st.tuples(st.binary(max_size=50), st.integers(-(2**31), 2**31 - 1)), min_size=1))
def test_a_body_can_be_read_again(found: list[tuple[bytes, int]]) -> None:
    parts = tuple(NewMessage(b"", body, flag=flag) for body, flag in found)
    data = encoded(NewBatch(NewMessage(b"T", b""), parts))
    for body, flag in found:
        one = MESSAGE.parse(data)
        assert (one.body, one.flag) == (body, flag)
        data = data[one.total_size :]
    assert not data


@pytest.mark.parametrize("version", VERSIONS)
def test_split(version: str, tmp_path: Path) -> None:
    what = batch(b"T", b"x", b"", b"z", key="K", queue_id=2, prepared_transaction_offset=9)
    with writer(tmp_path, version, config=CONFIG) as open_store:
        open_store.append(NewMessage(b"T", b"before", queue_id=2))
        stored = put_batch(open_store, what)
        open_store.append(NewMessage(b"T", b"behind", queue_id=2))
    assert [s.queue_offset for s in stored] == [1, 2, 3]
    found = log_of(tmp_path)
    assert [m.stored_body for m in found] == [b"before", b"x", b"", b"z", b"behind"]
    assert [m.queue_offset for m in found] == [0, 1, 2, 3, 4]
    assert {m.prepared_transaction_offset for m in found} == {0}
    own = {"a": "0"}
    both = {**own, "UNIQ_KEY": "K"}
    assert found[1].properties == (both if version in ("4.9", "5.1", "5.3") else own)


def test_a_batch_comes_to_one_file(tmp_path: Path) -> None:
    with writer(tmp_path, "5.3", config=CONFIG) as open_store:
        open_store.append(NewMessage(b"T", bytes(3000)))
        stored = put_batch(open_store, batch(b"T", bytes(500), bytes(500), bytes(500)))
        # its first two had room in the first file
        assert [s.physical_offset // 4096 for s in stored] == [1, 1, 1]
        end = open_store.log.position
        with pytest.raises(LimitExceeded, match="does not fit"):
            put_batch(open_store, batch(b"T", bytes(2500), bytes(2500)))
        assert open_store.log.position == end
    assert [m.queue_offset for m in log_of(tmp_path)] == [0, 1, 2, 3]


@pytest.mark.parametrize("crc", [False, True], ids=["plain", "property-crc"])
@pytest.mark.parametrize("version", [v for v in VERSIONS if v >= "5"])
def test_inner(version: str, crc: bool, tmp_path: Path) -> None:
    batch_topic(tmp_path, "B")
    config = BrokerConfig({**CONFIG, "enabledAppendPropCRC": str(crc).lower()})
    what = batch(b"B", b"x", b"yy", b"", key="K")
    for _ in range(2):  # the second writer goes on where the first one ended
        with writer(tmp_path, version, config=config) as open_store:
            (stored,) = put_batch(open_store, what)
            open_store.append(NewMessage(b"B", b"one", properties=text(TAGS="t")))
            put_batch(open_store, batch(b"B", b"p", b"q"))  # no key: split
    assert stored.queue_offset == 6
    found = log_of(tmp_path)
    assert [m.queue_offset for m in found] == [0, 3, 4, 5, 6, 9, 10, 11]
    assert found[4].stored_body == encoded(what)
    assert found[4].sys_flag == SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP
    kept = {k: v for k, v in found[4].properties.items() if k != "__CRC32#"}
    assert kept == {"UNIQ_KEY": "K", "INNER_NUM": "3", "INNER_BASE": "6"}
    log = (tmp_path / "commitlog" / f"{0:020d}").read_bytes()
    fits = {names.crc_ok(log[m.position : m.position + m.total_size]) for m in found}
    assert fits == {True if crc and version > "5.1" else None}
    places = [m.physical_offset for m in found]
    counts = [3, 1, 1, 1] * 2
    assert units(tmp_path, "B") == list(zip(places, [m.queue_offset for m in found], counts, strict=True))
    assert not (tmp_path / "consumequeue" / "B").exists()


def test_a_topic_is_new(tmp_path: Path) -> None:
    """The first inner batch makes batch queues, and topics.json says so; else they are simple."""
    what = batch(b"B", b"x", b"y", key="K")
    inner = NewMessage(b"B", encoded(what), sys_flag=0xC0, properties=text(UNIQ_KEY="K", INNER_NUM="2"))
    with writer(tmp_path, "5.3", config=CONFIG) as open_store:
        open_store.append(inner)
        open_store.append(NewMessage(b"S", b"simple"))
        with pytest.raises(InvalidInput, match="inner batch for S"):
            open_store.append(NewMessage(b"S", b"", sys_flag=0x80))
    table = json.loads((tmp_path / "config" / "topics.json").read_text())["topicConfigTable"]
    assert table["B"]["attributes"] == {"queue.type": "BatchCQ"}
    assert table["S"]["attributes"] == {}
    with writer(tmp_path, config=CONFIG) as open_store:
        assert open_store.append(inner).queue_offset == 2
    assert [unit[1:] for unit in units(tmp_path, "B")] == [(0, 2), (2, 2)]


def test_brokers_of_4_know_no_batch_queues(tmp_path: Path) -> None:
    """There the bits mean nothing."""
    batch_topic(tmp_path, "B")
    with writer(tmp_path, "4.9", config=CONFIG) as open_store:
        open_store.append(NewMessage(b"B", b"x", sys_flag=0xC0, properties=text(INNER_NUM="5")))
        put_batch(open_store, batch(b"B", b"x", b"y", key="K"))
    assert [m.queue_offset for m in log_of(tmp_path)] == [0, 1, 2]
    assert not (tmp_path / "batchconsumequeue").exists()


@pytest.mark.parametrize(
    ("what", "said"),
    [
        (batch(b"T"), "1 to 32767 messages: 0"),
        (batch(b"T", b"x", sys_flag=SysFlag.PREPARED), "no part in a transaction"),
        (NewBatch(NewMessage(b"T", b"", properties=text(DELAY="3")), (NewMessage(b"", b""),)), "delayed"),
        (NewBatch(NewMessage(b"T", b""), (NewMessage(b"", b"", properties=bytes(32768)),)), "32768 bytes"),
        (batch(b"T", bytes(3 << 20), bytes(1 << 20)), "maxMessageSize 4194304"),
    ],
    ids=["empty", "transaction", "delay", "properties", "size"],
)
def test_what_is_refused(what: NewBatch, said: str, tmp_path: Path) -> None:
    refused = pytest.raises((InvalidInput, LimitExceeded), match=said)
    with writer(tmp_path, "5.3") as open_store, refused:
        put_batch(open_store, what)
    assert not (tmp_path / "commitlog").exists()


@pytest.mark.parametrize("number", ["0", "40000", "x", "-1"])
def test_numbers_of_inner_batches(number: str, tmp_path: Path) -> None:
    batch_topic(tmp_path, "B")
    wrong = NewMessage(b"B", b"x", sys_flag=0xC0, properties=text(INNER_NUM=number))
    with writer(tmp_path, "5.3", config=CONFIG) as open_store:
        with pytest.raises(InvalidInput, match="INNER_NUM: not 1 to 32767"):
            open_store.append(wrong)
        with pytest.raises(InvalidInput, match="no inner batch"):
            open_store.append(NewMessage(b"T", b"x", properties=text(INNER_NUM="1")))


def test_queues_of_the_other_kind(tmp_path: Path) -> None:
    """topics.json and directories disagree: a broker refuses to start."""
    with writer(tmp_path, "5.3", config=CONFIG) as open_store:
        open_store.append(NewMessage(b"T", b"x"))
    path = tmp_path / "config" / "topics.json"
    content = json.loads(path.read_text())
    content["topicConfigTable"]["T"]["attributes"] = {"queue.type": "BatchCQ"}
    path.write_text(json.dumps(content))
    refused = pytest.raises(Refused, match="gives T batch queues, but the store has simple queues")
    with writer(tmp_path, config=CONFIG) as open_store, refused:
        open_store.append(NewMessage(b"T", b"x"))


@pytest.mark.parametrize("name", ["5.1.4-batchcq", "5.3.3-batchcq"])
def test_a_real_store_goes_on(name: str, store: Callable[[str], Path]) -> None:
    """File sizes, too: nobody says them, the other queues tell."""
    root = store(name)
    before = units(root, "BatchTopic")
    with StoreWriter.open(root) as open_store:
        open_store.append(NewMessage(b"BatchTopic", b"a queue without files", queue_id=3))
        (stored,) = put_batch(open_store, batch(b"BatchTopic", b"x", b"y", key="K"))
        for _ in range(30):
            open_store.append(NewMessage(b"BatchTopic", b"one"))
    last = before[-1][1] + before[-1][2]
    found = units(root, "BatchTopic")
    assert found[: len(before)] == before
    assert stored.queue_offset == last
    assert [unit[1:] for unit in found[len(before) :]] == [(last, 2), *((last + 2 + n, 1) for n in range(30))]
    folder = root / "batchconsumequeue" / "BatchTopic"
    assert {path.stat().st_size for path in folder.glob("*/*")} == {920}
    assert (folder / "3").is_dir()
