"""`mqstore pipeline export`: write messages to files for other programs, on Spark."""

from __future__ import annotations

from .export import run_export
from .export_options import ExportOptions, FileFormat
from .options import Common, shared
from .pipeline_options import Spark, Stores, To


@shared(FileFormat, "Format of the files.")
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
    run_export(stores, to, options, spark, common)
