"""`mqstore pipeline compact`: the newest message of each key as a store, on Spark."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from .options import Common, shared
from .pipeline_options import AsBroker, Spark, To, showing, source_options


@shared()
def compact(
    store: Annotated[Path, typer.Argument(metavar="STORE", help="A store's root directory.")],
    *,
    topic: Annotated[
        list[str],
        typer.Option("--topic", "-t", metavar="T", help="Topics to compact; patterns count."),
    ],
    to: To,
    as_broker: AsBroker = None,
    spark: Spark,
    common: Common,
) -> None:
    """Make a store of the newest message of each key.

    Of the messages of a queue that have the same KEYS the last one stays, unless its body is
    empty: that deletes the key. Messages without KEYS go. It is the rule of a broker's compaction,
    over the whole commit log; what stays is appended anew, in its order, and gets new queue offsets.
    DIR appears whole or not at all.

    Exit code: 0 done; 4 another job works on DIR; 5 cannot be read or written, no Spark.

    \b
    Examples:
      mqstore pipeline compact /data/store --topic prices --to /data/prices
      mqstore pipeline compact /data/store -t 'state-*' --to /data/states --as-broker 5.3
    """
    from ..store.layout import Layout

    master, settings = spark.place(common)
    config = common.config()
    log = Layout.open(store, config).commit_log_files()
    from ..pipeline.compact import STAGES, compact_store
    from ..pipeline.importing import options_of

    ask = {"path": str(store.absolute()), "topics": ",".join(topic), **source_options(common)}
    options = options_of(config, as_broker, keep_times=True)
    common.explain(f"starting Spark on {master}")
    total_bytes = sum(file.size for file in log.files)
    with showing("compacting", total_bytes, STAGES, common) as tell:
        manifest = compact_store(ask, to, options, master, settings, tell)
    counts = {name: manifest[name] for name in ("messages", "kept")}
    record = {"type": "compact", "store": str(store), "to": str(to), **counts}
    with common.open_output() as output:
        output.record(
            record, text=lambda row: f"{row['to']}: {row['kept']} of {row['messages']} messages"
        )
