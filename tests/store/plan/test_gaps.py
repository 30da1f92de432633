"""Forms of what stands for lost records, and what counts as a gap of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.formats.message import MESSAGE
from mqstore.formats.message_properties import parse
from mqstore.formats.pop import REVIVE_TOPIC
from mqstore.formats.tombstone import FILLER_TOPIC
from mqstore.store.broker.system_topics import HALF_TOPIC, OP_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.plan.fill import encoded, fills
from mqstore.store.plan.gaps import Forms, Gap, is_for_service
from mqstore.store.plan.observer import Policy, RecoveryOptions
from mqstore.store.plan.plan import Plan
from mqstore.store.recover.recovery import Recovery, analyze, replan
from mqstore.store.session.apply import apply

from ... import recovery_cases
from .tombstones import BARE_RECORD, FORMS, MADE_MS, lost


@pytest.mark.parametrize("generations", [("5.3",), ("4.3", "4.9"), ()])
def test_every_delayed_record_has_room_for_a_tombstone(generations: tuple[str, ...]) -> None:
    """A filler where a delay level has a unit would stop it for ever, from 4.9.3 to 4.9.8."""
    forms = Forms(MADE_MS, generations)
    waiting = b"REAL_TOPIC\x01t\x02DELAY\x011\x02REAL_QID\x010"
    topic = SCHEDULE_TOPIC.encode()
    smallest = len(MESSAGE.build({**BARE_RECORD, "topic": topic, "properties": waiting}))
    assert forms.smallest(SCHEDULE_TOPIC) <= smallest
    for size in range(smallest, forms.whole(SCHEDULE_TOPIC) + 1):
        (piece,) = encoded(fills([Gap(0, size, False, 5)], lost((0, size, SCHEDULE_TOPIC)), forms), forms, {})
        properties = parse(MESSAGE.parse(piece[1]).properties)
        assert properties["LOST"] == "t" and properties["REAL_QID"] == "0", size
        small = properties["REAL_TOPIC"] == FILLER_TOPIC.decode()
        assert small == (size < forms.whole(SCHEDULE_TOPIC)), size


def test_a_tombstone_for_the_revive_service_has_a_time() -> None:
    """That of 5.1 parses it before it looks at anything else, and stops at a record without."""
    topic = f"{REVIVE_TOPIC}cluster"
    size = FORMS.whole(topic)
    (piece,) = encoded(fills([Gap(0, size, False, 5)], lost((0, size, topic)), FORMS), FORMS, {})
    assert parse(MESSAGE.parse(piece[1]).properties) == {"LOST": "t", "TIMER_DELIVER_MS": "0"}
    assert is_for_service(topic.encode()) and not is_for_service(b"TopicA")


@pytest.mark.parametrize(
    ("topic", "generations", "expected"),
    [
        (SCHEDULE_TOPIC, ("4.3",), {}),
        (SCHEDULE_TOPIC, ("4.9", "5.1"), {"REAL_TOPIC": HALF_TOPIC, "REAL_QID": "0"}),
        (SCHEDULE_TOPIC, (), {"REAL_TOPIC": "OFFSET_MOVED_EVENT", "REAL_QID": "0"}),
        (SCHEDULE_TOPIC, ("4.3", "4.9"), {"REAL_TOPIC": "OFFSET_MOVED_EVENT", "REAL_QID": "0"}),
        (OP_TOPIC, ("5.3",), {"TAGS": "d"}),
        (HALF_TOPIC, ("5.3",), {}),
        (
            TIMER_TOPIC,
            ("5.3",),
            {"TIMER_OUT_MS": str(MADE_MS), "TIMER_DEL_UNIQKEY": "x", "REAL_TOPIC": "x", "REAL_QID": "0"},
        ),
    ],
)
def test_forms_of_system_topics(topic: str, generations: tuple[str, ...], expected: dict[str, str]) -> None:
    form = Forms(MADE_MS, generations, "ignored").of(topic)
    assert parse(form.properties) == expected
    assert form.born_timestamp == (1 if topic == HALF_TOPIC else None)


@pytest.mark.parametrize(
    ("kind", "lost"), [("flip_bornHost_last_force", 1), ("flip_topic_last_force", 0), ("crc_zero_force", 1)]
)
def test_a_record_whose_own_checksum_is_wrong(kind: str, lost: int, tmp_path: Path) -> None:
    """A broker with forceVerifyPropCRC cuts there, however good the body is.

    The topic is known from the queue, and with it the checksum is right again.
    """
    case = recovery_cases.case_of(kind)
    root = recovery_cases.damaged(case, tmp_path)
    config = recovery_cases.config_of(case, root)

    def found() -> Recovery:
        return analyze(Layout.open(root, config), case["version"], options=RecoveryOptions(Policy.KEEP))

    before = found()
    assert before.plan is not None and before.prediction.lost.messages > 1
    assert before.plan.lost.messages == lost

    def again() -> Plan:
        return replan(Layout.open(root, config), case["version"], before.options)

    apply(Layout.open(root, config), before.plan, again, Files())
    after = found()
    assert after.nothing_to_do and not after.harmful
    assert after.tombstones == lost
