"""`put --from` of Parquet, Arrow and CSV files, and `--resume`."""

from __future__ import annotations

import csv
import json
import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq
import pytest

from mqstore.cli import arrow_input
from mqstore.cli.arrow_input import read_rows
from mqstore.cli.put_target import new_reader
from mqstore.cli.terminal import escape_lines
from mqstore.store.arrow.messages import columns_of_rows

from .. import stores
from .datadriven import run_here
from .test_put import MADE_ANEW, Row, given, line, mqstore, process, rows

NOW = 1_795_000_000_000


def messages(count: int, seed: int = 1) -> list[Row]:
    """Rows of every sort of message, as `dump` shows them."""
    rng = random.Random(seed)
    found = []
    for number in range(count):
        properties = {"a": "ä" * rng.randrange(1, 5), "UNIQ_KEY": f"{seed:04}{number:012X}"}
        if rng.random() < 0.5:
            properties |= {"KEYS": f"k{number} k", "TAGS": "t"}
        body = rng.randbytes(rng.randrange(40)).hex() if rng.random() < 0.7 else "=1+2"
        found.append(
            {
                "topic": rng.choice(["orders", "T" * 60]),
                "queue_id": rng.randrange(3),
                "flag": rng.randrange(-3, 3),
                "sys_flag": rng.choice([0, 0, 4, 8, 12]),
                "born_timestamp": NOW - rng.randrange(1000),
                "store_timestamp": NOW + number,
                "born_host": rng.choice(["10.0.0.1:4000", "[fd00::1]:77"]),
                "reconsume_times": rng.randrange(2),
                "prepared_transaction_offset": rng.randrange(9),
                "properties": properties,
                "body": body,
            }
        )
    return found


def table_of(found: list[Row], properties: str = "map") -> pa.Table:
    """The rows as a table; properties as a map, an object or JSON text."""
    columns = {name: [row[name] for row in found] for name in found[0]}
    if properties == "map":
        kind = pa.map_(pa.string(), pa.string())
        given = [list(value.items()) for value in columns["properties"]]
        columns["properties"] = pa.array(given, kind)
    elif properties == "json":
        columns["properties"] = [json.dumps(value) for value in columns["properties"]]
    return pa.table(columns)


def write(table: pa.Table, path: Path) -> Path:
    if path.suffix == ".parquet":
        pq.write_table(table, path, row_group_size=37)
    elif path.name.startswith("stream"):
        with pa.ipc.new_stream(path, table.schema) as out:
            out.write_table(table, max_chunksize=37)
    else:
        with pa.ipc.new_file(path, table.schema) as out:
            out.write_table(table, max_chunksize=37)
    return path


def stored(root: Path) -> list[Row]:
    return [row for row in mqstore("dump", root) if row["type"] == "message"]


def by_lines(found: list[Row], tmp_path: Path, *words: str) -> list[Row]:
    """What the same rows are when they come as NDJSON."""
    source = tmp_path / "lines.ndjson"
    source.write_text("".join(json.dumps(row) + "\n" for row in found))
    mqstore("put", tmp_path / "lines", "--from", source, *words)
    return stored(tmp_path / "lines")


@pytest.mark.few(12)
@pytest.mark.parametrize("properties", ["map", "struct", "json"])
@pytest.mark.parametrize("name", ["in.parquet", "in.arrow", "stream.arrow"])
@pytest.mark.parametrize("version", ["4.9", "5.5"])
def test_columns_are_as_good_as_lines(name: str, properties: str, version: str, tmp_path: Path) -> None:
    found = messages(200)
    source = write(table_of(found, properties), tmp_path / name)
    words = ("--keep-times", "--as-broker", version)
    answers = mqstore("put", tmp_path / "new", "--from", source, *words)
    expected = by_lines(found, tmp_path, *words)
    got = stored(tmp_path / "new")
    if properties == "struct":  # an object has its fields in the order of the table
        for row in (*expected, *got):
            row["properties"] = dict(sorted(row["properties"].items()))
            row.pop("properties_raw", None)
    assert got == expected
    shared = ("physical_offset", "unique_key", "message_id", "queue_offset")
    assert [[a[n] for n in shared] for a in answers] == [[r[n] for n in shared] for r in got]


