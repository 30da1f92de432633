"""Parts of a store: which one a file is of, what an option takes, what mends a code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.repair.parts import CHOICES, RepairPart, chosen, covers, part_of, part_of_code

ROOT = Path("/store")
LAYOUT = Layout.of(ROOT)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("consumequeue/T/0/00000000000000000000", RepairPart.QUEUE),
        ("batchconsumequeue/T/0/00000000000000000000", RepairPart.QUEUE),
        ("consumequeue_rocksdb/CURRENT", RepairPart.QUEUE),
        ("consumequeue_ext/T/0/00000000000000000000", RepairPart.EXT),
        ("index/20260101000000000", RepairPart.INDEX),
        ("config/topics.json", RepairPart.CONFIG),
        ("config/timercheck", RepairPart.TIMER),
        ("config/timercheck.bak", RepairPart.TIMER),
        ("timerlog/00000000000000000000", RepairPart.TIMER),
        ("timerwheel", RepairPart.TIMER),
        ("compaction/position-checkpoint", RepairPart.COMPACTION),
        ("checkpoint", RepairPart.CHECKPOINT),
        ("abort", RepairPart.ABORT),
        ("commitlog/00000000000000000000", RepairPart.LOG),
        ("indexes/file", RepairPart.LOG),
        ("../store2/index/file", RepairPart.LOG),
    ],
)
def test_the_part_of_a_file(path: str, part: RepairPart) -> None:
    """What is known to none, and what lies elsewhere, goes with the log: with everything, or not at all."""
    place = Path("/store2/index/file") if path.startswith("..") else ROOT / path
    assert part_of(LAYOUT, place) is part
    assert chosen([part], ()).takes(LAYOUT, str(place))
    assert not chosen([RepairPart.EXT if part is not RepairPart.EXT else RepairPart.INDEX], ()).takes(
        LAYOUT, str(place)
    )


def test_queues_that_are_named_are_taken_and_no_others() -> None:
    """A directory that is no number is no queue, whoever names the topic."""
    choice = chosen([RepairPart.INDEX], (("ord*", None), ("a/b", 3)))
    assert choice.parts == {RepairPart.QUEUE, RepairPart.INDEX} and not choice.everything
    for path, taken in (
        ("consumequeue/orders/7/00", True),
        ("consumequeue/Orders/7/00", False),
        ("consumequeue/orders/x/00", False),
        ("consumequeue/orders/\u0663/00", False),
        ("consumequeue/a/b/3/00", True),
        ("consumequeue/a/b/4/00", False),
        ("batchconsumequeue/orders/0/00", True),
        ("index/orders", True),
        ("checkpoint", False),
    ):
        assert choice.takes(LAYOUT, str(ROOT / path)) is taken, path
    assert covers(("*", 0), QueueId("T", 0)) and not covers(("*", 0), QueueId("T", 1))
    assert not covers(("t", None), QueueId("T", 0))


def test_nothing_chosen_is_everything() -> None:
    assert chosen([], ()).everything and chosen([], ()).takes(LAYOUT, str(ROOT / "commitlog" / "x"))
    for part in CHOICES:
        assert not chosen([part], ()).everything


def test_codes_are_found_as_people_write_them() -> None:
    assert part_of_code(" i-076 ") is RepairPart.CONFIG
    assert part_of_code("I-079") is RepairPart.EXT
    for text in ("I-999", "", "76", "I-76"):
        with pytest.raises(InvalidInput, match="no such code"):
            part_of_code(text)
