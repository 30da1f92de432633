"""Correct what must be right before anything else is planned: entries that no broker version should find.

No edit can restore missing parts of a log that did not expire: then a plan is refused.
"""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Callable, Collection, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from types import MappingProxyType

from ...formats.derive import Columns, decode_one
from ...formats.dledger import HEADER_BYTES
from ...formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SMALLEST
from ..broker.snapshot import (
    DirectoryEntry,
    FileBytes,
    Snapshot,
    broken_links,
    directories_for_files,
    directories_without_files,
    files_for_queues,
)
from ..counted import counted
from ..disk.file_queue import LARGEST_FILE_BYTES, NAME_DIGITS, MappedFileQueue, file_name, start_of, step_of
from ..disk.files import Edit, Files, reach
from ..disk.layout import DLEDGER_PREFIX, Layout
from ..disk.lock import holder
from ..errors import Missing, Refused
from ..findings import next_commands as commands
from ..index.compare import stored_files
from ..index.read import sizes_of
from ..log.batch import good_records
from ..log.commit_log import CommitLog
from ..queues.edits import is_zero_from
from ..queues.units import FileUnits, is_used, is_whole_file
from ..settings.options import options_of

LARGEST_GAP = 1000
"""Most log files missing in a row that can be rebuilt."""
_NO_END = 1 << 62
_LACKS = "this replica does not have the file {}, or has it compressed or with another length"


def normalize(
    snapshot: Snapshot, *, any_length: bool, empty_log: bool = False, replica: str = ""
) -> tuple[Snapshot, list[Edit]]:
    """Return the snapshot without entries that no broker version should find, and the edits that move these away:
    directories, files whose name is not a position, empty files.

    any_length: keep files of a wrong length, and an empty file if the log continues behind it. empty_log: the caller
    says that the store has no log any more. replica: a copy of the log that was named, "" for none. Raises Refused for
    what moving cannot correct: a wrong length, or one that no broker has; a log file of which only the name is wrong; a
    log that is missing, in a place where brokers do not look, or incomplete (`missing_parts`); a link to nothing; a
    lock that is a directory.
    """
    size, lock = snapshot.log_file_bytes, snapshot.layout.lock
    if reason := snapshot.layout.unread_log:
        raise Refused(reason, path=snapshot.layout.root, hint=commands.moving_back(snapshot.layout))
    for broken in broken_links(snapshot):
        raise Refused(broken.message, path=broken.path, hint=broken.hint)
    if lock.is_dir():
        raise in_the_way("the lock is a directory: no broker starts", os.fspath(lock), snapshot.layout.root)
    for path in files_for_queues(snapshot.layout):
        raise in_the_way("not a directory but a file", path, snapshot.layout.root)
    if size > LARGEST_FILE_BYTES:
        layout = snapshot.layout
        what = f"log files of {counted(size, 'byte')}, more than any broker can have, {LARGEST_FILE_BYTES}"
        carve = commands.salvaging(layout.root, commands.Given(layout.broker_config.words))
        hint = f"restore their length, or carve the messages out: {carve}"
        raise Refused(what, path=snapshot.log[0].path if snapshot.log else layout.root, hint=hint)
    wrong = sum(e.size not in (0, size) for e in snapshot.log if not e.directory)
    is_size_sure = (
        2 * wrong <= len(snapshot.log) or _names_confirm_size(snapshot) or _configuration_confirms_size(snapshot)
    )
    any_length = any_length and is_size_sure
    kept: list[DirectoryEntry] = []
    why = "a directory in place of a file"
    edits = [Edit("move", path, why, ("I-110", "I-091")) for path in directories_for_files(snapshot)]
    names = {entry.name for entry in snapshot.log}
    for entry in snapshot.log:
        start = start_of(entry.name)  # with a next file, an empty one was not made in advance but has lost its bytes
        of_log = any_length and (entry.size or (start is not None and file_name(start + size) in names))
        reason = _fault(entry._replace(size=size) if of_log else entry, size)
        if reason:
            _refuse_other_name(entry, names, size)
            _refuse_other_size(entry, size)
            reason += _note_missing_file(entry, names, size)
            edits.append(Edit("move", entry.path, reason, ("I-001", "I-005")))
        elif entry.size != size and not any_length:
            what = f"a log file of {counted(entry.size, 'byte')}, not {size}"
            raise Refused(what, path=entry.path, hint=_other_length(snapshot))
        else:
            kept.append(entry)
    if not kept and not empty_log and any(_begins_with_record(e) for e in snapshot.log):
        raise renamed(snapshot)
    unused = bool(kept) and _has_no_record(snapshot, kept)
    if unused:
        edits += [Edit("move", entry.path, "it has no record, and the log before it is gone", ()) for entry in kept]
        kept = []
    if not kept and not empty_log:
        refuse_lost_log(snapshot, replica, unused=unused)
    refuse_lost_directory(snapshot, replica)
    if replica:
        unexpired_front(snapshot, front_without_files(snapshot), replica)
    if any_length and kept:
        kept, astray = _of_one_log(snapshot, kept)
        edits += astray
    _check_queue_size(snapshot)
    queues = {
        name: tuple(e for e in entries if is_whole_file(e, snapshot.queue_file_bytes))
        for name, entries in snapshot.queues.items()
    }
    return replace(snapshot, log=tuple(kept), queues=queues), edits


