"""The items of index files as rows (spec 03, 3.1)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import ClassVar

import numpy as np

from ...formats.index_file import ITEM
from ..disk.layout import INDEX, Layout
from ..index.read import Index, open_index_file
from .ask import Ask
from .table import Table, Values, fields_of_schema


class IndexTable(Table):
    """A row is an item. begin_timestamp: of its file, ms; time_diff counts seconds from there."""

    of = "index"
    columns: ClassVar = {
        "file": "string",
        "number": "bigint",
        "slot": "bigint",
        **fields_of_schema(ITEM),
        "begin_timestamp": "bigint",
    }

    needs: ClassVar = {INDEX}

    def parts(self, layout: Layout, ask: Ask) -> list[str]:
        with Index.open(layout.index, ask.broker_config) as index:
            return [file.path for file in index.files]

    def rows(self, layout: Layout, ask: Ask, part: str) -> Iterator[tuple[int, Values]]:
        with open_index_file(part, ask.broker_config) as file:
            for first, items in file.columns():
                names = items.dtype.names or ()
                hashes = items["key_hash"].astype(np.int64)
                slots = hashes % file.slots if file.slots > 0 else np.zeros_like(hashes)
                yield (
                    len(items),
                    {
                        "file": Path(part).name,
                        "number": np.arange(first, first + len(items)),
                        "slot": slots,
                        **{name: items[name] for name in names},
                        "begin_timestamp": file.header.begin_timestamp,
                    },
                )
