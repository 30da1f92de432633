"""Messages out of JSON objects: fields that make no sense are named, all others come through unchanged."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats import message_properties as names
from mqstore.formats.client_batch import MESSAGE
from mqstore.formats.hashing import crc31
from mqstore.formats.sys_flag import SysFlag
from mqstore.store.errors import InvalidInput
from mqstore.store.put.message_json import MessageReader, is_message
from mqstore.store.put.new_message import NUMBER_LIMITS, NoKeys

from .writing import NOW

READER = MessageReader(NoKeys(), keep_times=True, clock=lambda: NOW)
PLAIN: dict[str, Any] = {"topic": "T", "body": "x", "unique_key": None}
"""NoKeys gives none: a message that would get one is refused."""
TEXTS = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\1\2"))


@pytest.mark.parametrize(
    ("more", "copied"),
    [
        ({"tombstone": True}, False),
        ({"filler": True}, False),
        ({"tombstone": None}, True),
        ({"store_host": "127.0.0.1:0", "properties": {"LOST": "tt"}}, False),
        ({"store_host": "127.0.0.1:0", "properties": {}, "topic": "-", "sys_flag": 12}, False),
        ({"store_host": "127.0.0.1:0", "properties": {"LOST": "x"}}, True),
        ({"store_host": "127.0.0.1:10", "properties": {"LOST": "t"}}, True),
        ({"tombstone": True, "topic": "RMQ_SYS_TRANS_OP_HALF_TOPIC"}, True),
    ],
)
def test_what_recover_wrote_in_place_of_lost_messages_is_none(more: dict[str, Any], copied: bool) -> None:
    """That of an op record still decides transactions."""
    assert is_message(PLAIN | more) is copied


@pytest.mark.parametrize(("name", "limits"), NUMBER_LIMITS.items())
def test_numbers_beyond_their_bits_are_named(name: str, limits: tuple[int, int]) -> None:
    """A Java int, a long, and of queue ids those that a client can ask for."""
    least, largest = limits
    bits = 63 if name.endswith(("timestamp", "offset")) else 31
    assert limits == (0 if name == "queue_id" else -(1 << bits), (1 << bits) - 1)
    for wrong in (least - 1, largest + 1, True, 1.0, "1", [1]):
        with pytest.raises(InvalidInput, match=f"{name}: not a whole number from {least} to {largest}"):
            READER.message({**PLAIN, name: wrong})
    for right in limits:
        if name != "sys_flag":  # whose bits say how the body is stored
            assert getattr(READER.message({**PLAIN, name: right}), name) == right


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("tags", 7, "tags: not text: 7"),
        ("keys", ["a", 7], "keys: not text"),
        ("properties", [["a", "b"]], "properties: not an object"),
        ("properties", {"a": None}, "properties: a: not text: None"),
        ("properties", {"a": "\ud800"}, "properties: half a surrogate pair"),
        ("keys", ["\ud800"], "properties: half a surrogate pair"),
        ("properties_raw", "a\ud800", "properties_raw: half a surrogate pair"),
        ("body_base64", 7, "body_base64: not text: 7"),
        ("topic", 7, "topic: not text: 7"),
        ("born_host", 7, "born_host: not ip:port: 7"),
        ("unique_key", "", "no unique key"),
        ("body_crc_ok", 0, "body_crc_ok: neither true nor false: 0"),
        ("body_crc_ok", "false", "body_crc_ok: neither true nor false: 'false'"),
        ("inner_messages", {}, "inner_messages: not a list of objects"),
    ],
)
def test_fields_that_make_no_sense_are_named(field: str, value: object, said: str) -> None:
    with pytest.raises(InvalidInput, match=said):
        READER.message({**PLAIN, field: value})


@given(TEXTS, st.binary(max_size=30), st.dictionaries(TEXTS.filter(bool), TEXTS.filter(bool), max_size=4))
def test_any_texts_and_bytes_come_through(topic: str, body: bytes, properties: dict[str, str]) -> None:
    record = {"topic": topic, "body_base64": base64.b64encode(body).decode(), "properties": properties}
    message = READER.message({**record, "unique_key": None})
    assert (message.topic, message.body) == (topic.encode(), body)
    assert names.parse(message.properties) == properties
    assert (message.born_timestamp, message.store_timestamp, message.wrong_crc) == (NOW, None, None)


@given(st.binary(max_size=30), st.none() | st.booleans() | st.integers(-(1 << 33), 1 << 33), st.booleans())
def test_a_body_that_failed_its_checksum_keeps_one_that_fails(body: bytes, crc: object, own: bool) -> None:
    """Whatever the object says of it, the right one too."""
    given_crc = crc31(body) if own else crc
    record = {"topic": "T", "body_base64": base64.b64encode(body).decode(), "unique_key": None}
    message = READER.message({**record, "body_crc_ok": False, "body_crc": given_crc})
    assert message.wrong_crc not in (None, crc31(body))


def test_of_a_batch_record_the_messages_that_are_left_are_counted_again() -> None:
    """Its text as it was would tell of all; where none is left out the text stays."""
    inner = [{"topic": "T", "body": text, "unique_key": None} for text in ("a", "b")]
    record = {"topic": "T", "properties": {names.INNER_NUM: "2"}, "properties_raw": "INNER_NUM\0012\2z\1\2"}
    whole = READER.message({**record, "inner_messages": inner})
    assert whole.properties == b"INNER_NUM\0012\2z\1\2"
    fewer = READER.message({**record, "inner_messages": inner[1:]})
    assert names.parse(fewer.properties) == {names.INNER_NUM: "1"}
    assert MESSAGE.parse(fewer.body).body == b"b" and MESSAGE.parse(fewer.body).total_size == len(fewer.body)


def test_a_message_of_a_batch_is_a_record_of_its_own() -> None:
    """Neither a batch nor compressed, whatever the record around it was."""
    flags = SysFlag.INNER_BATCH | SysFlag.NEED_UNWRAP | SysFlag.COMPRESSED | SysFlag.ZSTD | SysFlag.BORN_V6
    message = READER.message({**PLAIN, "inner_number": 1, "sys_flag": int(flags), "body_compression": "zstd"})
    assert (message.body, message.sys_flag) == (b"x", SysFlag.BORN_V6)


@pytest.mark.parametrize("text", ["R3LDvMOfZQ==", "[47 72 C3 BC C3 9F 65]", "Gr\\xC3\\xBC\\xC3\\x9Fe"])
def test_a_text_that_stands_for_the_bytes_of_a_body_is_refused(text: str) -> None:
    """As other programs write them; only the checksum tells."""
    crc = crc31("Grüße".encode())
    with pytest.raises(InvalidInput, match=f"body: not the body whose body_crc is {crc}: .*body_base64"):
        READER.message({**PLAIN, "body": text, "body_crc": crc})
    for other in ({}, {"body_crc_ok": False, "body_crc": crc}, {"body_crc": None}, {"body_crc": crc31(text.encode())}):
        assert READER.message({**PLAIN, "body": text, **other}).body == text.encode()
    packed = {"body": text, "body_compression": "zlib", "body_crc": crc}
    assert READER.message({**PLAIN, **packed}).sys_flag & SysFlag.COMPRESSED
