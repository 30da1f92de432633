"""One answer a message: what the next start does to it, and the command that mends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.trace.answer import DeliveryVerdict, EventKind, Fate, NextStart

from ...archives import extract
from .asked import behind, elsewhere, k1, offsets, one, verdict, without_queue, without_unit

NEVER = NextStart(Fate.NO_START, "")


@pytest.mark.parametrize("damage", [without_unit, elsewhere, behind, without_queue])
def test_no_unit_leads_to_it(root: Path, damage: Callable[[Path], None]) -> None:
    offsets(root, g={"orders": {0: 0}})
    damage(root)
    found = k1(root, group="g")
    assert verdict(found, "g") is DeliveryVerdict.NOT_DISPATCHED
    assert found.for_all is not None and found.for_all.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore repair {root} --queue orders/0"]
    assert EventKind.NOT_NAMED in {event.event for event in found.events}


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
    assert found.for_all is not None and "made again, or lost before a start (I-031)" in found.for_all.reason
    assert verdict(found, "g") is found.for_all.verdict is DeliveryVerdict.NOT_DISPATCHED
    assert found.next_start is not None and found.next_start.fate is Fate.NOT_DISPATCHED
    assert found.next_commands == [f"mqstore verify {tmp_path}"]
