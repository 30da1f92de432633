"""Filters of Arrow: which columns one is about, and what it takes of rows and of batches."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from pyarrow import acero
from pyarrow import compute as pc

from ..log.batch import Batch
from .log_columns import rows_of_batch

_KEPT = "kept"


def columns_of(expression: pc.Expression, schema: pa.Schema) -> list[str]:
    """The columns of `schema` without which a filter means nothing: Arrow does not tell them."""
    empty = schema.empty_table()
    return [name for name in schema.names if not _means(expression, empty.drop_columns([name]))]


def _means(expression: pc.Expression, rows: pa.Table) -> bool:
    try:
        _mask(expression, rows)
    except (pa.ArrowInvalid, pa.ArrowKeyError):
        return False
    return True


def mask_of(expression: pc.Expression, rows: pa.RecordBatch) -> npt.NDArray[np.bool_]:
    """bool[n]: the rows that a filter takes; where it is null it takes none."""
    return _mask(expression, pa.Table.from_batches([rows]))


def _mask(expression: pc.Expression, rows: pa.Table) -> npt.NDArray[np.bool_]:
    source = acero.Declaration("table_source", acero.TableSourceNodeOptions(rows))
    project = acero.Declaration(
        "project", acero.ProjectNodeOptions([expression], [_KEPT]), inputs=[source]
    )
    kept = project.to_table(use_threads=False).column(_KEPT)
    found: npt.NDArray[np.bool_] = pc.fill_null(kept, False).to_numpy()
    return found


@dataclass(frozen=True)
class OfBatches:
    """A filter over messages of a store: asked before the other columns are made.

    fields: the columns that it is about.
    """

    store: str
    expression: pc.Expression
    fields: Sequence[str]

    def mask(self, batch: Batch) -> npt.NDArray[np.bool_]:
        """bool[n]: the records of a batch that it takes."""
        parts = rows_of_batch(self.store, batch, self.fields)
        return np.concatenate([mask_of(self.expression, rows) for rows in parts])
