"""The records of one message, and the units that name them."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.log.message import Mark, Message
from mqstore.store.trace.answer import By, DeliveryVerdict, EventKind
from mqstore.store.trace.family import Family, QueuePlace, RecordRole, number_of, places_of, role_of

from ...stores import messages, unpack
from .asked import offsets, one, whole

HOST = (b"\x7f\0\0\1", 10911)


def record(topic: str, **properties: str) -> Message:
    """A record of a topic, in its queue 3 at 7."""
    text = "".join(f"{name}\1{value}\2" for name, value in properties.items()).encode()
    fixed = (0, 100, 0, 0, 3, 0, 7, 0, 0, 0, HOST, 0, HOST, 0, 0, b"")
    return Message(*fixed, topic.encode(), text, True, Mark.NONE, None)


@given(st.text(alphabet="0123456789-+ _\u0663\u00b2", max_size=24))
def test_a_number_in_a_property_is_plain_digits_or_none(text: str) -> None:
    """Digits of other scripts, signs and blanks, which int() takes, are damage; so is what no long holds."""
    found = number_of(record("t", REAL_QID=text), "REAL_QID")
    plain = text != "" and set(text) <= set("0123456789") and len(text) < 20
    assert found == (int(text) if plain else None)


@pytest.mark.parametrize(
    ("offsets", "wanted"),
    [
        ("5,9", [("%LMQ%a", 0, 5), ("light", 3, 9)]),
        ("5", [("%LMQ%a", 0, 5)]),
        ("x,9", [("light", 3, 9)]),
        ("-1,\u0663", []),
        (f"{10**20},9", [("light", 3, 9)]),
        ("", []),
    ],
)
def test_further_queues_without_a_readable_offset_are_no_places(
    offsets: str, wanted: list[tuple[str, int, int]]
) -> None:
    """An LMQ is queue 0, another one has the record's number."""
    message = record("t", INNER_MULTI_DISPATCH="%LMQ%a,light", INNER_MULTI_QUEUE_OFFSET=offsets)
    assert places_of(message) == [("t", 3, 7), *wanted]


@pytest.mark.parametrize(
    ("topic", "properties", "role"),
    [
        ("orders", {}, RecordRole.OWN),
        ("RMQ_SYS_TRANS_HALF_TOPIC", {}, RecordRole.HALF),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {}, RecordRole.GIVEN_UP),
        ("SCHEDULE_TOPIC_XXXX", {"TIMER_DEL_UNIQKEY": "a"}, RecordRole.DELAYED),
        ("rmq_sys_wheel_timer", {}, RecordRole.TIMED),
        ("rmq_sys_wheel_timer", {"TIMER_DEL_UNIQKEY": "a"}, RecordRole.CANCEL),
        ("%RETRY%g", {}, RecordRole.RETRY),
        ("%DLQ%g", {}, RecordRole.DEAD_LETTER),
    ],
)
def test_the_topic_tells_what_a_record_is_of_its_message(
    topic: str, properties: dict[str, str], role: RecordRole
) -> None:
    message = record(topic, **properties)
    assert role_of(message) is role
    family = Family([message], "key", "index")
    assert family.by_role[role] == [message] and (family.own == [message]) is (role is RecordRole.OWN)


def test_a_message_without_a_record_of_its_own_is_where_it_is_to_go() -> None:
    """What cannot be read of that is not known: the queue is then none."""
    half = record("RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="orders", REAL_QID="2")
    assert Family([half], "key", "index").place == QueuePlace("orders", 2)
    damaged = record("RMQ_SYS_TRANS_HALF_TOPIC", REAL_TOPIC="orders", REAL_QID="2x")
    assert Family([damaged], "key", "index").place == QueuePlace("orders", None)
    nowhere = record("RMQ_SYS_TRANS_HALF_TOPIC")
    assert Family([nowhere], "key", "index").place == QueuePlace("RMQ_SYS_TRANS_HALF_TOPIC", 3, 7)


def test_a_light_queue_is_a_queue_of_its_own(tmp_path: Path) -> None:
    root = unpack("5.3.3-lmq", tmp_path)
    light = next(m for m in messages("5.3.3-lmq") if "INNER_MULTI_DISPATCH" in m["properties"])
    names = light["properties"]["INNER_MULTI_DISPATCH"].split(",")
    numbers = light["properties"]["INNER_MULTI_QUEUE_OFFSET"].split(",")
    offsets(root, reader={names[0]: {0: int(numbers[0])}})
    found = one(root, str(light["physical_offset"]), by=By.POSITION)
    row = whole(found, "reader")
    assert (row.topic, row.queue_offset) == (names[0], int(numbers[0]))
    assert row.judgement.verdict is DeliveryVerdict.WAITING
    named = {event.topic for event in found.events if event.event is EventKind.NAMED}
    assert {names[0], light["topic"]} <= named
