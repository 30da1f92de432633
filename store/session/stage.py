"""Write the journal of a plan: everything that the repair needs, before it touches the store.

Damaged ranges of the log also become files in the session's folder, each named by its log position. The journal has
these bytes, too, but in the order of its steps; the files are for those who examine a damaged range as it was.
"""

from __future__ import annotations

import hashlib
import os
import re
from collections.abc import Iterator
from contextlib import suppress
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from ...formats.index_file import file_size
from ..audit.messages import LogObserver, scan_messages
from ..broker.dispatch import Dispatched
from ..broker.dispatch_record import Dispatching
from ..counted import counted
from ..disk.byte_reader import pieces
from ..disk.checkpoint import Checkpoint
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import JOURNAL_IS_IN, UNDONE, Edit, Files, linked_queues, remove_tree, write_note
from ..disk.layout import JOURNAL as JOURNAL_FOLDER
from ..disk.layout import Layout
from ..disk.lock import LockState
from ..errors import Denied, NoSpace, Refused, Unreadable, os_errors
from ..index.compare import IndexFix
from ..index.read import sizes_of
from ..index.write import IndexWriter
from ..log.commit_log import Batch
from ..plan.plan import Plan, checkpoint_edit
from ..queues.references import commit_log_of
from ..queues.rocksdb_write import database_files, in_order
from .journal import DONE, JOURNAL, SEALED, UNDOING, FileState, Journal, Step, StepKind

if TYPE_CHECKING:
    from ..queues.rocksdb_write import DatabaseFix

DAMAGED = "damaged"
_WINDOW_BYTES = 1 << 20


def ranges_of(plan: Plan) -> list[tuple[int, int]]:
    """Return (position, size) of what a plan overwrites: gaps, cut properties, the torn end, parts from a replica."""
    found = [(fill.gap.begin, fill.gap.end - fill.gap.begin) for fill in plan.fills]
    found += [(record.position, len(record.data)) for record in plan.cut]
    if plan.brought is not None:
        found += [(part.position, part.size) for part in plan.brought.parts]
    if plan.tail_bytes:
        found.append((plan.log_end, plan.tail_bytes))
    return sorted(found)


def keep_damaged(layout: Layout, plan: Plan, folder: Path, files: Files) -> None:
    """Write a file for each range that is not all zeros. Raises Unreadable, NoSpace."""
    made = folder / DAMAGED
    with layout.commit_log_files() as queue:
        for position, size in ranges_of(plan):
            windows = _nonzero_windows(queue, position, position + size)
            if not windows:
                continue
            files.make_directory(made)
            with files.create(made / file_name(position)) as target:
                target.truncate(size)
                for begin, end in windows:
                    target.pwrite(queue.read(begin, end - begin), begin - position)
                target.sync()
    if made.exists():
        files.sync_directory(made)


def _nonzero_windows(queue: MappedFileQueue, begin: int, end: int) -> list[tuple[int, int]]:
    """Return the windows of [begin, end) that are not all zeros."""
    found = []
    for file in queue.files_in(begin, end):
        for at in range(max(begin, file.start), min(end, file.end), _WINDOW_BYTES):
            behind = min(end, at + _WINDOW_BYTES, file.end)
            if any(queue.read(at, behind - at)):
                found.append((at, behind))
    return found


_INDEX_FOLDER = "index"
_DATABASE_FOLDER = "database"
_WITH_TEXT = (JOURNAL, JOURNAL_IS_IN, SEALED, DONE, UNDOING, UNDONE)
HELD_NAMES = re.compile(
    rf"\d{{6,}}\..+|{DAMAGED}|{_INDEX_FOLDER}|{_DATABASE_FOLDER}|({'|'.join(map(re.escape, _WITH_TEXT))})\b.*"
)
"""Names of the entries of a session's folder, wherever it was interrupted. Some names have text behind them
(`write_note`).
"""
#: Free space to leave on the disk beyond the needs of the journal.
_SPARE_BYTES = 16 << 20
_STEP_BYTES = 1 << 10
"""Approximate size of an edit in the journal."""
_BLOCK_BYTES = 512
"""Unit of st_blocks."""


