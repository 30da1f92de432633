"""`mqstore pipeline stats`: who fills the disks, over many stores, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..store.counted import counted
from .exit_codes import ExitCode, exit_code_of
from .options import Common, say, shared
from .pipeline_options import Spark, Stores, showing
from .selection_options import Since, Until

_BY = ("store", "topic", "queue_id", "tag", "host", "hour")


@shared()
def stats(
    stores: Stores,
    *,
    by: Annotated[
        str,
        typer.Option("--by", metavar="A,B", help=f"Group by some of: {', '.join(_BY)}."),
    ] = "topic",
    top: Annotated[
        int | None,
        typer.Option("--top", "-n", metavar="N", min=1, help="Only the N groups with most bytes."),
    ] = None,
    since: Since = None,
    until: Until = None,
    spark: Spark,
    common: Common,
) -> None:
    """Count what fills the logs: bytes, records, messages, sizes and times, group by group.

    Bytes and sizes are those of records in the commit log, with their share of all that was counted; a
    batch record counts as its messages besides. host is
    the producer's address, hour that of storing (ms since 1970). Percentiles of sizes are at most
    1/16 too low. A store that cannot be read is told on stderr, and the others are counted.

    Exit code: 0 counted; 5 some store cannot be read, no Spark.

    \b
    Examples:
      mqstore pipeline stats '/data/*/store'
      mqstore pipeline stats @stores.txt --by store,topic --top 20
      mqstore pipeline stats /data/store --by tag,hour --since -1d --format csv
    """
    master, settings = spark.place(common)
    from ..pipeline.session import spark_session
    from ..pipeline.stats import stats_on, tasks_of
    from ..pipeline.watch import watched
    from ..store.arrow.fleet import stores_of
    from ..store.time_range import parse_range

    wanted = _dimensions(by)
    times = parse_range(since, until)
    inside = [name for name in wanted if name != "store"]
    tasks, unread = tasks_of(stores_of(stores), common.config(), inside, times)
    common.explain(f"starting Spark on {master} for {counted(len(tasks), 'part')} of logs")
    total_bytes = sum(stop - start for start, stop in (task["split"] for task in tasks))
    with (
        showing("counting", total_bytes, 1, common) as tell,
        spark_session(master, settings) as session,
        watched(session, tell),
    ):
        stats, failed = stats_on(session, tasks, wanted)
    unread += failed
    for error in unread:
        say(str(error))
    rows = [{"type": "stats", **row} for row in stats.rows(top)]
    with common.open_output() as output:
        output.records(iter(rows), text=lambda row: _text(row, wanted), columns=_columns(wanted))
    if unread:
        raise typer.Exit(max(exit_code_of(error) for error in unread))
    raise typer.Exit(ExitCode.DONE)


def _dimensions(by: str) -> tuple[str, ...]:
    """What `--by` names, the store first. Raises BadParameter."""
    names = [name.strip() for name in by.split(",") if name.strip()]
    unknown = [name for name in names if name not in _BY]
    if unknown or not names or len(set(names)) < len(names):
        raise typer.BadParameter(f"--by: some of {', '.join(_BY)}, each once")
    return tuple(sorted(names, key=lambda name: name != "store"))


def _columns(by: tuple[str, ...]) -> tuple[str, ...]:
    from ..store.stats import COUNTS

    return ("type", *by, *COUNTS)


def _text(row: Mapping[str, Any], by: tuple[str, ...]) -> str:
    from .terminal import bytes_text

    names = "  ".join(str(row[name]) for name in by)
    sizes = f"p50 {row['p50_bytes']}, p99 {row['p99_bytes']}, max {row['largest_bytes']}"
    share = f"{row['share']:6.1%}"
    messages = counted(row["messages"], "message ", "messages", form=">10")
    records = counted(row["records"], "record")
    batches = f" (in {records})" if row["messages"] != row["records"] else ""
    return f"{bytes_text(row['bytes']):>10} {share} {messages}{batches}  {sizes}  {names}"
