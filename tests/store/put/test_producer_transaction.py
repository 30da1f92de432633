"""Half messages, commits and rollbacks: what real brokers stored, and what a view makes of ours."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest

from mqstore.formats import message_properties as names
from mqstore.formats.sys_flag import TRANSACTION_MASK, SysFlag
from mqstore.store.broker.profiles import WriterProfile, writer_profile
from mqstore.store.broker.system_topics import HALF_TOPIC, OP_TOPIC
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput, NotFound, Refused
from mqstore.store.inspect.transactions import transactions
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.message import Message
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.producer import TRANSACTION_ID, ProducerOptions, as_stored, committed, decided, half, open_half
from mqstore.store.search.store import StoreReader

from ...stores import config, truth
from ..choices import stores_where
from .writing import NOW, TINY, VERSIONS, writer

CLEAN = stores_where(lambda t: t["name"].endswith("-clean") and "timer" not in t["name"])
HOST = (b"\x7f\0\0\1", 10911)


def log_of(root: Path, options: BrokerConfig) -> list[Message]:
    with StoreReader(root, options) as store:
        return [m for item in store.log.scan() if isinstance(item, Batch) for m in messages(item)]


def sent(record: Message, *made: str) -> NewMessage:
    """What the producer sent, from the half record that the broker made of it."""
    found = {k: v for k, v in record.properties.items() if k not in made}
    return NewMessage(
        record.properties[names.REAL_TOPIC].encode(),
        record.stored_body,
        queue_id=int(record.properties[names.REAL_QID]),
        flag=record.flag,
        sys_flag=record.sys_flag | SysFlag.PREPARED,
        born_timestamp=record.born_timestamp,
        born_host=record.born_host,
        properties=names.format_properties(found),
    )


def like(made: NewMessage, record: Message) -> bool:
    """All that a broker does not take from its clock."""
    fields = ("queue_id", "flag", "sys_flag", "born_timestamp", "born_host", "reconsume_times")
    return (
        all(getattr(made, name) == getattr(record, name) for name in fields)
        and made.topic == record.raw_topic
        and made.body == record.stored_body
        and made.prepared_transaction_offset == record.prepared_transaction_offset
        and names.parse(made.properties) == record.properties
        and len(made.properties) == len(record.raw_properties)
    )


@pytest.mark.parametrize("name", CLEAN)
def test_records_of_real_brokers(name: str, store: Callable[[str], Path]) -> None:
    root = store(name)
    profile = writer_profile(truth(name)["broker_version"])
    found = log_of(root, BrokerConfig(config(name, root)))
    halves = [m for m in found if m.topic == HALF_TOPIC]
    by_position = {m.position: m for m in halves}
    commits = [m for m in found if m.sys_flag & TRANSACTION_MASK == SysFlag.COMMIT]
    ops = [m for m in found if m.topic == OP_TOPIC]
    assert len(halves) > 5
    assert len(commits) > 2
    assert ops
    for record in halves:
        made = half(sent(record, names.REAL_TOPIC, names.REAL_QID, TRANSACTION_ID), profile)
        assert like(replace(made, reconsume_times=record.reconsume_times), record), record
    for record in commits:
        assert like(committed(by_position[record.prepared_transaction_offset], profile), record)
    _ops_are_like_ours(halves, ops, profile)


def _ops_are_like_ours(halves: list[Message], ops: list[Message], profile: WriterProfile) -> None:
    """A broker of 5.x puts several offsets into one record."""
    by_offset = {m.queue_offset: m for m in halves}
    for record in ops:
        ours = [
            decided(by_offset[int(part)], profile, record.store_host, record.born_timestamp)
            for part in record.stored_body.split(b",")
            if part
        ]
        whole = replace(ours[0], body=b"".join(made.body for made in ours))
        assert like(whole, record), record


@pytest.mark.few(4)
@pytest.mark.parametrize("version", VERSIONS)
def test_a_view_of_what_was_put(version: str, tmp_path: Path) -> None:
    asked = ProducerOptions(half=True)
    with writer(tmp_path, version) as open_store:
        for key in ("A", "B", "C"):
            text = names.format_properties({"UNIQ_KEY": key, "PGROUP": "g"})
            message = NewMessage(b"orders", b"x", queue_id=2, properties=text)
            open_store.append(as_stored(message, asked, open_store))
    with writer(tmp_path) as open_store:
        first = open_half(open_store.layout, "A")
        open_store.append(committed(first, open_store.profile))
        open_store.append(decided(first, open_store.profile, HOST, NOW))
    with writer(tmp_path) as open_store:
        second = open_half(open_store.layout, log_of(tmp_path, TINY)[1].message_id)
        open_store.append(decided(second, open_store.profile, HOST, NOW))
        for key in ("A", "D"):
            layout = Layout.open(tmp_path, TINY)
            refused = pytest.raises(Refused if key == "A" else NotFound)
            with refused:
                open_half(layout, key)
    with StoreReader(tmp_path, TINY) as store:
        rows = transactions(store, lambda note: None).rows
    states = {row.unique_key: (row.state.value, row.producer_group) for row in rows}
    assert states == {"A": ("committed", "g"), "B": ("rolled_back", "g"), "C": ("open", "g")}
    topics = (tmp_path / "config" / "topics.json").read_text()
    assert all(f'"{topic}"' in topics for topic in ("orders", HALF_TOPIC, OP_TOPIC))


def test_what_is_refused(tmp_path: Path) -> None:
    message = NewMessage(b"T", b"x")
    later = replace(message, properties=names.format_properties({"DELAY": "3"}))
    with writer(tmp_path, "5.3") as open_store:
        for asked, what in (
            (ProducerOptions(half=True, delay_level=2), message),
            (ProducerOptions(half=True, deliver_ms=NOW + 1000), message),
            (ProducerOptions(half=True), later),
        ):
            with pytest.raises(InvalidInput, match="half message cannot be delayed"):
                as_stored(what, asked, open_store)
    deaf = BrokerConfig({**TINY, "rejectTransactionMessage": "true"})
    with writer(tmp_path, "5.3", config=deaf) as open_store:
        with pytest.raises(InvalidInput, match="rejectTransactionMessage"):
            as_stored(message, ProducerOptions(half=True), open_store)
        asks = replace(message, properties=names.format_properties({"TRAN_MSG": "True"}))
        with pytest.raises(InvalidInput, match="rejectTransactionMessage"):
            as_stored(asks, ProducerOptions(), open_store)


def test_a_half_record_without_a_real_queue(tmp_path: Path) -> None:
    with writer(tmp_path, "5.3") as open_store:
        text = names.format_properties({"UNIQ_KEY": "K"})
        open_store.append(NewMessage(HALF_TOPIC.encode(), b"x", properties=text))
    prepared = open_half(Layout.open(tmp_path, TINY), "K")
    with pytest.raises(Refused, match="without REAL_TOPIC"):
        committed(prepared, writer_profile("5.3"))
