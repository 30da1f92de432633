"""Two stores of the same messages in another order."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from mqstore.cli.app import run


def store_of(root: Path, rows: list[dict[str, Any]]) -> str:
    """A store of some messages in their order."""
    file = root.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(rows), file)
    words = ["put", str(root), "--from", str(file), "--no-answers", "-q"]
    assert run([*words, "--set", "mappedFileSizeCommitLog=65536"]) == 0
    return str(root)


@pytest.fixture(scope="module")
def shuffled(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    """Two stores of the same queues whose logs have them in another order, and three differences."""
    folder = tmp_path_factory.mktemp("shuffled")
    rng = random.Random(7)
    given = [
        {"topic": f"t{n % 5}", "queue_id": n % 3, "body": f"body {n}", "unique_key": f"k{n}"}
        | {"born_timestamp": n, "properties": {"n": str(n)}}
        for n in range(3000)
    ]
    queues = sorted({(row["topic"], row["queue_id"]) for row in given}, key=lambda q: rng.random())
    other = [row for q in queues for row in given if (row["topic"], row["queue_id"]) == q]
    other = [row | {"body": "another"} if row["unique_key"] == "k31" else row for row in other]
    other = [row | {"properties": {"n": "0"}} if row["unique_key"] == "k47" else row for row in other]
    other += [{**given[2], "unique_key": "new", "born_timestamp": 5}]
    return store_of(folder / "a", given), store_of(folder / "b", other)