@pytest.mark.parametrize("properties", ["map", "struct", "none", "raw"])
def test_plain_tables_go_as_columns(properties: str, tmp_path: Path) -> None:
    """Nothing of them is taken row by row."""
    found = messages(100)
    table = table_of(found, "struct" if properties == "struct" else "map")
    if properties in ("none", "raw"):
        table = table.drop_columns(["properties"])
        extra = {"tags": ["t", None] * 50, "keys": ["k l"] * 100, "unique_key": ["u"] * 100}
        if properties == "raw":
            extra = {"properties_raw": [b"a\1b\2"] * 100}
        for name, values in extra.items():
            table = table.append_column(name, pa.array(values))
    body = table.column("body").cast(pa.binary()).dictionary_encode()
    table = table.set_column(table.schema.get_field_index("body"), "body", body)
    born = pa.array([row["born_timestamp"] for row in found], pa.timestamp("ms", "UTC"))
    table = table.set_column(table.schema.get_field_index("born_timestamp"), "born_timestamp", born)
    source = write(table, tmp_path / "in.arrow")
    for part in read_rows(source, "arrow", lambda _: None):
        assert columns_of_rows(part.batch, new_reader(True)) is not None
        assert columns_of_rows(part.batch.slice(5, 9), new_reader(True)) is not None
    mqstore("put", tmp_path / "new", "--from", source)
    got = stored(tmp_path / "new")
    assert [row["body"] for row in got] == [row["body"] for row in found]
    assert [row["born_timestamp"] for row in got] == [row["born_timestamp"] for row in found]
    if properties == "none":
        assert got[0]["properties"] == {"KEYS": "k l", "TAGS": "t", "UNIQ_KEY": "u"}
        assert got[1]["properties"] == {"KEYS": "k l", "UNIQ_KEY": "u"}
    if properties == "raw":
        assert got[0]["properties"] == {"a": "b"}


@pytest.mark.parametrize("name", ["4.9.7-clean", "5.3.3-propcrc"])
def test_a_dump_that_became_a_table(name: str, tmp_path: Path) -> None:
    """What other tools make of `dump --format ndjson`: lists, nulls, compressed bodies."""
    root = stores.unpack(name, tmp_path)
    before = stored(root)
    columns = {n: [row.get(n) for row in before] for n in {n for row in before for n in row}}
    columns["properties"] = [list(row["properties"].items()) for row in before]
    kinds = {"properties": pa.map_(pa.string(), pa.string())}
    table = pa.table({n: pa.array(values, kinds.get(n)) for n, values in columns.items()})
    source = write(table, tmp_path / "in.parquet")
    mqstore("put", tmp_path / "new", "--from", source, "--as-broker", name[:3])
    for old, new in zip(before, stored(tmp_path / "new"), strict=True):
        assert given(old) == given(new)


def test_a_bad_row_is_named(tmp_path: Path) -> None:
    found = messages(100)
    cases: tuple[tuple[Row, str], ...] = (
        ({"queue_id": -1}, "queue_id"),
        ({"flag": 1 << 40}, "flag"),
        ({"body": None}, "body: missing"),
        ({"topic": "x" * 300}, "topic of 300 bytes"),
        ({"properties": {"a": "\1"}}, "separator"),
        ({"properties": {"a": ""}}, "empty value"),
        ({"born_host": "nowhere"}, "born_host"),
    )
    for number, (change, said) in enumerate(cases):
        bad = [*found[:70], found[70] | change, *found[71:]]
        source = write(table_of(bad), tmp_path / f"{number}.parquet")
        root = tmp_path / f"store{number}"
        result = run_here(["put", str(root), "--from", str(source), "--format", "ndjson"])
        assert result.code == 2, result
        assert "line 71: " in result.stderr and said in result.stderr, result.stderr
        assert str(source) in result.stderr and result.stderr.count("\n") == 1
        assert len(rows(result.stdout)) == 70
        assert [r["body"] for r in stored(root)] == [r["body"] for r in found[:70]]
        assert not (root / "abort").exists()


def test_what_is_no_such_file(tmp_path: Path) -> None:
    for suffix in ("parquet", "arrow"):
        source = tmp_path / f"in.{suffix}"
        for content in (b"", b"PAR1 or not", b"ARROW1\0\0" + bytes(100)):
            source.write_bytes(content)
            result = run_here(["put", str(tmp_path / "new"), "--from", str(source)])
            assert (result.code, result.stderr.count("\n")) == (2, 1), result
            assert f"not a {suffix} file" in result.stderr
        result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / f"no.{suffix}")])
        assert (result.code, result.stderr.count("\n")) == (5, 1), result
    result = run_here(["put", str(tmp_path / "new"), "--from", "-", "--from-format", "arrow"])
    assert result.code == 2 and "not from stdin" in result.stderr
    assert not (tmp_path / "new").exists()


def test_without_pyarrow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pyarrow", None)
    result = run_here(["put", str(tmp_path / "new"), "--from", str(tmp_path / "in.parquet")])
    assert result.code == 5 and "pip install 'mqstore[arrow]'" in result.stderr
    assert arrow_input.__name__ and not (tmp_path / "new").exists()


