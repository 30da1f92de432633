"""`mqstore pipeline diff`: where two stores, or two fleets, part, on Spark."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any

import typer

from ..store.counted import counted
from .command_line import path_text
from .exit_codes import ExitCode
from .options import Common, shared
from .pipeline_options import Spark, damage_text, showing

_COLUMNS = (
    *("type", "store", "topic", "queue_id", "queue_offset", "how"),
    *("only_a", "only_b", "changed"),
)
_WHAT = "a store, a pattern, or @FILE with one a line."


@shared()
def diff(
    a: Annotated[str, typer.Argument(metavar="A", parser=path_text, help=f"One side: {_WHAT}")],
    b: Annotated[
        str, typer.Argument(metavar="B", parser=path_text, help=f"The other side: {_WHAT}")
    ],
    *,
    spark: Spark,
    common: Common,
) -> None:
    """Find the first message of each queue in which two copies differ.

    Messages meet by topic, queue and queue offset, and are compared by what the producer gave:
    body, properties, flag, time and host of birth. Where they lie in the log does not count. Of
    several stores those meet whose paths are the same below what all of their side have in common.
    What has expired on one side is passed over. What damage hides is told on stderr, of more than
    1,000 places how many there are; its messages count as if that side had none.

    Exit code: 0 no difference; 1 differences, damage, or a store without a partner; 5 a store cannot
    be read, no Spark.

    \b
    Examples:
      mqstore pipeline diff /data/master/store /data/slave/store
      mqstore pipeline diff '/backup/*/store' '/data/*/store' --format ndjson
    """
    master, settings = spark.place(common)
    from ..pipeline.diff import differences, log_bytes, pairs_of
    from ..pipeline.session import spark_session
    from ..pipeline.watch import watched
    from ..store.arrow.fleet import stores_of

    config = common.config()
    of_a, of_b, alone = pairs_of(stores_of([a]), stores_of([b]))
    total_bytes = log_bytes([*of_a, *of_b], config)
    for name in alone:
        common.warn(f"{name}: only one side has this store")
    common.explain(f"starting Spark on {master} for {counted(len(of_a), 'pair')} of stores")
    with (
        showing("comparing", total_bytes, 2, common) as tell,
        spark_session(master, settings) as session,
        watched(session, tell),
    ):
        rows, damage = differences(session, of_a, of_b, config)
    for lost in damage.first:
        common.warn(f"not compared: {damage_text(lost)}")
    for store, (places, size) in damage.cut.items():
        cut = f"in all {counted(size, 'byte')}, in {counted(places, 'place')}"
        common.warn(f"not compared: {store}: {cut}")
    with common.open_output() as output:
        found = ({"type": "difference", **row} for row in rows)
        output.records(found, text=_text, columns=_COLUMNS)
    raise typer.Exit(ExitCode.NO if rows or damage or alone else ExitCode.DONE)


def _text(row: Mapping[str, Any]) -> str:
    store = f"{row['store']}: " if row["store"] else ""
    first = {"only_a": "only A has it", "only_b": "only B has it", "changed": "it is another one"}
    counts = f"{row['only_a']} only in A, {row['only_b']} only in B, {row['changed']} changed"
    return (
        f"{store}{row['topic']}/{row['queue_id']} from {row['queue_offset']} on"
        f" ({first[row['how']]}): {counts}"
    )
