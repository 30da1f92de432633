"""`put --from` of CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mqstore.cli.csv_input import read_portions

from .. import stores
from .datadriven import run_here
from .put_tables import NOW, stored
from .putting import MADE_ANEW, given, line, mqstore


@pytest.mark.parametrize("name", ["4.3.1-clean", "5.3.3-v2"])
def test_csv_of_a_dump(name: str, tmp_path: Path) -> None:
    root = stores.unpack(name, tmp_path)
    before = stored(root)
    source = tmp_path / "in.csv"
    assert run_here(["dump", str(root), "--format", "csv", "--output", str(source)]).code == 0
    mqstore("put", tmp_path / "new", "--from", source, "--as-broker", name[:3])
    for old, new in zip(before, stored(tmp_path / "new"), strict=True):
        assert given(old) == given(new)


@pytest.mark.parametrize("options", [(), ("--raw",)])
def test_csv_with_characters_that_are_escaped(options: tuple[str, ...], tmp_path: Path) -> None:
    """Bodies, and properties as they are stored, come back as they were; nothing of them is shown raw."""
    one, source = tmp_path / "one", tmp_path / "in.csv"
    texts = ["a\tb", "\r\n", "a\0\x1b[2J", "\u2028", r"a\tb", "plain\n", ""]
    lines = (
        line(0, body=t, properties_raw=f"a\1{t or 'x'}\2a\1y\2UNIQ_KEY\1k{n}\2", born_timestamp=NOW)
        for n, t in enumerate(texts)
    )
    (tmp_path / "in").write_text("".join(lines))
    mqstore("put", one, "--from", tmp_path / "in", "--as-broker", "4.9")
    assert run_here(["dump", str(one), *options, "--format", "csv", "-o", str(source)]).code == 0
    assert not set(source.read_text()) & set("\0\1\2\t\r\x1b\u2028")
    mqstore("put", tmp_path / "two", "--from", source, "--as-broker", "4.9")
    assert [row["body"] for row in stored(tmp_path / "two")] == texts
    assert [given(row) for row in stored(tmp_path / "two")] == [given(row) for row in stored(one)]
    assert all("properties_raw" in row for row in stored(one))


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


def test_progress_counts_bytes(tmp_path: Path) -> None:
    source, noted = tmp_path / "in.csv", list[int]()
    source.write_text('topic,body\norders,\u20ac \u00e9\norders,"two\r\nlines"\n', "utf-8", newline="")
    assert sum(map(len, read_portions(str(source), noted.append))) == 2
    assert sum(noted) == source.stat().st_size


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


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('topic,body\nt,"one"\nt,"two, and mo', "row 2: unexpected end of data"),
        ('topic,body\nt,one\nt,"two\nt,three\nt,four\n', "row 2: unexpected end of data"),
        ('topic,body\nt,one\nt,"two" and more\n', "row 2: ',' expected after '\"'"),
    ],
)
def test_a_quote_that_is_not_closed_swallows_no_message(text: str, said: str, tmp_path: Path) -> None:
    """As in a file that was cut off."""
    source = tmp_path / "in.csv"
    source.write_text(text)
    result = run_here(["put", str(tmp_path / "new"), "--from", str(source)])
    assert result.code == 2 and said in result.stderr and "begins with a quote" in result.stderr, result.stderr
    assert len(stored(tmp_path / "new")) == 1


def test_csv_with_the_truth_as_other_programs_write_it(tmp_path: Path) -> None:
    """pandas writes True, spreadsheets TRUE."""
    source = tmp_path / "in.csv"
    source.write_text("topic,body,body_crc_ok\n" + "".join(f"t,b,{word}\n" for word in ("True", "TRUE", "true", "")))
    mqstore("put", tmp_path / "sound", "--from", source)
    assert len(stored(tmp_path / "sound")) == 4
    for word, code in (("False", 1), ("FALSE", 1), ("0", 2), ("no", 2)):
        source.write_text(f"topic,body,body_crc_ok\nt,b,{word}\n")
        result = run_here(["put", str(tmp_path / "other"), "--from", str(source)])
        said = "failed its checksum" if code == 1 else f"row 1: body_crc_ok: neither true nor false: '{word}'"
        assert result.code == code and said in result.stderr, result.stderr
