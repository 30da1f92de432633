"""A database built from the log has the rows that the broker's own has, byte for byte."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mqstore.formats import rocksdb_consume_queue as formats
from mqstore.formats.rocksdb_consume_queue import BOUNDS, UNITS
from mqstore.store.audit.messages import Messages, scan_messages
from mqstore.store.broker.dispatch import Dispatched
from mqstore.store.broker.profiles import NEWEST, PROFILES
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import NoSpace
from mqstore.store.log.commit_log import Batch, Extent
from mqstore.store.queues import rocksdb_write
from mqstore.store.queues.references import commit_log_of
from mqstore.store.queues.rocksdb import QueueBound, RocksDb
from mqstore.store.queues.rocksdb_write import UnitSpool, build

from ... import stores
from ...slices import examples

Rows = dict[bytes, bytes]
MIN = b"\x01min\x01"


class _Spooling:
    """Puts the units of a log into a spool."""

    def __init__(self) -> None:
        self.spool, self.end = UnitSpool(), 0

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        self.end = batch.end

    def messages(self, messages: Messages) -> None:
        columns = (messages.offset, messages.position, messages.size, messages.tags_code)
        self.spool.add(messages.queue, *columns, messages.store_timestamp)

    def extent(self, extent: Extent) -> None:
        pass

    def stale(self, batch: Batch) -> None:
        pass


def rows_of(path: Path) -> tuple[Rows, Rows]:
    """Units and bounds, without the `min` rows that somebody asked for."""
    with RocksDb.open(path) as database:
        bounds = dict(database.items(BOUNDS))
        return dict(database.items(UNITS)), {k: v for k, v in bounds.items() if MIN not in k}


@pytest.mark.few(3)
@pytest.mark.parametrize("name", ["5.5.1-combine-lmq", "5.3.3-rocksdb", "5.5.1-combine-same"])
def test_the_rows_are_those_of_the_broker(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    layout = Layout.open(root, BrokerConfig(stores.config(name, root)))
    seen = _Spooling()
    scan_messages(commit_log_of(layout), [seen], PROFILES[NEWEST].dispatch.how(items=False))
    build(tmp_path / "new", seen.spool, seen.end)
    assert layout.queue_database is not None
    assert rows_of(tmp_path / "new") == rows_of(layout.queue_database)


def test_the_digest_knows_units_and_not_how_they_came() -> None:
    """A plan that is made again under the lock gets them in other parts."""
    apart, whole = UnitSpool(), UnitSpool()
    numbers = np.arange(60)
    whole.add(QueueId("T", 0), *[numbers] * 5)
    for part in (numbers[:1], numbers[1:37], numbers[37:]):
        apart.add(QueueId("T", 0), *[part] * 5)
    assert apart.digest == whole.digest
    apart.add(QueueId("T", 1), *[numbers] * 5)
    assert apart.digest != whole.digest


def test_files_that_a_broker_knows(tmp_path: Path) -> None:
    build(tmp_path / "new", UnitSpool(), 0)
    names = {path.name.partition("-")[0] for path in (tmp_path / "new").iterdir()}
    tables = {name for name in names if name.endswith(".sst")}
    assert len(tables) == 1, "no unit, no table of units"
    assert names - tables == {"000004.log", "CURRENT", "IDENTITY", "LOCK", "MANIFEST", "OPTIONS"}


def test_an_end_without_units_stays(tmp_path: Path) -> None:
    spool, gone, there = UnitSpool(), QueueId("T", 1), QueueId("T", 0)
    one = np.ones(1, np.int64)
    spool.add(there, one * 7, one * 500, one * 100, one, one)
    build(tmp_path / "new", spool, 600, {gone: QueueBound(10, 4), there: QueueBound(90, 3)})
    _, bounds = rows_of(tmp_path / "new")
    assert bounds == {
        formats.bound_key(b"T", 0, b"max"): (500).to_bytes(8, "big") + (7).to_bytes(8, "big"),
        formats.bound_key(b"T", 1, b"max"): (10).to_bytes(8, "big") + (4).to_bytes(8, "big"),
        formats.bound_key(b"CHECKPOINT_TOPIC", 0, b"max"): (600).to_bytes(8, "big"),
    }


QUEUES = st.builds(QueueId, st.sampled_from(["T", "Topic", "订单", "%LMQ%a"]), st.integers(0, 300))
PARTS = st.lists(st.tuples(QUEUES, st.lists(st.integers(0, 2**62), min_size=1, max_size=9)), max_size=9)


@settings(max_examples=examples(40))
@given(PARTS)
def test_any_units_in_any_order(
    tmp_path_factory: pytest.TempPathFactory, parts: list[tuple[QueueId, list[int]]]
) -> None:
    """As a broker puts them: of several units with one number the last counts."""
    spool, expected = UnitSpool(), {}
    for number, (queue, offsets) in enumerate(parts):
        numbers = np.array(offsets, np.int64)
        position = np.arange(len(offsets), dtype=np.int64) + number * 100
        spool.add(queue, numbers, position, position + 1, -position, position * 3)
        for offset, at in zip(offsets, position.tolist(), strict=True):
            key = formats.unit_key(queue.topic.encode(), queue.queue_id, offset)
            values = {"physical_offset": at, "size": at + 1, "tags_code": -at}
            expected[key] = formats.UNIT.build({**values, "store_timestamp": at * 3})
    folder = tmp_path_factory.mktemp("built")
    build(folder / "new", spool, 0)
    units, bounds = rows_of(folder / "new")
    assert units == expected
    assert len(bounds) == len({queue for queue, _ in parts}) + 1


def test_a_disk_that_is_full_while_one_is_built_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The library has no error of its own for it."""

    def full(*_: object) -> None:
        raise Exception("IO error: No space left on device")  # noqa: TRY002

    monkeypatch.setattr(rocksdb_write, "_build", full)
    with pytest.raises(NoSpace, match="No space left") as found:
        build(tmp_path / "new", UnitSpool(), 0)
    assert found.value.path == str(tmp_path / "new")
