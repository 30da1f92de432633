"""Units that no message has claimed: why each is not that of its message."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.queues.read import ConsumeQueue
from mqstore.store.queues.units import Units, pre_fill
from mqstore.store.search.store import StoreReader
from mqstore.store.verify import queue_units
from mqstore.store.verify.context import Scope, VerifyContext
from mqstore.store.verify.queue_state import MissingUnits, QueueReader, queues_of
from mqstore.store.verify.queue_units import _batches, are_of_changed_records, is_late, resolve
from mqstore.store.verify.run import verify

from ...stores import config, unpack
from .mutations.edit import set_field

LOGS = QueueId("logs", 0)


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[StoreReader]:
    """A sound one."""
    with StoreReader(unpack("5.3.3-clean", tmp_path_factory.mktemp("units"))) as opened:
        yield opened


@pytest.fixture
def context(store: StoreReader) -> VerifyContext:
    """A run that has found nothing yet."""
    return VerifyContext(store, Scope())


def reader_of(context: VerifyContext, queue: QueueId) -> QueueReader:
    layout = context.store.layout
    directory = layout.consume_queue / queue.topic / str(queue.queue_id)
    return QueueReader(queue, str(directory), ConsumeQueue.open(layout, *queue))


def units_of(context: VerifyContext, offsets: list[int], queue: QueueId = LOGS) -> Units:
    return reader_of(context, queue).lookup(np.array(offsets)).copy()


def said(context: VerifyContext, offsets: list[int], units: Units) -> list[tuple[str, int | None, int, str]]:
    """Of units of `LOGS`: code, byte in the file, how many, and what is wrong with the first."""
    resolve(context, reader_of(context, LOGS), np.array(offsets), units)
    return [(f.code, f.offset, f.count, f.message) for f in context.findings]


def test_a_position_where_no_record_begins(context: VerifyContext) -> None:
    units = units_of(context, [3])
    units["physical_offset"] += 1
    wrong = int(units["physical_offset"][0])
    assert said(context, [3], units) == [("I-062", 60, 1, f"logs/0 unit 3: no record begins at {wrong}")]


def test_a_position_that_nobody_could_read_is_not_told(context: VerifyContext) -> None:
    units = units_of(context, [5])
    units["physical_offset"] += 1
    wrong = int(units["physical_offset"][0])
    context.gone.add_range(wrong, wrong + 1)
    assert said(context, [5], units) == []


def test_another_size(context: VerifyContext) -> None:
    units = units_of(context, [2])
    size, position = int(units["size"][0]), int(units["physical_offset"][0])
    units["size"] += 9
    text = f"logs/0 unit 2: the record at {position} has {size} bytes, not {size + 9}"
    assert text in [message for code, _, _, message in said(context, [2], units) if code == "I-062"]


def test_a_unit_of_another_message_of_its_queue(context: VerifyContext) -> None:
    units = units_of(context, [4])
    position = int(units["physical_offset"][0])
    text = f"logs/0 unit 6: the record at {position} is message 4"
    assert said(context, [6], units) == [("I-064", 120, 1, text)]


def test_units_of_another_queue(context: VerifyContext) -> None:
    """Those in a row are one finding."""
    units = units_of(context, [0, 1, 2], QueueId("orders", 0))
    position = int(units["physical_offset"][0])
    text = f"logs/0 unit 0: the record at {position} is of orders/0"
    assert said(context, [0, 1, 2], units) == [("I-063", 0, 3, text)]


def test_in_lots_of_few_the_same_is_told(store: StoreReader, monkeypatch: pytest.MonkeyPatch) -> None:
    offsets = [1, 2, 3, 4, 5, 9]
    context = VerifyContext(store, Scope())
    units = units_of(context, offsets)
    units["physical_offset"] += 3
    whole = said(context, offsets, units)
    assert [(code, offset, count) for code, offset, count, _ in whole] == [("I-062", 20, 5), ("I-062", 180, 1)]
    monkeypatch.setattr(queue_units, "_RECORDS_AT_ONCE", 2)
    assert said(VerifyContext(store, Scope()), offsets, units) == whole


@given(st.lists(st.integers(0, 3 << 20), max_size=600))
def test_lots_are_all_rows_in_order_and_fit_into_memory(sizes: list[int]) -> None:
    lots = list(_batches(np.array(sizes, np.int64)))
    assert [row for lot in lots for row in range(len(sizes))[lot]] == list(range(len(sizes)))
    for lot in lots:
        rows = sizes[lot]
        assert len(rows) <= queue_units._RECORDS_AT_ONCE
        assert len(rows) <= 1 or sum(rows) <= queue_units._BYTES_AT_ONCE


def test_sound_records_are_of_no_other_state(context: VerifyContext) -> None:
    """Their queues have a unit for each: none was a half message, none has moved."""
    units = units_of(context, [*range(8)])
    assert not are_of_changed_records(context, queues_of(context), LOGS, np.arange(8), units).any()


def test_a_unit_of_a_message_whose_queue_has_none(context: VerifyContext, monkeypatch: pytest.MonkeyPatch) -> None:
    """The record has the number of the unit and its topic, and says another queue: it was of this one."""
    orders = [QueueId("orders", number) for number in (0, 1)]
    units = units_of(context, [1], orders[1])
    queues = queues_of(context)
    assert not are_of_changed_records(context, queues, orders[0], np.array([1]), units).any(), "its queue has a unit"
    monkeypatch.setattr(QueueReader, "lookup", lambda _, offsets: np.zeros(len(offsets), units.dtype))
    assert are_of_changed_records(context, queues, orders[0], np.array([1]), units).all()
    assert not are_of_changed_records(context, queues, orders[0], np.array([2]), units).any(), "another number"
    assert not are_of_changed_records(context, queues, LOGS, np.array([1]), units).any(), "another topic"


def test_what_was_not_dispatched_before_a_crash_is_late(context: VerifyContext) -> None:
    missing = MissingUnits(first=0, count=1, position=500, end=600)
    assert not is_late(context, missing, 400), "the store was shut down in order"
    context.crashed = True
    assert is_late(context, missing, 400) and is_late(context, missing, 500)
    assert not is_late(context, missing, 501)


def test_a_front_is_filled_behind_units_of_expired_records(tmp_path: Path) -> None:
    """As where a file is rebuilt whose first units named what is gone: they hide nothing."""
    name = "4.9.7-expired"
    root = unpack(name, tmp_path)
    (root / "commitlog" / "00000000000000196608").unlink()
    path = root / "consumequeue" / "TopicA" / "0" / "00000000000000003000"
    with StoreReader(root, BrokerConfig(config(name, root))) as store:
        units = reader_of(VerifyContext(store, Scope()), QueueId("TopicA", 0)).lookup(np.arange(150, 200))
        expired = int((units["physical_offset"] < store.log_files.start).sum())
    data = path.read_bytes()
    fill = pre_fill(expired).tobytes()
    for count, wrong in ((expired, False), (expired + 1, True)):
        path.write_bytes((fill + pre_fill(1).tobytes())[: count * UNIT_BYTES] + data[count * UNIT_BYTES :])
        with StoreReader(root, BrokerConfig(config(name, root))) as store:
            codes = {found.code for found in verify(store, Scope(groups=frozenset({"consume_queue"}))).findings}
        assert ("I-070" in codes, "I-071" in codes) == (wrong, False), (count, codes)


def test_a_unit_that_ends_behind_the_last_number_is_named_itself(tmp_path: Path) -> None:
    """And not the one behind it, which does not rise."""
    root = unpack("5.3.3-clean", tmp_path)
    path = root / "consumequeue" / "orders" / "0" / "0".zfill(20)
    set_field(path, 5 * UNIT_BYTES, UNIT, "physical_offset", (1 << 63) - 1)
    with StoreReader(root, BrokerConfig(config("5.3.3-clean", root))) as store:
        found = verify(store, Scope(groups=frozenset({"consume_queue"}))).findings
    assert {(f.code, f.offset) for f in found if f.path == str(path)} == {("I-067", 100), ("I-070", 100)}
