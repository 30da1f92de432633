"""`mqstore pipeline stats`: count what fills the logs of many stores, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

from ..store.counted import counted
from .declared import Option, bad_parameter
from .options import Common, shared
from .pipeline_options import Spark, Stores, session_showing, warn_if_quicker_here
from .stats_answer import StatsOptions, answer
from .unread import readable_logs, report_unreadable

if TYPE_CHECKING:
    from ..store.search.log_search import TimeBounds


@shared()
def stats(
    stores: Stores,
    *,
    options: StatsOptions,
    quick: Annotated[bool, Option("--quick", hidden=True, help="Refused: mqstore stats has it.")] = False,
    spark: Spark,
    common: Common,
) -> None:
    """Count what fills the logs of many stores, on Spark: bytes, records, messages, sizes and times.

    The groups and counts are those of mqstore stats, which needs no Spark and is quicker for one small store. Each
    task counts a part of a log.

    If a store cannot be read, the command ends before it counts anything. Damage is reported on stderr.

    Exit code: 0 counted; 1 counted, except damaged parts or stores left out by --partial; 5 some store cannot be
    read, no Spark.

    \b
    Examples:
      mqstore pipeline stats '/data/*/store'
      mqstore pipeline stats @stores.txt --by store,topic --top 20
      mqstore pipeline stats @stores.txt --by tag,hour --since -1d --format csv
    """
    if quick:
        raise bad_parameter("--quick needs no Spark: mqstore stats --quick")
    count_spark(stores, options, spark, common)


def count_spark(stores: list[str], options: StatsOptions, spark: Spark, common: Common) -> None:
    """Count on Spark. Raises Exit with the exit code, and the errors that end a command."""
    master, settings = spark.place(common)
    wanted = options.wanted
    common.open_output().check(options.columns)
    from dataclasses import replace

    from ..pipeline.stats import count_on, tasks_of
    from ..store.arrow.stores import stores_of

    ask = options.asked(stores_of(stores), common)
    sizes, left_out = readable_logs(ask.stores, ask.broker_config, options.partial, common)
    warn_if_quicker_here("stats", list(sizes), spark, common)
    bounds: dict[str, TimeBounds] = {}
    tasks = tasks_of(replace(ask, stores=tuple(sizes)), wanted, bounds.__setitem__)
    common.explain(f"starting Spark on {master} for {counted(len(tasks), 'part')} of logs")
    place = master, settings
    with session_showing("counting", sum(sizes.values()), 1, place, common) as session:
        found, failed = count_on(session, tasks, wanted)
    found.bounds = {root: one for root, one in bounds.items() if root not in failed}
    others = len(failed) < len(sizes)
    left_out += report_unreadable(failed, others=others, partial=options.partial)
    answer(found, left_out, options, common)
