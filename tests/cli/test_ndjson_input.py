"""NDJSON that comes in: bad lines, ends in the middle, inputs that wait."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from mqstore.cli import ndjson_input
from mqstore.cli.ndjson_input import read_portions
from mqstore.store.errors import InvalidInput, Missing


def records(source: Path) -> list[tuple[int, object]]:
    return [(line.number, line.record.get("n")) for portion in read_portions(str(source)) for line in portion]


@pytest.mark.parametrize(
    ("bad", "said"),
    [
        (b"{", "line 4: "),
        (b"[1]", "line 4: not a JSON object"),
        (b"null", "line 4: not a JSON object"),
        (b"\xff\xfe\xff", "line 4: "),
        (b'{"n":' + b"[" * 100_000, "line 4: "),
    ],
    ids=["cut", "array", "null", "no text", "deep"],
)
def test_what_stands_before_a_bad_line_comes_first(bad: bytes, said: str, tmp_path: Path) -> None:
    """Empty lines are counted, and are none."""
    path = tmp_path / "lines"
    path.write_bytes(b'{"n":1}\n \n{"n":3}\n' + bad + b'\n{"n":5}\n')
    portions = read_portions(str(path))
    assert [(line.number, line.record) for line in next(portions)] == [(1, {"n": 1}), (3, {"n": 3})]
    with pytest.raises(InvalidInput, match=said):
        next(portions)


@pytest.mark.parametrize("text", [b'[\n{"n":1},\n{"n":2}\n]\n', b"topic,body\na,b\n"], ids=["JSON array", "CSV"])
def test_what_is_wanted_is_said_of_a_file_of_another_kind(text: bytes, tmp_path: Path) -> None:
    path = tmp_path / "lines"
    path.write_bytes(text)
    with pytest.raises(InvalidInput, match=r"line 1: .*; expected NDJSON, one object per line .*--from-format"):
        records(path)


@pytest.mark.parametrize("room", [1, 3, 7, 1 << 20])
def test_lines_are_whole_wherever_portions_end(room: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last line may lack its end; a half of a surrogate pair and other encodings of JSON are taken."""
    monkeypatch.setattr(ndjson_input, "PORTION_BYTES", room)
    path = tmp_path / "lines"
    path.write_bytes(b'{"n":"\xc3\xa4"}\r\n\n{"n":"\\ud800"}\n{"n":2}')
    assert records(path) == [(1, "ä"), (3, "\ud800"), (4, 2)]


def test_a_line_without_an_end_is_bounded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ndjson_input, "LARGEST_LINE_BYTES", 100)
    path = tmp_path / "lines"
    path.write_bytes(b'{"n":1}\n' + b" " * 101)
    with pytest.raises(InvalidInput, match="a line of more than 100 bytes"):
        records(path)
    with pytest.raises(Missing):
        records(tmp_path / "none")


def test_a_portion_without_lines_tells_that_nothing_has_come(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    writer = os.open(path, os.O_RDWR)
    try:
        os.write(writer, b'{"n":1}\n{"n"')
        portions = read_portions(str(path), 0.0)
        assert [line.record for line in next(portions)] == [{"n": 1}]
        assert next(portions) == []
        os.write(writer, b":2}\n")
        assert [(line.number, line.record) for line in next(portions)] == [(2, {"n": 2})]
    finally:
        os.close(writer)
