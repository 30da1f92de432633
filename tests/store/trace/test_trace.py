"""One answer a message: what the next start does to it, and the command that mends it."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.trace.answer import DeliveryVerdict, EventKind, Fate, NextStart, Trace
from mqstore.store.trace.groups import given

from ...archives import extract
from ...stores import messages, unpack
from .asked import (
    behind,
    config,
    elsewhere,
    k1,
    lost,
    offsets,
    one,
    other_size,
    verdict,
    whole,
    without_queue,
    without_unit,
)

NEVER = NextStart(Fate.NO_START, "")


@pytest.mark.parametrize("damage", [without_unit, elsewhere, other_size, behind, without_queue])
def test_no_unit_leads_to_it(root: Path, damage: Callable[[Path], None]) -> None:
    offsets(root, g={"orders": {0: 0}})
    damage(root)
    found = k1(root, group="g")
    assert verdict(found, "g") is DeliveryVerdict.NOT_DISPATCHED
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore repair {root} --queue orders/0"]
    assert EventKind.NOT_NAMED in {event.event for event in found.events}


@pytest.mark.parametrize("peers", ["n0-h:1", "n0-h:1;n1-h:2"])
def test_a_record_that_its_group_has_not_committed(peers: str, tmp_path: Path) -> None:
    root = unpack("5.3.3-dledger", tmp_path)
    [record] = [m for m in messages("5.3.3-dledger") if m["topic"] == "TopicA"][-1:]
    for name in ("consumequeue", "index"):
        shutil.rmtree(root / name)
    (root / "dledger-n0" / "checkpoint").write_text("endIndex=204\ncommittedIndex=-1\n")
    found = one(root, str(record["physical_offset"]), {"dLegerPeers": peers}, start=True)
    assert found.for_all is not None and found.next_start is not None
    assert ("the group has not committed the record" in found.for_all.reason) == (";" in peers)
    assert found.next_start.fate is (Fate.NOT_DISPATCHED if ";" in peers else Fate.DISPATCHED)


@pytest.mark.parametrize(("offset", "wanted"), [(1, DeliveryVerdict.WAITING), (2, DeliveryVerdict.PASSED)])
def test_the_unit_is_not_at_its_queue_offset(offset: int, wanted: DeliveryVerdict, root: Path) -> None:
    """The record says 0, as an earlier one does. Groups count by units."""
    offsets(root, g={"orders": {0: offset}})
    position = k1(root).position
    assert position is not None
    written(root / "commitlog" / f"{0:020}", position + 20, bytes(8))
    found = k1(root, start=True)
    assert found.queue_offset == 0 and found.for_all is None
    assert verdict(found, "g") is wanted
    assert [event.text for event in found.events if event.event is EventKind.NAMED] == [
        "unit 1 of orders/0 names the record"
    ]
    assert found.next_start is not None and found.next_start.fate is Fate.KEPT


@pytest.mark.parametrize("offset", [1, 3])
def test_another_message_has_its_queue_offset(offset: int, root: Path) -> None:
    """And its unit: no repair can make a second one."""
    offsets(root, g={"orders": {0: offset}})
    position = k1(root).position
    assert position is not None
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    units = path.read_bytes()
    written(root / "commitlog" / f"{0:020}", int.from_bytes(units[40:48], "big") + 20, (1).to_bytes(8, "big"))
    written(path, 20, units[40:60] + bytes(20))
    found = k1(root)
    judged = whole(found, "g").judgement
    assert judged.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert judged.reason == "another message has its queue offset (I-031): no consumer gets the message"
    assert found.next_commands == [f"mqstore verify {root}"]


def test_the_unit_is_in_front_of_its_queue_offset(root: Path) -> None:
    """A group that had come to the message when the queue was shifted skips it (B1)."""
    offsets(root, g={"orders": {0: 2}})
    [path] = (root / "consumequeue" / "orders" / "0").iterdir()
    units = path.read_bytes()
    path.write_bytes(units[20:] + bytes(20))
    judged = whole(k1(root), "g").judgement
    assert judged.verdict is DeliveryVerdict.PASSED
    assert judged.reason.endswith("; perhaps skipped: its unit lies in front of its queue offset 1")


@pytest.mark.parametrize("offset", [1, 3])
@pytest.mark.parametrize("size", [60, 1000])
def test_a_unit_with_another_size(offset: int, size: int, root: Path) -> None:
    """Of both sizes `recover` says that the message stays unread, and no start mends them."""
    offsets(root, g={"orders": {0: offset}})
    other_size(root, size)
    found = k1(root, group="g")
    judged = whole(found, "g").judgement
    assert judged.verdict is DeliveryVerdict.NOT_DISPATCHED and "wrong size (I-062)" in judged.reason
    assert f"with {size} bytes, but the record has" in judged.evidence[0].fact
    assert found.next_start is not None and found.next_start.fate is Fate.NOT_DISPATCHED
    assert [event.event for event in found.events if event.queue_offset == 1].count(EventKind.NOT_NAMED) == 1


def test_units_of_batches(tmp_path: Path) -> None:
    """The second message of a batch, whose unit has another size or tags code."""
    root, place, group = unpack("5.3.3-batchcq", tmp_path), "BatchTopic/0/1", "bg"
    assert verdict(one(root, place), group) is DeliveryVerdict.PASSED
    units = root / "batchconsumequeue" / "BatchTopic" / "0" / f"{0:020}"
    written(units, 12, (7).to_bytes(8, "big"))
    assert whole(one(root, place), group).judgement.reason.endswith("a wrong tags code (I-065)")
    written(units, 8, (50).to_bytes(4, "big"))
    assert verdict(one(root, place), group) is DeliveryVerdict.NOT_DISPATCHED


def test_what_a_start_does_with_a_hole(root: Path) -> None:
    """It is played where no consumer is led to the message: after a clean exit it fills none (B2)."""
    assert (k1(root).next_start or NEVER).fate is Fate.NOT_PLAYED
    without_unit(root)
    found = k1(root)
    assert found.next_start is not None
    assert found.next_start.fate is Fate.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore repair {root} --queue orders/0"]


@pytest.mark.parametrize("offset", [None, 3])
@pytest.mark.parametrize(("name", "place"), [("5.3.3", "TT/0/1"), ("5.3.3", "TT/0/2"), ("4.9.7", "TT/0/2")])
def test_a_message_in_front_of_where_its_queue_begins_again(
    name: str, place: str, offset: int | None, tmp_path: Path
) -> None:
    """What `verify` says; nothing mends it. The group's offset counts what came since."""
    extract(Path(__file__).parents[2] / "made_again" / f"{name}.tar.gz", tmp_path)
    if offset is not None:
        offsets(tmp_path, g={"TT": {0: offset}})
    found = one(tmp_path, place, group="g")
    assert found.for_all is not None and "created again, or lost before a start (I-031)" in found.for_all.reason
    assert verdict(found, "g") is found.for_all.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert found.next_start is not None and found.next_start.fate is Fate.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore verify {tmp_path}"]