def check_reach(layout: Layout, edits: Iterable[Edit]) -> None:
    """Raise Refused if an edit is of a file that leads out of the store, which no option allows."""
    own, seen, further = Files(), set[str](), None
    own.confine([layout.root])
    for path in (edit.path for edit in edits):
        above = os.path.dirname(path)  # noqa: PTH120
        if above not in seen or os.path.islink(path):  # noqa: PTH114
            seen.add(above)
            if "\0" in path or not own.is_inside(Path(path)):
                further = further or reach(layout)  # looks at the directory of every topic
                further.check_inside(Path(path))


def _other_length(snapshot: Snapshot) -> str:
    files = [entry for entry in snapshot.log if entry.size and not entry.directory]
    size = files[0].size
    starts = [start_of(entry.name) for entry in files if entry.size == size]
    if len(files) > 1 and len(starts) == len(files) and all(at is not None and at % size == 0 for at in starts):
        return f"all files have that length, and their names fit: mappedFileSizeCommitLog should be {size}"
    if all(entry.size != snapshot.log_file_bytes for entry in files):
        return "restore its length, or name the original one: --set mappedFileSizeCommitLog=BYTES"
    return "restore its length, or move it out of the store"


def right_name(entry: DirectoryEntry, names: Collection[str], size: int) -> str:
    """Return the path that a log file should have, if only its name is wrong: the right number in other digits; or no
    number, or the name of another file, and its first record belongs to a file that the log lacks.

    names: of all files of the log. "" for any other file, also if records name other places. Raises Unreadable.
    """
    start = None if entry.directory or not size else start_of(entry.name)
    if start is None or start % size or file_name(start) in names:
        start = _start_in_log(entry, names, size)
    elif is_zero_from(entry, 0) or (_begins_with_record(entry) and not _is_in_place(entry)):
        return ""
    if start is None or file_name(start) in names:
        return ""
    return os.fspath(Path(entry.path).with_name(file_name(start)))


def _start_in_log(entry: DirectoryEntry, names: Iterable[str], size: int) -> int | None:
    """Return the start of a misnamed file by its first record, if that is between the other files or next to them."""
    start = _start_by_record(entry, size)
    others = [at for at in map(start_of, names) if at is not None and not at % size]
    if start is None or not others or not min(others) - size <= start <= max(others) + size:
        return None
    return start


def _start_by_record(entry: DirectoryEntry, size: int) -> int | None:
    """Return the start of the log file that a file's first record names."""
    first = None if entry.directory or not size or entry.size != size else _first_record(entry)
    if first is None or int(first.ints("magic_code")[0]) not in (MAGIC_V1, MAGIC_V2):
        return None
    start = int(first.ints("physical_offset")[0])
    return None if start < 0 or start % size else start


