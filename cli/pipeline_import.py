"""`mqstore pipeline import`: Parquet files become a store, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from ..store.counted import counted
from .broker_version import AsBroker, tell_nearest
from .options import Common, shared
from .pipeline_options import Spark, To, showing


@shared()
def import_(
    files: Annotated[
        list[Path],
        typer.Argument(metavar="FILE...", help="Parquet files, or directories of them."),
    ],
    *,
    to: To,
    as_broker: AsBroker = None,
    keep_times: Annotated[
        bool,
        typer.Option("--keep-times/--new-times", help="Take store_timestamp; or the clock."),
    ] = True,
    spark: Spark,
    common: Common,
) -> None:
    """Make a store of messages in Parquet files, as a broker would append them.

    The columns are those that mqstore pipeline export writes, with bodies; topic and body must be
    there. Messages are appended in the order of store_timestamp, and get new queue offsets. DIR
    appears whole or not at all: what was cut off is started anew by running the same command again.

    Exit code: 0 done; 2 messages that no broker takes; 4 another job works on DIR; 5 cannot be read
    or written, no Spark.

    \b
    Examples:
      mqstore pipeline import /data/export --to /data/store
      mqstore pipeline import a.parquet b.parquet --to /data/store --as-broker 4.9 --new-times
    """
    from ..store.errors import Missing

    master, settings = spark.place(common)
    tell_nearest(as_broker, common)
    for path in files:
        if not path.exists():
            raise Missing("no such file or directory", path=path)
    from ..pipeline.importing import STAGES, files_of, import_store, options_of

    total_bytes = sum(path.stat().st_size for path in files_of(files))
    common.explain(f"starting Spark on {master}")
    options = options_of(common.config(), as_broker, keep_times)
    with showing("importing", total_bytes, STAGES, common) as tell:
        manifest = import_store(files, to, options, master, settings, tell)
    record = {"type": "import", "to": str(to), "messages": manifest["messages"]}
    with common.open_output() as output:
        output.record(
            record, text=lambda row: f"{row['to']}: {counted(row['messages'], 'message')}"
        )