RETRY, GROUP, ORIGINAL = "%RETRY%group-a_tags", "group-a_tags", "106618"
"""Of 5.3.3-clean: message 8 of the topic is what the group waits for, the second retry of the record at a position."""


def written(path: Path, position: int, data: bytes) -> None:
    with path.open("r+b") as file:
        file.seek(position)
        file.write(data)


def started(root: Path, text: str, group: str | None = None) -> tuple[Fate, str, Trace]:
    """What the next start does to it."""
    found = one(root, text, group=group, start=True)
    assert found.next_start is not None
    return found.next_start.fate, found.next_start.reason, found


@pytest.mark.parametrize("place", ["orders/0/0", "orders/0/1"])
def test_a_queue_of_zeros(place: str, tmp_path: Path) -> None:
    """A real 5.3.3 serves 0 … 1, counts the first unit of zeros in, and dispatches nothing."""
    root = unpack("5.3.3-clean", tmp_path)
    written(root / "consumequeue" / "orders" / "0" / f"{0:020}", 0, bytes(1000))
    fate, reason, _ = started(root, place)
    assert (fate, reason) == (Fate.NOT_DISPATCHED, "after the start queue orders/0 still has no unit for the message")


@pytest.mark.parametrize("place", ["orders/0/0", "orders/0/22"])
def test_queues_that_a_start_fills(place: str, tmp_path: Path) -> None:
    """Without any queue 5.3 begins at the front of the log."""
    fate, reason, _ = started(unpack("5.3.3-clean-no-queues", tmp_path), place)
    assert (fate, reason) == (Fate.DISPATCHED, "the start dispatches the record: its queue gets a unit for it")


