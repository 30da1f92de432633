"""Files of rows as one stream in order: sorted as they are, in memory, or in pieces on the disk."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq
import pytest

from mqstore.formats.sys_flag import SysFlag
from mqstore.store.arrow import append_rows
from mqstore.store.arrow.append_rows import (
    NewStore,
    batches_of,
    files_of,
    make_store,
    rows_of,
    sorted_batches,
    unread_folders,
)
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.errors import InvalidInput, Missing
from mqstore.store.findings.catalogue import Severity
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.run import verify

from ...cli.datadriven import run_here
from ...stores import unpack
from .rows import given, table_of

KEYS = ("store_timestamp", "store", "position")


def table(count: int, seed: int) -> pa.Table:
    rng = random.Random(seed)
    return pa.table(
        {
            "topic": ["T"] * count,
            "body": [rng.randbytes(rng.randrange(60)) for _ in range(count)],
            "store": pa.array([rng.choice("ab") for _ in range(count)]),
            "store_timestamp": [rng.randrange(count) for _ in range(count)],
            "position": [rng.randrange(3) for _ in range(count)],
            "number": range(seed * 1000, seed * 1000 + count),
        }
    )


def write(rows: pa.Table, path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("wb") as opened:
        if path.suffix == ".parquet":
            pq.write_table(rows, opened, row_group_size=50)
        else:
            with pa.ipc.new_file(opened, rows.schema) as file:
                file.write_table(rows, max_chunksize=50)
    return path


def wanted(tables: list[pa.Table]) -> pa.Table:
    """By a plain sort; stores in the order in which they are met, what is equal as it stands."""
    rows = [row for one in tables for row in one.to_pylist()]
    met = list(dict.fromkeys(row["store"] for row in rows))
    order = [(r["store_timestamp"], met.index(r["store"]), r["position"]) for r in rows]
    return [rows[n] for n in sorted(range(len(rows)), key=order.__getitem__)]


@pytest.mark.parametrize("piece_bytes", [1 << 30, 4000, 100])
@pytest.mark.parametrize("block_bytes", [1, 500])
def test_any_files(piece_bytes: int, block_bytes: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_rows, "_PIECE_BYTES", piece_bytes)
    monkeypatch.setattr(append_rows, "_BLOCK_BYTES_MAX", block_bytes)
    tables = [table(300, 1), table(1, 2), table(0, 3), table(150, 4)]
    names = ("a.parquet", "b.arrow", "no-utf8-\udcff/c.parquet", "no-utf8-\udcff/topic=x/e.feather")
    for rows, name in zip(tables, names, strict=True):
        write(rows, tmp_path / name)
    told: list[int] = []
    files = files_of([tmp_path])
    found = [row for batch in sorted_batches(files, told.append) for row in batch.to_pylist()]
    assert found == wanted(tables)
    assert sum(told) == sum(path.stat().st_size for path in files if "c.par" not in path.name)


def test_files_in_order_are_read_as_they_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever their names: nothing of them is kept."""
    monkeypatch.setattr(append_rows, "_Pieces", None)
    for name, first in (("b.parquet", 0), ("a.parquet", 100), ("c.parquet", 200)):
        times = pa.array(range(first, first + 100), pa.timestamp("ms", "UTC"))
        write(pa.table({"topic": ["T"] * 100, "store_timestamp": times}), tmp_path / name)
    found = pa.Table.from_batches(sorted_batches(files_of([tmp_path])))
    assert found.column("store_timestamp").cast(pa.int64()).to_pylist() == list(range(300))


def test_columns_that_some_files_lack(tmp_path: Path) -> None:
    """A topic may be in the path alone; a column of few different values has others in each file."""
    few = pa.array(["x", "y"]).dictionary_encode()
    write(pa.table({"tags": few, "store_timestamp": [3, 1]}), tmp_path / "topic=a%2Fb/1.parquet")
    write(pa.table({"topic": ["c"], "store_timestamp": pa.array([2], pa.int32())}), tmp_path / "2.arrow")
    found = pa.Table.from_batches(sorted_batches(files_of([tmp_path]))).to_pylist()
    assert [(row["topic"], row["tags"], row["store_timestamp"]) for row in found] == [
        ("a/b", "y", 1),
        ("c", None, 2),
        ("a/b", "x", 3),
    ]


