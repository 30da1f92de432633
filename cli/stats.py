"""`mqstore stats`: who fills the disk, counted in this process."""

from __future__ import annotations

from .declared import App
from .options import Common, shared
from .pipeline_options import Spark, Stores
from .stats_answer import StatsOptions, answer
from .unread import tell_unread

app = App()


@app.command()
@shared(without=("rate",))
def stats(stores: Stores, *, options: StatsOptions, spark: Spark, common: Common) -> None:
    """Count what fills the logs: bytes, records, messages, sizes and times, group by group.

    Bytes and sizes are those of records in the commit log, with their share of all that was counted; a
    batch record counts as its messages besides. host is the producer's address, hour that of storing
    (ms since 1970). Percentiles of sizes are at most 1/16 too low. --since and --until are by store
    time. Parts of a log are counted on several cores (--jobs); with --master Spark counts them.

    A store that cannot be read ends the command before anything is counted; damage is reported on stderr.

    Exit code: 0 counted; 1 counted, without what is damaged or with --partial; 5 some store, or bytes
    of one on a disk, cannot be read.

    \b
    Examples:
      mqstore stats /data/store
      mqstore stats /data/store --by tag,hour --since -1d --format csv
      mqstore stats '/data/*/store' --by store,topic --top 20 --partial
    """
    if spark.meant:
        from .pipeline_stats import count_spark

        count_spark(stores, options, spark, common)
        return
    wanted = options.wanted
    common.open_output().check(options.columns)
    from ..store.arrow import require_arrow

    require_arrow("no counts")
    from dataclasses import replace

    from ..store.arrow.log_rows import count_here
    from ..store.arrow.stores import log_sizes, stores_of

    ask = options.asked(stores_of(stores), common)
    sizes, unread = log_sizes(ask.stores, ask.broker_config)
    left_out = tell_unread(unread, others=bool(sizes), partial=options.partial)
    with common.progress("counting", sum(sizes.values())) as progress:
        found = count_here(replace(ask, stores=tuple(sizes)), wanted, common.jobs, progress.advance)
    answer(found, left_out, options, common)