def _refuse_other_name(entry: DirectoryEntry, names: Collection[str], size: int) -> None:
    """Refuse to move a log file away if only its name is wrong. Raises Refused."""
    if path := right_name(entry, names, size):
        start = start_of(entry.name)
        what = f"the name of a log file does not have {NAME_DIGITS} digits"
        if start is None or start % size:
            what = "the name of a log file is not a position"
        elif file_name(start) in names:
            what = "a log file has the name of another log file"
        raise Refused(what, path=entry.path, hint=f"rename it: {commands.NextCommand(('mv', entry.path, path))}")


def _refuse_other_size(entry: DirectoryEntry, size: int) -> None:
    """Refuse to move a file away whose name and first record agree, but not with the file size. Raises Refused."""
    start = None if entry.directory or not entry.size else start_of(entry.name)
    if start and start % size and _is_in_place(entry):
        length = counted(size, "byte")
        raise Refused(
            f"its name fits its records, but not the file size of {length}",
            path=entry.path,
            hint="check mappedFileSizeCommitLog, or set the right one: --set mappedFileSizeCommitLog=BYTES",
        )


def _note_missing_file(entry: DirectoryEntry, names: Container[str], size: int) -> str:
    """Return a note about the records of a moved file, if their own file is missing in the log."""
    start = _start_by_record(entry, size)
    if start is None or (name := file_name(start)) in names:
        return ""
    return f"; its records belong to {name}, which is missing"


def refuse_lost_log(snapshot: Snapshot, replica: str = "", *, unused: bool = False) -> None:
    """Refuse a store without a log that has traces of one. replica: a copy of the log, "" for none. unused: files
    exist, without a record. Raises Refused, and for a wrong replica Missing, NotAStore, Unsupported.
    """
    if rest := traces_of_log(snapshot):
        layout, harm = snapshot.layout, "serve none of their messages" if unused else "delete the queues"
        directory = _log_directory(layout)
        reason = f"no {'record in the ' * unused}commit log, but {rest}"
        why = ": is the path wrong, or a disk not mounted?"
        hint = f"if the log is gone for good: {starting_over(layout)}"
        if (log := _unread_dledger(snapshot)) is not None:
            why, hint = ", and the broker's configuration leaves out the DLedger log", _use_dledger_hint(layout, log)
            directory = log
        elif replica and layout.dledger is None and directory == layout.commit_log_directories[0]:
            from .replica import copy_command  # rarely needed

            hint = f"copy the files of the replica's log there first: {copy_command(snapshot, replica)}"
        hint = f"a broker that starts here would {harm}; {hint}"
        raise Refused(reason + why, path=directory, hint=hint)


def _log_directory(layout: Layout) -> Path:
    """Return the directory in which a broker looks for the missing log."""
    config = layout.broker_config
    own = config.get("dLegerSelfId") if config.get_bool("enableDLegerCommitLog") else None
    return layout.root / f"{DLEDGER_PREFIX}{own}" / "data" if own else layout.commit_log_directories[0]


def _unread_dledger(snapshot: Snapshot) -> Path | None:
    """Return a DLedger log that the configuration leaves out and that has records which queues name."""
    ends = [_last_named(FileUnits.of(sorted(each), snapshot.queue_file_bytes)) for each in snapshot.queues.values()]
    for data in sorted(snapshot.layout.root.glob(f"{DLEDGER_PREFIX}*/data")):
        files = MappedFileQueue.open(data).files
        if any(file.start <= end < file.end for file in files for end in ends):
            return data
    return None


def _use_dledger_hint(layout: Layout, log: Path) -> str:
    """Return a hint: make brokers read this DLedger log, or make a plain log from it."""
    option = {"enableDLegerCommitLog": "true", "dLegerSelfId": log.parent.name.removeprefix(DLEDGER_PREFIX)}
    words = layout.broker_config.words
    others = [pair for pair in zip(words[::2], words[1::2], strict=True) if pair[1].partition("=")[0] not in option]
    config = (*(word for pair in others for word in pair), *commands.settings(option))
    needed = " and ".join(f"{name}={value}" for name, value in option.items())
    made = commands.converting(layout.root, commands.Given(config))
    return f"set {needed} in broker.conf, or make a plain store: {made}"


