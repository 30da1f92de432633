"""`mqstore diff`: compare two stores, or two sets of stores, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .diff_options import INDEX, MESSAGES, A, B, DiffOptions
from .options import Common, shared
from .pipeline_options import Spark

if TYPE_CHECKING:
    from .diff_answer import Sides


@shared()
def diff(a: A, b: B, *, looks: DiffOptions, spark: Spark, common: Common) -> None:
    """Show where two copies of a store differ: log, messages, queues, index, positions, configuration, timers.

    Where both sides have the log, it is compared byte by byte: whether both are copies of one log, the first
    position where they differ, the bytes that only one side has, and each different field of different records.
    Equal bytes are not decoded: `mqstore verify` says whether they are in order. Elsewhere, or if the logs are not
    copies of each other, messages are matched by topic, queue and queue offset. Their positions in the log do not
    count. They are compared by what the producer gave: stored body (a body compressed again may differ),
    properties, flag, born time and born host. Messages that have expired on one side are left out. Of several
    stores, those are compared whose paths are the same below the common part of their side. A side may be a backup
    with only some parts of a store.

    Queue units are compared if the logs are the same; of the index, the positions that keys lead to, not the files;
    positions of groups; members of config/ and entries of its RocksDBs; the number of waiting timers per hour.
    Times and counters of writing do not count. --quick reads only the ends of logs, the beginnings of files and
    samples, no message, no queue unit, no index, and says so. --only messages asks whether both sides have the same
    messages. Of a store in object storage only messages can be compared.

    stderr names the places that damage hides (more than 1,000 places: only their number; that side counts as having
    no messages there), and how many bodies fail their checksum. A flipped bit is a difference, whatever CRC stands
    beside it. With --master Spark compares the messages of large or many logs; the rest is compared as with
    --quick.

    Exit code: 0 the same; 1 differences, damage in a part that differs, a part that cannot be compared (stderr says
    which, and why), a store without a partner or, with --partial, a store that cannot be read; 5 a store, or bytes
    on a disk, cannot be read.

    \b
    Examples:
      mqstore diff /data/master/store /data/slave/store
      mqstore diff /data/store /backup/store --quick
      mqstore diff /data/store /data/rebuilt --only messages
      mqstore diff '/backup/*/store' '/data/*/store' --format ndjson
      mqstore diff s3://backup/broker-a/store /data/store --partial
    """
    if looks.quick:
        looks.refuse_nothing(INDEX | {MESSAGES}, "--quick")
    if spark.meant:
        from .pipeline_diff import compared_on_spark

        compared_on_spark(a, b, looks, spark, common)
        return
    from ..store.arrow import require_arrow

    require_arrow("no comparison")
    from ..pipeline.diff import here
    from .diff_answer import answer

    def compare(pair: Sides) -> None:
        with common.progress("comparing", pair.bytes) as progress:
            pair.compare_parts(common.config(), progress.advance, looks, quick=looks.quick)
            if MESSAGES in looks.parts and not looks.quick:
                pair.found(*here(pair.pairs, common.config(), progress.advance, pair.within))

    answer(a, b, looks.partial, common, compare)
