"""epochFileCheckpoint: where the log of each master begins, 5.0+ (spec/06-compaction-ha.md, 6.2).

Lines of text in the store's directory, with a controller: number of entries, CRC, then one line
`epoch-startOffset` for each. An epoch ends where the next one begins; the last one is open. The format
is that of the real classes; no real store with this file was available.
"""

from __future__ import annotations

from .json_table import JsonField, JsonTable

FILE = "epochFileCheckpoint"
SEPARATOR = "-"
#: Line end that the CRC covers, whatever the file has.
LINE_END = b"\n"
#: Value of a CRC that is not compared.
CRC_UNCHECKED = 0
HEADER, EPOCHS = "header", "epochs"
CRC_OK = "crcOk"

TABLES = (
    JsonTable(
        HEADER,
        "epoch_file",
        "the two lines at the front",
        fields=(
            JsonField("count", "integer", "number of entries"),
            JsonField("crc", "integer", "CRC-32 of their lines, top bit cleared; 0: not compared"),
            JsonField(CRC_OK, "boolean", "whether it fits; only where it is compared"),
        ),
    ),
    JsonTable(
        EPOCHS,
        "epoch",
        "one entry for each master",
        (JsonField("epoch", "integer", "number of the epoch"),),
        value=JsonField("startOffset", "integer", "position in the commit log where it begins"),
    ),
)
