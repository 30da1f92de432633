"""Filters that Spark hands down: what they leave out no row of the answer needs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
    StringStartsWith,
)

from mqstore.pipeline.sources.log import PushingLogReader
from mqstore.pipeline.sources.pushed import take_filters
from mqstore.store.log.batch import Batch, messages

from ...store.arrow.rows import ask_of
from ...store.broker.batches import batch_of
from ...stores import messages as stored_messages
from ...stores import unpack

ODD = ("a", " a", "a ", "*", "a||b", "a*", "a?", "[a]", "\ufffd", "\u00e9")
TEXTS = st.sampled_from(("", "b", *ODD))
STORED = (-(1 << 63), -5, -1, 0, 1, 1000, 1001, (1 << 63) - 1)
TIMES = st.sampled_from(STORED)
COMPARED = (EqualTo, GreaterThan, GreaterThanOrEqual, LessThan, LessThanOrEqual)


@st.composite
def filters(draw: st.DrawFn) -> Filter:
    """A condition on one column, as Spark hands it down."""
    column = draw(st.sampled_from(("topic", "tags", "unique_key", "queue_id", "store_timestamp", "keys")))
    values = {"queue_id": st.integers(0, 2), "store_timestamp": TIMES}.get(column, TEXTS)
    kind = draw(st.sampled_from((*COMPARED, In, IsNotNull, StringStartsWith)))
    if kind is In:
        return In((column,), tuple(draw(st.lists(values, max_size=3))))
    return IsNotNull((column,)) if kind is IsNotNull else kind((column,), draw(values))


def holds(one: Filter, row: dict[str, Any]) -> bool:
    """What Spark says of a row."""
    value = row[one.attribute[0]]  # type: ignore[attr-defined]
    if value is None or isinstance(one, IsNotNull):
        return value is not None
    if isinstance(one, StringStartsWith):
        return isinstance(value, str) and value.startswith(str(one.value))
    if isinstance(one, In):
        return value in one.value
    compared: dict[type[Filter], Callable[[Any, Any], bool]] = {
        EqualTo: lambda a, b: a == b,
        GreaterThan: lambda a, b: a > b,
        GreaterThanOrEqual: lambda a, b: a >= b,
        LessThan: lambda a, b: a < b,
        LessThanOrEqual: lambda a, b: a <= b,
    }
    return compared[type(one)](value, one.value)  # type: ignore[attr-defined]


def taken(asked: list[Filter], batch: Batch) -> list[bool]:
    """Whether the records of a batch become rows; all filters are asked again."""
    pushed, left = take_filters(iter(asked))
    assert left == asked
    masks = [np.logical_or.reduce([each.mask(batch) for each in either]) for either in pushed.conditions]
    found: list[bool] = np.logical_and.reduce([np.ones(len(batch), np.bool_), *masks]).tolist()
    return found


@given(st.lists(filters(), min_size=1, max_size=4), TEXTS.filter(bool), st.integers(0, 2), TIMES, TEXTS, TEXTS)
def test_no_row_that_spark_wants_is_left_out(
    asked: list[Filter], topic: str, queue_id: int, time: int, tag: str, key: str
) -> None:
    """Whatever the columns of a record say, damaged times and odd tags among them."""
    properties = {name: value for name, value in (("TAGS", tag), ("UNIQ_KEY", key)) if value}
    batch = batch_of([properties], topic=topic.encode(), queue_id=queue_id, store_timestamp=time)
    (message,) = messages(batch)
    row = {
        "topic": message.topic,
        "tags": message.tags,
        "unique_key": message.unique_key,
        "queue_id": queue_id,
        "store_timestamp": time,
        "keys": None,
    }
    if all(holds(one, row) for one in asked):
        assert taken(asked, batch) == [True], [(type(one).__name__, vars(one)) for one in asked]


@pytest.mark.parametrize(("column", "name"), [("tags", "TAGS"), ("unique_key", "UNIQ_KEY"), ("topic", "")])
def test_odd_texts_are_themselves(column: str, name: str) -> None:
    """What means more than one text to a consumer does not to Spark."""
    for text in ODD:
        batch = batch_of([{name: text} if name else {}], topic=b"T" if name else text.encode())
        for one in (EqualTo((column,), text), In((column,), (text, "none"))):
            assert taken([one], batch) == [True], (text, one)


@pytest.mark.parametrize("kind", COMPARED)
def test_damaged_times_are_compared_as_spark_does(kind: type[Filter]) -> None:
    """Before 1970, and the last one that there is; on both sides of two conditions, too."""
    batches = {time: batch_of([{}], store_timestamp=time) for time in STORED}
    for value in STORED:
        for more in ([], [GreaterThanOrEqual(("store_timestamp",), -(1 << 63))]):
            asked = [kind(("store_timestamp",), value), *more]  # type: ignore[call-arg]
            for time, batch in batches.items():
                wanted = all(holds(one, {"store_timestamp": time}) for one in asked)
                assert not wanted or taken(asked, batch) == [True], (time, kind.__name__, value)


@pytest.mark.parametrize(
    ("one", "left"),
    [
        (EqualTo(("topic",), "orders"), [0, 1]),
        (In(("queue_id",), (1, 7)), [1, 2]),
        (EqualTo(("tags",), "a"), [0, 2]),
        (GreaterThan(("store_timestamp",), 100), [2]),
        (GreaterThanOrEqual(("store_timestamp",), 100), [1, 2]),
        (LessThan(("store_timestamp",), 100), [0]),
        (LessThanOrEqual(("store_timestamp",), 100), [0, 1]),
        (EqualTo(("unique_key",), "k2"), [2]),
        (EqualTo(("tags",), "*"), [0, 1, 2]),
        (EqualTo(("properties", "TAGS"), "a"), [0, 1, 2]),
        (EqualTo(("body",), b"x"), [0, 1, 2]),
    ],
)
def test_records_that_are_not_wanted_are_left_out(one: Filter, left: list[int]) -> None:
    """Of what can be asked of the log; what stands for something else there is left to Spark."""
    rows = [("orders", 0, "a", 99), ("orders", 1, "b", 100), ("logs", 7, "a", 101)]
    found = [
        number
        for number, (topic, queue_id, tag, time) in enumerate(rows)
        if taken(
            [one],
            batch_of(
                [{"TAGS": tag, "UNIQ_KEY": f"k{number}"}], topic=topic.encode(), queue_id=queue_id, store_timestamp=time
            ),
        )
        == [True]
    ]
    assert found == left


@pytest.mark.parametrize(
    ("one", "time"),
    [
        (LessThan(("store_timestamp",), 0), -5),
        (LessThan(("store_timestamp",), 1000), 7),
        (GreaterThan(("store_timestamp",), 1 << 62), (1 << 63) - 1),
    ],
)
def test_damaged_times_are_looked_for_in_all_files(one: Filter, time: int, tmp_path: Path) -> None:
    root = unpack("5.3.3-clean", tmp_path)
    record = list(stored_messages("5.3.3-clean"))[5]
    begin, end = record["physical_offset"], record["physical_offset"] + record["total_size"]
    log = root / "commitlog" / f"{0:020}"
    data = log.read_bytes()
    at = data.rindex(record["store_timestamp"].to_bytes(8, "big"), begin, end)
    log.write_bytes(data[:at] + time.to_bytes(8, "big", signed=True) + data[at + 8 :])
    reader = PushingLogReader(replace(ask_of(root, fields="store_timestamp"), split_bytes=100_000))
    assert list(reader.pushFilters([one])) == [one]
    parts = reader.partitions()
    assert [row for part in parts for rows in reader.read(part) for row in rows.to_pylist()] == [
        {"store_timestamp": time}
    ]
