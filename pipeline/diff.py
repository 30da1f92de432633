"""`diff`: the first message of each queue in which two stores, or two fleets, differ.

Records of both sides meet by store, topic, queue and queue offset, and are compared by what the
producer gave. Where they lie in the log, and when they were stored, does not count. A pair is compared
in this process (`store.arrow.differences`), or all pairs at once by Spark, which shuffles digests.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from ..store.arrow.ask import Ask
from ..store.arrow.differences import DAMAGE_MAX, HOW, Unsound, compare
from ..store.arrow.fleet import as_path
from ..store.arrow.log_rows import Damage
from .failures import failures
from .plan import names_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_QUEUE = ("pair", "topic", "queue_id")
_PLACE = (*_QUEUE, "queue_offset")
_FIELDS = ("store", *_PLACE[1:], "position", "digest", "body_crc_ok")

Pairs = Mapping[str, str]
"""Stores of one side, each with the name of its pair."""
Differences = list[dict[str, Any]]
"""A row for each queue that differs: where first, how, and how often."""


def pairs_of(
    a: Sequence[str], b: Sequence[str]
) -> tuple[dict[str, str], dict[str, str], list[str]]:
    """The name of the pair of each store in `a` and in `b`, and the names that have no partner.

    One store is the partner of the other one; of several those whose paths, below what all of
    their side have in common, are the same.
    """
    if len(a) == len(b) == 1:
        return {a[0]: ""}, {b[0]: ""}, []
    sides = []
    for roots in (a, b):
        names = names_of([as_path(root) for root in roots])
        names = [name or as_path(root).name for name, root in zip(names, roots, strict=True)]
        sides.append(dict(zip(roots, names, strict=True)))
    alone = set(sides[0].values()) ^ set(sides[1].values())
    kept = [{r: name for r, name in side.items() if name not in alone} for side in sides]
    return kept[0], kept[1], sorted(alone)


def here(
    a: Pairs, b: Pairs, config: Mapping[str, str], note: Callable[[int], None]
) -> tuple[Differences, Unsound]:
    """Compare pair by pair in this process. note: told how many bytes were read. Raises StoreError.

    Messages before the first one that the other side still has of a queue have expired there; they
    are passed over.
    """
    rows: Differences = []
    unsound = Unsound()
    partners = {name: store for store, name in b.items()}
    for store, name in a.items():
        one, other = (Ask((root,), config=dict(config)) for root in (store, partners[name]))
        found = compare(one, other, name, note)
        rows += found.rows
        unsound.join(found.unsound)
    return rows, unsound


def on_spark(
    spark: SparkSession, a: Pairs, b: Pairs, config: Mapping[str, str]
) -> tuple[Differences, Unsound]:
    """The same for all pairs at once. Raises the error that a worker met, or JobFailed."""
    if not a:
        return [], Unsound()
    with failures():
        both = _side(spark, a, config, 1).unionByName(_side(spark, b, config, -1))
        rows = _queues(both.repartition(*_QUEUE)).collect()
        unsound = _damage(spark, [*a, *b], config)
    stores = {pair: (store, other) for store, pair in a.items() for other in b if b[other] == pair}
    for row in rows:
        for store, wrong, first in zip(
            stores[row["pair"]], row["wrong"], row["first"], strict=True
        ):
            if wrong:
                unsound.add_bodies(store, wrong, first)
    return [_told(row) for row in rows if row["least"] is not None], unsound


def _side(spark: SparkSession, stores: Pairs, config: Mapping[str, str], weight: int) -> DataFrame:
    """The messages of one side, each with its weight, and its position where its body is not sound."""
    from pyspark.sql import functions as f

    rows = _read(spark, "rocketmq-log", list(stores), config, _FIELDS)
    wrong = f.expr("if(body_crc_ok, null, position)").alias("wrong")
    names = f.create_map(*(f.lit(text) for pair in stores.items() for text in pair))
    pair = names[f.col("store")].alias("pair")
    return rows.select(pair, *_PLACE[1:], "digest", wrong, f.lit(weight).alias("weight"))


def _queues(both: DataFrame) -> DataFrame:
    """Queues that differ, or have bodies that are not sound: how many of side A and of B, the first.

    Of what has one place and one digest on both sides nothing is left.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    def some(condition: str) -> Column:
        return f.bool_or(f.expr(condition))

    sides = (("a", "weight > 0"), ("b", "weight < 0"))
    unsound = [f.sum(f"wrong_{n}").alias(f"wrong_{n}") for n, _ in sides]
    unsound += [f.min(f"first_{n}").alias(f"first_{n}") for n, _ in sides]
    alike = both.groupBy(*_PLACE, "digest").agg(
        f.sum("weight").alias("left"),
        some("weight > 0").alias("has_a"),
        some("weight < 0").alias("has_b"),
        *(f.count_if(f.expr(f"wrong is not null and {s}")).alias(f"wrong_{n}") for n, s in sides),
        *(f.min(f.expr(f"if({s}, wrong, null)")).alias(f"first_{n}") for n, s in sides),
    )
    places = alike.groupBy(*_PLACE).agg(
        some("left > 0").alias("left_a"),
        some("left < 0").alias("left_b"),
        *(some(name).alias(name) for name in ("has_a", "has_b")),
        *unsound,
    )
    queue = Window.partitionBy(*_QUEUE)
    firsts = [
        f.coalesce(f.min(f.when(f.col(side), f.col(_PLACE[-1]))).over(queue), f.lit(0))
        for side in ("has_a", "has_b")
    ]
    how = f.expr(
        "case when queue_offset < first or not (left_a or left_b) then null"
        " when left_a and left_b then 'changed' when left_a then 'only_a' else 'only_b' end"
    )
    told = places.withColumn("first", f.greatest(*firsts)).withColumn("how", how)
    counts = (f.count_if(f.col("how") == one).alias(one) for one in HOW)
    least = f.min(f.when(f.col("how").isNotNull(), f.struct(_PLACE[-1], "how"))).alias("least")
    queues = told.groupBy(*_QUEUE).agg(least, *counts, *unsound)
    pairs = (f.array(f"{name}_a", f"{name}_b").alias(name) for name in ("wrong", "first"))
    kept = queues.where("least is not null or wrong_a + wrong_b > 0")
    return kept.select(*_QUEUE, "least", *HOW, *pairs).orderBy(*_QUEUE)