def stage(
    layout: Layout, plan: Plan, files: Files, session: str, command: str = "recover", lock: LockState | None = None
) -> Journal:
    """Write the journal of `plan` and seal it. The store is not changed.

    command: the command that asked for it, for `undo --list`. lock: the lock file before it was taken. Raises NoSpace,
    Refused (a file on a file system without room for a session), Unreadable.
    """
    folder = layout.journal / session
    _check_space(layout, plan)
    files.make_directory(folder)
    journal = Journal(layout.root, folder, command, lock=lock, lost=plan.lost_messages)
    keep_damaged(layout, plan, folder, files)
    edits = list(plan.edits)
    made: list[Edit] = []
    stager = _Stager(layout, journal, files)
    if plan.index is not None:
        home = stager.folder_for(layout.index)
        made, full_time = _stage_index(layout, plan, plan.index, home, files)
        edits = _with_index_time(layout, plan, edits, full_time)
        stager.made = {path.name: path for path in (home / _INDEX_FOLDER).iterdir()}
    for edit in edits:
        if plan.database is not None and edit.path == str(plan.database.path):
            stager.add_database(plan.database, edit)
        elif edit.kind == "rebuild":
            for new in made:
                stager.add(new)
        else:
            stager.add(edit)
    stager.sync()
    if layout.journal_place is not None:
        stager.note_in_store()
    for used in {journal.folder_of(step) for step in journal.steps}:
        files.sync_directory(used)
    files.sync_directory(folder)
    journal.seal(files)
    return journal


def _check_space(layout: Layout, plan: Plan) -> None:
    """Check that the old bytes fit on the disk of the journal, and new bytes on that of their file. Raises NoSpace."""
    needed: dict[int, int] = {}
    places: dict[int, Path] = {}

    def count(path: Path, size: int) -> None:
        if not size:
            return
        existing = next(each for each in (path, *path.parents) if each.exists())
        device = existing.stat().st_dev
        places.setdefault(device, existing if existing.is_dir() else existing.parent)
        needed[device] = needed.get(device, _SPARE_BYTES) + size

    if plan.edits:
        count(layout.journal, _STEP_BYTES * len(plan.edits))
    for edit in plan.edits:
        path = Path(edit.path)
        kept = edit.length + len(edit.data or b"") if edit.kind == "write" else 0
        if edit.kind == "truncate":
            kept = max(0, path.stat().st_size - edit.offset)
        count(path if layout.journal_place is None else layout.journal, kept)
        count(path, sum(len(data) for _, data in edit.pieces))
    count(layout.journal, sum(size for _, size in ranges_of(plan)))
    if plan.database is not None:
        count(plan.database.path, 2 * plan.database.bytes)
    if plan.index is not None:
        used = sum(Path(entry.path).stat().st_blocks * _BLOCK_BYTES for entry in plan.index.gone)
        slots = file_size(sizes_of(layout).index_slots.value, 0)
        count(layout.index, used + slots)
    movable = layout.journal_place is None  # part is for the journal, which can lie elsewhere
    for device, place in places.items():
        status = os.statvfs(place)
        free = status.f_bavail * status.f_frsize
        if free < needed[device]:
            what = f"new files{' and the journal' if movable else ''}, {_SPARE_BYTES >> 20} MiB of these in reserve"
            raise NoSpace(
                f"{counted(needed[device], 'byte')} needed for {what}, {free} free",
                path=place,
                hint="free disk space" + (", or keep the journal elsewhere: --journal DIR" if movable else ""),
            )


def parts_elsewhere(layout: Layout) -> Iterator[Path]:
    """Yield the real paths of parts that may be links to other disks: a session has further folders beside them."""
    parts = (*linked_queues(layout), *layout.commit_log_directories, layout.consume_queue, layout.index)
    return map(Path.resolve, parts)


