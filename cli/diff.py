"""`mqstore diff`: where two stores, or two fleets, part, in this process."""

from __future__ import annotations

from .declared import App
from .diff_options import A, B, compared
from .options import Common, shared
from .pipeline_options import Spark
from .unread import Partial

app = App()


@app.command()
@shared(or_spark=True)
def diff(a: A, b: B, *, partial: Partial = False, spark: Spark, common: Common) -> None:
    """Find the first message of each queue in which two copies differ.

    Messages are matched by topic, queue and queue offset, and compared by what the producer gave:
    body as it is stored (one that was compressed again may differ), properties, flag, time and host
    of birth. Their place in the log does not count. Of several stores those are compared whose paths
    are the same below what all of their side have in common. What has expired on one side is left
    out.

    On stderr stands what damage hides, of more than 1,000 places only their number (that side counts
    as having no messages there), and how many bodies fail their checksum: a flipped bit is a
    difference, and no sound copy, whatever CRC stands beside it. With --master Spark does it, for
    logs that are large or many.

    Exit code: 0 no difference; 1 differences, damage, a body that fails its checksum, a store without
    a partner or, with --partial, one that cannot be read; 5 a store, or bytes of one on a
    disk, cannot be read.

    \b
    Examples:
      mqstore diff /data/master/store /data/slave/store
      mqstore diff '/backup/*/store' '/data/*/store' --format ndjson
      mqstore diff s3://backup/broker-a/store /data/store --partial
    """
    if spark.meant:
        from .pipeline_diff import compared_on_spark

        compared_on_spark(a, b, partial, spark, common)
        return
    from ..store.arrow import require_arrow

    require_arrow("no comparison")
    from ..pipeline.diff import here
    from ..store.disk.byte_reader import at_rate

    with (
        compared(a, b, partial, common) as pair,
        at_rate(common.rate),
        common.progress("comparing", pair.bytes) as progress,
    ):
        pair.found(*here(pair.a, pair.b, common.config(), progress.advance))