def test_a_unit_that_a_start_takes_away(tmp_path: Path) -> None:
    """A unit in front points past the end of the log: a real 5.3.3 cuts the queue there and serves 0 … 12."""
    root = unpack("5.3.3-clean", tmp_path)
    written(root / "consumequeue" / "orders" / "0" / f"{0:020}", 12 * 20 + 2, b"\x10")
    fate, reason, found = started(root, "orders/0/13")
    assert (fate, reason) == (
        Fate.NOT_DISPATCHED,
        "after the start queue orders/0 has no unit for the message any more",
    )
    assert found.next_commands == [f"mqstore recover {root}"]
    fate, _, found = started(root, "orders/0/11")
    assert fate is Fate.KEPT and found.next_commands == []


@pytest.mark.parametrize(("field", "last"), [(8, 19), (2, 22)], ids=["size", "position"])
def test_messages_behind_a_unit_that_leads_to_nothing(field: int, last: int, tmp_path: Path) -> None:
    """A size beyond the end of the log file: real 4.3.1, 4.9.7, 5.1.4, 5.3.3 and 5.5.1 give 20 to a pull at 12, where
    the next file begins. Behind a position beyond the end of the log they give nothing.
    """
    root, group = unpack("5.3.3-clean", tmp_path), "group-a-retry"
    written(root / "consumequeue" / "orders" / "0" / f"{0:020}", 12 * 20 + field, b"\x10")
    table = {"offsetTable": {f"orders@{group}": {"0": 12}}}
    for name in ("consumerOffset.json", "consumerOffset.json.bak"):
        config(root, name, table)
    for number in (13, last):
        found = one(root, f"orders/0/{number}", group=group)
        assert whole(found, group).judgement.reason.startswith("a pull that meets unit 12 passes over the message")
        assert verdict(found, group) is DeliveryVerdict.NOT_DISPATCHED
    for number in range(last + 1, 23):
        assert verdict(one(root, f"orders/0/{number}", group=group), group) is DeliveryVerdict.WAITING
    table["offsetTable"][f"orders@{group}"]["0"] = 13
    config(root, "consumerOffset.json", table)
    assert verdict(one(root, "orders/0/13", group=group), group) is DeliveryVerdict.WAITING
    if field == 8:  # the other one is cut
        fate, reason, found = started(root, "orders/0/13", group)
        assert fate is Fate.KEPT and reason.endswith(", but a pull that meets unit 12 passes over the message")
        assert found.next_commands == [f"mqstore recover {root}"]


def test_a_start_of_the_version_that_is_given(tmp_path: Path) -> None:
    """5.1 dispatches nothing behind a clean exit (B2). Without a version it is told that one is a guess."""
    root = unpack("5.3.3-clean-no-queues", tmp_path)
    given = one(root, "orders/0/0", start="5.1.4")
    guessed = one(root, "orders/0/0", start=True).next_start or NEVER
    assert given.next_start is not None and given.next_start.fate is Fate.NOT_DISPATCHED
    assert (given.next_start.broker_version, given.next_start.broker_version_reason) == ("5.1", None)
    assert given.next_commands == [f"mqstore repair {root} --queue orders/0 --broker-version 5.1.4"]
    assert (guessed.fate, guessed.broker_version) == (Fate.DISPATCHED, "5.3")
    assert guessed.broker_version_reason and guessed.broker_versions == ("5.3",)


