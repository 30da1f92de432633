"""Addresses as text, and what they lead to in real stores: the answers of the single searches."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.errors import InvalidInput, NotFound
from mqstore.store.search.find import LARGEST, OPEN_QUEUES, Address, Finder, find, parse_address
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import FoundMessage, StoreReader, Via, silent

from ...stores import messages, unpack

ID = "7F00000100002A9F0000000000000345"
STORES = (
    *("4.3.1-killed", "4.9.7-expired", "5.3.3-clean", "5.3.3-v2", "5.3.3-batchcq", "4.9.7-lmq"),
    *("5.3.3-clean-no-queues", "5.3.3-rocksdb", "5.3.3-killed-queue", "4.9.7-dledger"),
    "5.3.3-compaction",
)


@pytest.mark.parametrize(
    ("text", "meant"),
    [
        ("0", Address(position=0)),
        (f" {LARGEST}\r", Address(position=LARGEST)),
        (ID, Address(message_id=ID, unique_key=ID)),
        ("1" * 32, Address(message_id="1" * 32, unique_key="1" * 32)),
        ("a" * 56, Address(message_id="a" * 56, unique_key="a" * 56)),
        (ID + "00", Address(unique_key=ID + "00")),
        ("orders/3/17", Address(topic="orders", queue_id=3, queue_offset=17)),
        ("%LMQ%a/b/0/1", Address(topic="%LMQ%a/b", queue_id=0, queue_offset=1)),
        ('{"message_id": "X", "physical_offset": 1}', Address(message_id="X")),
        ('{"physical_offset": 5, "position": 7}', Address(position=7)),
        ('{"physical_offset": 5, "topic": "a", "queue_id": 1}', Address(position=5)),
        (
            '{"type": "x", "topic": "a/b", "queue_id": 1, "queue_offset": 2, "unique_key": "U"}',
            Address(topic="a/b", queue_id=1, queue_offset=2),
        ),
        ('{"unique_key": "U", "topic": "a", "message_id": ""}', Address(unique_key="U", topic="a")),
    ],
)
def test_addresses(text: str, meant: Address) -> None:
    assert parse_address(text) == meant


@pytest.mark.parametrize(
    "text",
    [
        *("", "x", "-1", "1.5", str(LARGEST + 1), "9" * 5000, "١٢", ID[:-1], ID + "0000", ID[:-1] + "g"),
        *("orders", "orders/1", "/1/2", "orders/-1/2", "orders/a/2", "orders/1/", "a/0/" + "9" * 30),
        *("{", "{}", "[1]", '{"position": "1"}', '{"position": true}', '{"position": -1}'),
        *('{"position": 1.0}', f'{{"position": {LARGEST + 1}}}', '{"message_id": 1}'),
        *('{"unique_key": ""}', '{"topic": "a", "queue_id": 1}', '{"unique_key": "\\ud800"}'),
        *('{"unique_key": null}', '{"a":' * 100_000, '{"position": ' + "9" * 5000 + "}"),
    ],
    ids=lambda text: text[:30],
)
def test_what_is_no_address(text: str) -> None:
    with pytest.raises(InvalidInput):
        parse_address(text)


@given(st.text())
def test_any_text(text: str) -> None:
    """An address or an error."""
    try:
        parse_address(text)
    except InvalidInput as error:
        assert "\n" not in str(error)


def single(store: StoreReader, address: Address) -> FoundMessage | None:
    """What `get` finds for one address."""
    try:
        if address.position is not None:
            return FoundMessage(store.message_at(address.position), Via.ADDRESS)
        if address.message_id is not None:
            return FoundMessage(store.message_by_id(address.message_id), Via.ADDRESS)
        if address.unique_key is not None:
            selection = Selection(unique_key=address.unique_key, topic=address.topic)
            return next(find(store, selection, note=silent), None)
        selection = Selection(topic=address.topic, queue_id=address.queue_id)
        offset = address.queue_offset or 0
        found = next(find(store, selection, offset=offset, count=1, note=silent), None)
        return None if found is None or found.message.queue_offset > offset else found
    except NotFound:
        return None


def addresses(name: str) -> Iterator[Address]:
    """Addresses of all kinds of every tenth message, and of places where there is none."""
    for record in list(messages(name))[::10]:
        yield Address(position=record.get("position", record["physical_offset"]))
        yield Address(message_id=record["offset_msg_id"])
        place = Address(topic=record["topic"], queue_id=record["queue_id"])
        yield place._replace(queue_offset=record["queue_offset"])
        yield Address(position=record["physical_offset"] + 1)
        if unique_key := record["properties"].get("UNIQ_KEY"):
            yield Address(unique_key=unique_key)
            yield Address(unique_key=unique_key, topic=record["topic"])
            yield Address(unique_key=unique_key[:-1] + "_")
    for topic, queue_id in (("orders", 0), ("orders", 77), ("none", 0), ("..", 0), ("a\0", 0)):
        for queue_offset in (0, 1 << 40, LARGEST):
            yield Address(topic=topic, queue_id=queue_id, queue_offset=queue_offset)


@pytest.mark.slow
@pytest.mark.parametrize("name", STORES)
def test_answers_are_those_of_single_searches(name: str, tmp_path: Path) -> None:
    """Of several messages with one key (a message and its delayed self) any will do here."""
    asked = list(addresses(name))
    with StoreReader(unpack(name, tmp_path)) as store, Finder(store, silent) as finder:
        answers = list(finder.find(asked))
        assert len(answers) == len(asked)
        for address, answer in zip(asked, answers, strict=True):
            expected = single(store, address)
            found = None if isinstance(answer, NotFound) else answer.message
            assert (found is None) == (expected is None), address
            if found is None or expected is None:
                continue
            if address.unique_key is not None:
                assert found.unique_key == address.unique_key
                assert address.topic in (None, found.topic)
            else:
                assert found.position == expected.message.position, address
        assert any(isinstance(answer, FoundMessage) for answer in answers)


def test_a_hex_line_is_a_message_id_before_it_is_a_key(tmp_path: Path) -> None:
    known = [m for m in messages("5.3.3-clean") if "UNIQ_KEY" in m["properties"]]
    lines = [m["offset_msg_id"] for m in known] + [m["properties"]["UNIQ_KEY"] for m in known]
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store, Finder(store, silent) as finder:
        answers = list(finder.find([parse_address(line) for line in lines]))
    by_id, by_key = answers[: len(known)], answers[len(known) :]
    for record, found in zip(known, by_id, strict=True):
        assert isinstance(found, FoundMessage)
        assert (found.message.position, found.via) == (record["physical_offset"], Via.ADDRESS)
    for record, found in zip(known, by_key, strict=True):
        assert isinstance(found, FoundMessage)
        assert found.message.unique_key == record["properties"]["UNIQ_KEY"]
        assert found.via is not Via.ADDRESS


def test_the_log_is_scanned_once(tmp_path: Path) -> None:
    """However many keys the index lacks; with the message of each topic that is asked for."""
    root = unpack("5.3.3-clean", tmp_path)
    for path in (root / "index").iterdir():
        path.unlink()
    known = [m for m in messages("5.3.3-clean") if "UNIQ_KEY" in m["properties"]]
    asked = [Address(unique_key=m["properties"]["UNIQ_KEY"], topic=m["topic"]) for m in known]
    asked.append(Address(unique_key="none"))
    notes: list[str] = []
    scanned: list[int] = []
    with StoreReader(root) as store, Finder(store, notes.append) as finder:
        store.scanned = scanned.append
        answers = list(finder.find(asked))
        assert sum(scanned) == sum(file.size for file in store.log_files.files)
    assert notes == [f"{len(set(asked))} unique keys are not in the index: scanning the log"]
    *found, last = answers
    assert isinstance(last, NotFound)
    for record, answer in zip(known, found, strict=True):
        assert isinstance(answer, FoundMessage)
        assert answer.via is Via.SCAN
        assert answer.message.topic == record["topic"]
        assert answer.message.unique_key == record["properties"]["UNIQ_KEY"]


def test_few_queues_stay_open(tmp_path: Path) -> None:
    """More than a process may have files open."""
    root = unpack("5.3.3-clean", tmp_path)
    known = [m for m in messages("5.3.3-clean") if m["properties"].get("UNIQ_KEY")]
    places = {(m["topic"], m["queue_id"], m["queue_offset"]) for m in known}
    with StoreReader(root) as store, Finder(store, silent) as finder:
        asked = [Address(topic=t, queue_id=q, queue_offset=o) for t, q, o in sorted(places)]
        list(finder.find(asked))
        assert len(finder._queues) <= OPEN_QUEUES


def test_objects_are_what_put_and_dump_print(tmp_path: Path) -> None:
    """A record of `dump` names its own message."""
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store, Finder(store, silent) as finder:
        message = store.message_at(0)
        [found] = finder.find([parse_address(json.dumps(message.to_json()))])
    assert isinstance(found, FoundMessage)
    assert found.message == message
