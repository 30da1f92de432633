"""The PySpark data source that exports: a task reads a split of a log and writes its files.

What it yields are the files, and damage: no message crosses to the JVM. Of a task that is tried
again only the attempt counts whose rows arrive.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSource, DataSourceReader, InputPartition
from pyspark.sql.types import StructType

from ..store.arrow.ask import Ask
from ..store.arrow.export_files import NEEDED, ExportFiles
from ..store.arrow.log_rows import Damage, LogPart, fields_of, parts_of, rows_of
from ..store.write.files import Files
from .stage import Stage

SCHEMA = pa.schema({"attempt": pa.string(), "note": pa.string()})


class ExportSource(DataSource):
    """Options: `ask`, those of a read of the log as JSON; `stage`; `format`."""

    @classmethod
    def name(cls) -> str:
        return "mqstore-export"

    def schema(self) -> str:
        return "attempt string, note string"

    def reader(self, schema: StructType) -> DataSourceReader:
        ask = Ask.of(json.loads(self.options["ask"]))
        return ExportReader(ask, Path(self.options["stage"]), self.options["format"])


class ExportPartition(InputPartition):
    """A split of a log and its number."""

    def __init__(self, number: int, split: LogPart) -> None:
        super().__init__(number)
        self.number = number
        self.split = split


class ExportReader(DataSourceReader):
    """Exports logs, split by split."""

    def __init__(self, ask: Ask, stage: Path, form: str) -> None:
        self._ask = ask
        self._stage = stage
        self._form = form

    def partitions(self) -> list[InputPartition]:
        """Those of a read of the log."""
        return [ExportPartition(n, split) for n, split in enumerate(parts_of(self._ask))]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        """Write one split; a row for each file and for each damaged range."""
        assert isinstance(partition, ExportPartition)
        context = TaskContext.get()
        assert context is not None
        attempt = f"{partition.number}-{context.taskAttemptId()}"
        stage = Stage(self._stage, Files())
        notes = export_split(self._ask, partition, self._form, stage, attempt)
        texts = [json.dumps(note) for note in notes]
        yield pa.RecordBatch.from_pydict({"attempt": [attempt] * len(texts), "note": texts}, SCHEMA)


def export_split(
    ask: Ask, partition: ExportPartition, form: str, stage: Stage, attempt: str
) -> list[dict[str, Any]]:
    """Write the messages of one split: its files, then its damage."""
    columns = fields_of(ask)
    reading = replace(ask, fields=tuple(dict.fromkeys([*columns, *NEEDED])))
    files = ExportFiles(
        stage.attempt(attempt), f"{partition.number:05}", form, columns, stage.files
    )
    damage: list[Damage] = []
    for rows in rows_of(reading, partition.split, damage.append):
        if rows.num_rows:
            files.add(rows)
    files.close()
    told = [{"damage": asdict(one)} for one in damage]
    return [{"file": asdict(file)} for file in files.written] + told
