"""The log as it was: every record at its own position, holes closed so that brokers load it.

Holes are closed as `recover` closes them (`store/plan`): a filler where nothing is known, a
tombstone for each queue offset that is not there any more, a BLANK to the end of a file. Queues, index
and checkpoint are then made from the log by the same plan that `recover` makes.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from math import gcd
from pathlib import Path

import numpy as np

from ...formats.commit_log import DLEDGER
from ..audit.messages import survey
from ..broker.topics import Topics, now_ms
from ..broker.write_profile import LIGHT_QUEUE_OPTIONS, writer_profile
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.confine import confine
from ..disk.file_queue import MappedFileQueue, file_name
from ..disk.files import Files
from ..disk.layout import COMMIT_LOG, Layout
from ..errors import InvalidInput, Refused
from ..log.commit_log import CommitLog
from ..plan.fill import Fill, fills
from ..plan.fill_records import Piece, encoded, padded
from ..plan.gaps import Gap
from ..plan.options import Policy
from ..plan.plan import Plan
from ..plan.tombstones import Forms
from ..recover.recovery import examine, plan_again
from ..session.apply import apply
from ..session.journal import Journal
from ..session.undo import purge
from .arrange import Layer
from .lost import MissingOffsets, placed
from .runs import Run
from .source import Sources

_CHUNK_BYTES = 4 << 20
_INDEX_OPTION = "messageIndexEnable"
_MORE = "there is more to mend; see mqstore recover"


@dataclass(frozen=True)
class Restored:
    """What was made: files of `file_bytes`, so many tombstones and fillers.

    unplaced: queue offsets that are missing and have no tombstone. left: why queues and index were
    not made, or what is left to do, "" for nothing. version: of the brokers that it was made for.
    """

    files: int
    file_bytes: int
    tombstones: int = 0
    fillers: int = 0
    unplaced: int = 0
    left: str = ""
    version: str = ""


def check_layer(layer: Layer, file_bytes: int) -> None:
    """Raises InvalidInput where a run would reach over the end of a file of that size.

    Raises Refused for the records of a DLedger log: what stands between them is no hole.
    """
    between = [end - begin for begin, end in gaps_of(layer, file_bytes)]
    if between and between.count(DLEDGER.payload) * 2 > len(between):
        hint = "take --layout compact"
        raise Refused(
            "records in entries of a DLedger log", offset=layer.runs[0].position, hint=hint
        )
    for run in layer.runs:
        if not _fits(run, file_bytes):
            raise InvalidInput(
                f"log files of {counted(file_bytes, 'byte')} would cut a record in two",
                offset=run.position // file_bytes * file_bytes + file_bytes,
                hint="name the size that the broker had with --set mappedFileSizeCommitLog=BYTES",
            )


def write_log(
    layer: Layer,
    sources: Sources,
    directory: Path,
    file_bytes: int,
    files: Files,
    told: Callable[[int], None] = lambda _: None,
) -> int:
    """Write the runs of a layer to log files in a new directory, holes as holes.

    Returns the number of files. Raises InvalidInput as `check_layer`, NoSpace, Unreadable.
    """
    check_layer(layer, file_bytes)
    files.make_directory(directory)
    count, start = 0, -1
    with ExitStack() as opened:
        for run in layer.runs:
            if run.position // file_bytes * file_bytes != start:
                opened.close()
                start = run.position // file_bytes * file_bytes
                file = opened.enter_context(files.create(directory / file_name(start)))
                file.truncate(file_bytes)
                opened.callback(file.sync)
                count += 1
            for at in range(0, run.length, _CHUNK_BYTES):
                size = min(_CHUNK_BYTES, run.length - at)
                file.pwrite(
                    sources[run.source].bytes_at(run.at + at, size), run.position + at - start
                )
                told(size)
    files.sync_directory(directory)
    return count


def gaps_of(layer: Layer, file_bytes: int) -> list[tuple[int, int]]:
    """The holes between the runs, each in one file: from the first file's begin to the last record."""
    reach = layer.runs[0].position // file_bytes * file_bytes
    found = []
    for run in layer.runs:
        while reach < run.position:
            end = min(run.position, (reach // file_bytes + 1) * file_bytes)
            found.append((reach, end))
            reach = end
        reach = run.end
    return found


def close_holes(
    layer: Layer, blanks: Mapping[int, int], root: Path, file_bytes: int, files: Files
) -> tuple[Restored, MissingOffsets]:
    """Close the holes of a log that `write_log` has written below `root`.

    Raises Refused for a hole that is too small for a record, where none can be.
    """
    holes = gaps_of(layer, file_bytes)
    begins = np.array([begin for begin, _ in holes], np.int64)
    layout = Layout.open(root)
    with layout.commit_log_files() as queue:
        log = CommitLog(queue)
        offsets = MissingOffsets(begins)
        survey(log, [offsets], index_tags=True, multi_dispatch=True, crc=False)
        forms = Forms(now_ms(), (), "", offsets.crc_items)
        gaps = list(_gaps(holes, offsets, file_bytes))
        missing = offsets.certain()
        # a BLANK that was there lies in no hole: it takes what nothing else has room for
        holed = [gap for gap in gaps if blanks.get(gap.begin) != gap.end]
        units = placed(holed, missing, forms)
        closed = fills(gaps, units, forms)
        _write_fills(closed, forms, queue, layout.commit_log_directories[0], file_bytes, files)
    tombstones = sum(len(fill.lost) for fill in closed)
    fillers = sum(len(fill.fillers) for fill in closed)
    wanted = sum(each.offsets for each in missing)
    count = len({begin // file_bytes for begin, _ in holes} | _files_of(layer, file_bytes))
    return Restored(count, file_bytes, tombstones, fillers, wanted - tombstones), offsets


def _files_of(layer: Layer, file_bytes: int) -> set[int]:
    return {run.position // file_bytes for run in layer.runs}


def _gaps(holes: list[tuple[int, int]], offsets: MissingOffsets, file_bytes: int) -> Iterator[Gap]:
    time = offsets.first_timestamp
    for begin, end in holes:
        before = offsets.neighbours.get(begin)
        time = before.store_timestamp if before else time
        previous = before.position if before else -1
        yield Gap(begin, end, end % file_bytes == 0, time, previous)


def _pieces(fill: Fill, forms: Forms, queue: MappedFileQueue) -> Iterator[Piece]:
    yield from encoded(fill, forms, {})
    if fill.padding:
        position = fill.gap.previous
        record = queue.read(position, fill.gap.begin - position)
        try:
            yield position, padded(record, fill.padding)
        except ValueError as error:
            hint = "take --layout compact"
            raise Refused(f"no room: {error}", offset=fill.gap.begin, hint=hint) from error


def _write_fills(
    closed: list[Fill],
    forms: Forms,
    queue: MappedFileQueue,
    directory: Path,
    file_bytes: int,
    files: Files,
) -> None:
    """Write what closes the holes, piece by piece; files that are missing are made."""
    start, file = -1, None
    with ExitStack() as opened:
        for fill in closed:
            for position, data in _pieces(fill, forms, queue):
                if file is None or position // file_bytes * file_bytes != start:
                    opened.close()
                    start = position // file_bytes * file_bytes
                    path = directory / file_name(start)
                    file = opened.enter_context(files.open_or_create(path))
                    if file.size != file_bytes:
                        file.truncate(file_bytes)
                    opened.callback(file.sync)
                file.pwrite(data, position - start)
    files.sync_directory(directory)


def complete(
    root: Path,
    restored: Restored,
    offsets: MissingOffsets,
    config: BrokerConfig,
    version: str | None,
    files: Files,
) -> Restored:
    """Make queues, index, checkpoint and topics from the log, as a recovery does.

    Torn properties and wrong headers are put right as there. Nothing is done where the plan would
    give up a record. Raises as `recover` does.
    """
    told = [f"mappedFileSizeCommitLog={restored.file_bytes}"]
    if offsets.light:
        told += [f"{name}=true" for name in LIGHT_QUEUE_OPTIONS if config.get(name) is None]
    if config.get(_INDEX_OPTION) is None:  # no file here says whether there was one
        told.append(f"{_INDEX_OPTION}=true")
    layout = Layout.open(root, config.with_set(told))
    found = examine(layout, version, policy=Policy.KEEP)
    values = {**vars(restored), "version": found.main_version}
    left = str(found.refusal) if found.plan is None else ""
    if found.plan is not None and _gives_up(found.plan):
        left = _MORE
    if left:
        return Restored(**{**values, "left": left})
    profile = writer_profile(found.main_version)
    topics = Topics.read(layout.config)
    topics.add(offsets.highest_queue, profile, offsets.batch_topics)
    topics.write(files, profile, now_ms)
    confine(files, layout)
    found = examine(Layout.open(root, layout.broker_config), found.main_version, policy=Policy.KEEP)
    applied = apply(
        layout,
        found.plan,
        lambda: plan_again(Layout.open(root, layout.broker_config), found.main_version, found.wish),
        files,
        command="salvage",
    )
    if applied.session:
        purge(layout, Journal.load(layout.root, layout.journal / applied.session), files)
    found = examine(Layout.open(root, layout.broker_config), found.main_version, policy=Policy.KEEP)
    done = found.nothing_to_do and not found.harmful
    return Restored(**{**values, "left": "" if done else _MORE})


def _gives_up(plan: Plan) -> bool:
    """The plan loses messages, or cuts the log."""
    of_log = (edit for edit in plan.edits if COMMIT_LOG in Path(edit.path).parts)
    return plan.lost.messages > 0 or any(edit.kind != "write" for edit in of_log)


def file_bytes_of(
    runs: list[Run], sources: Sources, blanks: Mapping[int, int], config: BrokerConfig
) -> int:
    """Size of the log's files: configured, or as files of the log tell, as BLANKs tell, or 1 GiB.

    blanks: as of `Found`. Raises InvalidInput.
    """
    common = gcd(*(blanks[run.end] for run in runs if run.end in blanks))
    size, origin = config.size("mappedFileSizeCommitLog")
    if origin == "configuration":
        return size
    lengths = Counter(
        sources[run.source].size
        for run in runs
        if run.at == 0 and sources.paths[run.source].name == file_name(run.position)
    )
    for length, _ in lengths.most_common():
        if length and common % length == 0 and all(_fits(run, length) for run in runs):
            return length
    return size if common % size == 0 else common


def _fits(run: Run, file_bytes: int) -> bool:
    """The run lies in one file."""
    return run.position // file_bytes == (run.end - 1) // file_bytes
