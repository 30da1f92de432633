"""The index: which of its files hold items that the log does not ask for, or lack some.

`recover` looks at headers and slots, which is all that a broker's start depends on. Here each item is
held against its record, by the checks of `verify`; from the first wrong file on the index is rebuilt.

`__CRC32#` items whose name is damaged while their digits prove the record, named again.

With forceVerifyPropCRC a broker ends the log at a record without the item: all behind it would be lost.
Spec 01, 1.7; I-026.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

import numpy as np

from ...formats.message_properties import CRC_DIGITS_AT, CRC_ITEM_BYTES, crc_item
from ...formats.property_columns import ends_with_misnamed_crc_item
from ..broker.snapshot import Snapshot
from ..disk.files import Edit
from ..findings.catalogue import Severity, catalogue
from ..findings.findings import Finding
from ..index.compare import IndexFiles, IndexFix, StoredIndex, stored_files
from ..log.commit_log import Batch, CommitLog
from ..log.message import Mark
from ..search.store import Store
from ..verify.register import Scope
from ..verify.run import verify

_GROUP = "index"
_WARNINGS = frozenset({"I-091", "I-093", "I-099", "I-104"})
"""Of these a warning is enough: a file that is rebuilt has none of them."""


def index_fix(
    snapshot: Snapshot,
    version: str,
    lost: Iterable[tuple[int, int]],
    findings: Iterable[Finding] | None = None,
) -> IndexFix | None:
    """What is to be rebuilt, None: nothing. Raises Unreadable.

    lost: ranges of the log whose records are gone, or have lost properties, once the plan is carried
    out. findings: of a `verify` of the store; None: the whole log is read for them.
    """
    index = IndexFiles.of(snapshot)
    files = index.files
    names = {file.entry.path: number for number, file in enumerate(files)}
    wrong = min((_holding(files, *span) for span in lost), default=len(files))
    layout, scope = snapshot.layout, Scope(groups=frozenset({_GROUP}), broker_version=version)
    with Store(layout) as store:
        starts = {Path(file.path).name: file.start for file in store.log_files.files}
        for finding in verify(store, scope).findings if findings is None else findings:
            if catalogue()[finding.code].group != _GROUP or not _is_wrong(finding):
                continue
            first = names.get(finding.path)
            if first is None and finding.code == "I-091":
                continue  # no broker's name: `stray_files`
            if first and finding.code == "I-104":
                first -= 1  # which of the two headers is wrong is not known
            if first is None:  # told of a record that the index lacks
                position = _position(finding, starts)
                ends = (i for i, f in enumerate(files) if f.header.end_physical_offset >= position)
                first = next(ends, len(files) - 1)
            wrong = min(wrong, first)
    return None if wrong >= len(files) else index.fix(files[: max(wrong, 0)])


def stray_files(snapshot: Snapshot) -> Iterator[Edit]:
    """Files among the index files with a name that no broker gives: they are put aside."""
    known = {file.entry.path for file in stored_files(snapshot.index)}
    for entry in snapshot.index:
        if not entry.directory and entry.path not in known:
            yield Edit("move", entry.path, "no name of an index file", ("I-091",))


def _is_wrong(finding: Finding) -> bool:
    least = Severity.WARNING if finding.code in _WARNINGS else Severity.ERROR
    return finding.severity >= least


def _holding(files: list[StoredIndex], begin: int, end: int) -> int:
    """The first file that can have items of the records of a range."""
    for number, (_, header) in enumerate(files):
        if header.begin_physical_offset < end and header.end_physical_offset >= begin:
            return number
    return len(files)


def _position(finding: Finding, starts: dict[str, int]) -> int:
    """Log position of a finding."""
    return starts.get(Path(finding.path).name, 0) + (finding.offset or 0)


_OF_THE_LOG = (Mark.NONE, Mark.AFTER_DAMAGE)


def crc_item_edits(log: CommitLog) -> Iterator[Edit]:
    """The edits, for a store whose broker demands the item. Reads the whole log. Raises Unreadable."""
    for batch in log.scan(crc=False, reuse=True):
        if not isinstance(batch, Batch) or batch.mark not in _OF_THE_LOG:
            continue
        properties, sizes = batch.columns.ragged("properties"), batch.columns.ints("total_size")
        for row in np.flatnonzero(ends_with_misnamed_crc_item(properties)).tolist():
            begin = int(batch.columns.starts[row])
            record = properties.buffer[begin : begin + int(sizes[row])].tobytes()
            item = crc_item(record[:-CRC_ITEM_BYTES])
            file = log.queue.file_at(int(batch.position[row]))
            if (
                record[-CRC_ITEM_BYTES:][CRC_DIGITS_AT:] == item[CRC_DIGITS_AT:]
                and file is not None
            ):
                at = int(batch.position[row]) - file.start + len(record) - len(item)
                reason = "the name of a checksum that is right"
                yield Edit("write", file.path, reason, ("I-026",), at, len(item), item)