@pytest.mark.parametrize(
    "columns", [("topic", "queue_id"), ("tags",), ("sys_flag", "body_crc_ok"), ("store_timestamp",)], ids=" ".join
)
def test_columns_in_the_path_alone(columns: tuple[str, ...], tmp_path: Path) -> None:
    """As Spark and Hive write them: folders that split queues."""
    rows = table_of(unpack("4.9.7-clean", tmp_path), body="plain")
    kept = ["topic", "queue_id", "store_timestamp", "unique_key", "properties", *columns, "position"]
    rows = rows.slice(length=100).select(list(dict.fromkeys(kept)))
    hive = ds.partitioning(pa.schema([rows.schema.field(name) for name in columns]), flavor="hive")
    ds.write_dataset(rows, tmp_path / "in", format="parquet", partitioning=hive, max_partitions=1024)
    found = pa.Table.from_batches(sorted_batches(files_of([tmp_path / "in"]))).select(rows.column_names)
    assert found.schema.equals(rows.schema)
    assert _by_queue(found) == _by_queue(rows)


@pytest.mark.parametrize("suffix", [".parquet", ".arrow"])
def test_a_file_without_any_column_to_sort_by_keeps_its_rows(suffix: str, tmp_path: Path) -> None:
    plain = pa.table({"topic": ["T"] * 2, "body": [b"a", b"b"]})
    timed = plain.append_column("store_timestamp", pa.array([1, 2]))
    files = [write(plain, tmp_path / f"a{suffix}"), write(timed, tmp_path / f"b{suffix}")]
    assert sum(batch.num_rows for batch in sorted_batches(files)) == 4


def _by_queue(rows: pa.Table) -> dict[tuple[str, int], list[dict[str, Any]]]:
    found: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows.to_pylist():
        found.setdefault((row["topic"], row["queue_id"]), []).append(row)
    return found


def test_paths_that_name_no_column(tmp_path: Path) -> None:
    """A missing value is one; what is next to the file counts; what is written by day has all in its rows."""
    default = "__HIVE_DEFAULT_PARTITION__"
    rows = pa.table({"topic": ["T"]})
    for folder in (f"queue_id=1/type=full/n=\udcff/queue_id=2/tags={default}", "date=2026-1-2/keys=a%20b/topic=other"):
        write(rows, tmp_path / folder / "a.parquet")
    files = files_of([tmp_path])
    found = [row for path in files for batch, _ in batches_of(path, "parquet") for row in batch.to_pylist()]
    assert found == [{"topic": "T", "keys": "a b"}, {"topic": "T", "queue_id": 2, "tags": None}]
    assert [batch.schema.names for path in files for batch, _ in rows_of(path, "parquet")] == [["topic"], ["topic"]]
    unread = [f"folders {name}=: not a column of messages, ignored" for name in ("n", "type")]
    assert list(unread_folders(files)) == unread
    for value in ("abc", "", "99999999999", "1.5", "\udcff"):
        path = write(rows, tmp_path / f"wrong/queue_id={value}/a.parquet")
        with pytest.raises(InvalidInput, match="no value of a column") as refused:
            list(sorted_batches([path]))
        assert refused.value.path == str(path)


def test_what_is_no_file_of_rows(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match=r"no Parquet or Arrow file there.*CSV, Avro. one by one"):
        files_of([tmp_path])
    with pytest.raises(InvalidInput, match=r"not a file of \.parquet"):
        files_of([tmp_path / "x.csv"])
    with pytest.raises(Missing):
        list(sorted_batches([tmp_path / "none.parquet"]))
    for name in ("a.parquet", "b.arrow"):
        (tmp_path / name).write_bytes(b"PAR1 cut")
        with pytest.raises(InvalidInput, match=f"not a .* file: .*{name}"):
            list(sorted_batches([tmp_path / name]))
    write(pa.table({"topic": ["a"]}), tmp_path / "c.parquet")
    write(pa.table({"topic": [[1]]}), tmp_path / "d.parquet")
    with pytest.raises(InvalidInput, match="do not fit together"):
        list(sorted_batches([tmp_path / "c.parquet", tmp_path / "d.parquet"]))


