"""`mqstore pipeline sql`: a query over stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..store.counted import counted
from .options import Common, shared
from .pipeline_options import Spark, Stores, showing, source_options, told_unread
from .selection_options import Since, Until


@shared()
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query of Spark SQL.")],
    stores: Stores,
    *,
    since: Since = None,
    until: Until = None,
    spark: Spark,
    common: Common,
) -> None:
    """Ask stores with SQL.

    There are the views messages, damage, queues, index_items, timers, findings, offsets and lag; each
    has a column `store`. A view reads only the columns that QUERY names: `SELECT *` reads all but
    bodies. What of a store cannot be read is in the view damage, or a fatal finding. A store that is
    not there is told on stderr, too, and the others are asked.

    Exit code: 0 answered; 2 QUERY makes no sense; 5 some store is not there, no Spark.

    \b
    Examples:
      mqstore pipeline sql 'SELECT topic, count(*) n FROM messages GROUP BY topic' /data/store
      mqstore pipeline sql 'SELECT store, severity, code, path FROM findings' '/data/*/store'
      mqstore pipeline sql 'SELECT max(store_timestamp) FROM messages' @stores.txt --since -1d --format csv
    """
    from ..pipeline.session import spark_session

    master, settings = spark.place(common)
    from ..pipeline import register
    from ..pipeline.sql import SETTINGS, ask, columns_of_answer, records_of
    from ..pipeline.watch import watched
    from ..store.arrow.fleet import stores_of

    options = source_options(common, since, until)
    roots = stores_of(stores)
    code = told_unread(roots, common)
    common.explain(f"starting Spark on {master} for {counted(len(roots), 'store')}")
    with (
        showing("asking", 0, None, common) as tell,
        spark_session(master, SETTINGS | settings) as session,
        watched(session, tell),
    ):
        register(session)
        answer = ask(session, query, roots, options)
    with common.open_output() as output:
        output.records(records_of(answer), text=_text, columns=columns_of_answer(answer))
    raise typer.Exit(code)


def _text(record: Mapping[str, Any]) -> str:
    return "\t".join("" if value is None else str(value) for value in record.values())