def starting_over(layout: Layout) -> str:
    """Return the commands that make the log directory and declare the log gone for good."""
    directory, command = _log_directory(layout), commands.proposed(layout, "recover", "--force-empty-log")
    made = "" if directory.is_dir() else f"{commands.NextCommand(('mkdir', '-p', os.fspath(directory)))} && "
    return made + command


def _has_no_record(snapshot: Snapshot, entries: Sequence[DirectoryEntry]) -> bool:
    """Whether no file of a log that had records has any: all are files made in advance, and nothing names a place in
    them.

    The last file with a record expires only if a file without records follows, and not before `fileReservedTime` (spec
    7.8). Here no broker has run that long after the newest message, by the files that it writes every minute.
    """
    start, layout = min(int(entry.name) for entry in entries), snapshot.layout
    if not start or any(map(_begins_with_record, entries)):
        return False
    index = [file.header for file in stored_files(snapshot.index)]
    newest_ms = max(snapshot.checkpoint["physic_msg_timestamp"], *(header.end_timestamp for header in index), 0)
    if _can_have_expired(layout, newest_ms):
        return False
    named = [header.end_physical_offset or -1 for header in index]
    for queue in snapshot.queues.values():
        for _, units in FileUnits.of(queue, snapshot.queue_file_bytes).windows():
            named.append(int(units["physical_offset"][is_used(units)].max(initial=-1)))
    if not -1 < max(named, default=-1) < start:
        return False
    log = CommitLog(layout.commit_log_files(), layout.dledger)
    return not any(True for _ in good_records(log.scan(crc=False, reuse=True)))


