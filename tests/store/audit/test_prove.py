"""Units that were read for a proof are given to who asks for the same ones."""

from __future__ import annotations

import numpy as np
import pytest

from mqstore.store.audit.messages import Messages
from mqstore.store.audit.prove import Laid
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.file_queue import MappedFile, MappedFileQueue
from mqstore.store.queues.units import UNIT_DTYPE


def _files(*names: str) -> MappedFileQueue:
    return MappedFileQueue((), [MappedFile(name, 0, 200) for name in names], 200, [])


def _messages(*offsets: int) -> Messages:
    """At these queue offsets, of records one behind the other."""
    offset, yes = np.array(offsets), np.ones(len(offsets), np.bool_)
    rows = np.arange(len(offset))
    return Messages(QueueId("T", 0), offset, rows, rows + 1, rows, rows, yes, ~yes)


def test_units_of_the_same_files_are_given() -> None:
    units = np.zeros(4, UNIT_DTYPE)
    units["size"] = [1, 2, 3, 4]
    found = Laid(_files("a"), 7, units).of(_files("a"), _messages(8, 9))
    assert found is not None
    assert found["size"].tolist() == [2, 3]


@pytest.mark.parametrize("offsets", [[6, 7], [10, 11], [7, 9], [8, 7], [7, 7]])
def test_others_are_to_be_read(offsets: list[int]) -> None:
    laid = Laid(_files("a"), 7, np.zeros(4, UNIT_DTYPE))
    assert laid.of(_files("a"), _messages(*offsets)) is None


def test_those_of_other_files_are_to_be_read() -> None:
    laid, other = Laid(_files("a"), 7, np.zeros(4, UNIT_DTYPE)), _files("a")
    assert laid.of(_files("a", "b"), _messages(7)) is None
    other.stop = 20
    assert laid.of(other, _messages(7)) is None


def test_messages_of_one_record_are_in_no_row() -> None:
    messages = _messages(7, 8)
    assert messages.in_a_row
    assert not messages.replace(position=np.array([5, 5])).in_a_row
