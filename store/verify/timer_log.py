"""The timer log: its entries, one by one and against the records they name (I-126 … I-129, I-135)."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from ...formats.timer_log import MAGIC_MAX, UNIT, UNIT_BYTES
from ..counted import counted
from ..disk.byte_reader import read_regular
from ..disk.file_queue import MappedFile
from ..findings.catalogue import Severity
from ..inspect.timer_records import NO_NUMBER
from ..timer.entries import NOWHERE, TimerEntries
from ..timer.read import TimerRange
from .context import Scene
from .timer_entries import TimerLog, of_timer, timer_files
from .timer_records import timer_columns

Ints = npt.NDArray[np.int64]
Flags = npt.NDArray[np.bool_]
_LOOK = "mqstore dump {path}"
"""What to do about what a repair leaves as it is."""


@of_timer("I-126")
def entries_fill_the_log(scene: Scene) -> None:
    """Entries from the start of each file, then a BLANK; zeros only behind the last of all."""
    log = timer_files(scene).log
    for number, file in enumerate(log.files):
        last = number == len(log.files) - 1
        mine = [item for item in log.ranges if file.start <= item.position < file.end]
        for item in mine:
            _odd_range(scene, log, file, item, last)
        closed = any(item.kind == "blank" for item in mine)
        if not closed and not last and not mine:
            text = "the file is full of entries and has no BLANK: a start reads no later file"
            scene.findings.add("I-126", file.path, text, offset=file.size, length=0)


def _odd_range(scene: Scene, log: TimerLog, file: MappedFile, item: TimerRange, last: bool) -> None:
    offset = item.position - file.start
    if item.kind == "blank":
        return
    entries = log.entries.position
    behind = bool(len(entries)) and bool((entries >= item.position).any())
    if item.kind == "zeros":
        if last and not behind:
            if offset == 0 and file.start > 0:
                _empty_last_file(scene, file)
            return
        text = "zeros where entries should be, with entries behind them"
    elif _of_magic(file, item):
        return  # an entry but for its magic: I-127 tells
    else:
        text = "neither an entry nor a BLANK"
    text += ": a start that reads from an older file cuts the timer log here"
    scene.findings.add("I-126", file.path, text, offset=offset, length=item.size)


def _empty_last_file(scene: Scene, file: MappedFile) -> None:
    rules = scene.profile.timer
    refuses = rules is not None and not rules.any_size
    what = "no start" if refuses else "a start takes the queue offset of timercheck"
    text = f"the last file has no entry: {what} (B32)"
    level = Severity.FATAL if refuses else Severity.WARNING
    scene.findings.add(
        "I-126", file.path, text, offset=0, length=file.size, severity=level, repair=_LOOK
    )


def _of_magic(file: MappedFile, item: TimerRange) -> bool:
    """The range begins with an entry whose magic alone is wrong."""
    data = read_regular(file.path, item.position - file.start + UNIT_BYTES)
    unit = data[item.position - file.start :]
    if len(unit) < UNIT_BYTES:
        return False
    return bool(UNIT.parse(unit).size == UNIT_BYTES)


@of_timer("I-127")
def entries_are_well_formed(scene: Scene) -> None:
    """A magic of 0 … 15, nothing reserved, and a link to an older entry."""
    log = timer_files(scene).log
    entries = log.entries
    link = (entries.previous >= entries.position) | (entries.previous < NOWHERE)
    for file, rows in _by_file(log):
        mine = entries.take(rows)
        wrong = link[rows]
        starts = mine.position - file.start

        def of_link(row: int, mine: TimerEntries = mine) -> str:
            place, previous = mine.position[row], mine.previous[row]
            return f"entry at {place}: the entry before it is at {previous}, which is not before it"

        def of_reserved(row: int, mine: TimerEntries = mine) -> str:
            return (
                f"entry at {mine.position[row]}: {mine.reserved[row]} in a field that is always 0"
            )

        add = scene.findings.add_rows
        add("I-127", file.path, wrong, starts, starts + UNIT_BYTES, of_link)
        odd = (mine.reserved != 0) & ~wrong
        add("I-127", file.path, odd, starts, starts + UNIT_BYTES, of_reserved)
    for item in log.ranges:
        found = log.file_of(item.position)
        if item.kind == "damage" and found is not None and _of_magic(found, item):
            offset = item.position - found.start
            text = f"entry at {item.position}: its magic is not of 0 to {MAGIC_MAX}"
            text += "; a start that meets it cuts the timer log there"
            scene.findings.add("I-127", found.path, text, offset=offset, length=item.size)


def _by_file(log: TimerLog) -> list[tuple[MappedFile, slice]]:
    """The rows of the entries of each file."""
    position = log.entries.position
    found = []
    for file in log.files:
        begin, end = np.searchsorted(position, [file.start, file.end])
        if end > begin:
            found.append((file, slice(int(begin), int(end))))
    return found


@of_timer("I-128", "I-129")
def entries_name_their_records(scene: Scene) -> None:
    """Each entry names a record of the timer topic, of its size, topic, time and kind."""
    files = timer_files(scene)
    log, records = files.log, timer_columns(scene)
    entries = log.entries
    if not len(entries.position) or not scene.read_at_once:
        return
    row, known = records.at(entries.offset_py)
    expired = (entries.offset_py >= 0) & (entries.offset_py < scene.log.start)
    if len(records.position):
        same = (records.size[row] == entries.size_py) & (
            records.topic_hash[row] == entries.topic_hash
        )
        due = (records.out_ms[row] == entries.tick_ms) | entries.rolled
        due &= records.cancels[row] == entries.deletes
        due |= records.out_ms[row] == NO_NUMBER  # nothing to compare with: I-049 tells
        lost = known & records.lost[row] & (records.size[row] == entries.size_py)
    else:
        same = due = lost = np.zeros(len(row), np.bool_)
    done = entries.tick_ms < files.check.last_read_time_ms
    dead = done & (entries.offset_py >= scene.log.end)
    wrong = ~(known & same) & ~lost
    if scene.live:
        wrong &= entries.offset_py < scene.log.end  # the rest came behind what was read

    def of_record(number: int) -> str:
        place = f"entry at {entries.position[number]}"
        if not known[number]:
            return f"{place}: no record of the timer topic begins at {entries.offset_py[number]}"
        size = counted(int(records.size[row[number]]), "byte")
        return (
            f"{place}: the record at {entries.offset_py[number]} has {size}"
            f" and topic hash {records.topic_hash[row[number]]}, not"
            f" {entries.size_py[number]} and {entries.topic_hash[number]}"
        )

    def of_lost(number: int) -> str:
        place = entries.offset_py[number]
        return f"entry at {entries.position[number]}: its message at {place} is lost, and marked so"

    def of_time(number: int) -> str:
        at, due_ms = entries.position[number], records.out_ms[row[number]]
        if records.cancels[row[number]] != entries.deletes[number]:
            return f"entry at {at}: it cancels a message and its record does not, or the reverse"
        return f"entry at {at}: due at {entries.tick_ms[number]}, its record says {due_ms}"

    _tell(scene, log, "I-128", wrong & ~expired & ~dead, of_record)
    _tell(scene, log, "I-128", wrong & expired, lambda n: f"{of_record(n)}: expired", Severity.INFO)
    _tell(
        scene,
        log,
        "I-128",
        wrong & dead & ~expired,
        lambda n: f"{of_record(n)}: long due",
        Severity.INFO,
    )
    _tell(scene, log, "I-128", lost, of_lost, Severity.INFO)
    _tell(scene, log, "I-129", known & same & ~due & ~lost, of_time)


def _tell(
    scene: Scene,
    log: TimerLog,
    code: str,
    wrong: Flags,
    message: Callable[[int], str],
    severity: Severity | None = None,
) -> None:
    """Findings about entries, by file."""
    for file, rows in _by_file(log):
        starts = log.entries.position[rows] - file.start

        def told(row: int, base: int = rows.start) -> str:
            return message(base + row)

        scene.findings.add_rows(
            code,
            file.path,
            wrong[rows],
            starts,
            starts + UNIT_BYTES,
            told,
            severity=severity,
            repair=_LOOK if severity is Severity.INFO else None,
        )


@of_timer("I-135")
def the_log_is_expired_with_its_records(scene: Scene) -> None:
    """The first file of the timer log goes when the log has none of its records any more."""
    log = timer_files(scene).log
    rows = _by_file(log)
    if not rows or len(log.files) < 2:
        return
    file, mine = rows[0]
    last = int(log.entries.offset_py[mine][-1])
    if file is log.files[0] and 0 <= last < scene.log.start:
        text = f"its last entry names {last}, and the log begins at {scene.log.start}"
        scene.findings.add("I-135", file.path, text)
