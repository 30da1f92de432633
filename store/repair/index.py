"""Repair what a start does not check of index and checkpoint, and damaged names of CRC items.

`recover` checks headers and slots of the index, which is all that a broker's start depends on. Here each item is
compared with its record, by the checks of `verify`; the index is rebuilt from the first wrong file on.

Times and positions of the checkpoint that nothing in the store reaches are lowered. A value that is too high makes the
next start read too little of the log (spec 04, 4.1; I-110 to I-113, I-117). Values that are only old cost time, and
stay. The confirmed position is put between two records.

`__CRC32#` items with a damaged name and digits that match the record get their name back: with forceVerifyPropCRC a
broker ends the log at a record without the item, and everything behind is lost (spec 01, 1.7; I-026).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace
from pathlib import Path

import numpy as np

from ...formats.checkpoint import FIELDS, PAGE_BYTES
from ...formats.message_properties import CRC_DIGITS_AT, CRC_ITEM_BYTES, crc_item
from ...formats.property_columns import ends_with_misnamed_crc_item
from ..broker.snapshot import Snapshot
from ..disk.checkpoint import Checkpoint, is_whole
from ..disk.compressed import read_regular
from ..disk.files import Edit, Phase
from ..findings.catalogue import Severity, catalogue
from ..findings.findings import Finding
from ..index.compare import IndexFiles, IndexFix, StoredIndex, stored_files
from ..index.read import sizes_of
from ..log.commit_log import Batch, CommitLog, Extent, ExtentKind, in_step
from ..log.message import Mark
from ..plan.plan import Plan, checkpoint_edit
from ..queues.references import commit_log_of
from ..search.store import StoreReader
from ..verify.context import Scope
from ..verify.run import verify

_GROUP = "index"
_WARNINGS = frozenset({"I-091", "I-093", "I-099", "I-104"})
"""Codes of which a warning is enough: a rebuilt file has none of them."""
_REST_CODES = ("I-110",)
_INDEX_TIME = "index_msg_timestamp"
_BOUNDED = ("physic_msg_timestamp", "logics_msg_timestamp", _INDEX_TIME, "confirm_phy_offset", "logics_physical_offset")
_OF_THE_LOG = (Mark.NONE, Mark.AFTER_DAMAGE)


def index_fix(
    snapshot: Snapshot, version: str, lost: Iterable[tuple[int, int]], findings: Iterable[Finding] | None = None
) -> IndexFix | None:
    """Return the index files to rebuild, None if there are none. Raises Unreadable.

    lost: ranges of the log whose records are gone, or have lost properties, after the plan. findings: of a `verify` of
    the store; None: the whole log is read for them.
    """
    index = IndexFiles.of(snapshot)
    files = index.files
    names = {file.entry.path: number for number, file in enumerate(files)}
    wrong = min((_first_holding(files, *span) for span in lost), default=len(files))
    layout, scope = snapshot.layout, Scope(groups=frozenset({_GROUP}), broker_version=version)
    with StoreReader(layout) as store:
        starts = {Path(file.path).name: file.start for file in store.log_files.files}
        for finding in verify(store, scope).findings if findings is None else findings:
            least = Severity.WARNING if finding.code in _WARNINGS else Severity.ERROR
            if catalogue()[finding.code].group != _GROUP or finding.severity < least:
                continue
            first = names.get(finding.path)
            if first is None and finding.code == "I-091":
                continue  # not a broker's name: `stray_files`
            if first and finding.code == "I-104":
                first -= 1  # either of the two headers may be wrong
            if first is None:  # the finding is about a record that the index lacks
                position = starts.get(Path(finding.path).name, 0) + (finding.offset or 0)
                ends = (i for i, f in enumerate(files) if f.header.end_physical_offset >= position)
                first = next(ends, len(files) - 1)
            wrong = min(wrong, first)
    return None if wrong >= len(files) else index.fix(files[: max(wrong, 0)])


def stray_files(snapshot: Snapshot) -> Iterator[Edit]:
    """Yield moves of files among the index files with a name that no broker gives."""
    known = {file.entry.path for file in stored_files(snapshot.index)}
    for entry in snapshot.index:
        if not entry.directory and entry.path not in known:
            yield Edit("move", entry.path, "not the name of an index file", ("I-091",))


def _first_holding(files: list[StoredIndex], begin: int, end: int) -> int:
    """Return the number of the first file that can have items of a range of the log."""
    headers = ((file.header.begin_physical_offset, file.header.end_physical_offset) for file in files)
    return next((number for number, (first, last) in enumerate(headers) if first < end and last >= begin), len(files))


def crc_item_edits(log: CommitLog) -> Iterator[Edit]:
    """Yield the edits of CRC items, for a broker that demands the item. Reads the whole log. Raises Unreadable."""
    for batch in log.scan(crc=False, reuse=True):
        if not isinstance(batch, Batch) or batch.mark not in _OF_THE_LOG:
            continue
        properties, sizes = batch.columns.ragged("properties"), batch.columns.ints("total_size")
        for row in np.flatnonzero(ends_with_misnamed_crc_item(properties)).tolist():
            begin = int(batch.columns.starts[row])
            record = properties.buffer[begin : begin + int(sizes[row])].tobytes()
            item = crc_item(record[:-CRC_ITEM_BYTES])
            file = log.queue.file_at(int(batch.position[row]))
            if record[-CRC_ITEM_BYTES:][CRC_DIGITS_AT:] == item[CRC_DIGITS_AT:] and file is not None:
                at = int(batch.position[row]) - file.start + len(record) - len(item)
                reason = "corrects the property name of a right checksum"
                yield Edit("write", file.path, reason, ("I-026",), at, len(item), item)


def with_checkpoint(snapshot: Snapshot, plan: Plan, *, only_index: bool) -> Plan:
    """Return a plan that also corrects the checkpoint. only_index: only its time of the index."""
    complete, path = plan.complete_checkpoint, snapshot.layout.checkpoint
    if complete is None:
        return plan
    if plan.index is not None:
        complete = complete._replace(index_msg_timestamp=_full_time(snapshot, plan.index))
    old = plan.checkpoint or Checkpoint(**snapshot.checkpoint)
    highest = complete._asdict() | {"confirm_phy_offset": max(plan.log_end, plan.lost_end.stop)}
    lowered = {
        # fields unknown to the version have their old values in `complete`
        name: min(max(0, getattr(complete, name)), max(0, highest[name]))
        for name in ((_INDEX_TIME,) if only_index else _BOUNDED)
        if not 0 <= getattr(old, name) <= max(0, highest[name])
    }
    wiped = not any(old) and any(complete) and not only_index
    whole = is_whole(path)
    if whole and not only_index and any(read_regular(path, PAGE_BYTES)[FIELDS.sizeof() :]):
        rest = PAGE_BYTES - FIELDS.sizeof()
        reason, at = "bytes behind the fields that are not zero", FIELDS.sizeof()
        zeros = Edit("write", str(path), reason, _REST_CODES, at, rest, phase=Phase.PAGE)
        plan = replace(plan, edits=[zeros, *plan.edits])
    if not only_index:
        lowered |= _corrected_positions(commit_log_of(snapshot.layout, plan.files), old, lowered)
    if wiped or lowered or not (whole or only_index or plan.checkpoint):
        new = complete if wiped else old._replace(**lowered)
        others = [e for e in plan.edits if e.phase is not Phase.CHECKPOINT]
        plan = replace(plan, checkpoint=new, edits=[*others, checkpoint_edit(path, new)])
    return plan


def _corrected_positions(log: CommitLog, old: Checkpoint, lowered: dict[str, int]) -> dict[str, int]:
    """Return corrections of negative positions and of those in the middle of a record. log: as after the plan."""
    found = {"master_flushed_offset": 0} if old.master_flushed_offset < 0 else {}
    for name in ("confirm_phy_offset", "logics_physical_offset"):
        position = getattr(old, name)
        if position and name not in lowered:
            begin = _record_begin(log, position)
            if begin != position:
                found[name] = begin
    return found


def _record_begin(log: CommitLog, position: int) -> int:
    """Return the begin of the record or BLANK that a position is in; the position itself if it is in none."""
    if log.queue.file_at(position) is None:
        return position
    for item in log.scan(in_step(log, position), position + 1, crc=False, reuse=True):
        if isinstance(item, Batch) and item.position[0] <= position < item.end:
            row = int(np.searchsorted(item.position, position, side="right")) - 1
            return int(item.position[row])
        if isinstance(item, Extent) and item.kind is ExtentKind.BLANK and position < item.end:
            return item.position
    return position


def _full_time(snapshot: Snapshot, fix: IndexFix) -> int:
    """Return the end time of the newest full index file that stays, 0 without one."""
    gone = {entry.path for entry in fix.gone}
    items = sizes_of(snapshot.layout).index_items.value
    times = (
        file.header.end_timestamp
        for file in stored_files(snapshot.index)
        if file.entry.path not in gone and file.header.index_count >= items
    )
    return max(times, default=0)
