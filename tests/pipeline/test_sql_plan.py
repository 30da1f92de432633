"""The columns of views that a plan of Spark names."""

from __future__ import annotations

import pytest
from pyspark.sql.types import (
    BinaryType,
    CalendarIntervalType,
    DayTimeIntervalType,
    StructField,
    StructType,
    YearMonthIntervalType,
)

from mqstore.pipeline.sql_plan import needed_of, refuse_types
from mqstore.store.arrow.views import VIEWS
from mqstore.store.errors import InvalidInput

ALL = tuple(VIEWS["lag"].columns)


def leaf(first: int, name: str = "lag", kind: str = "LogicalRDD") -> str:
    """An empty view in a plan; its columns have ids from `first` on."""
    columns = enumerate(VIEWS[name].columns, first)
    return f"{kind} [{', '.join(f'{column}#{ident}L' for ident, column in columns)}], false"


@pytest.mark.parametrize(
    ("plan", "columns"),
    [
        (f"Project [topic#1]\n+- {leaf(0)}", ("topic",)),
        (f"Aggregate [count(1) AS answer_0#9L]\n+- Project\n   +- {leaf(0)}", ()),
        (f"Join Inner, (store#0 = store#20)\n:- {leaf(0)}\n+- {leaf(20)}", ("store",)),
        (f"Project [lag#26L AS a#9]\n+- Union false\n   :- {leaf(0)}\n   +- {leaf(20)}", ALL),
        (f"Filter (lag#6L > 1)\n+- {leaf(0, kind='LocalRelation <empty>,')}", ("lag",)),
        (leaf(0), ALL),
    ],
)
def test_a_plan_names_the_columns_it_uses(plan: str, columns: tuple[str, ...]) -> None:
    (needed,) = needed_of(plan)
    assert (needed.view.name, needed.columns) == ("lag", columns)
    assert needed.times == plan.count("Relation") + plan.count("RDD")


def test_a_type_that_no_answer_has() -> None:
    """Intervals of days have one; those of months, and of months and days, have none."""
    answer = StructType().add("a", BinaryType()).add("b", DayTimeIntervalType())
    refuse_types(answer)
    for kind, name in ((YearMonthIntervalType(), "interval year to month"), (CalendarIntervalType(), "interval")):
        with pytest.raises(InvalidInput, match=f"column c has the type {name}, which no answer has; CAST"):
            refuse_types(StructType([*answer.fields, StructField("c", kind)]))
    twice = StructType([*answer.fields, *answer.fields])
    with pytest.raises(InvalidInput, match="column c has two fields with the same name"):
        refuse_types(StructType().add("c", twice))
