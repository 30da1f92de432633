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

from .columns import Columns as Columns
from .decode import decode as decode
from .decode import decode_one as decode_one
from .dtype import dtype_of as dtype_of
from .encode import Encoded as Encoded
from .encode import encode as encode
from .encode import sizes as sizes
from .layout import minimum_bytes as minimum_bytes
from .layout import offset_of as offset_of
from .ragged import Ragged as Ragged
from .spans import Span as Span
from .spans import spans as spans
from .tables import ByteTableRow as ByteTableRow
from .tables import Column as Column
from .tables import columns_of as columns_of
from .tables import table as table
