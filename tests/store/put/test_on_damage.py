"""Bodies that failed their checksums: what a writer does with each, and what it says of all."""

from __future__ import annotations

import pytest

from mqstore.store.errors import Corrupted
from mqstore.store.put.on_damage import CorruptedBodies, OnDamage


def test_a_broken_body_is_refused_unless_something_else_is_asked_for() -> None:
    bodies = CorruptedBodies()
    assert bodies.take(0, "in")
    with pytest.raises(Corrupted, match="in line 3: the body failed its checksum") as found:
        bodies.take(1, "in line 3")
    assert "skip" in found.value.hint and "mark" in found.value.hint
    assert bodies.met == 0 and not [*bodies.remarks()]


@pytest.mark.parametrize(
    ("how", "written", "said"), [(OnDamage.SKIP, False, "left out"), (OnDamage.MARK, True, "fail, too")]
)
def test_what_is_left_out_or_marked_is_counted_and_told(how: OnDamage, written: bool, said: str) -> None:
    bodies = CorruptedBodies(how)
    assert [bodies.take(count, "in") for count in (1, 3)] == [written, written]
    assert bodies.met == 4
    (remark,) = bodies.remarks()
    assert remark.startswith("4 messages") and said in remark
