"""`mqstore sql`: answer a query over stores in this process."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from .declared import Exit
from .options import Common, shared
from .pipeline_options import Spark, Stores, ask_of
from .sql_answer import Query, SqlOptions, print_answer, shown_columns
from .unread import report_bounds, report_lacking, report_unreadable, run_on_readable

if TYPE_CHECKING:
    import pyarrow as pa

    from ..store.arrow.views import AnswerGaps
    from ..store.errors import StoreError


@shared()
def sql(query: Query, stores: Stores, *, options: SqlOptions, spark: Spark, common: Common) -> None:
    """Query stores with SQL.

    The views are messages, damage, queues, index_items, timers, findings, offsets and lag. Each has a column
    `store`; DESCRIBE messages lists the columns of a view. DuckDB runs the query in this process (extra `sql`) and
    reads only the columns that it needs: a body costs more than all the rest. With --master Spark runs the query,
    in its own dialect, as `pipeline sql` does. --since and --until limit messages and damage by store time: in a
    log above 64 MiB whose times rise, only the files near these times are read, and stderr says how many were left
    out. A condition on store_timestamp in QUERY reads the whole log.

    If a store cannot be read, the command ends before the query starts. Damage is reported on stderr and is in the
    view damage. The view findings has the findings of verify.

    Exit code: 0 answered; 1 answered, but without damaged parts or without stores left out by --partial, or with
    bodies that fail their checksum; 2 QUERY is not valid; 5 a store, or bytes on a disk, cannot be read.

    \b
    Examples:
      mqstore sql 'SELECT topic, count(*) n FROM messages GROUP BY topic' /data/store
      mqstore sql 'SELECT * FROM lag ORDER BY lag DESC LIMIT 20' /data/store
      mqstore sql "SELECT keys, try(decode(body)) FROM messages WHERE topic = 'orders'" /data/store --since -1h
      mqstore sql 'SELECT store, severity, code, path FROM findings' '/data/*/store' --format csv
    """
    if spark.meant:
        from .pipeline_sql import ask_spark

        ask_spark(query, stores, options, spark, common)
        return
    from ..store.arrow import require_arrow

    require_arrow("no SQL")
    from dataclasses import replace
    from itertools import chain, islice

    from ..store.arrow.local_query import LocalQuery
    from ..store.arrow.stores import stores_of
    from ..store.arrow.views import AnswerGaps, readable

    jobs = common.jobs if common.rate is None else 1  # several workers would exceed the rate
    with LocalQuery(query, jobs) as asked:
        columns = shown_columns(asked.columns, common)
        ask, unread = readable(ask_of(stores_of(stores), options.since, options.until, common), asked.views)
        left_out = report_unreadable(unread, others=bool(ask.stores), partial=options.partial)

        def begun(roots: Sequence[str]) -> tuple[AnswerGaps, Iterator[pa.RecordBatch]]:
            """The answer with its first batch read; after that it cannot be started again, because rows are printed."""
            rows = asked.answer(replace(ask, stores=tuple(roots)), lacking := AnswerGaps())
            return lacking, chain(list(islice(rows, 1)), rows)

        def check(roots: Sequence[str]) -> Mapping[str, StoreError]:
            return readable(replace(ask, stores=tuple(roots)), asked.views)[1]

        with common.progress("asking", 0):
            (lacking, rows), gone = run_on_readable(begun, ask.stores, options.partial, check)
            left_out += gone
            print_answer(rows, columns, left_out, common)
    report_bounds(lacking.bounds.values(), common)
    code = report_lacking(lacking.damage, lacking.bodies)
    raise Exit(max(code, int(bool(left_out))))
