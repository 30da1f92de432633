"""`pipeline diff`: the first message of each queue in which two stores, or two fleets, differ.

Records of both sides meet by store, topic, queue and queue offset, and are compared by what the
producer gave. Where they lie in the log, and when they were stored, does not count.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from ..store.arrow.fleet import as_path
from ..store.arrow.remote import log_sizes
from ..store.config import BrokerConfig
from .failures import failures
from .plan import names_of

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row, SparkSession

_PLACE = ("pair", "topic", "queue_id", "queue_offset")
_GIVEN = ("flag", "born_timestamp", "born_host", "body_crc", "body_length", "properties")
_A, _B = 0, 1
DAMAGE_MAX = 1000
"""Of more places that could not be read only counts are taken to the driver."""


@dataclass(frozen=True)
class Damage:
    """What of some stores could not be read.

    first: of DAMAGE_MAX places, in the order of the stores: `store`, `position`, `size`, `reason`.
    totals: by store, in all: places, bytes.
    """

    first: list[dict[str, Any]] = field(default_factory=list)
    totals: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __bool__(self) -> bool:
        return bool(self.totals)

    @property
    def cut(self) -> dict[str, tuple[int, int]]:
        """`totals` of the stores of which `first` has not everything."""
        told = Counter(row["store"] for row in self.first)
        return {store: total for store, total in self.totals.items() if told[store] < total[0]}


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


def log_bytes(roots: Sequence[str], config: BrokerConfig) -> int:
    """Bytes of the logs of all stores. Raises Missing, NotAStore, Unreadable for one without."""
    sizes, unread = log_sizes(roots, config)
    if unread:
        raise unread[0]
    return sum(sizes.values())


def differences(
    spark: SparkSession, a: Mapping[str, str], b: Mapping[str, str], config: Mapping[str, str]
) -> tuple[list[dict[str, Any]], Damage]:
    """A row for each queue that differs: where first, how, and how often; and what was not read.

    a, b: stores with the names of their pairs. Messages before the first one that the other side
    still has of a queue have expired there; they are passed over. Raises as `rebuild`.
    """
    if not a:
        return [], Damage()
    from pyspark.sql import Window
    from pyspark.sql import functions as f

    with failures():
        both = _side(spark, a, config, _A).unionByName(_side(spark, b, config, _B))
        met = both.groupBy(*_PLACE).agg(
            *(_count(side).alias(f"n{side}") for side in (_A, _B)),
            *(_digest(side).alias(f"h{side}") for side in (_A, _B)),
        )
        queue = Window.partitionBy(*_PLACE[:-1])
        firsts = [
            f.coalesce(f.min(f.when(f.col(f"n{s}") > 0, f.col(_PLACE[-1]))).over(queue), f.lit(0))
            for s in (_A, _B)
        ]
        met = met.withColumn("first", f.greatest(*firsts)).where("queue_offset >= first")
        differ = met.where("n0 != n1 or h0 != h1").withColumn(
            "how", f.expr("if(n0 = 0, 'only_b', if(n1 = 0, 'only_a', 'changed'))")
        )
        rows = (
            differ.groupBy(*_PLACE[:-1])
            .agg(
                f.min(f.struct(_PLACE[-1], "how")).alias("least"),
                *(f.sum(f.expr(f"int(how = '{how}')")).alias(how) for how in HOW),
            )
            .orderBy(*_PLACE[:-1])
            .collect()
        )
        damage = _damage(spark, [*a, *b], config)
    return [_told(row) for row in rows], damage


def _told(row: Row) -> dict[str, Any]:
    return {
        "store": row["pair"],
        "topic": row["topic"],
        "queue_id": row["queue_id"],
        "queue_offset": row["least"]["queue_offset"],
        "how": row["least"]["how"],
        **{how: row[how] for how in HOW},
    }


HOW = ("only_a", "only_b", "changed")
"""How a message differs: one side lacks it, or it is another one."""


def _side(
    spark: SparkSession, stores: Mapping[str, str], config: Mapping[str, str], side: int
) -> DataFrame:
    """Rows of one side: its number, the place of a message, a digest of what was given."""
    from pyspark.sql import functions as f

    rows = _read(spark, "rocketmq-log", list(stores), config, _FIELDS)
    names = f.create_map(*(f.lit(text) for pair in stores.items() for text in pair))
    digest = f.xxhash64(
        *(f.map_entries(name) if name == "properties" else f.col(name) for name in _GIVEN)
    )
    return rows.select(
        f.lit(side).alias("side"),
        names[f.col("store")].alias("pair"),
        *_PLACE[1:],
        digest.alias("digest"),
    )


def _damage(spark: SparkSession, stores: Sequence[str], config: Mapping[str, str]) -> Damage:
    """What of some stores could not be read."""
    from pyspark.sql import functions as f

    places = _read(spark, "rocketmq-damage", stores, config, ()).distinct().cache()
    number = f.array_position(f.array(*map(f.lit, stores)), f.col("store"))
    first = places.orderBy(number, f.coalesce("position", f.lit(0))).limit(DAMAGE_MAX).collect()
    summed = f.coalesce(f.sum("size"), f.lit(0))
    counted = places.groupBy("store").agg(f.count("*").alias("places"), summed.alias("bytes"))
    totals = {row["store"]: (row["places"], row["bytes"]) for row in counted.collect()}
    places.unpersist()
    in_order = {store: totals[store] for store in stores if store in totals}
    return Damage([row.asDict() for row in first], in_order)


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


_FIELDS = ("store", *_PLACE[1:], *_GIVEN)


def _count(side: int) -> Column:
    from pyspark.sql import functions as f

    return f.count_if(f.col("side") == side)


def _digest(side: int) -> Column:
    """Of all records with one queue offset, in any order."""
    from pyspark.sql import functions as f

    return f.sum(f.when(f.col("side") == side, f.col("digest").cast("decimal(20,0)")))
