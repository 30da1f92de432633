"""LMQs: offsets that `put` names where the broker's options are on, by generation."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats import message_properties as names
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, LimitExceeded
from mqstore.store.log.batch import Batch, messages
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.producer import ProducerOptions, as_stored, check_producer
from mqstore.store.put.writer import StoreWriter
from mqstore.store.search.store import StoreReader

from .writing import TINY, VERSIONS, writer

ON = BrokerConfig({**TINY, "enableLmq": "true", "enableMultiDispatch": "true"})
KNOWN = [v for v in VERSIONS if v > "4.3"]


def naming(queues: str, topic: bytes = b"T", sys_flag: int = 0, body: bytes = b"x") -> NewMessage:
    text = names.format_properties({"INNER_MULTI_DISPATCH": queues})
    return NewMessage(topic, body, queue_id=1, sys_flag=sys_flag, properties=text)


def offsets(root: Path) -> list[str | None]:
    with StoreReader(root, ON) as store:
        found = [m for i in store.log.scan() if isinstance(i, Batch) for m in messages(i)]
    return [m.properties.get("INNER_MULTI_QUEUE_OFFSET") for m in found]


def units(root: Path, topic: str) -> int:
    with StoreReader(root, ON) as store, store.queues.open(topic, 0) as queue:
        return queue.summary().max_offset


@pytest.mark.parametrize("version", KNOWN)
def test_offsets_go_on(version: str, tmp_path: Path) -> None:
    """Over several writers, one by one and many at once."""
    with writer(tmp_path, version, config=ON) as store:
        store.append(naming("%LMQ%a"))
        store.append_together([naming("%LMQ%a,%LMQ%b"), naming("%LMQ%b")])
    with writer(tmp_path, version, config=ON) as store:
        store.append(naming("%LMQ%b,%LMQ%a"))
        store.append(NewMessage(b"T", b"plain", queue_id=1))
        store.append(naming("%LMQ%a"))
    assert offsets(tmp_path) == ["0", "1,0", "1", "2,2", None, "3"]
    assert (units(tmp_path, "%LMQ%a"), units(tmp_path, "%LMQ%b")) == (4, 3)


@pytest.mark.parametrize(
    ("version", "expected", "count"),
    [
        ("4.3", [None] * 5, 0),
        ("4.9", ["0,0", "1", "1", "2", "3"], 4),
        ("5.1", ["0,0", None, None, "2", "3"], 3),
        ("5.3", ["0,0", "2", None, None, "3"], 2),
        ("5.5", ["0,0", "2", None, None, "3"], 2),
    ],
)
def test_generations_differ(version: str, expected: list[str | None], count: int, tmp_path: Path) -> None:
    """As measured: a name given twice, a half message, the topics of the broker."""
    with writer(tmp_path, version, config=ON) as store:
        store.append(naming("%LMQ%a,%LMQ%a"))
        store.append(naming("%LMQ%a", sys_flag=SysFlag.PREPARED))
        store.append(naming("%LMQ%a", b"%RETRY%g"))
        store.append(naming("%LMQ%a", b"rmq_sys_x"))
        store.append(naming("%LMQ%a"))
    assert offsets(tmp_path) == expected
    assert (units(tmp_path, "%LMQ%a") if count else 0) == count


def test_without_the_options_nothing_is_added(tmp_path: Path) -> None:
    """Copies keep what they have."""
    text = names.format_properties({"INNER_MULTI_DISPATCH": "%LMQ%a", "INNER_MULTI_QUEUE_OFFSET": "7"})
    with writer(tmp_path, "5.3") as store:
        store.append(naming("%LMQ%a"))
        store.append(NewMessage(b"T", b"x", properties=text))
    assert offsets(tmp_path) == [None, "7"]


@pytest.mark.parametrize("version", KNOWN)
def test_a_message_that_would_stop_the_broker(version: str, tmp_path: Path) -> None:
    """B11: since 5.0 a name without %LMQ% gets an empty offset, and nothing is dispatched any more."""
    with writer(tmp_path, version, config=ON) as store:
        for queues in ("%LMQ%a,,%LMQ%b", "%LMQ%a,copies,%LMQ%b"):
            if version == "4.9" and "copies" in queues:
                store.append(naming(queues))
                continue
            with pytest.raises(InvalidInput, match="B11"):
                store.append(naming(queues))
    if version == "4.9":
        assert offsets(tmp_path) == ["0,0,0"]
        with StoreReader(tmp_path, ON) as found, found.queues.open("copies", 1) as queue:
            assert queue.summary().max_offset == 1
    else:
        assert not Layout.of(tmp_path).consume_queue.exists()


@pytest.mark.parametrize("version", KNOWN)
def test_names_with_a_slash(version: str, tmp_path: Path) -> None:
    """Clients of 5.x refuse them, brokers do not."""

    def check(store: StoreWriter) -> None:
        check_producer(naming("%LMQ%a/b"), store)

    with writer(tmp_path, version, config=ON) as store:
        store.append(naming("%LMQ%a/b"))
        if version == "4.9":
            check(store)
        else:
            with pytest.raises(InvalidInput, match="slash"):
                check(store)
    assert offsets(tmp_path) == ["0"]


@pytest.mark.parametrize("version", KNOWN)
def test_the_size_of_such_a_record(version: str, tmp_path: Path) -> None:
    config = BrokerConfig({**ON, "maxMessageSize": "1000"})
    whole = version >= "5.3"
    with writer(tmp_path, version, config=config) as store:
        store.append(NewMessage(b"T", bytes(1000)))
        fits = 1000 - 92 - len(naming("%LMQ%a").properties) - len("INNER_MULTI_QUEUE_OFFSET") - 3
        store.append(naming("%LMQ%a", body=bytes(fits)))
        over = naming("%LMQ%a", body=bytes(fits + 1))
        if whole:
            with pytest.raises(LimitExceeded, match="1001 bytes that names LMQs"):
                store.append(over)
        else:
            store.append(over)
        store.append(naming("%LMQ%a"))
    expected = ["0", "1"] if whole else ["0", "1", "2"]
    assert offsets(tmp_path) == [None, *expected]


def test_property_crc_is_of_later_brokers(tmp_path: Path) -> None:
    """5.1 does not know the option; since 5.2 every record ends with it, offsets included."""
    config = BrokerConfig({**ON, "enabledAppendPropCRC": "true"})
    for version in ("4.9", "5.1", "5.3", "5.5"):
        root = tmp_path / version
        with writer(root, version, config=config) as store:
            size = store.append(naming("%LMQ%a")).total_size
        record = (root / "commitlog" / f"{0:020d}").read_bytes()[:size]
        assert names.crc_ok(record) is (True if version > "5.1" else None), version
        assert b"INNER_MULTI_QUEUE_OFFSET\x010" in record


@pytest.mark.parametrize("version", ["5.4", "5.5"])
def test_a_lite_message_goes_to_its_light_queue(version: str, tmp_path: Path) -> None:
    """Since 5.5 brokers name the LMQ; where nothing is configured, a store that has LMQs shows that they are used."""
    lite = NewMessage(b"chat", b"x", properties=names.format_properties({"__LITE_TOPIC": "room"}))
    queue = "%LMQ%$chat$room"

    def put(message: NewMessage, config: BrokerConfig) -> tuple[str, ...]:
        with writer(tmp_path, version, config=config) as store:
            made = as_stored(message, ProducerOptions(), store)
            store.take_light_queues(made)
            store.append(made)
            return store.lmq_switched_off

    switched_off = ("enableLmq", "enableMultiDispatch")
    assert put(lite, TINY) == (switched_off if version == "5.5" else ())
    assert put(naming("%LMQ%a"), TINY) == switched_off
    assert put(naming("%LMQ%a"), ON) == put(lite, ON) == put(lite, TINY) == put(naming("%LMQ%a"), TINY) == ()
    assert put(naming("%LMQ%a"), BrokerConfig({**TINY, "enableLmq": "false"})) == ("enableLmq",)
    assert offsets(tmp_path) == [None, None, "0", *(["0", "1"] if version == "5.5" else [None] * 2), "1", None]
    assert units(tmp_path, "%LMQ%a") == 2
    if version == "5.5":
        assert units(tmp_path, queue) == 2
