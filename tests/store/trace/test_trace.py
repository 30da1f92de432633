"""One answer a message: what the next start does to it, and the command that mends it."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.store.trace.answer import DeliveryVerdict, EventKind, Fate, NextStart

from .asked import behind, elsewhere, k1, offsets, verdict, without_queue, without_unit

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
