"""Lines of one batch record are joined to one record again."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from mqstore.cli.arrow_input import NumberedRows
from mqstore.cli.joined_batches import joined
from mqstore.cli.ndjson_input import Line

Row = dict[str, Any]


def inner_rows(sizes: list[int]) -> Iterator[Row]:
    """Messages of records of so many; 0: a message that is a record."""
    for at, size in enumerate(sizes):
        common = {"topic": "T", "message_id": str(at), "sys_flag": 0xC0}
        for number in range(size):
            inner = {"inner_number": number, "batch_size": size, "batch_record": {"flag": at}}
            yield common | inner
        if not size:
            yield {"topic": "T", "message_id": str(at)}


@given(st.lists(st.integers(0, 4), max_size=8), st.sets(st.integers(0, 30)))
def test_portions_may_end_anywhere(sizes: list[int], cuts: set[int]) -> None:
    lines = [Line(n, row) for n, row in enumerate(inner_rows(sizes), 1)]
    bounds = [0, *sorted(c for c in cuts if c < len(lines)), len(lines)]
    portions = [lines[begin:end] for begin, end in pairwise(bounds) if end > begin]
    found = [line.record for portion in joined(portions) if not isinstance(portion, NumberedRows) for line in portion]
    assert [row.get("flag") for row in found] == [at if size else None for at, size in enumerate(sizes)]
    assert [len(row.get("inner_messages", ())) for row in found] == sizes


def test_what_waits_goes_when_nothing_comes() -> None:
    lines = [Line(n, row) for n, row in enumerate(inner_rows([3]), 1)][:2]
    found = list(joined([lines, [], lines[:1]]))
    assert [len(portion) for portion in found] == [0, 1, 0, 1]
