"""Which columns of which views a query needs, by Spark's own plan of it.

The query is planned over views that have all columns and hardly any rows. The plan is read as Spark prints it, since a
Connect server does so, too: a leaf lists its columns as `name#id`, and whatever uses a column names its id.
"""

from __future__ import annotations

import io
import re
from collections import Counter
from collections.abc import Sequence
from contextlib import redirect_stdout
from dataclasses import dataclass

from pyspark.errors import (
    AnalysisException,
    ArithmeticException,
    IllegalArgumentException,
    PySparkTypeError,
    UnsupportedOperationException,
)
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import StructType

from ..store.arrow.views import VIEWS, View, unique_names
from ..store.errors import InvalidInput

_OPTIMIZED, _PHYSICAL = "== Optimized Logical Plan ==", "\n== Physical Plan =="
_LEAVES = ("LogicalRDD", "LocalRelation")
"""Names of a table of a few rows in a plan, here and on a Connect server."""
_UNION = "Union"
_COLUMN = re.compile(r"(\w+)#(\d+)")
_USED = re.compile(r"#(\d+)")
_TREE = re.compile(r"[ :+|-]*")
_LINE = re.compile(r"(?<=\bline )[0-9]+(?=,? pos )")
_ROWS = 2
"""With one row or none, Spark would not plan to sort, group or limit."""
_NO_SUCH_TABLE = "TABLE_OR_VIEW_NOT_FOUND"
_SETTINGS = {
    "spark.sql.debug.maxToStringFields": "1000",
    "spark.sql.optimizer.excludedRules": ",".join(
        f"org.apache.spark.sql.catalyst.optimizer.{rule}"
        for rule in ("PropagateEmptyRelation", "ConvertToLocalRelation")
    ),
}
"""For plans that name all columns, and all that is read although it is empty."""


@dataclass(frozen=True)
class Needed:
    """What is read of a view: columns in its order, how many times."""

    view: View
    columns: tuple[str, ...]
    times: int = 1


@dataclass(frozen=True)
class SparkQuery:
    """A valid query as Spark takes it. columns: of the answer → whether they are bytes."""

    text: str
    columns: dict[str, bool]
    views: tuple[Needed, ...]


def understood(spark: SparkSession, query: str) -> SparkQuery:
    """Analyse a query without looking at any store. Raises InvalidInput for an invalid one."""
    text = f"SELECT * FROM (\n{query.strip().removesuffix(';')}\n)"  # this way it cannot be a command
    before = {name: spark.conf.get(name, None) for name in _SETTINGS}
    for name, meant in _SETTINGS.items():
        spark.conf.set(name, meant)
    try:
        rows = _analysed(spark, text)
        refuse_types(rows.schema)
        fields = ((field.name, field.dataType.typeName()) for field in rows.schema.fields)
        columns = unique_names((name, kind == "binary") for name, kind in fields)
        return SparkQuery(text, columns, needed_of(_plan_of(rows)))
    except (AnalysisException, ArithmeticException, IllegalArgumentException) as error:
        raise InvalidInput(f"the query: {_first_line(str(error))}") from error
    finally:
        for name, value in before.items():
            spark.conf.unset(name) if value is None else spark.conf.set(name, value)


def refuse_types(answer: StructType) -> None:
    """Raise InvalidInput if an answer has a column that cannot come into this process."""
    for field in answer.fields:
        try:
            to_arrow_type(field.dataType, error_on_duplicated_field_names_in_struct=True)
        except PySparkTypeError:
            what = f"the query: column {field.name} has the type {field.dataType.simpleString()}, which no answer has"
            raise InvalidInput(what, hint="CAST the column AS STRING") from None
        except UnsupportedOperationException:
            raise InvalidInput(f"the query: column {field.name} has two fields with the same name") from None


def _analysed(spark: SparkSession, text: str) -> DataFrame:
    """Return the query over the views that it names; a view is made when Spark misses it."""
    for view in VIEWS.values():
        spark.catalog.dropTempView(view.name)
    while True:
        try:
            return spark.sql(text)
        except AnalysisException as error:
            named = (error.getMessageParameters() or {}).get("relationName", "").strip("`").lower()
            if error.getCondition() != _NO_SUCH_TABLE or named not in VIEWS:
                raise
        view = VIEWS[named]
        rows = [(None,) * len(view.columns)] * _ROWS
        spark.createDataFrame(rows, view.ddl).createOrReplaceTempView(named)


def _plan_of(rows: DataFrame) -> str:
    """Return the plan as Spark prints it; in it every column of the answer is used under another name."""
    named = rows.toDF(*(f"answer_{number}" for number, _ in enumerate(rows.columns)))
    printed = io.StringIO()
    with redirect_stdout(printed):
        named.explain(extended=True)
    text = printed.getvalue()
    return text[text.find(_OPTIMIZED) + len(_OPTIMIZED) : text.rfind(_PHYSICAL)]


def needed_of(plan: str) -> tuple[Needed, ...]:
    """Return the columns of views that a plan uses, in the order of the views.

    A column below a union counts as used, since the lines above refer to columns by place.

    >>> needed_of('''
    ... Aggregate [topic#1], [topic#1 AS answer_0#9]
    ... +- Project [topic#1]
    ...    +- LogicalRDD [store#0, topic#1, group#2, queue_id#3, offset#4L, max_offset#5L, lag#6L]
    ... ''')[0].columns
    ('topic',)
    """
    lines = [line for line in plan.splitlines() if line.strip()]
    leaves = [(number, view) for number, line in enumerate(lines) if (view := _view_of(line)) is not None]
    own = {number for number, _ in leaves}
    used = {ident for number, line in enumerate(lines) if number not in own for ident in _USED.findall(line)}
    times = Counter(view.name for _, view in leaves)
    columns: dict[str, set[str]] = {name: set() for name in times}
    for number, view in leaves:
        every = _below_union(lines, number)
        for name, ident in _COLUMN.findall(lines[number]):
            if every or ident in used:
                columns[view.name].add(name)
    return tuple(
        Needed(view, tuple(column for column in view.columns if column in columns[name]), times[name])
        for name, view in VIEWS.items()
        if name in times
    )


def _view_of(line: str) -> View | None:
    """Return the view whose table a line of a plan is, or None."""
    if not _without_tree(line).startswith(_LEAVES):
        return None
    names = tuple(name for name, _ in _COLUMN.findall(line))
    return next((view for view in VIEWS.values() if tuple(view.columns) == names), None)


def _below_union(lines: Sequence[str], number: int) -> bool:
    depth = _depth(lines[number])
    above = next((line for line in reversed(lines[:number]) if _depth(line) < depth), _UNION)
    return _without_tree(above).startswith(_UNION)


def _depth(line: str) -> int:
    return len(line) - len(_without_tree(line))


def _without_tree(line: str) -> str:
    return _TREE.sub("", line, count=1)


def _first_line(text: str) -> str:
    """Return the line that says what is wrong, with line numbers of the user's query, which has one line before it."""
    found = next((line.strip() for line in text.splitlines() if line.strip()), text)
    return _LINE.sub(lambda line: str(max(1, int(line[0]) - 1)), found)