class _Stager:
    """Turns edits into journalled steps."""

    def __init__(self, layout: Layout, journal: Journal, files: Files) -> None:
        self.layout, self.journal, self.files = layout, journal, files
        self._folders: dict[int, Path] = {}
        self._moved: set[str] = set()
        #: Index files that are built already, by name.
        self.made: dict[str, Path] = {}
        #: Files of a RocksDB built in the session's folder, by name.
        self._built: dict[str, Path] = {}
        #: Files of the session that are written but not yet synced.
        self._unsynced: list[Path] = []

    def sync(self) -> None:
        """Sync all files of the session: many at once take a fraction of the time of one by one."""
        for path in self._unsynced:
            with self.files.open(path) as file:
                file.sync()
        self._unsynced.clear()

    def add_database(self, fix: DatabaseFix, edit: Edit) -> None:
        """Build a RocksDB and journal its files, each before the one that names it. Old ones go to the session's
        folder.
        """
        from ..queues.rocksdb_write import build  # few stores have a RocksDB

        folder = self.folder_for(fix.path) / _DATABASE_FOLDER
        self.files.make_directory(folder)
        with os_errors(folder, "cannot build"):
            build(folder, fix.spool, fix.dispatched, fix.kept)
            new = {path.name: path for path in folder.iterdir()}
            old = [file for file in database_files(fix.path) if file.name not in new]
            for name in in_order(new):
                self._built[name] = new[name]
                common = (str(fix.path / name), edit.reason, edit.codes)
                self.add(Edit("create", *common, length=new[name].stat().st_size))
            for file in old:
                self.add(Edit("move", str(file), edit.reason, edit.codes))
        self._built.clear()
        remove_tree(folder, self.files)

    def add(self, edit: Edit) -> None:
        path = Path(edit.path)
        self.files.check_inside(path)
        self._check_allowed(path, in_place=edit.kind in ("write", "truncate"))
        kind: StepKind = "move"
        if edit.kind in ("write", "truncate", "create"):
            kind = edit.kind
        # overwritten bytes can be kept anywhere; a rename must stay on its file system
        elsewhere = self.layout.journal_place is not None and kind in ("write", "truncate")
        folder = self.journal.folder if elsewhere else self.folder_for(path)
        name = self.journal.relative(path)
        replaced = path.exists() and name not in self._moved
        step = Step(
            number=len(self.journal.steps),
            kind=kind,
            path=name,
            folder=self.journal.relative(folder),
            reason=edit.reason,
            offset=edit.offset,
            length=edit.length,
            zeros=edit.kind == "write" and edit.data is None,
            before=FileState.of(path) if replaced else None,
            old_sha256=sha256_of(path) if replaced and kind in ("create", "move") else "",
        )
        if kind in ("write", "truncate"):
            step = self._stage_write(step, edit, path, folder)
        elif kind == "create":
            self._note_directories(path.parent)
            self._stage_file(step, edit, path, folder)
        else:
            self._moved.add(name)
        self.journal.steps.append(step)

    def _check_allowed(self, path: Path, *, in_place: bool) -> None:
        """Check that this user may make the change: a refusal half-way would leave a store that cannot start. Raises
        Denied, Unreadable.
        """
        if in_place:
            self.files.open(path).close()
            if os.geteuid() not in (0, path.stat().st_uid):
                raise Unreadable("the file belongs to another user: its times cannot be kept", path=path)
            return
        existing = next(p for p in path.parents if p.exists())
        if not os.access(existing, os.W_OK | os.X_OK):
            raise Denied("cannot write (Permission denied)", path=existing)

    def folder_for(self, path: Path) -> Path:
        """Return the session's folder on the file system of a file: a rename must stay inside one file system."""
        existing = next(p for p in (path, *path.parents) if p.exists())
        device = existing.stat().st_dev
        if device not in self._folders:
            self._folders[device] = self._make_folder(existing, device)
        return self._folders[device]

    def _make_folder(self, existing: Path, device: int) -> Path:
        own = self.journal.folder
        if own.stat().st_dev == device:
            return own
        layout = self.layout
        if layout.root.stat().st_dev == device:
            return self._new_folder(layout.root / JOURNAL_FOLDER / own.name)
        for real in parts_elsewhere(layout):
            beside = real.parent
            if existing.resolve().is_relative_to(real) and beside.stat().st_dev == device:
                return self._new_folder(beside / JOURNAL_FOLDER / own.name)
        raise Refused(
            "the file system of this file has no directory for the session",
            path=existing,
            hint="mount the parent of this directory on the same file system, or recover a copy of the store",
        )

    def note_in_store(self) -> None:
        """Note in the store where its journal is, so that the journal is found after the store was moved."""
        folder = self.layout.root / JOURNAL_FOLDER / self.journal.session
        with suppress(NoSpace):  # a full disk may be why the journal is elsewhere
            if not folder.exists():
                self._new_folder(folder)

    def _new_folder(self, folder: Path) -> Path:
        """Make a further folder of the session, with a note of where the journal is."""
        self.files.make_directory(folder)
        write_note(self.files, folder / JOURNAL_IS_IN, os.fsencode(self.journal.folder))
        return folder

    def _stage_write(self, step: Step, edit: Edit, path: Path, folder: Path) -> Step:
        total = hashlib.sha256()
        with self.files.create(folder / step.name("old")) as target:
            size = edit.length if edit.kind == "write" else None
            begin = 0
            for data in pieces(path, edit.offset, size):  # bytes beyond the end of the file are new
                total.update(data)
                target.pwrite(data, begin)
                begin += len(data)
        self._unsynced.append(target.path)
        if edit.data is None:
            return replace(step, old_sha256=total.hexdigest())
        with self.files.create(folder / step.name("new")) as target:
            target.pwrite(edit.data, 0)
        self._unsynced.append(target.path)
        new = hashlib.sha256(edit.data).hexdigest()
        return replace(step, old_sha256=total.hexdigest(), new_sha256=new)

    def _stage_file(self, step: Step, edit: Edit, path: Path, folder: Path) -> None:
        """Write a new file, with the mode, owner and times of a neighbour."""
        staged = folder / step.name("new")
        made = self.made.get(path.name) if not edit.length else None
        if made is not None:
            self.files.rename(made, staged)
            return
        neighbour = path if path.exists() else _neighbour(path)
        with self.files.create(staged, like=neighbour) as target:
            if path.name in self._built:  # built by a library, without the mode and owner of the store
                target.pwrite_all(pieces(self._built[path.name]))
                self._unsynced.append(target.path)
                return
            target.truncate(edit.length)
            for offset, data in edit.pieces:
                target.pwrite(data, offset)
            target.start_writing()
        self._unsynced.append(staged)
        if neighbour is not None:
            state = FileState.of(neighbour)
            self.files.set_times(staged, state.accessed_ns, state.modified_ns)

    def _note_directories(self, directory: Path) -> None:
        missing = []
        while not directory.exists():
            missing.append(self.journal.relative(directory))
            directory = directory.parent
        for name in reversed(missing):
            if name not in self.journal.directories:
                self.journal.directories.append(name)