def _told(row: Row) -> dict[str, Any]:
    return {
        "store": row["pair"],
        "topic": row["topic"],
        "queue_id": row["queue_id"],
        "queue_offset": row["least"]["queue_offset"],
        "how": row["least"]["how"],
        **{how: row[how] for how in HOW},
    }


def _damage(spark: SparkSession, stores: Sequence[str], config: Mapping[str, str]) -> Unsound:
    """What of some stores could not be read."""
    from pyspark.sql import functions as f

    places = _read(spark, "rocketmq-damage", stores, config, ()).cache()
    number = f.array_position(f.array(*map(f.lit, stores)), f.col("store"))
    first = places.orderBy(number, "position").limit(DAMAGE_MAX).collect()
    sums = (f.count("*").alias("ranges"), f.coalesce(f.sum("size"), f.lit(0)).alias("bytes"))
    of = {row["store"]: row for row in places.groupBy("store").agg(*sums).collect()}
    places.unpersist()
    in_order = [store for store in stores if store in of]
    return Unsound(
        [Damage(**row.asDict()) for row in first],
        {store: of[store]["ranges"] for store in in_order},
        {store: of[store]["bytes"] for store in in_order},
    )


def _read(
    spark: SparkSession,
    source: str,
    stores: Sequence[str],
    config: Mapping[str, str],
    fields: Sequence[str],
) -> DataFrame:
    from . import register

    register(spark)
    options = {"paths": json.dumps(list(stores)), "fields": ",".join(fields)}
    if config:
        options["broker_config"] = json.dumps(dict(config))
    return spark.read.format(source).options(**options).load()
