"""Parts of a store: which one a file is of, what an option takes, what mends a code."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import InvalidInput
from mqstore.store.repair.parts import CHOICES, Part, chosen, covers, part_of, part_of_code

ROOT = Path("/store")
LAYOUT = Layout.of(ROOT)


@pytest.mark.parametrize(
    ("path", "part"),
    [
        ("consumequeue/T/0/00000000000000000000", Part.QUEUE),
        ("batchconsumequeue/T/0/00000000000000000000", Part.QUEUE),
        ("consumequeue_rocksdb/CURRENT", Part.QUEUE),
        ("consumequeue_ext/T/0/00000000000000000000", Part.EXT),
        ("index/20260101000000000", Part.INDEX),
        ("config/topics.json", Part.CONFIG),
        ("config/timercheck", Part.TIMER),
        ("config/timercheck.bak", Part.TIMER),
        ("timerlog/00000000000000000000", Part.TIMER),
        ("timerwheel", Part.TIMER),
        ("compaction/position-checkpoint", Part.COMPACTION),
        ("checkpoint", Part.CHECKPOINT),
        ("abort", Part.ABORT),
        ("commitlog/00000000000000000000", Part.LOG),
        ("indexes/file", Part.LOG),
        ("../store2/index/file", Part.LOG),
    ],
)
def test_the_part_of_a_file(path: str, part: Part) -> None:
    """What is known to none, and what lies elsewhere, goes with the log: with everything, or not at all."""
    place = Path("/store2/index/file") if path.startswith("..") else ROOT / path
    assert part_of(LAYOUT, place) is part
    assert chosen([part], ()).takes(LAYOUT, str(place))
    assert not chosen([Part.EXT if part is not Part.EXT else Part.INDEX], ()).takes(LAYOUT, str(place))


def test_queues_that_are_named_are_taken_and_no_others() -> None:
    """A directory that is no number is no queue, whoever names the topic."""
    choice = chosen([Part.INDEX], (("ord*", None), ("a/b", 3)))
    assert choice.parts == {Part.QUEUE, Part.INDEX} and not choice.everything
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
    assert part_of_code(" i-076 ") is Part.CONFIG
    assert part_of_code("I-079") is Part.EXT
    for text in ("I-999", "", "76", "I-76"):
        with pytest.raises(InvalidInput, match="no such code"):
            part_of_code(text)
