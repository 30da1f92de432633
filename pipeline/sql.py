"""`pipeline sql`: a query over views of many stores, on Spark.

Spark does not tell a Python source what a query needs, but its plan does (`sql_plan`). A view reads the columns that
are needed, and has nulls for the others, which the query does not use: its result is that over complete views.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import suppress

import pyarrow as pa
from pyspark.errors import AnalysisException, ArithmeticException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.functions import col, lit

from ..store.arrow.log_rows import Damage, parts_of
from ..store.arrow.stores import BODY, BODY_CRC_OK, FAIL_UNREADABLE, LOG, ReadOptions, open_log
from ..store.arrow.views import DAMAGE, MESSAGES, OF_LOG, VIEWS, AnswerGaps
from ..store.disk.byte_reader import note_expired
from ..store.disk.layout import is_uri
from ..store.errors import InvalidInput, LimitExceeded, StoreError
from .failures import JobFailed, failure_of, failures, require_no_interrupt
from .sql_plan import Needed, SparkQuery

_RESULT_BYTES = "spark.driver.maxResultSize"
SETTINGS = {"spark.sql.python.filterPushdown.enabled": "true", _RESULT_BYTES: "256m"}
"""Settings of a session for queries: the result comes into this process."""
_TOLD_MAX = 1000
"""Limit of unreadable ranges that come into this process."""


def answer(
    spark: SparkSession, asked: SparkQuery, stores: Sequence[str], options: Mapping[str, str]
) -> Iterator[pa.RecordBatch]:
    """Yield the answer to a query over the views of some readable stores.

    options: those of the sources. Notes which logs have lost files meanwhile, as running brokers delete them. Raises
    InvalidInput for a value that an expression does not take, LimitExceeded for an answer that is too large, else
    StoreError and JobFailed.
    """
    ask = ReadOptions.of({**options, "paths": json.dumps(stores)})
    before = _begins(ask) if any(needed.view.name in OF_LOG for needed in asked.views) else {}
    try:
        for needed in asked.views:
            _rows(spark, needed, stores, options).createOrReplaceTempView(needed.view.name)
        found = spark.sql(asked.text).toArrow()
        for directory, begin in (_begins(ask) if before else {}).items():
            if begin > before.get(directory, begin):
                note_expired(directory, begin)
        yield from found.rename_columns(list(asked.columns)).to_batches()
    except Exception as error:  # Spark has its own kind for every layer that a failure passes
        require_no_interrupt(error)
        text = str(error)
        if _RESULT_BYTES in text:
            raise LimitExceeded(
                "the answer is too large for this process",
                hint=f"add a LIMIT, use `pipeline export`, or --conf {_RESULT_BYTES}=1g",
            ) from error
        failure = failure_of(text)
        mistake = isinstance(error, AnalysisException | ArithmeticException)
        if isinstance(failure, JobFailed) and mistake:
            raise InvalidInput(f"the query: {text.strip().splitlines()[0]}") from error
        raise failure from error


def _begins(ask: ReadOptions) -> dict[str, int]:
    """Return where the logs begin that are on disks, by directory."""
    found = dict[str, int]()
    for root in ask.stores:
        with suppress(StoreError):  # reported by who reads it
            if not is_uri(root):
                with open_log(root, ask.broker_config).queue as files:
                    found[files.directories[0]] = files.start
    return found


def _rows(spark: SparkSession, needed: Needed, stores: Sequence[str], options: Mapping[str, str]) -> DataFrame:
    """Return all columns of a view, null if they are not needed.

    A view that is read twice takes no filters from Spark, which keeps only those of the last read.
    """
    view = needed.view
    fields = list(needed.columns or tuple(view.columns)[:1])
    reader = spark.read.format(view.source).options(**options).option("paths", json.dumps(stores))
    if view.name == MESSAGES:
        reader = reader.option("pushdown", str(needed.times == 1).lower())
    if not view.tells:
        reader = reader.option("on_damage", FAIL_UNREADABLE)
    rows = reader.option("fields", ",".join(fields)).load()
    return rows.select(
        *(col(name) if name in fields else lit(None).cast(sql).alias(name) for name, sql in view.columns.items())
    )


def lacking(spark: SparkSession, asked: SparkQuery, stores: Sequence[str], options: Mapping[str, str]) -> AnswerGaps:
    """Return what a query's views have not read of these stores, and how many bodies are not sound.

    The sources are read once more for it. Raises JobFailed, StoreError.
    """
    found = AnswerGaps()
    given = {**options, "paths": json.dumps(stores)}
    ask = ReadOptions.of(given)
    if ask.times.bounded and any(needed.view.name in OF_LOG for needed in asked.views):
        parts_of(ask, bounds=found.bounds.__setitem__)  # as the sources do
    views = [needed.view for needed in asked.views if not needed.view.tells]
    of = sorted({LOG if view.table is None else view.table.of for view in views})
    with failures():
        if of:
            damage = spark.read.format(VIEWS[DAMAGE].source).options(**given, of=",".join(of), tails="false")
            for row in damage.load().distinct().limit(_TOLD_MAX).collect():
                found.add(Damage(*row))
        if any(BODY in n.columns and BODY_CRC_OK not in n.columns for n in asked.views):
            log = spark.read.format(VIEWS[MESSAGES].source).options(**given)
            bodies = log.option("fields", BODY_CRC_OK).load()
            found.bodies = bodies.filter(~col(BODY_CRC_OK)).count()
    return found
