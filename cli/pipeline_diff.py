"""`mqstore pipeline diff`: compare two stores, or two sets of stores, on Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..store.counted import counted
from .diff_options import INDEX, MESSAGES, A, B, DiffOptions
from .options import Common, shared
from .pipeline_options import Spark, session_showing, warn_if_quicker_here

if TYPE_CHECKING:
    from .diff_answer import Sides


@shared()
def diff(a: A, b: B, *, looks: DiffOptions, spark: Spark, common: Common) -> None:
    """Show where two copies of a store differ, for many or large stores.

    The answer is that of mqstore diff, whose help says how messages are compared. mqstore diff needs no Spark and
    is quicker unless logs are large or many. Here tasks compare the messages. Other parts of local stores are
    compared as by mqstore diff --quick; of stores in object storage only messages are compared.

    Exit code: 0 no difference; 1 differences, damage, a body that fails its checksum, a store without a partner or,
    with --partial, a store that cannot be read; 5 a store cannot be read, no Spark.

    \b
    Examples:
      mqstore pipeline diff '/backup/*/store' '/data/*/store' --format ndjson
      mqstore pipeline diff s3://backup/store s3://live/store --master spark://head:7077
    """
    compared_on_spark(a, b, looks, spark, common)


def compared_on_spark(a: str, b: str, looks: DiffOptions, spark: Spark, common: Common) -> None:
    """Run `diff` on the Spark that `spark` names. Raises SparkUnavailable, Exit."""
    looks.refuse_nothing(INDEX | {MESSAGES} if looks.quick else INDEX, "Spark or --quick")
    master, settings = spark.place(common)
    from ..pipeline.diff import on_spark
    from .diff_answer import answer

    def compare(pair: Sides) -> None:
        pair.compare_parts(common.config(), lambda size: None, looks, quick=True)
        if MESSAGES not in looks.parts or looks.quick:
            return
        warn_if_quicker_here("diff", [one for one, _ in pair.pairs.values()], spark, common)
        common.explain(f"starting Spark on {master} for {counted(len(pair.pairs), 'pair')} of stores")
        with session_showing("comparing", pair.bytes, 1, (master, settings), common) as session:
            pair.found(*on_spark(session, pair.pairs, common.config()))

    answer(a, b, looks.partial, common, compare)