def test_a_file_that_is_named_twice_counts_once(tmp_path: Path) -> None:
    for name in ("a.parquet", "b.arrow", "below/c.parquet"):
        write(pa.table({"topic": ["a"]}), tmp_path / name)
    (tmp_path / "link").symlink_to(tmp_path / "below")
    first = tmp_path / "b.arrow"
    named = [first, tmp_path, tmp_path / "below" / ".." / "a.parquet", tmp_path / "link", first]
    assert [path.name for path in files_of(named)] == ["b.arrow", "a.parquet", "c.parquet"]


def test_links_are_followed_and_end(tmp_path: Path) -> None:
    there, elsewhere = tmp_path / "rows", tmp_path / "elsewhere"
    for folder in (there, elsewhere):
        folder.mkdir()
    (elsewhere / "a.parquet").touch()
    (there / "b.arrow").symlink_to(elsewhere / "b.arrow")
    (there / "topic=T").symlink_to(elsewhere)
    (there / "a").symlink_to("queue_id=1")
    (there / "queue_id=1").mkdir()
    (there / "queue_id=1" / "c.parquet").touch()
    (elsewhere / "back").symlink_to(there)
    found = [path.relative_to(there).as_posix() for path in files_of([there])]
    assert found == ["b.arrow", "queue_id=1/c.parquet", "topic=T/a.parquet"]


def test_what_spark_passes_over_is_left_out(tmp_path: Path) -> None:
    """A job that was killed leaves rows of its own; a folder of a column begins as it likes."""
    kept = ["_shard=1/a.parquet", "b.parquet", "c.d/e.arrow"]
    hidden = ["_delta_log/1.checkpoint.parquet", "_temporary/0/task_1/b.parquet", ".x/a.parquet", ".y.parquet"]
    beside = ["_SUCCESS", ".b.parquet.crc"]
    for name in (*kept, *hidden, *beside):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).touch()
    told: list[str] = []
    assert files_of([tmp_path], told.append) == [tmp_path / name for name in kept]
    (line,) = told
    assert line.startswith(f"not read in {tmp_path}: .x, .y.parquet, _delta_log and 1 more (Spark ")
    named = [tmp_path / "_temporary", tmp_path / ".y.parquet"]
    assert files_of(named, told.append) == [tmp_path / hidden[1], named[1]] and len(told) == 1


