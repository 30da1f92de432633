"""The data sources in Spark: the same as the local commands say, over many stores at once."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Callable, Iterable
from importlib import import_module
from pathlib import Path
from pkgutil import iter_modules
from typing import TYPE_CHECKING, Any

import pytest

from mqstore.cli.app import run
from mqstore.pipeline.failures import failure_of
from mqstore.pipeline.sources import all_sources
from mqstore.store.errors import Missing, NotAStore

from ..stores import unpack

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

STORES = ("4.9.7-killed-page", "5.3.3-v2", "5.3.3-timer-clean")


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A directory of stores, one of them no store at all."""
    folder = tmp_path_factory.mktemp("fleet")
    for name in STORES:
        unpack(name, folder)
    (folder / "empty").mkdir()
    return folder


def local(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> list[dict[str, Any]]:
    """What a command of this process prints as NDJSON."""
    run([*map(str, arguments), "--format", "ndjson"])
    return [json.loads(line) for line in capsys.readouterr().out.splitlines()]


def collected(spark: SparkSession, source: str, path: object, **options: str) -> list[Any]:
    return spark.read.format(source).options(**options).load(str(path)).collect()


def told(rows: Iterable[dict[str, Any]], names: Iterable[str]) -> list[tuple[str, ...]]:
    """Some fields of records, sorted: what is not there counts as nothing."""
    names = tuple(names)
    return sorted(tuple(str(row.get(name)) for name in names) for row in rows)


def same(spark_rows: list[Any], local_rows: list[dict[str, Any]]) -> None:
    """Rows of one store say the same as records of a command, in the fields of the rows."""
    rows = [row.asDict() for row in spark_rows]
    assert rows, "nothing was read"
    names = [name for name in rows[0] if name != "store"]
    assert told(rows, names) == told(local_rows, names)


def test_messages_of_a_fleet(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All of a log through Spark, from a pattern of paths, and what of it cannot be read."""
    rows = collected(spark, "rocketmq-log", fleet / "[45]*", body="plain")
    lost = [row.asDict() for row in collected(spark, "rocketmq-damage", fleet / "*")]
    assert [row["store"] for row in lost if row["position"] is None] == [str(fleet / "empty")]
    counted = spark.read.format("rocketmq-log").option("fields", "topic").load(str(fleet / "[45]*"))
    assert counted.count() == len(rows)
    names = ("physical_offset", "topic", "queue_offset", "message_id", "tags", "keys")
    for name in STORES:
        given = [row.asDict() for row in rows if row["store"] == str(fleet / name)]
        records = local(capsys, "dump", fleet / name)
        wanted = [one for one in records if one["type"] == "message" and "stale" not in one]
        assert told(given, names) == told(wanted, names)
        damage = [row for row in lost if row["store"] == str(fleet / name)]
        ranges = [one for one in records if one["type"] == "damage" and "tail" not in one["reason"]]
        assert told(damage, ("position", "size")) == told(ranges, ("position", "size"))


@pytest.mark.few(2)
@pytest.mark.parametrize("source", ["rocketmq-log", "rocketmq-queue", "rocketmq-offsets"])
@pytest.mark.parametrize("name", ["none", "empty"])
def test_what_is_no_store_is_an_error(spark: SparkSession, fleet: Path, source: str, name: str) -> None:
    paths = [str(fleet / STORES[1]), str(fleet / name)]
    with pytest.raises(Exception) as caught:
        spark.read.format(source).load(paths).count()
    assert isinstance(failure_of(str(caught.value)), Missing | NotAStore)


def test_units_of_queues(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet / STORES[0]
    rows = collected(spark, "rocketmq-queue", store)
    same(rows, local(capsys, "dump", store / "consumequeue"))


def test_items_of_the_index(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet / STORES[0]
    fields = "store,file,number,slot,key_hash,physical_offset,time_diff,previous"
    rows = collected(spark, "rocketmq-index", store, fields=fields)
    records = local(capsys, "dump", store / "index")
    same(rows, [record for record in records if record["type"] == "index_item"])


def test_units_of_the_timer_log(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet / "5.3.3-timer-clean"
    records = local(capsys, "dump", store / "timerlog")
    wanted = [record for record in records if record["type"] == "timer_log_unit"]
    same(collected(spark, "rocketmq-timer", store), wanted)


def test_offsets_of_groups(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet / "5.3.3-v2"
    records = local(capsys, "dump", store / "config")
    wanted = [record for record in records if record["type"] == "consumer_offset"]
    assert {record.pop("table") for record in wanted} == {"offsetTable"}
    wanted = [{**record, "table": "offset"} for record in wanted if record["offset"] >= 0]
    same(collected(spark, "rocketmq-offsets", store), wanted)


def test_findings_are_those_of_verify(spark: SparkSession, fleet: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = fleet / STORES[0]
    records = local(capsys, "verify", store)
    wanted = [record for record in records if record["type"] == "finding"]
    same(collected(spark, "rocketmq-findings", store), wanted)
    (lost,) = collected(spark, "rocketmq-findings", fleet / "empty")
    assert (lost["severity"], lost["code"]) == ("fatal", None)


def test_a_view_and_sql(spark: SparkSession, fleet: Path) -> None:
    """DDL alone is enough."""
    spark.sql(
        "CREATE OR REPLACE TEMPORARY VIEW some_messages USING `rocketmq-log`"
        f" OPTIONS (path '{fleet / STORES[0]}', fields 'topic,queue_id,total_size')"
    )
    counted = spark.sql("SELECT topic, count(*) AS n FROM some_messages GROUP BY topic").collect()
    rows = collected(spark, "rocketmq-log", fleet / STORES[0], fields="topic")
    assert {row["topic"]: row["n"] for row in counted} == {
        topic: sum(row["topic"] == topic for row in rows) for topic in {r["topic"] for r in rows}
    }


Condition = tuple[str, Callable[[Any, Any], bool]]
CONDITIONS: tuple[Condition, ...] = (
    (
        "topic IN ('{topic}', 'none') AND queue_id = 1 AND store_timestamp >= {store_timestamp}",
        lambda row, some: (
            row["topic"] == some["topic"] and row["queue_id"] == 1 and row["store_timestamp"] >= some["store_timestamp"]
        ),
    ),
    (
        "store_timestamp > {store_timestamp} AND store_timestamp <= {store_timestamp} + 2000",
        lambda row, some: 0 < row["store_timestamp"] - some["store_timestamp"] <= 2000,
    ),
    ("tags = '{tags}'", lambda row, some: row["tags"] == some["tags"]),
    ("topic = '{topic}'", lambda row, some: row["topic"] == some["topic"]),
    ("unique_key = '{unique_key}'", lambda row, some: row["unique_key"] == some["unique_key"]),
    (
        "tags = '{tags}' OR topic = '{topic}'",
        lambda row, some: row["tags"] == some["tags"] or row["topic"] == some["topic"],
    ),
    ("topic = '*'", lambda row, some: False),
    ("tags = '*'", lambda row, some: False),
)


def changes_no_answer(spark: SparkSession, store: Path, conditions: Iterable[Condition]) -> None:
    fields = "physical_offset,topic,queue_id,store_timestamp,tags,unique_key"
    plain = collected(spark, "rocketmq-log", store, fields=fields)
    some = next(row for row in plain if row["tags"] and row["unique_key"])
    for text, holds in conditions:
        asked = text.format(**some.asDict())
        source = spark.read.format("rocketmq-log").options(fields=fields, pushdown="true")
        found = source.load(str(store)).filter(asked).collect()
        assert found == [row for row in plain if row["topic"] and holds(row, some)], asked


def test_pushed_filters_change_no_answer(spark: SparkSession, fleet: Path) -> None:
    changes_no_answer(spark, fleet / STORES[1], CONDITIONS[:1])


@pytest.mark.slow
def test_all_pushed_filters_change_no_answer(spark: SparkSession, fleet: Path) -> None:
    for name in STORES:
        changes_no_answer(spark, fleet / name, CONDITIONS)


def test_a_schema_of_ones_own_prunes_columns(spark: SparkSession, fleet: Path) -> None:
    schema = "queue_offset bigint, topic string"
    rows = spark.read.format("rocketmq-log").schema(schema).load(str(fleet / STORES[1])).collect()
    assert rows and list(rows[0].asDict()) == ["queue_offset", "topic"]


def test_every_source_has_a_name_of_its_own() -> None:
    names = [source.name() for source in all_sources()]
    assert len(set(names)) == len(names)
    assert all(name.startswith("rocketmq-") for name in names)


def test_spark_finds_every_source_by_itself() -> None:
    """As Spark does it once a session: by the names of modules, in a process of its own."""
    found = {}
    for module in iter_modules():
        if module.name.startswith("pyspark_"):
            source = import_module(module.name).DefaultSource
            found[source.name()] = source
    assert found == {source.name(): source for source in all_sources()}


def test_what_every_session_looks_at_is_quick_to_import() -> None:
    """pandas takes longer than all else together."""
    code = "import sys; from mqstore.pipeline.sources import all_sources; all_sources();"
    code += "print('pandas' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"


def test_without_pyarrow_there_is_no_source() -> None:
    """Spark imports all of them to find anybody's source, and takes no error."""
    names = sorted(m.name for m in iter_modules() if m.name.startswith("pyspark_rocketmq_"))
    code = "import sys; sys.modules['pyarrow'] = None\n"
    code += f"print([hasattr(__import__(name), 'DefaultSource') for name in {names}])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == f"{[False] * len(names)}\n" and names
