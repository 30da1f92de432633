"""`put --from` of CSV."""

from __future__ import annotations

import csv
from pathlib import Path

import pytest

from mqstore.cli.terminal import escape_lines

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
