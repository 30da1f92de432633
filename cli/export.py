"""`mqstore export`: write messages to files for other programs, in this process or on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from .export_options import ExportOptions, FileFormat, answer, report_of
from .options import Common, shared
from .pipeline_options import Spark, Stores, To, session_showing, warn_if_quicker_here
from .unread import readable_logs, run_on_readable


@shared(FileFormat, "Format of the files.")
def export(stores: Stores, *, to: To, options: ExportOptions, spark: Spark, common: Common) -> None:
    """Write messages as Parquet, Arrow, NDJSON, CSV or Avro files.

    DIR gets part-….parquet files, which pandas, polars, DuckDB, Spark and others read as one table: every file has
    all columns, with their types. A new DIR appears complete or not at all; in an existing DIR the files appear one
    by one. If the export is interrupted, run the same command again: it finishes the export or starts again; with a
    time like -1d, exit code 5 may say that the export is finished now. All formats can be read by mqstore put
    --from. --format is the format of the files; the answer is one line, or with --json one object.

    DIR must be new or empty, unless it holds an export: --append adds the selected messages as more files;
    --overwrite replaces all files at once, readers see the old or the new export; --since-last adds, for each
    store, the messages stored after the last export. If --since-last is killed and run again, DIR has each message
    once. Columns and format must be those of the export.

    --since and --until go by the clock of the broker. In a log above 64 MiB whose times rise, export reads only the
    files near these times; the answer says how many were left out. A clock that was wrong for a while may have given
    such times to other messages: dump reads the whole log.

    --since-last is refused if the log is not the one that was exported: a broker's start, recover, repair --all or
    undo may have changed its end. Then export all to a new DIR. Or add the newer messages with --append --since
    TIME; the next --since-last continues from there. --overwrite loses messages that have expired since.

    If the text of properties cannot be rebuilt from their map (bytes that are not UTF-8, a name twice), it is added
    as properties_raw; the bytes of such a topic are in topic_base64, if --columns names it. A body that was
    decompressed has body_compression. A body that fails its checksum gets body_crc_ok false (--on-damage mark), is
    left out (skip), or ends the command (fail). If a store cannot be read, the command ends before it writes
    anything. With --master Spark exports the log in parts, as mqstore pipeline export does.

    Exit code: 0 complete, except log files left out by time; 1 something was damaged or has expired, or a store
    could not be read (--partial); the rest is exported; 4 another job works on DIR; 5 cannot read or write; if a
    disk did not give some bytes, the rest is exported.

    \b
    Examples:
      mqstore export /data/store --to /data/export
      mqstore export '/data/*/store' --to out --topic 'orders*' --since -7d --timestamps --by-day
      mqstore export /data/store --to out --format json --body none
      mqstore export /data/store --to out --columns topic,keys,body --compression gzip --file-size 1G
      mqstore export '/data/*/store' --to /lake/messages --since-last
    """
    run_export(stores, to, options, spark if spark.meant else None, common)


def run_export(stores: list[str], to: Path, options: ExportOptions, spark: Spark | None, common: Common) -> None:
    """Export in this process, or on the Spark that `spark` names. Raises SparkUnavailable, Exit."""
    from ..store.arrow import require_arrow

    place = ("", {}) if spark is None else spark.place(common)
    require_arrow("no export")
    output = common.checked_output("export")
    from ..pipeline.export import STAGES, here, on_spark
    from ..pipeline.export import export as run
    from ..store.arrow.stores import log_sizes, stores_of
    from ..store.counted import counted

    how, asked, mode = options.how(common.format.value), options.asked(common), options.mode()
    sizes, left_out = readable_logs(stores_of(stores), common.config(), options.partial, common)
    if spark is not None:
        warn_if_quicker_here("export", list(sizes), spark, common)
        common.explain(f"starting Spark on {place[0]} for {counted(len(sizes), 'store')}")

    def job(roots: Sequence[str]) -> dict[str, Any]:
        size = sum(map(sizes.__getitem__, roots))
        if spark is not None:
            session = partial(session_showing, "exporting", size, STAGES, place, common)
            return run(roots, asked, how, to, on_spark(session), mode=mode)
        with common.progress("exporting", size) as progress:
            return run(roots, asked, how, to, here(progress.advance), mode=mode)

    manifest, gone = run_on_readable(
        job, list(sizes), options.partial, lambda roots: log_sizes(roots, common.config())[1]
    )
    answer(report_of(to, manifest, [*left_out, *gone]), options, common, output)
