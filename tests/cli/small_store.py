"""A store of a few messages."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from mqstore.cli.app import run


def small_store(root: Path, *messages: dict[str, Any]) -> Path:
    """A store of some messages, stored when they say."""
    file = root.with_suffix(".parquet")
    pq.write_table(pa.Table.from_pylist(list(messages)), file)
    words = ["put", str(root), "--from", str(file), "--keep-times", "--no-answers", "-q"]
    assert run([*words, "--set", "mappedFileSizeCommitLog=65536"]) == 0
    return root
