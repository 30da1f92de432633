"""The mark of a tombstone in any length, and what is a filler."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.message_properties import parse
from mqstore.formats.sys_flag import SysFlag
from mqstore.formats.tombstone import FILLER_SYS_FLAG, FILLER_TOPIC, LOST, LOST_ITEM, is_filler, is_mark, lost_item


@given(st.integers(len(LOST_ITEM), 300))
def test_a_mark_of_any_length_is_one_item(length: int) -> None:
    item = lost_item(length)
    assert len(item) == length
    found = parse(item)
    assert [*found] == [LOST] and is_mark(found[LOST])


def test_the_shortest_mark() -> None:
    assert lost_item(len(LOST_ITEM)) == LOST_ITEM == b"LOST\x01t\x02"
    for length in (-1, 0, len(LOST_ITEM) - 1):
        with pytest.raises(ValueError, match="no mark"):
            lost_item(length)


@pytest.mark.parametrize(("value", "mark"), [("t", True), ("ttt", True), ("", False), ("tat", False), ("T", False)])
def test_values_of_a_producer_are_none(value: str, mark: bool) -> None:
    assert is_mark(value) is mark


def test_fillers() -> None:
    """Rolled back, whatever other flags they have; a message of a topic with that name is none."""
    assert FILLER_SYS_FLAG == SysFlag.ROLLBACK
    assert is_filler(FILLER_TOPIC, FILLER_SYS_FLAG)
    assert is_filler(FILLER_TOPIC, FILLER_SYS_FLAG | SysFlag.BORN_V6)
    for state in (0, SysFlag.PREPARED, SysFlag.COMMIT):
        assert not is_filler(FILLER_TOPIC, int(state))
    assert not is_filler(b"orders", FILLER_SYS_FLAG)


def test_the_mark_fills_any_room() -> None:
    for length in range(len(LOST_ITEM), 40):
        assert len(lost_item(length)) == length
    with pytest.raises(ValueError, match="no mark"):
        lost_item(len(LOST_ITEM) - 1)
