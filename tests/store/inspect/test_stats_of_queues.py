"""Counts of units against counts of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from mqstore.store.arrow.log_rows import count_here
from mqstore.store.arrow.stores import ReadOptions
from mqstore.store.errors import InvalidInput
from mqstore.store.inspect.stats import stats_of_queues
from mqstore.store.inspect.stats_dimensions import DIMENSIONS, OF_UNITS
from mqstore.store.search.store import StoreReader

from ...stores import unpack

OF_BOTH = ("records", "messages", "bytes", "p50_bytes", "p99_bytes", "largest_bytes")


@pytest.mark.parametrize("name", ["5.3.3-clean", "5.3.3-batchcq", "5.3.3-rocksdb", "5.3.3-lmq"])
@pytest.mark.parametrize("by", [("topic",), ("topic", "queue_id"), ("kind",), ("size", "file")])
def test_units_tell_what_the_log_does(name: str, by: tuple[str, ...], tmp_path: Path) -> None:
    """All of whose records some queue names."""
    root = unpack(name, tmp_path)
    done = 0

    def advance(count: int) -> None:
        nonlocal done
        done += count

    with StoreReader(root) as store:
        units = stats_of_queues(store, by, advance).rows()
    log = count_here(ReadOptions((str(root),)), by, 1, lambda _: None).stats.rows()

    def told(rows: list[dict[str, object]]) -> list[tuple[object, ...]]:
        return sorted(tuple(row[key] for key in (*by, *OF_BOTH)) for row in rows)

    assert told(units) == told(log)
    assert done == sum(row["records"] for row in units)
    assert {row["source"] for row in units} == {"queues"}
    assert {row["source"] for row in log} == {"log"}
    assert all(row["body_bytes"] is None for row in units)


def test_units_of_what_has_expired_do_not_count(tmp_path: Path) -> None:
    with StoreReader(unpack("4.9.7-expired", tmp_path)) as store:
        rows = stats_of_queues(store, ("topic",), lambda _: None).rows()
    assert {row["topic"] for row in rows} == {"TopicA", "TopicB"}


def test_what_the_log_alone_tells(tmp_path: Path) -> None:
    with StoreReader(unpack("5.3.3-clean", tmp_path)) as store:
        for name in set(DIMENSIONS) - set(OF_UNITS):
            with pytest.raises(InvalidInput, match=name):
                stats_of_queues(store, (name,), lambda _: None)
