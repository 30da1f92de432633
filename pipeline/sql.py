"""`pipeline sql`: a query over views of many stores.

A view reads only the columns whose names are in the query, since Spark tells a Python source
nothing of what a query needs.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from ..store.arrow import export_formats
from ..store.errors import InvalidInput, LimitExceeded
from .failures import JobFailed, failure_of

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import SparkSession

MESSAGES = "messages"
DAMAGE = "damage"
FINDINGS = "findings"
_SOURCES = {
    MESSAGES: "rocketmq-log",
    DAMAGE: "rocketmq-damage",
    "queues": "rocketmq-queue",
    "index_items": "rocketmq-index",
    "timers": "rocketmq-timer",
    FINDINGS: "rocketmq-findings",
    "offsets": "rocketmq-offsets",
    "lag": "rocketmq-lag",
}
VIEWS = tuple(_SOURCES)
_RESULT_BYTES = "spark.driver.maxResultSize"
SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true", _RESULT_BYTES: "256m"}
"""Settings of a session for queries: the result comes into this process."""
_COUNT_ALL = re.compile(r"count\s*\(\s*\*\s*\)", re.IGNORECASE)
_WORD = re.compile(r"\w+")
_COMMON_TABLE = re.compile(r"\bwith\b", re.IGNORECASE)


@dataclass(frozen=True)
class View:
    """How a view reads its source. fields: columns wanted, None for the usual ones."""

    name: str
    source: str
    fields: Sequence[str] | None
    pushdown: bool


def views_of(query: str, columns: Mapping[str, Sequence[str]]) -> list[View]:
    """The views that a query names, with the columns it may need.

    columns: of each view, all. A view that is read twice takes no filters from Spark, which keeps
    those of the last.
    """
    words = [word.lower() for word in _WORD.findall(query)]
    everything = "*" in _COUNT_ALL.sub("", query)
    found = []
    for name in VIEWS:
        if name in words:
            wanted = [column for column in columns[name] if column in words]
            once = words.count(name) == 1 and not _COMMON_TABLE.search(query)
            fields = None if everything else wanted or columns[name][:1]
            found.append(View(name, _SOURCES[name], fields, once))
    return found


def ask(
    spark: SparkSession, query: str, stores: Iterable[str], options: Mapping[str, str]
) -> pa.Table:
    """The answer to a query over the views of some stores.

    options: those of the sources. Raises InvalidInput for a query that makes no sense,
    LimitExceeded for an answer that is too large, else as `rebuild.spark_job`.
    """
    from pyspark.errors import AnalysisException

    try:
        for view in views_of(query, _columns()):
            _create(spark, view, stores, options)
        return spark.sql(query).toArrow()
    except Exception as error:  # Spark has its own kind for every layer a failure passes
        text = str(error)
        if _RESULT_BYTES in text:
            raise LimitExceeded(
                "the answer is too large for this process",
                hint=f"add a LIMIT, use `pipeline export`, or --conf {_RESULT_BYTES}=1g",
            ) from error
        failure = failure_of(text)
        if isinstance(failure, JobFailed) and isinstance(error, AnalysisException):
            raise InvalidInput(f"the query: {_first_line(text)}") from error
        raise failure from error


def _columns() -> dict[str, list[str]]:
    """All columns of each view."""
    from ..store.arrow import damage_rows, log_columns
    from .sources import table_sources

    found = {MESSAGES: list(log_columns.COLUMNS), DAMAGE: list(damage_rows.COLUMNS)}
    tables = {source.name(): list(source.table.all_columns()) for source in table_sources()}
    return {name: found.get(name) or tables[source] for name, source in _SOURCES.items()}


def _create(
    spark: SparkSession, view: View, stores: Iterable[str], options: Mapping[str, str]
) -> None:
    """Make a view of this session."""
    from ..store.arrow import log_columns
    from ..store.arrow.ask import FAIL_UNREADABLE

    reader = spark.read.format(view.source).options(**options).option("path", "\n".join(stores))
    if view.name == DAMAGE:
        reader.load().createOrReplaceTempView(DAMAGE)
        return
    # of these views nobody would see that rows are missing
    if view.name != FINDINGS:
        reader = reader.option("on_damage", FAIL_UNREADABLE)
    fields = list(view.fields or ())
    if view.name == MESSAGES:
        fields = fields or list(log_columns.USUAL)
        reader = reader.option("pushdown", str(view.pushdown).lower())
    elif fields:
        fields = [*(name for name in fields if name != "problem"), "problem"]
    rows = (reader.option("fields", ",".join(fields)) if fields else reader).load()
    if view.name not in (MESSAGES, FINDINGS):
        rows = rows.filter("problem IS NULL").drop("problem")
    rows.createOrReplaceTempView(view.name)


def _first_line(text: str) -> str:
    return next((line.strip() for line in text.splitlines() if line.strip()), text)


def records_of(answer: pa.Table) -> Iterator[dict[str, Any]]:
    """The rows of an answer; bytes as text, under `NAME_base64` where they are none.

    Raises InvalidInput where two columns have one name.
    """
    names = answer.column_names
    if twice := sorted({name for name in names if names.count(name) > 1}):
        raise InvalidInput(f"two columns are named {twice[0]}", hint="name one with AS")
    for batch in answer.to_batches():
        yield from export_formats.records_of(batch)


def columns_of_answer(answer: pa.Table) -> list[str]:
    """The columns of a CSV with the records of an answer."""
    import pyarrow as pa

    return [
        name
        for field in answer.schema
        for name in (
            (field.name, f"{field.name}_base64")
            if pa.types.is_binary(field.type) or pa.types.is_large_binary(field.type)
            else (field.name,)
        )
    ]