def sha256_of(path: Path, offset: int = 0, size: int | None = None) -> str:
    """Return the SHA-256 of a file, or of `size` bytes at `offset`, as hex. Raises Missing, Unreadable.

    Of a directory: of its names and their hashes; of a link: of its target path.
    """
    total = hashlib.sha256()
    if path.is_symlink() and size is None:
        return hashlib.sha256(os.fsencode(path.readlink())).hexdigest()
    if path.is_dir():
        for child in sorted(path.iterdir()):
            total.update(os.fsencode(child.name) + b"/" + sha256_of(child).encode())
        return total.hexdigest()
    for data in pieces(path, offset, size):
        total.update(data)
    return total.hexdigest()


def _neighbour(path: Path) -> Path | None:
    """Return the file whose mode, owner and times a new file takes: the next one by name, else the last."""
    if not path.parent.is_dir():
        return None
    names = sorted(p.name for p in path.parent.iterdir() if p.is_file() and p.name.isdigit())
    later = [name for name in names if name > path.name]
    return path.parent / (later[0] if later else names[-1]) if names else None


class _Indexer(LogObserver):
    """Gives the index writer the items of records from a position on."""

    def __init__(self, writer: IndexWriter, fix: IndexFix, skipped: int, end: int) -> None:
        self.writer, self.fix, self.end = writer, fix, end
        self._skip = skipped

    def records(self, batch: Batch, dispatched: Dispatched) -> None:
        items = dispatched.items
        # the position of the record, whatever its header says: an item with another position leads nowhere
        items = items.replace(physical_offset=batch.position[items.record])
        inside = (items.physical_offset >= self.fix.indexed_to) & (items.physical_offset < self.end)
        at_border = inside & (items.physical_offset == self.fix.indexed_to)
        border = at_border.nonzero()[0][: self._skip]
        inside[border] = False
        self._skip -= len(border)
        chosen = items.take(inside)
        if len(chosen):
            self.writer.append(chosen, int(chosen.record[-1]) + 1)


def _stage_index(layout: Layout, plan: Plan, fix: IndexFix, folder: Path, files: Files) -> tuple[list[Edit], int]:
    """Build the index files again in the session's folder.

    Return the edits that put them in place, and the end time of the newest full file, 0 if none is full.
    """
    geometry = sizes_of(layout).of_index
    made = folder / _INDEX_FOLDER
    files.make_directory(made)
    before, behind, skipped = None, "", 0
    if fix.last_kept is not None:
        before, behind = fix.last_kept.header, fix.last_kept.entry.name
        with fix.last_kept.open(geometry) as kept:
            skipped = kept.items_of_last()
    writer = IndexWriter(files, made, geometry, count_every_put=plan.counts_puts, before=before, behind=behind)
    if plan.items is not None:
        for packed in plan.items:
            if len(packed.key_hash):
                items = packed.unpacked()
                writer.append(items, int(items.record[-1]) + 1)
    else:
        how = Dispatching(plan.index_tags, multi_dispatch=False)
        indexer = _Indexer(writer, fix, skipped, min(plan.dispatched, plan.log_end))
        start = fix.indexed_to if fix.indexed_to >= 0 else None  # what lies before is indexed already
        scan_messages(commit_log_of(layout, plan.files or None), [indexer], how, start=start)
    writer.sync()
    writer.close()
    edits = [
        Edit("create", str(layout.index / path.name), "indexed again", ("I-101",), 0, 0)
        for path in sorted(made.iterdir())
    ]
    full_before = before.end_timestamp if before and edits else 0
    return edits, writer.full_end_timestamp or full_before


def _with_index_time(layout: Layout, plan: Plan, edits: list[Edit], full_time: int) -> list[Edit]:
    """Return the edits with the end time of the newest full index file, which may be a new one, in the checkpoint."""
    if plan.checkpoint is None or full_time <= plan.checkpoint.index_msg_timestamp:
        return edits
    newer: Checkpoint = plan.checkpoint._replace(index_msg_timestamp=full_time)
    edit = checkpoint_edit(layout.checkpoint, newer)
    return [edit if e.phase is edit.phase and e.path == edit.path else e for e in edits]