@pytest.mark.parametrize("name", ["4.3.1-clean", "5.3.3-v2"])
def test_csv_of_a_dump(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before = stored(root)
    source = tmp_path / "in.csv"
    assert run_here(["dump", str(root), "--format", "csv", "--output", str(source)]).code == 0
    mqstore("put", tmp_path / "new", "--from", source, "--as-broker", name[:3])
    for old, new in zip(before, stored(tmp_path / "new"), strict=True):
        if "body" in old:  # CSV writes control characters out
            old["body"] = escape_lines(old["body"])
        assert given(old) == given(new)


def test_csv_cells_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    texts = ["=1+2", "'=1+2", "''@x", "-1", "'quoted'", "", 'a,b\n"c"', "ä"]
    lines = "".join(line(0, body=text, keys=text[:2], born_timestamp=NOW) for text in texts)
    (tmp_path / "in").write_text(lines)
    mqstore("put", tmp_path / "one", "--from", tmp_path / "in")
    source = tmp_path / "in.csv"
    assert run_here(["dump", str(tmp_path / "one"), "--format", "csv", "-o", str(source)]).code == 0
    with source.open(newline="") as file:
        cells = [row["body"] for row in csv.DictReader(file)]
    assert cells[:4] == ["'=1+2", "''=1+2", "'''@x", "'-1"]
    mqstore("put", tmp_path / "two", "--from", source)
    one, two = stored(tmp_path / "one"), stored(tmp_path / "two")
    assert [row["body"] for row in two] == texts
    kept = [{n: v for n, v in row.items() if n not in MADE_ANEW} for row in (*one, *two)]
    assert kept[: len(texts)] == kept[len(texts) :]


def test_csv_that_makes_no_sense(tmp_path: Path) -> None:
    source = tmp_path / "in.csv"
    for text, said in (
        ("body\nx\n", "name the fields"),
        ("topic,body\nT,a\nT\n", "row 2: 1 cell under 2 names"),
        ("topic,body,queue_id\nT,a,0\nT,b,x\n", "row 2: invalid literal"),
        ("topic,body,properties\nT,a,\nT,b,{\n", "row 2: "),
        ("topic,body,queue_id\nT,a,0\nT,b,-3\n", "line 2: queue_id"),
    ):
        source.write_text(text)
        result = run_here(["put", str(tmp_path / "new"), "--from", str(source)])
        assert result.code == 2 and said in result.stderr, result.stderr
        assert result.stderr.count("\n") == 1


@pytest.mark.parametrize("name", ["in.parquet", "in.ndjson", "in.csv"])
def test_resume_puts_what_is_missing(name: str, tmp_path: Path) -> None:
    found = messages(120)
    found[50] = found[20]  # twice in the input: twice in the store
    first = tmp_path / f"first-{name}"
    for path, part in ((first, found[:60]), (tmp_path / name, found)):
        if name == "in.parquet":
            write(table_of(part), path)
        elif name == "in.csv":
            with path.open("w", newline="") as out:
                writer = csv.DictWriter(out, found[0].keys())
                writer.writeheader()
                for row in part:
                    body = row["body"]
                    shown = f"'{body}" if body.startswith("=") else body
                    cells = {"properties": json.dumps(row["properties"]), "body": shown}
                    writer.writerow(row | cells)
        else:
            path.write_text("".join(json.dumps(row) + "\n" for row in part))
    root = tmp_path / "new"
    mqstore("put", root, "--from", first)
    result = run_here(["put", str(root), "--from", str(tmp_path / name), "--resume", "--no-answers"])
    assert (result.code, result.stdout) == (0, "")
    assert "60 messages left out: the store has them already" in result.stderr
    assert [row["body"] for row in stored(root)] == [row["body"] for row in found]
    again = mqstore("put", root, "--from", tmp_path / name, "--resume")
    assert again == [] and len(stored(root)) == len(found)


def test_resume_needs_unique_keys(tmp_path: Path) -> None:
    found: list[dict[str, Any]] = messages(5)
    for number, key in ((1, {"properties": {}}), (2, {"properties": {}, "unique_key": None})):
        source = tmp_path / f"{number}.ndjson"
        source.write_text("".join(json.dumps(r) + "\n" for r in [*found[:3], found[3] | key]))
        result = run_here(["put", str(tmp_path / "new"), "--from", str(source), "--resume"])
        assert result.code == 2 and "line 4: no unique key" in result.stderr
    table = table_of(found).drop_columns(["properties"])
    source = write(table, tmp_path / "in.parquet")
    result = run_here(["put", str(tmp_path / "other"), "--from", str(source), "--resume"])
    assert result.code == 2 and "line 1: no unique key" in result.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.slow
def test_resume_after_kill_9_in_the_middle(tmp_path: Path) -> None:
    found = [row | {"store_timestamp": None} for row in messages(1200)]
    lines = [json.dumps(row) + "\n" for row in found]
    (tmp_path / "all.ndjson").write_text("".join(lines))
    root = tmp_path / "new"
    words = ("put", root, "--from", "-", "--flush", "sync", "--format", "ndjson")
    running = process(*words)
    assert running.stdin and running.stdout
    running.stdin.write("".join(lines[:700]).encode())
    running.stdin.flush()
    answered = [json.loads(running.stdout.readline()) for _ in range(300)]
    running.kill()
    running.communicate(timeout=60)
    assert run_here(["recover", str(root), "--apply", "--yes"]).code == 0
    kept = len(stored(root))
    assert kept >= len(answered)
    mqstore("put", root, "--from", tmp_path / "all.ndjson", "--resume")
    keys = [row["properties"]["UNIQ_KEY"] for row in stored(root)]
    assert keys == [row["properties"]["UNIQ_KEY"] for row in found]
