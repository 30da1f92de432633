"""Messages inside of batch records: what real consumers got of them, found by every way."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import message_properties as names
from mqstore.formats.client_batch import MESSAGE, MESSAGES_MAX, starts_of
from mqstore.store.broker.filter import Where
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import NotFound
from mqstore.store.library import Store
from mqstore.store.log.batch import Batch, messages, unwrapped
from mqstore.store.log.message import Message, pack
from mqstore.store.put.new_message import NewBatch, NewMessage, encoded
from mqstore.store.search.find import find
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import silent

from ...stores import messages as records_of
from ...stores import truth, unpack
from ..choices import each_of, stores_where
from ..put.test_new_message import batch_topic
from ..put.writing import NOW, TINY, writer

WITH_BATCHES = stores_where(lambda t: "batchcq" in t["name"])
TOPIC = "BatchTopic"
Row = dict[str, Any]
Place = tuple[int, int, str | None, int]


name = each_of(WITH_BATCHES)


@pytest.fixture
def store(name: str, tmp_path: Path) -> Store:
    return Store(unpack(name, tmp_path))


def delivered(name: str) -> set[Place]:
    """Queue, offset, unique key, position of each message that a consumer got."""
    return {
        (row["queue_id"], row["queue_offset"], row["msg_id"], row["physical_offset"])
        for rows in truth(name)["received"].values()
        for row in rows
        if row["topic"] == TOPIC
    }


def place(message: Message) -> Place:
    return message.queue_id, message.queue_offset, message.unique_key, message.physical_offset


def all_of(store: Store, **selection: Any) -> list[Message]:
    return [one.message for one in find(store, Selection(**selection), note=silent)]


def in_log(store: Store) -> list[Message]:
    """Everything in the log, records of batches as consumers get them."""
    batches = [item for item in store.log.scan() if isinstance(item, Batch)]
    return [m for batch in batches for m in messages(unwrapped(batch.copy()))]


def test_what_consumers_got(name: str, store: Store) -> None:
    found = [place(m) for m in all_of(store, topic=TOPIC)]
    assert set(found) == delivered(name)
    assert len(found) == len(set(found)) > 150
    assert found == [place(m) for m in in_log(store) if m.topic == TOPIC]


def test_each_offset_of_a_queue(name: str, store: Store) -> None:
    for queue_id in (0, 1):
        stop = truth(name)["queues"][f"{TOPIC}/{queue_id}"]["max_offset"]
        selection = Selection(topic=TOPIC, queue_id=queue_id)
        known = {row[1]: row for row in delivered(name) if row[0] == queue_id}
        for offset in range(0, stop, 3):
            (one,) = find(store, selection, offset=offset, count=1)
            assert place(one.message) == known[offset]
        for offset, count in ((0, 5), (3, 7), (stop - 2, 9)):
            found = [one.message for one in find(store, selection, offset=offset, count=count)]
            wanted = [known[k] for k in range(offset, min(offset + count, stop))]
            assert [place(m) for m in found] == wanted
            back = find(store, selection, offset=offset, count=count, reverse=True)
            assert [place(one.message) for one in back] == wanted[::-1]


def test_the_library_has_each_message_by_its_place(name: str, store: Store) -> None:
    """`Store.message` and `Store.offset_at`, as of plain queues."""
    for row in delivered(name):
        assert place(store.message(TOPIC, row[0], row[1])) == row
    stop = truth(name)["queues"][f"{TOPIC}/0"]["max_offset"]
    for queue_id, offset in ((0, stop), (0, -1), (7, 0)):
        with pytest.raises(NotFound):
            store.message(TOPIC, queue_id, offset)
    assert store.offset_at(TOPIC, 0, 0) == 0
    plain = next(m for m in in_log(store) if m.topic != TOPIC and m.topic in store.topics)
    assert place(store.message(plain.topic, plain.queue_id, plain.queue_offset)) == place(plain)


def ways(store: Store, message: Message) -> Iterator[tuple[str, Row]]:
    """Questions that a message answers."""
    yield "unique key", {"unique_key": message.unique_key}
    yield "unique key as key", {"key": message.unique_key, "topic": TOPIC}
    if message.keys:
        yield "key", {"key": message.keys[0]}
        yield "pattern of topics", {"key": message.keys[0], "topic": "Batch*"}
    if message.tags:
        yield "tag", {"tag": message.tags}
        yield "tag of a topic", {"tag": message.tags, "topic": TOPIC}
    if message.properties.get("region"):
        where = Where(f"region = '{message.properties['region']}' AND @queue_id = 0")
        yield "where", {"where": where}
    text = message.to_json().get("body")
    if text:
        yield "grep", {"grep": re.compile("^" + re.escape(text) + "$")}


@pytest.mark.few(1)
def test_every_way_leads_to_the_same_messages(store: Store) -> None:
    log = in_log(store)
    own = [m for m in log if m.inner is not None]
    asked = set()
    for message in own[::37]:
        for way, question in ways(store, message):
            selection = Selection(**question)
            wanted = [m for m in log if selection.takes(m)]
            assert wanted, way
            found = list(find(store, selection, note=silent))
            assert [one.message for one in found] == wanted, (way, question)
            back = find(store, selection, reverse=True, note=silent)
            assert [one.message for one in back] == wanted[::-1], (way, question)
            few = find(store, selection, count=2, note=silent)
            if not question.keys() & {"key", "unique_key"}:
                assert [one.message for one in few] == wanted[:2], (way, question)
            asked.add(way)
    assert len(asked) == 8


def test_first_ones_of_a_pattern_backwards(store: Store) -> None:
    """The last of the first four may stand in the middle of a record."""
    log = [m for m in in_log(store) if m.topic == TOPIC]
    for count in range(1, 12):
        found = find(store, Selection(topic="Batch*"), count=count, reverse=True)
        assert [one.message for one in found] == log[:count][::-1]


def test_a_batch_has_a_key_of_its_own(name: str, store: Store) -> None:
    """That leads to all its messages; so a record as it is stored is found by either key."""
    records = [m for m in records_of(name) if m["topic"] == TOPIC and m["sys_flag"] & 0x80]
    for record in records[::9]:
        key, size = record["properties"]["UNIQ_KEY"], int(record["properties"]["INNER_NUM"])
        found = all_of(store, unique_key=key)
        assert [m.physical_offset for m in found] == [record["physical_offset"]] * size
        assert [m.queue_offset - record["queue_offset"] for m in found] == list(range(size))
        for wanted in (key, found[-1].unique_key):
            (whole,) = all_of(store, unique_key=wanted, whole=True)
            assert whole.inner is None and whole.physical_offset == record["physical_offset"]
            assert whole.properties == record["properties"]


def test_without_queues_and_index(name: str, store: Store, tmp_path: Path) -> None:
    wanted = all_of(store, topic=TOPIC)
    for part in ("consumequeue", "batchconsumequeue", "index"):
        (store.layout.root / part).rename(tmp_path / part)
    with Store(store.layout.root) as opened:
        assert all_of(opened, topic=TOPIC) == wanted
        selection = Selection(topic=TOPIC, queue_id=1)
        found = [one.message for one in find(opened, selection, offset=7, count=3, note=silent)]
        assert [m.queue_offset for m in found] == [7, 8, 9]
        message = next(m for m in wanted[40:] if m.inner is not None and m.keys)
        assert message in all_of(opened, key=message.keys[0])


def test_as_json(store: Store) -> None:
    log = in_log(store)
    message = next(m for m in log if m.inner is not None and m.inner.number == 1)
    assert message.inner is not None
    record, shown = message.inner.record.to_json(), message.to_json()
    of_record = ("physical_offset", "message_id", "total_size", "body_crc", "store_timestamp")
    assert {n: shown[n] for n in of_record} == {n: record[n] for n in of_record}
    assert shown["queue_offset"] == record["queue_offset"] + 1
    assert shown["inner_number"] == 1 and shown["batch_size"] == int(record["properties"]["INNER_NUM"])
    assert shown["batch_record"]["properties"] == record["properties"]
    assert shown["unique_key"] != record["unique_key"]
    assert "INNER_NUM" not in shown["properties"] and "body_error" not in shown | record


# -- made records ---------------------------------------------------------------------------------

CONFIG = BrokerConfig({**TINY, "mapperFileSizeBatchConsumeQueue": "92"})


def a_batch(*bodies: bytes) -> NewBatch:
    request = NewMessage(b"B", b"", properties=text(UNIQ_KEY="OF-THE-BATCH"), born_timestamp=NOW)
    parts = (NewMessage(b"", b, properties=text(KEYS=f"k{n}")) for n, b in enumerate(bodies))
    return NewBatch(request, tuple(parts))


def text(**properties: str) -> bytes:
    return names.format_properties(properties)


def stored(root: Path, body: bytes, count: int, flags: int = 0) -> Store:
    """A store with a batch record that has this body, between two plain messages."""
    batch_topic(root, "B")
    record = NewMessage(
        b"B", body, sys_flag=0xC0 | flags, properties=text(UNIQ_KEY="OF-THE-BATCH", INNER_NUM=str(count))
    )
    with writer(root, "5.3", config=CONFIG) as open_store:
        open_store.append(NewMessage(b"B", b"before", properties=text(KEYS="k0")))
        open_store.append(record)
        open_store.append(NewMessage(b"B", b"behind", properties=text(KEYS="k1")))
    return Store(root, CONFIG)


@pytest.mark.parametrize(("flags", "compression"), [(0x301, "zlib"), (0x101, "lz4"), (0x201, "zstd"), (0, "")])
def test_compressed(flags: int, compression: str, tmp_path: Path) -> None:
    body = pack(encoded(a_batch(b"x" * 500, b"", b"zz")), flags)
    with stored(tmp_path, body, 3, flags) as store:
        found = all_of(store, topic="B", queue_id=0)
        assert [m.body().data for m in found] == [b"before", b"x" * 500, b"", b"zz", b"behind"]
        assert [m.queue_offset for m in found] == [0, 1, 2, 3, 4]
        assert [m.queue_offset for m in all_of(store, key="k1")] == [2, 4]
        assert [m.queue_offset for m in all_of(store, grep=re.compile("^zz"))] == [3]
        shown = found[3].to_json()
        assert shown["body"] == "zz" and shown.get("body_compression", "") == compression
        # a bound for bodies holds for the batch
        bounded = all_of(store, key="OF-THE-BATCH", max_body_bytes=100)
        assert [m.inner is None for m in bounded] == ([True] if flags else [False] * 3)
        for message in bounded if flags else []:
            assert "--max-body" in message.to_json(max_body=100)["body_error"]


BATCH = encoded(a_batch(b"x" * 20, b"", b"zz"))


@pytest.mark.parametrize(
    ("body", "flags", "said"),
    [
        (b"", 0, "0 messages"),
        (BATCH[:-1], 0, "no whole message at byte"),
        (BATCH + b"\0", 0, "no whole message at byte"),
        (BATCH[:16] + b"\xff" + BATCH[17:], 0, "no whole message at byte 0"),
        (BATCH[:16] + b"\x7f" + BATCH[17:], 0, "no whole message at byte 0"),
        (BATCH[:40] + b"\xff" + BATCH[41:], 0, "no whole message at byte 0"),
        (b"plain text", 0, "no whole message at byte 0 of 10"),
        (BATCH, 0x301, "does not decompress with zlib"),
        (pack(BATCH, 0x301)[:-1], 0x301, "does not decompress with zlib"),
        (pack(BATCH[:-1], 0x301), 0x301, "no whole message at byte"),
    ],
)
def test_what_is_no_batch_is_shown_as_it_is(body: bytes, flags: int, said: str, tmp_path: Path) -> None:
    with stored(tmp_path, body, 3, flags) as store:
        found = all_of(store, topic="B")
        assert [m.queue_offset for m in found] == [0, 1, 4]
        assert found[1].stored_body == body and found[1].inner is None
        assert said in found[1].to_json()["body_error"]
        assert "body_error" not in found[1].to_json(raw=True)
        # the offsets that it takes in the queue lead to it
        selection = Selection(topic="B", queue_id=0)
        for offset in (1, 2, 3):
            (one,) = find(store, selection, offset=offset, count=1)
            assert one.message.physical_offset == found[1].physical_offset
        assert [m.queue_offset for m in all_of(store, unique_key="OF-THE-BATCH")] == [1]


def test_a_client_asks_for_both_bits(tmp_path: Path) -> None:
    """Brokers set both; a record with one of them is passed on as it is."""
    batch_topic(tmp_path, "B")
    with writer(tmp_path, "5.3", config=CONFIG) as open_store:
        open_store.append(NewMessage(b"B", BATCH, sys_flag=0x80, properties=text(UNIQ_KEY="U", INNER_NUM="3")))
        open_store.append(NewMessage(b"B", BATCH, sys_flag=0x40, properties=text(UNIQ_KEY="V")))
    with Store(tmp_path, CONFIG) as store:
        found = all_of(store, topic="B")
    assert [m.stored_body for m in found] == [BATCH, BATCH]
    assert not [m for m in found if "body_error" in m.to_json()]


@given(st.lists(st.tuples(st.binary(max_size=40), st.binary(max_size=40)), min_size=1))
def test_bodies_split_where_construct_splits_them(found: list[tuple[bytes, bytes]]) -> None:
    parts = [MESSAGE.build({"flag": 0, "body": b, "properties": p}) for b, p in found]
    starts = starts_of(b"".join(parts))
    assert starts == [sum(map(len, parts[:n])) for n in range(len(parts))]


@given(st.binary(max_size=200))
def test_any_bytes(data: bytes) -> None:
    try:
        starts = starts_of(data)
    except ValueError:
        return
    ends = [*starts[1:], len(data)]
    for start, end in zip(starts, ends, strict=True):
        one = MESSAGE.parse(data[start:end])
        assert len(MESSAGE.build(one)) == end - start


def test_too_many() -> None:
    one = MESSAGE.build({"flag": 0, "body": b"", "properties": b""})
    assert len(starts_of(one * MESSAGES_MAX)) == MESSAGES_MAX
    with pytest.raises(ValueError, match="32768 messages, not 1 to 32767"):
        starts_of(one * (MESSAGES_MAX + 1))