def _can_have_expired(layout: Layout, newest_ms: int) -> bool:
    """Whether a broker has run long enough after the newest message of a log file to delete the file."""
    written = (path for path in (layout.checkpoint, *layout.config.glob("*")) if path.exists())
    ran_ms = max((path.stat().st_mtime_ns // 1_000_000 for path in written), default=0)
    return ran_ms >= newest_ms + options_of(layout).reserved_ms


def refuse_to_read(layout: Layout, tell: Callable[[str], None] | None = None) -> None:
    """Refuse a store that `lacks_log` if it had one. tell: called instead if only a directory of the log is lost, so
    that the rest can be read. Raises Missing, Refused, Unreadable.
    """
    snapshot, files = Snapshot.as_read(layout), layout.commit_log_files().files
    if not files:
        refuse_lost_log(snapshot)
        if missing := [one for one in layout.commit_log_directories if not one.is_dir()]:
            raise Missing(f"no {missing[0].name} here", path=missing[0].parent)
    try:
        refuse_lost_directory(snapshot)
    except Refused as error:
        if tell is None or not files:
            raise
        tell(str(error))


def refuse_lost_directory(snapshot: Snapshot, replica: str = "") -> None:
    """Refuse if a missing part of the log may lie in a directory that is not mounted. replica: as in `refuse_lost_log`.
    Raises Refused, and for a wrong replica Missing, NotAStore, Unsupported.
    """
    from .replica import copy_lost_command, whole_files

    bare, alone = directories_without_files(snapshot.layout), snapshot.layout.dledger
    copies = whole_files(replica, snapshot.log_file_bytes) if replica and bare and alone is None else {}
    if parts := [*missing_parts(snapshot, copies)]:
        states = [f"{path} is {'empty' if path.is_dir() else 'not there'}" for path in bare]
        hint = "mount the disk; if it is gone for good, or never had a file, remove it from storePathCommitLog"
        if alone is not None:
            gone = "if the older log is gone for good, or has just expired"
            hint = f"mount the disk; {gone}, name the DLedger log alone: {commands.naming_log([alone])}"
        elif replica:
            copy, lacking = copy_lost_command(snapshot, copies, (lost for _, lost in parts), bare[0])
            if copy:
                hint = f"mount the disk; if it is gone for good, copy the files of the replica's log there: {copy}"
            elif lacking:
                gone = "if the disk is gone for good, or never had a file, remove its directory from storePathCommitLog"
                hint = f"mount the disk, or name another replica: {_LACKS.format(lacking)}; {gone}"
        raise Refused(f"{parts[0][0]}, and {' and '.join(states)}: is a disk not mounted?", hint=hint)


def missing_parts(
    snapshot: Snapshot, copies: Mapping[int, DirectoryEntry] = MappingProxyType({})
) -> Iterator[tuple[str, range]]:
    """Yield the missing parts of a log (the evidence, and the starts of the files), if a configured log directory has
    no file, or if a DLedger log continues an older log without files.

    Files in front of a log have mostly expired. They have not if whole files of queues or of the index, which a broker
    deletes with them, still exist, or if no broker has deleted a file or run long enough for it. copies: files of a
    replica, evidence for more than the last file there.
    """
    size = snapshot.log_file_bytes
    whole = {int(entry.name): entry for entry in snapshot.log if is_whole_file(entry, size)}
    if not whole or not directories_without_files(snapshot.layout):
        return
    front, starts = lost_front(snapshot), sorted(whole)
    if snapshot.layout.dledger is not None:
        if front:
            yield named_in_front(front.stop), front
        return
    for first, second in pairwise(starts):
        if second > first + size:
            yield f"the log has a gap at {first + size:,}", range(first + size, second, size)
    begin, end = starts[0], starts[-1] + size
    files = [sorted(entries) for entries in snapshot.queues.values()]
    named = [_last_named(FileUnits.of(entries, snapshot.queue_file_bytes)) for entries in files]
    stop = end
    while any(stop <= at < stop + size for at in named):
        stop += size
    if stop > end:
        yield f"queues name messages at the end of the log, {end:,}", range(end, stop, size)
    firsts = [FileUnits.of(entries[:1], snapshot.queue_file_bytes) for entries in files]
    fresh = _is_fresh(snapshot.layout, whole[begin])
    least = min(map(_lowest_named, firsts), default=begin) if fresh else begin
    if front or (least < begin and not any(first.first for first in firsts)):
        yield named_in_front(begin), _first_lost(snapshot, min(front.start, begin - 1), begin, copies, least)


def _first_lost(snapshot: Snapshot, named: int, begin: int, copies: Mapping[int, DirectoryEntry], least: int) -> range:
    """Return the starts of the lost files in front of a log that begins at `begin`: from the file with the position
    `named`, or from one before it, but not before `least`, if the files of a replica show that it did not expire.
    """
    size = snapshot.log_file_bytes
    start = named // size * size
    while least < start and start in copies and _is_fresh(snapshot.layout, copies[start]):
        start -= size
    return range(start, begin, size)


def lost_front(snapshot: Snapshot) -> range:
    """Return the range missing in front of a log, from the first known position; empty if its first files may have
    expired: a broker leaves no whole files of queues or of the index that name deleted files.
    """
    begin = min((at for entry in snapshot.log if (at := start_of(entry.name)) is not None), default=0)
    positions = (at for at in _positions_left(snapshot) if -1 < at < begin)
    return range(min(positions, default=begin), begin) if begin else range(0)


def named_in_front(begin: int) -> str:
    """Return the evidence that the first files of a log did not expire."""
    return f"queues name messages before the beginning of the log, {begin:,}"


def lost_front_notes(snapshot: Snapshot, front: range, replica: str = "") -> Iterator[str]:
    """Yield notes about first files that may be lost, or expired. front: of `front_without_files`. replica: a copy."""
    if front and not _is_young(snapshot, front):
        lost = "lost (a replica may have them), deleted by hand, or a broker was killed while it deleted them"
        yield f"{named_in_front(front.stop)}: its first files are {lost}"
        if replica:
            copy, lacking = _copy_front_command(snapshot, front, replica)
            yield f"before --apply, copy the first files of the log: {copy}" if copy else _LACKS.format(lacking)


def unexpired_front(snapshot: Snapshot, front: range, replica: str = "") -> str:
    """Return what tells that no broker has deleted the first files of a log by their age, "" if nothing does. A broker
    whose disk is too full may have. front: of `front_without_files`. Raises Refused if `replica` has them: copied with
    their times, they expire as before.
    """
    if not front or not _is_young(snapshot, front):
        return ""
    parts = (FileUnits.of(sorted(each), snapshot.queue_file_bytes).windows() for each in snapshot.queues.values())
    units = sum(int((u["physical_offset"][is_used(u)] < front.stop).sum()) for part in parts for _, u in part)
    told = counted(units, "queue unit names messages", "queue units name messages", form=",")
    told += f" before the beginning of the log, {front.stop:,}"
    told += ": its first files are gone, before their time (a broker deletes such files if its disk is too full)"
    if replica and (copy := _copy_front_command(snapshot, front, replica)[0]):
        hint = f"copy the first files of the replica's log there first: {copy}"
        raise Refused(told, path=snapshot.layout.commit_log_directories[0], hint=hint)
    return told


def front_without_files(snapshot: Snapshot) -> range:
    """Return `lost_front`; empty in a store in use, or if a missing directory explains it (`missing_parts`)."""
    known = holder(snapshot.layout.lock) is not None or directories_without_files(snapshot.layout)
    return range(0) if known else lost_front(snapshot)


def _is_young(snapshot: Snapshot, front: range) -> bool:
    return any(_is_fresh(snapshot.layout, entry) for entry in snapshot.log if start_of(entry.name) == front.stop)


def _copy_front_command(snapshot: Snapshot, front: range, replica: str) -> tuple[str, str]:
    """Return `copy_lost_command` for first files. Raises as `log_of`."""
    from .replica import copy_lost_command, whole_files

    copies, target = whole_files(replica, snapshot.log_file_bytes), snapshot.layout.commit_log_directories[0]
    lost = _first_lost(snapshot, front.start, front.stop, copies, min(copies, default=0))
    return copy_lost_command(snapshot, copies, [lost], target)


def _positions_left(snapshot: Snapshot) -> Iterator[int]:
    """Yield the last position named by the first file of each queue, and of the index, that has more files; -1 for
    none. Brokers with queues in a RocksDB may leave queue files as they are, so these do not count.
    """
    for entries in snapshot.queues.values():
        if len(entries) > 1 and snapshot.layout.queue_database is None:
            yield _last_named(FileUnits.of(sorted(entries)[:1], snapshot.queue_file_bytes))
    for file in [*stored_files(snapshot.index)][:-1][:1]:
        yield file.header.end_physical_offset or -1


def _last_named(units: FileUnits) -> int:
    """Return the position that the last unit names; -1 without one."""
    last = units.last()
    return -1 if last is None else int(last[1]["physical_offset"][0])


def _lowest_named(units: FileUnits) -> int:
    """Return the lowest position that a unit names; `_NO_END` without one."""
    positions = (some["physical_offset"][is_used(some)] for _, some in units.windows())
    return min((int(some.min(initial=_NO_END)) for some in positions), default=_NO_END)


def _is_fresh(layout: Layout, entry: DirectoryEntry) -> bool:
    """Whether messages stored right before this log file cannot have expired."""
    in_entry = Path(entry.path).parent == layout.dledger
    first = _first_record(entry, HEADER_BYTES if in_entry else 0)
    return first is not None and not _can_have_expired(layout, int(first.ints("store_timestamp")[0]))


def in_the_way(what: str, path: str, root: Path) -> Refused:
    return Refused(what, path=path, hint=f"move it out of the store: {commands.moving_away(path, root)}")


def traces_of_log(snapshot: Snapshot) -> str:
    """Return what still names messages, "" for nothing. Raises Unreadable."""
    if any(snapshot.queues.values()) or any(snapshot.batch_queues.values()):
        return "full queues"
    named = any(file.header.end_physical_offset > 0 for file in stored_files(snapshot.index))
    return "a full index" if named else ""


def _of_one_log(snapshot: Snapshot, entries: list[DirectoryEntry]) -> tuple[list[DirectoryEntry], list[Edit]]:
    """Return the files of one log, and edits that move away files whose names are far from all others.

    Between such groups more files are missing than can be rebuilt. Raises Refused unless exactly one group has records
    that name their own place.
    """
    size = snapshot.log_file_bytes
    groups: list[list[DirectoryEntry]] = [[]]
    for entry in sorted(entries, key=lambda each: int(each.name)):
        if groups[-1] and int(entry.name) - int(groups[-1][-1].name) > LARGEST_GAP * size:
            groups.append([])
        groups[-1].append(entry)
    if len(groups) == 1:
        return entries, []
    own = [group for group in groups if any(_is_in_place(entry) for entry in group)]
    if len(own) != 1:
        missing = (int(groups[1][0].name) - int(groups[0][-1].name)) // size - 1
        raise Refused(
            f"{counted(missing, 'log file is', 'log files are')} missing",
            path=groups[0][-1].path,
            hint="restore them, or move the files of another log out of the store",
        )
    reason = "its name is far from all others, and its records do not belong there"
    gone = [entry for group in groups if group is not own[0] for entry in group]
    return own[0], [Edit("move", entry.path, reason, ("I-001",)) for entry in gone]


def _is_in_place(entry: DirectoryEntry) -> bool:
    """Whether the first record of a file names the start of the file."""
    first = _first_record(entry)
    return first is not None and int(first.ints("physical_offset")[0]) == int(entry.name)


def _names_confirm_size(snapshot: Snapshot) -> bool:
    """Whether names confirm the file size: they differ by it, counting files whose first record names its own place."""
    named = [e for e in snapshot.log if not e.directory and start_of(e.name) is not None]
    return step_of(int(e.name) for e in named if _is_in_place(e)) == snapshot.log_file_bytes


def _configuration_confirms_size(snapshot: Snapshot) -> bool:
    """Whether the configuration gives the file size, and neither names nor bytes of the files contradict it."""
    size, files = snapshot.log_file_bytes, [entry for entry in snapshot.log if not entry.directory]
    if sizes_of(snapshot.layout).commit_log.origin != "configuration":
        return False
    starts = [start_of(entry.name) for entry in files]
    in_place = all(start is not None and not start % size for start in starts)
    return in_place and all(entry.size <= size or is_zero_from(entry, size) for entry in files)


def _begins_with_record(entry: DirectoryEntry) -> bool:
    """Whether a file begins with a record: with another name it would be a log file."""
    first = None if entry.directory else _first_record(entry)
    return first is not None and int(first.ints("magic_code")[0]) in (MAGIC_V1, MAGIC_V2)


def _first_record(entry: DirectoryEntry, begin: int = 0) -> Columns | None:
    """Return the fields of a file's first record, at byte `begin`, if its size is at least that of a record."""
    head = FileBytes(entry.path, stop=entry.stop)[begin : begin + SMALLEST]
    if len(head) < SMALLEST:
        return None
    columns = decode_one(MESSAGE, head)
    return columns if int(columns.ints("total_size")[0]) >= SMALLEST else None


def _check_queue_size(snapshot: Snapshot) -> None:
    """Check that most queue files have the expected size: else the option is wrong, not the files. Raises Refused."""
    queues, expected = snapshot.queues.values(), snapshot.queue_file_bytes
    sizes = Counter(e.size for entries in queues for e in entries if e.size)
    size, count = sizes.most_common(1)[0] if sizes else (expected, 0)
    what, hint = f"queue files have {counted(size, 'byte')}, not {expected}", "check mappedFileSizeConsumeQueue"
    if not sizes:
        starts = ([at for e in entries if (at := start_of(e.name)) is not None] for entries in queues)
        size, count = min(filter(None, map(step_of, starts)), default=expected), 1
        what = f"queue files are empty, and by their names had {counted(size, 'byte')} at most, not {expected}"
        hint = f"name their length; if none is missing between the others: --set mappedFileSizeConsumeQueue={size}"
    if size != expected and count > sizes[expected] and (sizes or size < expected):
        raise Refused(what, path=snapshot.layout.consume_queue, hint=hint)


def _fault(entry: DirectoryEntry, size: int) -> str:
    if entry.directory:
        return "a directory among the log files"
    if not entry.name.isascii() or not entry.name.isdigit():
        return "its name is not a number"
    if not entry.size:
        return "an empty file"
    if entry.size == size and not is_whole_file(entry, size):
        return "its name is not the start of a file"
    return ""


def renamed(snapshot: Snapshot) -> Refused:
    """The refusal of a log in which no record names its own place."""
    place, hint = snapshot.layout.commit_log_directories[0], "rename the files to what their records say"
    return Refused("no record is at its own position: were the files renamed?", path=place, hint=hint)
