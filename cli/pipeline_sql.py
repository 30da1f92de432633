"""`mqstore pipeline sql`: a query over stores, on Spark."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import chain, islice
from typing import TYPE_CHECKING

from ..store.counted import counted
from .declared import Exit
from .options import Common, shared
from .pipeline_options import Spark, Stores, session_showing, source_options, warn_if_quicker_here
from .sql_answer import Query, SqlOptions, print_answer, shown_columns
from .unread import report_bounds, report_lacking, report_unreadable, run_on_readable

if TYPE_CHECKING:
    from pyarrow import RecordBatch

    from ..store.errors import StoreError


@shared()
def sql(query: Query, stores: Stores, *, options: SqlOptions, spark: Spark, common: Common) -> None:
    """Query stores with SQL, on Spark.

    The views and columns are those of mqstore sql, which needs no Spark and is quicker for one small store. QUERY
    is Spark SQL. A view reads only the columns that Spark's plan of QUERY needs.

    If a store cannot be read, the command ends before the query starts. Damage is reported on stderr, after one
    more pass over what was read, and is in the view damage.

    Exit code: 0 answered; 1 answered, but without damaged parts or without stores left out by --partial, or from
    stores with bodies that fail their checksum; 2 QUERY is not valid; 5 some store cannot be read, no Spark.

    \b
    Examples:
      mqstore pipeline sql 'SELECT topic, count(*) n FROM messages GROUP BY topic' '/data/*/store'
      mqstore pipeline sql 'FROM findings |> SELECT store, severity, code, path' @stores.txt
      mqstore pipeline sql 'SELECT max(store_timestamp) FROM messages' @stores.txt --since -1d --format csv
    """
    ask_spark(query, stores, options, spark, common)


def ask_spark(query: str, stores: list[str], given: SqlOptions, spark: Spark, common: Common) -> None:
    """Answer a query on Spark. Raises Exit with the exit code, and the errors that end a command."""
    master, settings = spark.place(common)
    from ..pipeline import register
    from ..pipeline.sql import SETTINGS, answer, lacking
    from ..pipeline.sql_plan import understood
    from ..store.arrow.stores import ReadOptions, stores_of
    from ..store.arrow.views import readable

    options = source_options(common, given.since, given.until)
    ask, gone = readable(ReadOptions(tuple(stores_of(stores)), config=dict(common.config())), ())
    left_out = report_unreadable(gone, others=bool(ask.stores), partial=given.partial)
    warn_if_quicker_here("sql", ask.stores, spark, common)
    common.explain(f"starting Spark on {master} for {counted(len(ask.stores), 'store')}")
    place = (master, SETTINGS | settings)
    with session_showing("asking", 0, None, place, common, in_python=False) as session:
        register(session)
        asked = understood(session, query)
        columns, views = shown_columns(asked.columns, common), [needed.view for needed in asked.views]
        ask, gone = readable(ask, views)
        left_out += report_unreadable(gone, others=bool(ask.stores), partial=given.partial)

        def begun(roots: Sequence[str]) -> Iterator[RecordBatch]:
            """The answer with its first batch read, so that nothing is printed before the query has succeeded."""
            rows = answer(session, asked, roots, options)
            return chain(list(islice(rows, 1)), rows)

        def check(roots: Sequence[str]) -> Mapping[str, StoreError]:
            return readable(replace(ask, stores=tuple(roots)), views)[1]

        rows, lost = run_on_readable(begun, ask.stores, given.partial, check)
        left_out += lost
        print_answer(rows, columns, left_out, common)
        named = {one["store"] for one in lost}
        found = lacking(session, asked, [root for root in ask.stores if root not in named], options)
    report_bounds(found.bounds.values(), common)
    code = report_lacking(found.damage, found.bodies)
    raise Exit(max(code, int(bool(left_out))))
