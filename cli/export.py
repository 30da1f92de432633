"""`mqstore export`: messages as files for other programs, in this process."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .declared import App
from .export_options import ExportOptions, FileFormat, answer, report_of
from .options import Common, shared
from .pipeline_options import Spark, Stores, To
from .unread import of_readable, tell_unread

app = App()


@app.command()
@shared(FileFormat, "That of the files.", or_spark=True)
def export(stores: Stores, *, to: To, options: ExportOptions, spark: Spark, common: Common) -> None:
    """Write messages as Parquet, Arrow, NDJSON, CSV or Avro files.

    DIR gets part-….parquet, which pandas, polars, DuckDB, Spark and others read as one table: every
    column stands in the files, with its type. A DIR that is not there appears whole or not at all; into
    one that is there files come one by one. What was cut off is finished, or begun again, by running
    the same command once more. All formats are what mqstore put --from takes.
    --format is that of the files; the answer is a line, or with --json an object.

    DIR is a new or empty directory, unless it holds an export: --append adds the messages asked for as
    more files, --overwrite replaces what is there so that readers see the old or the new one, and
    --since-last adds what stands behind the end of the last export, of each store. Killed and run
    again, --since-last has each message once. Columns and format must be those that are there.

    --since-last is refused where the log is not as it was exported: a start of a broker, recover,
    repair --all or undo may have changed its end. A new DIR takes all that is there, and --append
    --since TIME adds what came since, behind which --since-last goes on; --overwrite loses what has
    expired.

    Properties whose text their map does not give back (bytes that are no UTF-8, a name twice) have it
    beside them, as properties_raw; the bytes of such a topic are in topic_base64, if that is named. A
    body that is shown decompressed has body_compression. One that fails its checksum has a body_crc_ok
    that is false (--on-damage mark), is left out (skip), or ends the command (fail). A store that cannot
    be read ends it before anything is written. With --master Spark does it, in parts, as mqstore
    pipeline export does.

    Exit code: 0 complete; 1 something was damaged or has expired, or with --partial a store could not
    be read; the rest is there; 4 another job works on DIR; 5 cannot be read or written: bytes that a
    disk does not give are this, too, and the rest is there.

    \b
    Examples:
      mqstore export /data/store --to /data/export
      mqstore export '/data/*/store' --to out --topic 'orders*' --since -7d --timestamps --by-day
      mqstore export /data/store --to out --format json --body none
      mqstore export /data/store --to out --columns topic,keys,body --compression gzip --file-size 1G
      mqstore export '/data/*/store' --to /lake/messages --since-last
    """
    if spark.meant:
        from .pipeline_export import export_on_spark

        export_on_spark(stores, to, options, spark, common)
        return
    from ..store.arrow import require_arrow

    require_arrow("no export")
    output = common.checked_output("export")
    from ..pipeline.export import export as run
    from ..pipeline.export import here
    from ..store.arrow.stores import log_sizes, stores_of
    from ..store.disk.byte_reader import at_rate

    how, asked, mode = options.how(common.format.value), options.asked(common), options.mode()
    sizes, unread = log_sizes(stores_of(stores), common.config())
    left_out = tell_unread(unread, others=bool(sizes), partial=options.partial)

    def job(roots: Sequence[str]) -> dict[str, Any]:
        with at_rate(common.rate), common.progress("exporting", sum(map(sizes.__getitem__, roots))) as progress:
            return run(roots, asked, how, to, here(progress.advance), mode=mode)

    manifest, gone = of_readable(job, list(sizes), options.partial, lambda roots: log_sizes(roots, common.config())[1])
    answer(report_of(to, manifest, [*left_out, *gone]), options, common, output)
