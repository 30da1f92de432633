"""`put --from` and `pipeline import`: times before 1970. A broker stores the born time that a client sends."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from .datadriven import run_here
from .put_tables import stored
from .putting import mqstore

BORN = [-1, -5_000_000_000, -(1 << 63), 0, 1_700_000_000_000]


@pytest.fixture
def odd(tmp_path: Path) -> Path:
    """A store with a message for each of BORN."""
    lines = [{"topic": "T", "body": str(number), "born_timestamp": born} for number, born in enumerate(BORN)]
    return put(tmp_path / "odd", tmp_path / "odd.ndjson", lines)


def put(root: Path, source: Path, lines: list[dict[str, Any]], *words: str) -> Path:
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    mqstore("put", root, "--from", source, *words)
    return root


def born(root: Path) -> list[int]:
    return [row["born_timestamp"] for row in stored(root)]


def test_lines(odd: Path) -> None:
    assert born(odd) == BORN


@pytest.mark.parametrize("raw", [[], ["--raw"]], ids=["shown", "raw"])
@pytest.mark.parametrize("form", ["ndjson", "csv"])
def test_dump_and_back(form: str, raw: list[str], odd: Path, tmp_path: Path) -> None:
    path = tmp_path / f"dumped.{form}"
    assert run_here(["dump", str(odd), "--format", form, "--output", str(path), *raw]).code == 0
    mqstore("put", tmp_path / "new", "--from", path)
    assert born(tmp_path / "new") == BORN


@pytest.mark.parametrize("form", ["parquet", "arrow", "avro", "csv"])
def test_export_and_back(form: str, odd: Path, tmp_path: Path) -> None:
    assert run_here(["export", str(odd), "--to", str(tmp_path / "out"), "--format", form]).code == 0
    (path,) = (tmp_path / "out").rglob(f"*.{form}")
    mqstore("put", tmp_path / "new", "--from", path)
    assert born(tmp_path / "new") == BORN
    if form in ("parquet", "arrow"):
        assert run_here(["pipeline", "import", str(tmp_path / "out"), "--to", str(tmp_path / "made")]).code == 0
        assert born(tmp_path / "made") == BORN


def test_salvage(odd: Path, tmp_path: Path) -> None:
    (log,) = (odd / "commitlog").iterdir()
    words = ["salvage", str(log), "--to", str(tmp_path / "new"), "--layout", "compact"]
    assert run_here(words).code in (0, 1)
    assert born(tmp_path / "new") == BORN


def test_resume_knows_them(odd: Path, tmp_path: Path) -> None:
    path = tmp_path / "odd.ndjson"
    keyless = [json.loads(line) | {"unique_key": None} for line in path.read_text().splitlines()]
    put(tmp_path / "new", path, keyless, "--resume")
    result = run_here(["put", str(tmp_path / "new"), "--from", str(path), "--resume"])
    assert "5 messages left out, because the store already has them" in result.stderr
    assert born(tmp_path / "new") == BORN


@pytest.mark.parametrize("how", ["lines", "columns", "import"])
def test_store_times_before_1970_are_replaced_and_told(how: str, tmp_path: Path) -> None:
    """No broker stores one, since its own clock gives them."""
    times = [-5, 1_700_000_000_000, None, -(1 << 62)]
    lines = [{"topic": "T", "body": "x", "unique_key": "K", "store_timestamp": time} for time in times]
    source = tmp_path / "in.ndjson"
    source.write_text("".join(json.dumps(line) + "\n" for line in lines))
    if how != "lines":
        import pyarrow as pa
        import pyarrow.parquet as pq

        source = tmp_path / "in.parquet"
        pq.write_table(pa.Table.from_pylist(lines), source)
    new, other = tmp_path / "new", tmp_path / "other"
    words = ["pipeline", "import", str(source), "--to"] if how == "import" else ["put", "--from", str(source)]
    result = run_here([*words, str(new), "--keep-times"])
    assert result.code == 0
    assert "2 messages with a store_timestamp before 1970 have the current time instead" in result.stderr
    kept = sorted(row["store_timestamp"] for row in stored(new))
    assert kept[0] == 1_700_000_000_000 and kept[1] > 1_700_000_000_000
    result = run_here([*words, str(other), *(["--new-times"] if how == "import" else [])])
    assert result.code == 0 and "1970" not in result.stderr
