"""`mqstore pipeline export`: write messages to files for other programs, on Spark."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from ..store.counted import counted
from .export_options import ExportOptions, FileFormat, answer, report_of
from .options import Common, shared
from .pipeline_options import Spark, Stores, To, session_showing, warn_if_quicker_here
from .unread import readable_logs, run_on_readable


@shared(FileFormat, "Format of the files.", without=("rate",))
def export(stores: Stores, *, to: To, options: ExportOptions, spark: Spark, common: Common) -> None:
    """Write messages as files, with a task of Spark for each part of a log.

    The files are those of mqstore export, which works without Spark and is quicker unless logs are large or many.
    Each task writes at least one file. Executors must see DIR under the same path.

    Exit code: 0 complete, except log files left out by time; 1 something was damaged, or a store could not be read
    (--partial); the rest is exported; 4 another job works on DIR; 5 cannot be read or written, no Spark.

    \b
    Examples:
      mqstore pipeline export @stores.txt --to /mnt/export --topic 'orders*' --since -7d
      mqstore pipeline export '/data/*/store' --to /mnt/export --master spark://head:7077
    """
    export_on_spark(stores, to, options, spark, common)


def export_on_spark(stores: list[str], to: Path, options: ExportOptions, spark: Spark, common: Common) -> None:
    """Run `export` on the Spark that `spark` names. Raises SparkUnavailable, Exit."""
    master, settings = spark.place(common)
    output = common.checked_output("export")
    from ..pipeline.export import STAGES, on_spark
    from ..pipeline.export import export as run
    from ..store.arrow.stores import log_sizes, stores_of

    how, asked, mode = options.how(common.format.value), options.asked(common), options.mode()
    sizes, left_out = readable_logs(stores_of(stores), common.config(), options.partial, common)
    warn_if_quicker_here("export", list(sizes), spark, common)
    common.explain(f"starting Spark on {master} for {counted(len(sizes), 'store')}")

    def job(roots: Sequence[str]) -> dict[str, Any]:
        shown = "exporting", sum(map(sizes.__getitem__, roots)), STAGES, (master, settings), common
        return run(roots, asked, how, to, on_spark(lambda: session_showing(*shown)), mode=mode)

    manifest, gone = run_on_readable(
        job, list(sizes), options.partial, lambda roots: log_sizes(roots, common.config())[1]
    )
    answer(report_of(to, manifest, [*left_out, *gone]), options, common, output)
