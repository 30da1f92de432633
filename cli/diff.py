"""`mqstore diff`: where two stores, or two fleets, differ, in this process."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .declared import App
from .diff_options import INDEX, MESSAGES, A, B, Looks
from .options import Common, shared
from .pipeline_options import Spark

if TYPE_CHECKING:
    from .diff_answer import Sides

app = App()


@app.command()
@shared(or_spark=True)
def diff(a: A, b: B, *, looks: Looks, spark: Spark, common: Common) -> None:
    """Tell where two copies of a store differ: log, messages, queues, index, positions, configuration, timers.

    Logs are compared byte by byte where both have them: whether they are one log, the first place where they
    part, what one side alone has, and of records that differ each field. What is the same is not decoded:
    `mqstore verify` says whether it is in order. Messages of the rest, or of logs that are no copies of each other, are
    matched by topic, queue and queue offset, and compared by what the producer gave: body as it is stored (one
    that was compressed again may differ), properties, flag, time and host of birth. Their place in the log does
    not count. What has expired on one side is left out. Of several stores those are compared whose paths
    are the same below what all of their side have in common; a side may be a backup that has only parts.

    Units of queues are compared where the logs are the same; of the index what keys lead to, not files; positions
    of groups; members of config/ and entries of its RocksDBs; how many timed messages wait, by the hour. Dates
    and counts of writing do not count. --quick reads the ends of logs, the beginnings of files and samples, no
    message, no unit, no index, and says so. --only messages asks whether both have the same ones, whatever else.
    Of a store in object storage only messages can be compared.

    On stderr stands what damage hides, of more than 1,000 places only their number (that side counts
    as having no messages there), and how many bodies fail their checksum: a flipped bit is a
    difference, whatever CRC stands beside it. With --master Spark compares the messages, for
    logs that are large or many, and the rest as --quick does.

    Exit code: 0 the same; 1 differences, damage in what differs, a part that cannot be compared (stderr says which, and
    why), a store without a partner or, with --partial, one that cannot be read; 5 a store, or bytes of one on a disk,
    cannot be read.

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
    from ..store.disk.byte_reader import at_rate
    from .diff_answer import answer

    def compare(pair: Sides) -> None:
        with at_rate(common.rate), common.progress("comparing", pair.bytes) as progress:
            pair.compare_parts(common.config(), progress.advance, looks, quick=looks.quick)
            if MESSAGES in looks.parts and not looks.quick:
                pair.found(*here(pair.a, pair.b, common.config(), progress.advance, pair.within))

    answer(a, b, looks.partial, common, compare)
