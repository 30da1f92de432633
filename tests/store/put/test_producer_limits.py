"""What a producer is refused, and what an old broker's limit counts; tests/interop asks the real ones."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import property_columns
from mqstore.formats.derive.ragged import Ragged
from mqstore.store.broker.profiles import profile_of
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, LimitExceeded
from mqstore.store.put.new_message import NewMessage, check_copy
from mqstore.store.put.producer import ProducerOptions, as_stored, check_producer, refused_copies

from .writing import TINY, VERSIONS, writer

SMALL = BrokerConfig({**TINY, "maxMessageSize": "1000"})
HEAD = 91 + 1
LONG = b"%RETRY%" + b"g" * 200


@pytest.mark.parametrize(
    ("message", "said", "since"),
    [
        (NewMessage(b"a b", b"x"), "no topic for a producer", "4.3"),
        (NewMessage(b"T", b""), "the body is empty", "4.3"),
        (NewMessage(b"T", bytes(1001)), "more than maxMessageSize 1000", "4.3"),
        (NewMessage(b"t" * 128, b"x"), "128 characters", "4.3"),
        (NewMessage(b"SCHEDULE_TOPIC_XXXX", b"x"), "accept no messages for it", "4.9"),
        (NewMessage(b"RMQ_SYS_ROCKSDB_TRANS_HALF_TOPIC", b"x"), "accept no messages for it", "5.4"),
        (NewMessage(b"rmq_sys_wheel_timer", b"x"), "TIMER_OUT_MS and REAL_TOPIC and REAL_QID", "4.3"),
        (NewMessage(b"T", b"x", queue_id=4), "T has 4 queues in topics.json", "4.3"),
    ],
)
@pytest.mark.parametrize("version", VERSIONS)
def test_what_a_producer_is_refused(version: str, message: NewMessage, said: str, since: str, tmp_path: Path) -> None:
    with writer(tmp_path, version, config=SMALL) as open_store:
        open_store.append(NewMessage(b"T", b"first"))
    with writer(tmp_path, version, config=SMALL) as open_store:
        if version >= since:
            with pytest.raises((InvalidInput, LimitExceeded), match=said):
                as_stored(message, ProducerOptions(), open_store)
        else:
            assert as_stored(message, ProducerOptions(), open_store) == message


def test_long_topics_of_groups(tmp_path: Path) -> None:
    """Since 5.4; a copy of a record may have one before."""
    message = NewMessage(LONG, b"x")
    with writer(tmp_path / "old", "5.3") as open_store:
        with pytest.raises(InvalidInput, match="207 characters"):
            check_producer(message, open_store)
        open_store.append(message)
    with writer(tmp_path / "new", "5.4") as open_store:
        check_producer(message, open_store)


@pytest.mark.parametrize("version", VERSIONS)
def test_what_the_limit_counts(version: str, tmp_path: Path) -> None:
    """Up to 4.9.3 whole records, and of a batch all of them; later bodies."""
    old = version == "4.3"
    fits = NewMessage(b"T", bytes(1000 - HEAD if old else 1000))
    with writer(tmp_path, version, config=SMALL) as open_store:
        open_store.append(fits)
        for ways in ("append", "append_together"):
            over = NewMessage(b"T", fits.body + b"x")
            with pytest.raises(LimitExceeded, match="maxMessageSize 1000") as caught:
                open_store.append(over) if ways == "append" else open_store.append_together([over])
            assert "--set maxMessageSize" in str(caught.value.hint)
        half = NewMessage(b"T", bytes(500 - HEAD))
        open_store.append_together([half, half])
        more = NewMessage(b"T", half.body + b"x")
        if old:
            with pytest.raises(LimitExceeded, match="record of 1001 bytes"):
                open_store.append_together([half, more])
        else:
            open_store.append_together([half, more])


def test_a_compressed_body_is_measured_before(tmp_path: Path) -> None:
    with writer(tmp_path, "5.3", config=SMALL) as open_store:
        asked = ProducerOptions(compress="zlib", over_bytes=0)
        with pytest.raises(LimitExceeded, match="1001 bytes"):
            as_stored(NewMessage(b"T", bytes(1001)), asked, open_store)
        assert len(as_stored(NewMessage(b"T", bytes(1000)), asked, open_store).body) < 100


_NAMES = st.sampled_from([b"DELAY", b"REAL_TOPIC", b"REAL_QID", b"INNER_NUM", b"INNER_BASE", b"LOST", b""])
_VALUES = st.sampled_from([b"3", b"-1", b"99999", b"99999999999", b"x", b"", b"\xff", "\u0663".encode(), b"1\x012"])
_ITEMS = st.lists(st.tuples(_NAMES, st.sampled_from([b"\1", b""]), _VALUES).map(b"".join), max_size=6)


@given(
    st.sampled_from(VERSIONS),
    st.lists(st.tuples(st.sampled_from([b"SCHEDULE_TOPIC_XXXX", b"T"]), _ITEMS), min_size=1, max_size=3),
)
def test_a_line_is_refused_where_a_row_is(version: str, found: list[tuple[bytes, list[bytes]]]) -> None:
    """Whatever a copy has for properties."""
    rules = profile_of(version).record
    topics, texts = [topic for topic, _ in found], [b"\2".join(items) for _, items in found]
    errors = dict[int, str]()
    for row, (topic, text) in enumerate(zip(topics, texts, strict=True)):
        try:
            check_copy(topic, text, rules)
        except InvalidInput as error:
            errors[row] = error.message
    assert refused_copies({"topic": Ragged.of(topics), "properties": Ragged.of(texts)}, rules) == errors


def test_a_line_of_a_delay_level_is_checked_without_columns(monkeypatch: pytest.MonkeyPatch) -> None:
    """They take a hundred times as long for a single line."""
    monkeypatch.delattr(property_columns.PropertyItems, "__init__")
    text = b"DELAY\x013\2REAL_TOPIC\1T\2REAL_QID\x010\2"
    check_copy(b"SCHEDULE_TOPIC_XXXX", text, profile_of("4.9").record)


@pytest.mark.parametrize("name", ["topicQueueMapping.json", "topicQueueMapping.json.bak"])
def test_a_queue_of_a_static_topic_that_another_broker_writes(name: str, tmp_path: Path) -> None:
    """Groups are behind what a queue had here before it was moved: they would never get the message."""
    parts = [[("a", 0)], [("a", 1), ("b", 0)], [("b", 1), ("a", 2)], []]
    hosted = {n: [{"bname": broker, "queueId": q} for broker, q in each] for n, each in enumerate(parts)}
    mapping = {"topicQueueMappingInfoMap": {"T": {"bname": "a", "hostedQueues": hosted}, "none": None}}
    with writer(tmp_path, "5.3") as store:
        store.append(NewMessage(b"other", b"first"))
    (tmp_path / "config" / name).write_text(json.dumps(mapping))
    with writer(tmp_path, "5.3") as store:
        for topic, queue in ((b"T", 0), (b"T", 2), (b"none", 1), (b"other", 1)):
            check_producer(NewMessage(topic, b"x", queue_id=queue), store)
        for queue in (1, 3):
            with pytest.raises(InvalidInput, match=f"queue {queue} of the static topic T.*store of b$"):
                check_producer(NewMessage(b"T", b"x", queue_id=queue), store)
