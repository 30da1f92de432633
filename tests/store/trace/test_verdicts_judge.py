"""The verdict as a function of what is known: whatever that is, it is of the list and says no more."""

from __future__ import annotations

from dataclasses import replace

from hypothesis import given
from hypothesis import strategies as st

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.log.message import Mark, Message
from mqstore.store.trace.answer import DeliveryVerdict, Judgement
from mqstore.store.trace.family import Family, FoundUnit, Naming, QueuePlace
from mqstore.store.trace.groups import TAG, GroupTables, Subscription
from mqstore.store.trace.verdicts import Known, for_all, judge

OFFSET = 50
PLACE = QueuePlace("orders", 0, OFFSET)
QUEUE = QueueId("orders", 0)
HOST = (b"\x7f\0\0\1", 10911)
STORED_MS = 1_000_000

offsets = st.none() | st.integers(0, 100) | st.integers(0, 1 << 62)


def message(mark: Mark = Mark.NONE) -> Message:
    """A message with the tag Aa at its place."""
    fixed = (0, 100, 0, 0, 0, 0, OFFSET, 0, 0, STORED_MS, HOST, STORED_MS, HOST, 0, 0, b"")
    return Message(*fixed, b"orders", b"TAGS\1Aa\2", True, mark, None)


@st.composite
def scenes(draw: st.DrawFn) -> Known:
    """What a store may tell of it and of the group g."""
    reached, before = draw(offsets), draw(offsets)
    groups = GroupTables(
        progress={} if reached is None else {QUEUE: {"g": reached}},
        before={} if before is None else {QUEUE: {"g": before}},
        written_ms=draw(st.none() | st.integers(0, 2 * STORED_MS)),
        topics=draw(st.none() | st.just({"orders": {"perm": 6, "read_queue_nums": 4}})),
    )
    unit = draw(st.none() | st.sampled_from(Naming))
    return Known(
        Family([message(draw(st.sampled_from(Mark)))], "key", "index"),
        PLACE,
        groups,
        None if unit is None else FoundUnit(PLACE, unit, "consumequeue/orders/0", 0, 51),
        settled=draw(st.booleans()),
        asked=draw(st.none() | st.builds(Subscription, st.just(TAG), st.just("B"), st.just(""))),
    )


def reached_in(known: Known) -> int | None:
    """The offset of the group."""
    return known.groups.progress.get(QUEUE, {}).get("g")


@given(scenes())
def test_a_verdict_says_what_its_facts_say(known: Known) -> None:
    found = judge(known, "g")
    reached = reached_in(known)
    assert found.evidence
    if found.verdict is DeliveryVerdict.PASSED:
        assert reached is not None and reached > OFFSET
    if found.verdict is DeliveryVerdict.WAITING:
        assert reached is not None and reached <= OFFSET
    if found.verdict is DeliveryVerdict.FILTERED:
        assert known.asked is not None
    if reached is None:
        sure = (DeliveryVerdict.UNKNOWN, DeliveryVerdict.GONE, DeliveryVerdict.NOT_DISPATCHED, DeliveryVerdict.FILTERED)
        assert found.verdict in sure


@given(scenes())
def test_what_keeps_it_from_all_keeps_it_from_those_that_have_not_had_it(known: Known) -> None:
    everybody = for_all(known)
    reached = reached_in(known)
    if everybody is not None and (reached is None or reached <= OFFSET):
        assert judge(known, "g").verdict is everybody.verdict


@given(scenes(), st.sampled_from([v for v in DeliveryVerdict if v is not DeliveryVerdict.PASSED]))
def test_what_is_gone_is_gone_for_all(known: Known, verdict: DeliveryVerdict) -> None:
    gone = replace(known, family=None, gone=Judgement(verdict, "because"))
    assert judge(gone, "g").verdict is verdict
