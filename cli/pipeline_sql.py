"""`mqstore pipeline sql`: a query over stores."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from .options import Common, shared
from .pipeline_options import (
    Conf,
    ExecutorMemory,
    Master,
    Packages,
    Stores,
    master_of,
    settings_of,
    source_options,
)


@shared()
def sql(
    query: Annotated[str, typer.Argument(metavar="QUERY", help="A query of Spark SQL.")],
    stores: Stores,
    *,
    since: Annotated[
        str | None,
        typer.Option("--since", metavar="T", help="Messages stored at T or later."),
    ] = None,
    until: Annotated[
        str | None,
        typer.Option("--until", metavar="T", help="Messages stored before T."),
    ] = None,
    master: Master = None,
    conf: Conf = None,
    executor_memory: ExecutorMemory = None,
    packages: Packages = None,
    common: Common,
) -> None:
    """Ask stores with SQL.

    There are the views messages, damage, queues, index_items, timers, findings and offsets; each
    has a column `store`. A view reads only the columns that QUERY names: `SELECT *` reads all but
    bodies. What of a store cannot be read is in the view damage, or a fatal finding.

    \b
    Examples:
      mqstore pipeline sql 'SELECT topic, count(*) n FROM messages GROUP BY topic' /data/store
      mqstore pipeline sql 'SELECT store, severity, code, path FROM findings' '/data/*/store'
      mqstore pipeline sql 'SELECT max(store_timestamp) FROM messages' @stores.txt --since -1d --format csv
    """
    from ..pipeline.session import require_packages, spark_session

    master = master_of(master, common)
    settings = settings_of(conf, executor_memory, packages)
    require_packages()
    from ..pipeline import register
    from ..pipeline.sources.fleet import stores_of
    from ..pipeline.sql import SETTINGS, ask, columns_of_answer, records_of
    from ..store.time_range import parse_range

    times = parse_range(since, until)
    options = source_options(common)
    if times.bounded:
        options |= {"since": str(times.since_ms), "until": str(times.until_ms)}
    roots = stores_of(stores)
    common.explain(f"starting Spark on {master} for {len(roots)} stores")
    with spark_session(master, SETTINGS | settings) as spark:
        register(spark)
        answer = ask(spark, query, roots, options)
    with common.open_output() as output:
        output.records(records_of(answer), text=_text, columns=columns_of_answer(answer))


def _text(record: Mapping[str, Any]) -> str:
    return "\t".join("" if value is None else str(value) for value in record.values())
