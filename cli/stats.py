"""`mqstore stats`: who fills the disk, counted in this process."""

from __future__ import annotations

from typing import Annotated

from .declared import App, Option, Options, bad_parameter
from .options import Common, shared
from .pipeline_options import Spark, Stores
from .stats_answer import StatsOptions, answer
from .unread import tell_unread

app = App()


class Browsing(Options):
    """A view instead of a table."""

    browse: Annotated[
        bool,
        Option("--browse", help="Walk through one store: topics, queues, messages; q leaves."),
    ] = False


@app.command()
@shared(without=("rate",))
def stats(
    stores: Stores, *, options: StatsOptions, browsing: Browsing, spark: Spark, common: Common
) -> None:
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
      mqstore stats /data/store --browse
    """
    if browsing.browse:
        _browse(stores, common)
        return
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


def _browse(stores: Stores, common: Common) -> None:
    """Hand the terminal over to `browse`. Raises BadParameter, InvalidInput, Unsupported."""
    import os
    import sys
    from importlib.util import find_spec
    from pathlib import Path

    from ..store.errors import InvalidInput, Unsupported
    from .terminal import is_terminal

    if len(stores) != 1:
        raise bad_parameter("--browse: name one store")
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        raise InvalidInput("--browse needs a terminal", hint="without it stats prints a table")
    if find_spec("textual") is None:
        raise Unsupported("--browse without textual", hint="pip install 'mqstore[tui]'")
    if common.no_color:
        os.environ["NO_COLOR"] = "1"  # before it is imported
    from .browse import walk

    walk(Path(stores[0]), common.config(), common.utc)
