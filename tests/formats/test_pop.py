"""Bodies of the revive topic as the real classes write them, and what no broker takes for one."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.pop import (
    ACK_TAG,
    BATCH_ACK_TAG,
    BODIES,
    CHECK_POINT_TAG,
    MOST_MESSAGES,
    is_topic_name,
    key_of,
    offsets_of,
    parse,
    parse_kept,
    retry_topics,
)

KEY = {"t": "orders", "c": "group-a", "q": 2, "so": 40, "pt": 1_795_000_000_000, "bn": "broker-a"}
BODY: dict[str, dict[str, Any]] = {
    CHECK_POINT_TAG: KEY | {"it": 60_000, "n": 3, "bm": 2, "d": [0, 1, 5], "rp": "2"},
    ACK_TAG: KEY | {"ao": 41},
    BATCH_ACK_TAG: KEY | {"aol": [41, 45]},
}
TAGS = pytest.mark.parametrize("tag", BODIES)


@pytest.mark.parametrize(
    ("topic", "wanted"),
    [
        ("orders", True),
        ("orders.v1", False),
        ("rmq_sys_REVIVE_LOG_my.cluster", True),
        ("rmq_sys_REVIVE_LOG_a/b", False),
    ],
)
def test_a_revive_topic_has_the_name_of_any_cluster(topic: str, wanted: bool) -> None:
    assert is_topic_name(topic) is wanted


def body(value: Any) -> bytes:
    return json.dumps(value).encode()


@TAGS
def test_the_three_bodies(tag: str) -> None:
    """Under the names of here; what else stands there is left alone."""
    found = parse(tag, body(BODY[tag] | {"more": [1]}))
    assert found is not None
    assert [*found] == [field.column for field in BODIES[tag]]
    assert [*found.values()] == [BODY[tag][field.name] for field in BODIES[tag]]
    assert key_of(found) == ("orders", "group-a", 2, 40, 1_795_000_000_000, "broker-a")
    assert parse("other", body(BODY[tag])) is None


@TAGS
def test_what_may_be_missing(tag: str) -> None:
    """Four members have a default, missing or null; without any other it is none."""
    optional = {"bn": "", "bm": 0, "d": [], "rp": ""}
    for field in BODIES[tag]:
        for less in ({**BODY[tag], field.name: None}, {k: v for k, v in BODY[tag].items() if k != field.name}):
            found = parse(tag, body(less))
            if field.name in optional:
                assert found is not None and found[field.column] == optional[field.name]
            else:
                assert found is None, field.name


@TAGS
@pytest.mark.parametrize("wrong", [-1, 1 << 63, 1.5, True, "1", [1], {}])
def test_numbers_that_no_broker_wrote(tag: str, wrong: Any) -> None:
    for field in BODIES[tag]:
        if field.type == "integer" and (field.name, wrong) != ("bm", -1):
            assert parse(tag, body(BODY[tag] | {field.name: wrong})) is None, field.name
        elif field.type == "array" and not isinstance(wrong, list):
            assert parse(tag, body(BODY[tag] | {field.name: [wrong]})) is None, field.name


def test_the_last_bit_makes_the_bits_negative() -> None:
    """Of the largest batch that a broker gives at once the last message is acknowledged."""
    point = parse(CHECK_POINT_TAG, body(BODY[CHECK_POINT_TAG] | {"n": MOST_MESSAGES, "d": [], "bm": -1 << 31}))
    assert point is not None
    assert [offset for offset, acknowledged in offsets_of(point) if acknowledged] == [40 + MOST_MESSAGES - 1]
    assert parse(CHECK_POINT_TAG, body(BODY[CHECK_POINT_TAG] | {"bm": (-1 << 31) - 1})) is None


@TAGS
@pytest.mark.parametrize("text", [b"", b"{", b"[]", b"null", b"1", b"\xff", b"[" * 100_000])
def test_what_is_no_body(tag: str, text: bytes) -> None:
    assert parse(tag, text) is None


def test_values_of_the_database() -> None:
    value = {"groupId": "g", "topicId": "t", "queueId": 1, "offset": 7, "popTime": 5, "invisibleTime": 6, "attempt": ""}
    assert parse_kept(body(value)) == {
        "group": "g",
        "topic": "t",
        "queue_id": 1,
        "queue_offset": 7,
        "pop_time": 5,
        "invisible_time": 6,
    }
    assert parse_kept(body({**value, "queueId": -1})) is None


@given(st.integers(0, 40), st.integers(0, 1 << 40), st.lists(st.integers(0, 100), max_size=40))
def test_offsets_of_a_check_point(count: int, bits: int, differences: list[int]) -> None:
    """By their differences or in a row, no more than a broker gives at once; bit i tells of message i."""
    point = {"num": count, "bit_map": bits, "offsets": differences, "start_offset": 1000}
    found = list(offsets_of(point))
    wanted = differences or [*range(count)]
    assert [offset - 1000 for offset, _ in found] == wanted[: min(count, MOST_MESSAGES)]
    assert [acknowledged for _, acknowledged in found] == [bool(bits >> i & 1) for i in range(len(found))]


def test_where_messages_come_back() -> None:
    assert retry_topics("orders", "g") == ("%RETRY%g_orders", "%RETRY%g+orders")
    assert retry_topics("%RETRY%g_orders", "g") == ("%RETRY%g_orders",)