@pytest.mark.parametrize("asked", [f"{RETRY}/0/8", ORIGINAL])
def test_a_retry_that_a_start_cuts_off(asked: str, tmp_path: Path) -> None:
    """Whether it or its original was asked for, which the start keeps: a real 5.3.3 ends the log at 390296."""
    root = unpack("5.3.3-clean", tmp_path)
    assert started(root, asked)[:2] == (Fate.KEPT, "the record and its queue unit stay")
    written(root / "commitlog" / f"{1 << 18:020}", 390_296 + 4 - (1 << 18), b"\1\2\3\4")
    fate, reason, found = started(root, asked)
    assert (fate, reason) == (Fate.CUT_OFF, f"the start cuts the log at 390296, and {RETRY}/0/8 with it")
    assert found.next_commands[0] == f"mqstore recover {root}"


@pytest.mark.parametrize("asked", [f"{RETRY}/0/8", ORIGINAL])
def test_a_retry_that_no_unit_names(asked: str, tmp_path: Path) -> None:
    """A real 5.3.3 serves 0 … 8 of its queue: the group never gets it."""
    root = unpack("5.3.3-clean", tmp_path)
    [queue] = (root / "consumequeue" / RETRY / "0").iterdir()
    written(queue, 8 * 20, bytes(20))
    fate, reason, found = started(root, asked, GROUP)
    assert (fate, reason) == (Fate.NOT_DISPATCHED, f"after the start queue {RETRY}/0 still has no unit for the message")
    row = whole(found, GROUP)
    assert row.judgement.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert (row.topic, row.queue_id, row.queue_offset) == (RETRY, 0, 8)
    assert row.next_command == f"mqstore repair {root} --queue {RETRY}/0"
    config(root, "consumerOffset.json", {"offsetTable": {f"{RETRY}@{GROUP}": {"0": 10}}})
    assert verdict(one(root, asked, group=GROUP), GROUP) is DeliveryVerdict.NOT_DISPATCHED


@pytest.mark.parametrize("reached", [0, 3])
@pytest.mark.parametrize("tags", ["*", "Aa"])
def test_a_tombstone_is_no_message_that_a_group_gets(reached: int, tags: str, root: Path) -> None:
    """Nobody has sent it, and another recovery does not bring the message back."""
    offsets(root, g={"orders": {0: reached}})
    lost(root, 1)
    found = one(root, "orders/0/1", group="g", subscription=given(tags, None))
    kinds = [event.event for event in found.events]
    assert kinds == [EventKind.LOST, EventKind.NAMED]
    assert found.for_all is not None
    assert found.for_all.reason == "lost: recover wrote a tombstone in its place"
    assert found.for_all.verdict is verdict(found, "g") is DeliveryVerdict.UNREADABLE
    assert found.next_commands == []


@pytest.mark.parametrize("asked", ["18857", "orders/0/5"])
def test_a_record_that_cannot_be_read_stays_so(asked: str, tmp_path: Path) -> None:
    """By its position and by its queue the answer is the same."""
    root = unpack("5.3.3-clean", tmp_path)
    written(root / "commitlog" / f"{0:020}", 16_384, bytes(4096))
    fate, reason, found = started(root, asked)
    assert (fate, reason) == (Fate.UNREADABLE, "no record can be read there after the start, either")
    assert (found.topic, found.queue_id, found.queue_offset, found.position) == ("orders", 0, 5, 18_857)
    assert found.for_all is not None and found.for_all.reason == "its record cannot be read"
    assert found.next_commands == [f"mqstore recover {root}"]