def test_files_of_other_names_are_told(tmp_path: Path) -> None:
    """As Hive writes them, or other programs."""
    for name in ("a.parquet", "x/000000_0", "b.PARQUET", "c.csv", "d.json", ".crc", "_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).touch()
    told: list[str] = []
    assert files_of([tmp_path], told.append) == [tmp_path / "a.parquet"]
    wanted = f"not read in {tmp_path}: b.PARQUET, c.csv, d.json and 1 more (the names do not end in .parquet, "
    assert len(told) == 1 and told[0].startswith(wanted)


def test_put_from_a_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(append_rows, "_PIECE_BYTES", 20_000)
    root, new = unpack("4.9.7-clean", tmp_path), tmp_path / "new"
    rows = table_of(root, body="plain").combine_chunks()
    for number in range(3):
        write(rows.take(list(range(number, rows.num_rows, 3))), tmp_path / f"in/run={number}/a.parquet")
    write(rows, tmp_path / "in/_temporary/a.parquet")
    words = ["put", str(new), "--from", str(tmp_path / "in"), "--keep-times", "--no-answers"]
    ended = run_here(words)
    assert ended.code == 0 and "folders run=: not a column of messages" in ended.stderr
    assert "/in: _temporary (Spark passes over" in ended.stderr
    assert given(table_of(new, body="plain")) == given(rows)


def _in_light_queues(root: Path) -> dict[str, list[int]]:
    """By LMQ: the numbers that records with units have there, in log order."""
    found: dict[str, list[int]] = {}
    for row in table_of(root, body="none").to_pylist():
        told = dict(row["properties"])
        names, numbers = (told.get(f"INNER_MULTI_{name}", "") for name in ("DISPATCH", "QUEUE_OFFSET"))
        for name, number in dict(zip(names.split(","), numbers.split(","), strict=True)).items():
            if name.startswith("%LMQ%") and not row["sys_flag"] & SysFlag.PREPARED:
                found.setdefault(name, []).append(int(number))
    return found


@pytest.mark.parametrize("kept", [True, False])
def test_units_of_light_queues_are_those_that_the_rows_name(kept: bool, tmp_path: Path) -> None:
    """Rows with holes in these queues: a new store numbers them anew, or has none of them by its options."""
    root, new = unpack("4.9.7-lmq", tmp_path), tmp_path / "new"
    rows = table_of(root, body="plain")
    some = rows.take(list(range(7, rows.num_rows, 2))).combine_chunks()
    config = {"mappedFileSizeCommitLog": "262144", "maxHashSlotNum": "1000", "maxIndexNum": "4000"}
    config |= {} if kept else {"enableMultiDispatch": "false"}
    made = make_store(new, NewStore(config, "4.9"), some.to_batches(max_chunksize=20))
    assert made.messages == some.num_rows
    with StoreReader(new, BrokerConfig(config)) as store:
        assert [f.code for f in verify(store).findings if f.severity > Severity.WARNING] == []
    numbers = _in_light_queues(new)
    if kept:
        assert numbers == {name: list(range(len(given))) for name, given in numbers.items()}
    assert sum(map(len, numbers.values())) > 50
    assert bool(list((new / "consumequeue").glob("%LMQ%*"))) is kept


FINE_US = 1_796_000_000_000_999
"""Its last millisecond is nearly over."""


@pytest.mark.parametrize(
    ("unit", "finer", "zone"), [("us", 1, None), ("us", 1, "UTC"), ("ns", 1000, None), ("ns", 1000, "Asia/Shanghai")]
)
@pytest.mark.parametrize("row_by_row", [False, True])
def test_times_finer_than_milliseconds(
    unit: str, finer: int, zone: str | None, row_by_row: bool, tmp_path: Path
) -> None:
    """As pandas and Spark write them: what is finer is dropped, so that no copy is later than its source."""
    fine = pa.array([FINE_US * finer, (FINE_US - 1000) * finer], pa.timestamp(unit, zone))
    bodies = pa.array(["late", "early"], pa.string_view())
    rows = {"topic": ["T"] * 2, "body": bodies, "store_timestamp": fine, "born_timestamp": fine}
    if row_by_row:
        rows["properties"] = ["{}", "{}"]
    path = write(pa.table(rows), tmp_path / "rows.parquet")
    wanted = [(FINE_US // 1000 - 1, "early"), (FINE_US // 1000, "late")]
    for words in (["pipeline", "import", str(path), "--to"], ["put", "--from", str(tmp_path), "--no-answers"]):
        ended = run_here([*words, str(tmp_path / words[0]), "--keep-times"])
        assert ended.code == 0, ended.stderr
        found = table_of(tmp_path / words[0], body="plain").to_pylist()
        assert [(row["store_timestamp"], row["body"].decode()) for row in found] == wanted
        assert [(row["born_timestamp"], row["body"].decode()) for row in found] == wanted


@pytest.mark.parametrize(
    ("name", "values", "says"),
    [
        ("store_timestamp", pa.array(["2026-11-20T00:00:00Z"] * 2), "rows cannot be sorted by the column store_t"),
        ("store_timestamp", pa.array([20_000, 1], pa.date32()), "rows cannot be sorted by the column store_t"),
        ("store_timestamp", pa.array([1 << 62, 1], pa.timestamp("s")), "column store_timestamp cannot be read"),
        ("position", pa.array([1.5, 0.5]), "rows cannot be sorted by the column position"),
        ("store", pa.array([["a"], ["b"]]), "rows cannot be sorted by the column store "),
    ],
    ids=["text", "date", "too-large", "fraction", "list"],
)
def test_columns_that_rows_cannot_be_sorted_by(name: str, values: pa.Array, says: str, tmp_path: Path) -> None:
    path = write(pa.table({"topic": ["T"] * 2, "body": ["a", "b"], name: values}), tmp_path / "rows.arrow")
    with pytest.raises(InvalidInput, match=says) as refused:
        list(sorted_batches([path]))
    assert refused.value.path == str(path)
    ended = run_here(["pipeline", "import", str(path), "--to", str(tmp_path / "new")])
    assert ended.code == 2 and says in ended.stderr
