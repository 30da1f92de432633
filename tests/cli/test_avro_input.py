"""`put --from` of Avro: files that are cut, that are none, that hold something else."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import fastavro
import pytest

from mqstore.cli import avro_input
from mqstore.cli.avro_input import read_portions
from mqstore.store.errors import InvalidInput, Missing, Unsupported

ROWS = {
    "type": "record",
    "name": "message",
    "fields": [{"name": "topic", "type": "string"}, {"name": "body", "type": "bytes"}],
}


def written(path: Path, schema: Any, rows: list[Any], codec: str = "null") -> Path:
    with path.open("wb") as file:
        fastavro.writer(file, schema, rows, codec=codec, sync_interval=100)
    return path


def messages(count: int) -> list[dict[str, object]]:
    return [{"topic": f"t{number}", "body": b"\xff%d" % number} for number in range(count)]


def topics(path: Path) -> list[tuple[int, str]]:
    return [(line.number, line.record["topic"]) for portion in read_portions(path, lambda _: None) for line in portion]


@pytest.mark.parametrize("codec", ["null", "deflate"])
def test_rows_before_a_cut_come_before_the_error(codec: str, tmp_path: Path) -> None:
    path = written(tmp_path / "in.avro", ROWS, messages(50), codec)
    assert topics(path) == [(number + 1, f"t{number}") for number in range(50)]
    path.write_bytes(path.read_bytes()[:-30])
    portions = read_portions(path, lambda _: None)
    there = next(portions)
    assert 0 < len(there) < 50 and there[-1].number == len(there)
    with pytest.raises(InvalidInput, match=f"not a valid avro file after row {len(there)}: "):
        next(portions)


@pytest.mark.parametrize("content", [b"", b"Obj\1", b"PAR1 or so", b"Obj\1" + b"\xff" * 99])
def test_what_is_no_avro(content: bytes, tmp_path: Path) -> None:
    path = tmp_path / "in.avro"
    path.write_bytes(content)
    with pytest.raises(InvalidInput, match="not a valid avro file after row 0: "):
        topics(path)
    with pytest.raises(Missing):
        topics(tmp_path / "none.avro")


def test_rows_that_are_no_records(tmp_path: Path) -> None:
    path = written(tmp_path / "in.avro", "string", ["a", "b"])
    with pytest.raises(InvalidInput, match="after row 1: not a record"):
        topics(path)


@pytest.mark.parametrize("bad", ["no JSON", 5])
def test_rows_before_one_that_is_refused_come_before_the_error(bad: object, tmp_path: Path) -> None:
    types = {"topic": "string", "properties": ["string", "int"]}
    rows = {**ROWS, "fields": [{"name": name, "type": form} for name, form in types.items()]}
    given = ["{}", "{}", bad, "{}"]
    path = written(tmp_path / "in.avro", rows, [{"topic": "t", "properties": each} for each in given])
    portions = read_portions(path, lambda _: None)
    assert [line.number for line in next(portions)] == [1, 2]
    with pytest.raises(InvalidInput, match="row 3: properties"):
        next(portions)


def test_portions_have_so_many_rows_and_bytes_are_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(avro_input, "_ROWS", 4)
    path, told = written(tmp_path / "in.avro", ROWS, messages(9)), list[int]()
    assert [len(portion) for portion in read_portions(path, told.append)] == [4, 4, 1]
    assert 0 < sum(told) <= path.stat().st_size


def test_without_the_extra(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fastavro", None)
    with pytest.raises(Unsupported, match="fastavro"):
        topics(tmp_path / "in.avro")
