"""`mqstore stats`: count what fills the disk, in this process, or show what is deleted next."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

from .declared import Option, bad_parameter
from .expiry_answer import ExpiryOptions
from .options import Common, shared
from .pipeline_options import Spark, Stores
from .stats_answer import StatsOptions, answer
from .unread import readable_logs, report_unreadable, run_on_readable

if TYPE_CHECKING:
    from ..store.arrow.log_rows import Counted


@shared()
def stats(
    stores: Stores,
    *,
    options: StatsOptions,
    quick: Annotated[bool, Option("--quick", help="Read only queue units, if they have what --by asks for.")] = False,
    expiring: ExpiryOptions,
    browse: Annotated[
        bool, Option("--browse", help="Walk through one store: topics, queues, messages; q quits.")
    ] = False,
    spark: Spark,
    common: Common,
) -> None:
    """Count what fills the logs: bytes, records, messages, sizes and times, group by group.

    Bytes and sizes are those of records in the commit log; the share is of all bytes counted. A batch record also
    counts each of its messages. Percentiles of sizes are at most 1/16 too low. --since and --until go by store
    time; in a log above 64 MiB whose times rise, only the files near these times are read, and stderr says how many
    were left out. Several cores count parts of a log (--jobs); with --master Spark counts them. --quick reads only
    the queue units, a fiftieth of the bytes: they show topic, queue, group, kind, size and file, but no bodies and
    no properties.

    Values of --by: queue is a topic with its queue id; group is the consumer group of retries and dead letters,
    else the producer group of transactions; kind is the purpose of a topic (user, retry, dead_letter, delay,
    transaction, system); host is the producer's address; hour and day are store times in UTC (ms since 1970); size
    is a power of 2; file is the log file.

    --expires says which files a broker deletes next, and when; when the disk is full if the log grows as in its
    last hours; which groups would lose messages that they have not consumed; and how many delayed and timed messages
    go before they are due. It goes by fileReservedTime, deleteWhen and diskMaxUsedSpaceRatio of the options or of
    config/broker.properties, or by their defaults. For a copy on another machine, describe the broker's disk:
    --disk-size, --disk-used.

    If a store cannot be read, the command ends before it counts anything. Damage is reported on stderr.

    Exit code: 0 counted; 1 counted, except damaged parts, messages that queues lack (--quick), or stores left out
    by --partial; with --expires: a group loses messages, or that is not known; messages go before they are due; the
    disk gets full; or a broker fails to delete files for its deleteWhen; 5 a store, its queues (--quick), or bytes
    on a disk cannot be read.

    \b
    Examples:
      mqstore stats /data/store
      mqstore stats /data/store --by tag,hour --since -1d --format csv
      mqstore stats /data/store --by kind,day --verbose
      mqstore stats /data/store --by queue --quick --top 20
      mqstore stats '/data/*/store' --by store,topic --top 20 --partial
      mqstore stats /data/store --expires --broker-config broker.conf
      mqstore stats /data/store --browse
    """
    expiring.check(quick, browse, spark.meant)
    if expiring.expires or browse:
        options.refuse("--expires" if expiring.expires else "--browse")
    if browse and (quick or spark.meant):
        raise bad_parameter("--browse cannot be combined with --quick or --master")
    if spark.meant and not quick:
        from .pipeline_stats import count_spark

        count_spark(stores, options, spark, common)
        return
    if browse:
        _browse(stores, common)
    elif expiring.expires:
        from .expiry_answer import print_expiry

        print_expiry(stores, expiring, common)
    elif quick:
        _count_queues(stores, options, spark, common)
    else:
        _count_logs(stores, options, common)


def _count_logs(stores: list[str], options: StatsOptions, common: Common) -> None:
    wanted = options.wanted
    common.open_output().check(options.columns)
    from ..store.arrow import require_arrow

    require_arrow("no counts")
    from dataclasses import replace

    from ..store.arrow.log_rows import count_here
    from ..store.arrow.stores import log_sizes, stores_of

    ask = options.asked(stores_of(stores), common)
    sizes, left_out = readable_logs(ask.stores, ask.broker_config, options.partial, common)

    def job(roots: Sequence[str]) -> Counted:
        with common.progress("counting", sum(map(sizes.__getitem__, roots))) as progress:
            return count_here(replace(ask, stores=tuple(roots)), wanted, common.jobs, progress.advance)

    found, gone = run_on_readable(
        job, list(sizes), options.partial, lambda roots: log_sizes(roots, ask.broker_config)[1]
    )
    answer(found, [*left_out, *gone], options, common)


def _count_queues(stores: list[str], options: StatsOptions, spark: Spark, common: Common) -> None:
    """Count queue units. Raises BadParameter for options that need the log."""
    if spark.meant or options.since is not None or options.until is not None:
        raise bad_parameter("--quick cannot be combined with --master, --since or --until")
    from ..store.arrow import require_arrow

    require_arrow("no counts")
    from contextlib import ExitStack

    from ..store.arrow.log_columns import STORE
    from ..store.arrow.log_rows import Counted
    from ..store.arrow.stores import stores_of
    from ..store.errors import StoreError
    from ..store.inspect.stats import QUEUES, Stats, check_queues, check_units_tell, stats_of_queues
    from ..store.offsets.lag import lacking_text
    from ..store.search.store import StoreReader

    wanted = options.wanted
    inside = [name for name in wanted if name != STORE]
    check_units_tell(inside)
    common.open_output().check(options.columns)
    counted, unread = dict[str, tuple[Stats, str]](), dict[str, StoreError]()
    for root in (roots := stores_of(stores)):
        with ExitStack() as opened:
            try:
                store = opened.enter_context(StoreReader(root, common.config()))
                check_queues(store)
            except StoreError as error:
                unread[root] = error
                continue
            counted[root] = stats_of_queues(store, inside, lambda _: None), lacking_text(store)
    left_out = report_unreadable(unread, others=len(unread) < len(roots), partial=options.partial)
    total: Counted = Counted(Stats(wanted, QUEUES))
    for root, (found, lacking) in counted.items():
        total.add(Counted(found), root)
        if lacking:
            common.warn(f"not in the answer: {root}: {lacking}; without --quick it is counted")
    answer(total, left_out, options, common, lacking=any(lacking for _, lacking in counted.values()))


def _browse(stores: Stores, common: Common) -> None:
    """Run `browse` on the terminal. Raises BadParameter, InvalidInput, Unsupported."""
    import os
    import sys
    from importlib.util import find_spec

    from ..store.errors import InvalidInput, Unsupported
    from .terminal import is_terminal

    if len(stores) != 1:
        raise bad_parameter("--browse: name one store")
    if not is_terminal(sys.stdin) or not is_terminal(sys.stdout):
        raise InvalidInput("--browse needs a terminal", hint="without it stats prints a table")
    if find_spec("textual") is None:
        raise Unsupported("--browse needs textual", hint="pip install 'mqstore[tui]'")
    if common.no_color:
        os.environ["NO_COLOR"] = "1"  # before textual is imported
    from .browse import walk

    walk(stores[0], common.config(), common.utc)
