"""`put --from` of Parquet and Arrow files."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pytest

from mqstore.cli import arrow_input
from mqstore.cli.arrow_input import read_rows
from mqstore.cli.put_target import new_reader
from mqstore.formats.hashing import crc31
from mqstore.store.arrow.messages import columns_of_rows

from .. import stores
from .datadriven import run_here
from .put_tables import by_lines, messages, stored, table_of, write
from .putting import Row, given, mqstore, rows


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
    for part in read_rows(source, "arrow", lambda _: None, print):
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


def test_a_text_column_whose_bodies_are_others_names_the_row(tmp_path: Path) -> None:
    """Bytes that a program has written as Base64; a column of bytes may have been changed on purpose."""
    bodies = [b"one", b"two", b"three"]
    table = pa.table({"topic": ["t"] * 3, "body_crc": [crc31(body) for body in bodies]})
    texts = [b"one", b"dHdv", b"three"]
    source = write(table.append_column("body", pa.array(texts, pa.string())), tmp_path / "text.parquet")
    result = run_here(["put", str(tmp_path / "text"), "--from", str(source)])
    assert result.code == 2 and "line 2: body: not the body whose body_crc is" in result.stderr
    source = write(table.append_column("body", pa.array(texts, pa.binary())), tmp_path / "bytes.parquet")
    mqstore("put", tmp_path / "bytes", "--from", source)
    assert [row["body"].encode() for row in stored(tmp_path / "bytes")] == texts


@pytest.mark.parametrize("values", [pa.array([None, 0], pa.int8()), pa.array([None, "false"])])
def test_a_truth_that_is_none_is_refused(values: pa.Array, tmp_path: Path) -> None:
    """A body that is known to be damaged would become a sound one."""
    table = pa.table({"topic": ["t"] * 2, "body": ["b"] * 2, "body_crc_ok": values})
    source = write(table, tmp_path / "in.parquet")
    result = run_here(["put", str(tmp_path / "new"), "--from", str(source)])
    assert result.code == 2 and "line 2: body_crc_ok: neither true nor false" in result.stderr, result.stderr
    assert len(stored(tmp_path / "new")) == 1
    result = run_here(["pipeline", "import", str(source), "--to", str(tmp_path / "other")])
    assert result.code == 2 and "column body_crc_ok: neither true nor false" in result.stderr, result.stderr
    assert not (tmp_path / "other").exists()


@pytest.mark.parametrize("names", [["topic", "body", "extra", "extra"], ["topic", "body", "body", "extra"]])
@pytest.mark.parametrize("suffix", ["parquet", "arrow"])
def test_two_columns_of_one_name_are_refused(suffix: str, names: list[str], tmp_path: Path) -> None:
    source = write(pa.table([pa.array(["x"])] * 4, names=names), tmp_path / f"in.{suffix}")
    for words in (["put", str(tmp_path / "new"), "--from"], ["pipeline", "import", "--to", str(tmp_path / "new")]):
        result = run_here([*words, str(source)])
        assert result.code == 2 and f"two columns have the name {names[2]}" in result.stderr
        assert not (tmp_path / "new").exists()


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
