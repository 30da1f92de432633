"""Messages as rows of tables and lines of files, for `mqstore put --from`."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pyarrow as pa
import pyarrow.csv
import pyarrow.parquet as pq

from .putting import Row, mqstore

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
