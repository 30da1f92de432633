"""Everything that is derived from the construct schemas.

| derived | module | used for |
|---|---|---|
| numpy dtype of a fixed-size schema | `dtype` | queues, index, checkpoint, timer files in bulk |
| columnar decode of variable-size records | `decode` | scanning the commit log |
| columnar encode | `encode` | writing the commit log in bulk |
| spans of the fields of one record | `spans` | annotated hex dump |
| rows of a byte table, column names and types | `tables` | manual page, JSON Schema, Arrow |

`layout` turns a schema into a tree of nodes, which all of them walk. A new schema needs no new code
here; `tests/formats/derive` compares each derivation with construct itself.
"""

from .columns import Columns
from .decode import decode, decode_one
from .dtype import dtype_of
from .encode import Encoded, encode, sizes
from .layout import minimum_bytes, offset_of
from .ragged import Ragged
from .spans import Span, spans
from .tables import ByteTableRow, Column, columns_of, table

__all__ = [
    "ByteTableRow",
    "Column",
    "Columns",
    "Encoded",
    "Ragged",
    "Span",
    "columns_of",
    "decode",
    "decode_one",
    "dtype_of",
    "encode",
    "minimum_bytes",
    "offset_of",
    "sizes",
    "spans",
    "table",
]
