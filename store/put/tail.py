"""Checks of a store before it is written to, and its end: that of the log, its last record, each queue.

The path must be a store, of a kind that can be written, and shut down cleanly. A broker starts by walking its last log
files record by record, and truncates what it cannot reach. So nothing may be appended before the last file was walked
in the same way without an error, and every queue reaches the end of the log. Nothing here writes.
"""

from __future__ import annotations

import os
from collections.abc import Iterable
from contextlib import suppress
from itertools import compress
from os import PathLike
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

from ...formats.blank import BLANK, BLANK_BYTES, MAGIC_BLANK
from ...formats.hashing import java_string
from ...formats.message import TRANSACTION_MASK, SysFlag
from ...formats.topics import FILE as TOPICS
from ..broker.profiles import NEWEST, WriterProfile, writer_profile
from ..broker.system_topics import LMQ_PREFIX
from ..counted import counted
from ..disk.broker_conf import CONTROLLER_MODE, BrokerConfig
from ..disk.checkpoint import read_checkpoint
from ..disk.file_queue import MappedFile, MappedFileQueue, file_name, start_of
from ..disk.files import Files
from ..disk.layout import BARRIER_PREFIX, JOURNAL, LOCK, Layout, queue_directories
from ..errors import Missing, NotAStore, NotFound, Refused, Unclean, Unsupported, broken_link, from_os_error
from ..index.read import sizes_of
from ..log.message import Message, read_message
from ..queues.read import ConsumeQueues, QueueSummary

if TYPE_CHECKING:
    from ...formats.derive.ragged import Flags
    from ..log.batch import Batch


NO_BATCHES = "cannot append to batch queues beside a RocksDB: brokers do not serve them from there"
_WRONG_CHECKSUM = "a record with a wrong checksum in the last log file"
_ONE_BY_ONE = 512
"""Records that are walked one by one, which takes as long as importing numpy."""


class Tail(NamedTuple):
    """The end of a store.

    log_end: position after the last record. last: that record; None in an empty log. next_offsets: by topic and queue
    id, the queue offset of the next message; without queues that have no unit. unit_end: end of the last record in the
    last file that must have a unit, 0 without one. lost_queues: queues that do not exist although records of the last
    file must have units in them: the queue is lost, or its topic was deleted.
    """

    log_end: int
    last: Message | None
    next_offsets: dict[tuple[str, int], int]
    unit_end: int = 0
    lost_queues: frozenset[tuple[str, int]] = frozenset()


class _Walked(NamedTuple):
    """The end of the log, its last record, the end of the last record that must have a unit, and by queue the position
    of the last such record.
    """

    end: int
    last: Message | None
    unit_end: int
    latest: dict[tuple[str, int], int]


def find_tail(layout: Layout) -> Tail:
    """The end of a store without `abort`. Raises Unclean, Refused, Unreadable.

    Unclean: a damaged or torn record in the last file, or queues without units for its records.
    """
    log = layout.commit_log_files()
    with log:
        for each in log.files:
            if Path(each.path).name != file_name(each.start):  # a broker would create a second file for its position
                raise unclean(layout, f"wrong name of a log file: {Path(each.path).name}", each.start)
        file = _last_used(layout, log)
        if file is None:
            return _empty(layout, log)
        walked = _walk(layout, log, file)
        queues = _summaries(layout, log, walked.end)
    reached = max((queue.end_position or 0 for queue in queues), default=0)
    if reached > walked.end:
        raise unclean(layout, "a queue unit points behind the log's end", walked.end)
    behind = {topic for (topic, _), position in walked.latest.items() if position >= reached}
    if reached < walked.unit_end and not _are_deleted(layout, behind):
        raise unclean(layout, "the queues are behind the log", reached)
    ends = {(queue.topic, queue.queue_id): queue.end_position or 0 for queue in queues}
    for (topic, queue_id), position in walked.latest.items():
        if position >= ends.get((topic, queue_id), walked.end):
            raise unclean(layout, f"the queue {topic}/{queue_id} is behind the log", position)
    if layout.queue_database is None:  # in RocksDB a row says where a queue ends
        with log:
            _check_ends(layout, log, file, queues, walked)
    next_offsets = {(queue.topic, queue.queue_id): queue.max_offset for queue in queues}
    lost = frozenset(walked.latest.keys() - ends.keys())
    return Tail(walked.end, walked.last, next_offsets, walked.unit_end, lost)


def _check_ends(
    layout: Layout, log: MappedFileQueue, file: MappedFile, queues: Iterable[QueueSummary], walked: _Walked
) -> None:
    """Raise Unclean if a queue continues after its last message with a unit that points at no message: a start keeps
    the unit and numbers messages after it.
    """
    suspects = list[tuple[int, QueueSummary]]()
    for queue in queues:
        position = queue.last_position
        if position is None or position < file.start or position == walked.latest.get((queue.topic, queue.queue_id)):
            continue
        if queue.topic.startswith(LMQ_PREFIX) and _record_at(layout, log, position) is not None:
            continue  # it points at messages of other topics
        suspects.append((position, queue))
    if not suspects:
        return
    for position, queue in compress(suspects, _are_taken(layout, file, [position for position, _ in suspects])):
        raise unclean(layout, f"the last unit of {queue.topic}/{queue.queue_id} names no message", position)


def _are_taken(layout: Layout, file: MappedFile, positions: list[int]) -> Flags:
    """bool[n]: whether records, other than replacements for lost ones, occupy these positions in the last file."""
    import numpy as np

    from ..columns import Ranges
    from ..log.batch import good_records  # few stores need this
    from ..queues.references import commit_log_of

    taken = Ranges()
    for batch in good_records(commit_log_of(layout).scan(file.start, max(positions) + 1, crc=False, reuse=True)):
        for begin, end in batch.taken:
            taken.add_range(begin, end)
    return taken.has(np.array(positions, np.int64))


def _are_deleted(layout: Layout, topics: set[str]) -> bool:
    """Whether all of these topics were deleted, so that their messages need no units. Raises Unreadable."""
    from ..broker.profiles import profile_of  # hardly any store has such messages at its end
    from ..broker.snapshot import Snapshot
    from ..plan.observer import deleted_topics, topics_with_queues
    from ..settings.generation import generation_of
    from ..start.config_load import config_rules

    rules = config_rules(profile_of(generation_of(layout).version))
    return all(map(deleted_topics(layout, rules, topics_with_queues(Snapshot.of(layout))), topics))


def _summaries(layout: Layout, log: MappedFileQueue, log_end: int | None = None) -> list[QueueSummary]:
    """The summaries of all queues that number messages. Raises Unclean if a queue points at a record right after the
    end of the log: it is lost, and new records there would hide that.
    """
    batches = []
    if next(queue_directories(layout.batch_consume_queue), None) is not None:
        from ..queues.batches import batch_summaries  # imports numpy

        batches = batch_summaries(layout)
    if batches and layout.queue_database is not None:
        raise Unsupported(NO_BATCHES, path=layout.queue_database)
    queues = ConsumeQueues(layout)
    if layout.queue_database is not None:
        from ..queues.hybrid import all_queues  # imports the readers of a RocksDB

        queues = all_queues(layout)
    try:
        found = queues.summaries(log.start)
        if log_end is None or all((each.end_position or 0) <= log_end for each in found):
            return found + batches
        if (lost := queues.lost_at_end(found, log, log_end)) is not None:
            position, queue = lost
            raise unclean(layout, f"{queue.topic}/{queue.queue_id} names a record that is lost in the log", position)
        return queues.summaries(log.start, log_end) + batches
    finally:
        queues.close()


def unclean(layout: Layout, what: str, offset: int | None, command: str = "recover") -> Unclean:
    """The error for a store that a command must repair first."""
    from ..findings.next_commands import proposed  # loads the catalogue, which most writes do not need

    return Unclean(what, path=layout.root, offset=offset, hint=f"run: {proposed(layout, *command.split())}")


def _empty(layout: Layout, log: MappedFileQueue) -> Tail:
    """The tail of a log without a record. Raises Refused, Unclean if queues have units."""
    queues = _summaries(layout, log)
    if any(queue.end_position for queue in queues):
        _check_lost_log(layout)
        raise unclean(layout, "the commit log has no record, but the queues have units", log.start)
    return Tail(log.start, None, {})


def _last_used(layout: Layout, log: MappedFileQueue) -> MappedFile | None:
    """The last file that is not all zeros; files after it were created in advance.

    Raises Unclean for a file that begins with zeros but is not all zeros.
    """
    for file in reversed(log.files):
        if any(log.read_file(file, 0, BLANK_BYTES)):
            return file
        if log.first_data(file) is not None:
            raise unclean(layout, "the last log file begins with zeros", file.start)
    return None


def _walk(layout: Layout, log: MappedFileQueue, file: MappedFile) -> _Walked:
    """Walk a file, record by record if it is short and ends plainly, else by columns. Raises Unclean."""
    end, last, unit_end = file.start, None, 0
    latest: dict[tuple[str, int], int] = {}
    for _ in range(_ONE_BY_ONE):
        message = _record_at(layout, log, end)
        if message is None:
            plain = _plain_end(log, file, end)
            return _walk_columns(layout, file) if plain is None else _Walked(plain, last, unit_end, latest)
        if _has_unit(message.sys_flag):
            unit_end = end + message.total_size
            latest[message.topic, message.queue_id] = end
        end += message.total_size
        last = message
    return _walk_columns(layout, file)


def _has_unit(sys_flag: int) -> bool:
    return sys_flag & TRANSACTION_MASK not in (SysFlag.PREPARED, SysFlag.ROLLBACK)


def _have_units(batch: Batch) -> Flags:
    """`_has_unit` for all records of a batch, bool[n]."""
    state = batch.columns.ints("sys_flag") & TRANSACTION_MASK
    found: Flags = (state != SysFlag.PREPARED) & (state != SysFlag.ROLLBACK)
    return found


def _record_at(layout: Layout, log: MappedFileQueue, position: int) -> Message | None:
    """The record at a position of the walk, None if the walk ends there. Raises Unclean."""
    try:
        message = read_message(log, position)
    except NotFound:
        return None
    if message.physical_offset != position:
        return None
    if not message.body_crc_ok:
        raise unclean(layout, _WRONG_CHECKSUM, position)
    return message


def _plain_end(log: MappedFileQueue, file: MappedFile, end: int) -> int | None:
    """The end of the log if records end at `end`; None if neither zeros nor a BLANK record follow."""
    head = log.read_file(file, end - file.start, BLANK_BYTES)
    if len(head) == BLANK_BYTES and BLANK.parse(head).magic_code == MAGIC_BLANK:
        return file.end if log.file_at(file.end) else end
    return None if any(head) else end


def _walk_columns(layout: Layout, file: MappedFile) -> _Walked:
    """Walk a file by columns, and examine also what follows its end. Raises Unclean."""
    from ..log.batch import Batch, ExtentKind
    from ..log.message import Mark
    from ..queues.references import commit_log_of

    log = commit_log_of(layout)
    end, last, unit_end = file.start, -1, 0
    latest: dict[tuple[str, int], int] = {}
    walking = True
    for item in log.scan(file.start, reuse=True):
        if isinstance(item, Batch):
            if item.mark == Mark.AFTER_DAMAGE:
                raise unclean(layout, "damage in the last log file", end)
            if item.mark == Mark.EARLIER_LIFE:
                # a broker takes them for new records (spec 07, B14)
                at = int(item.position[0])
                raise unclean(layout, "old records of a recycled file behind the log's end", at)
            if item.mark != Mark.NONE or not walking:
                continue
            if item.body_crc_ok is not None and not item.body_crc_ok.all():
                bad = int(item.position[item.body_crc_ok.argmin()])
                raise unclean(layout, _WRONG_CHECKSUM, bad)
            end, last = item.end, int(item.position[-1])
            unit_end = end_with_unit(item) or unit_end
            latest |= latest_with_unit(item)
        elif item.kind == ExtentKind.TORN_TAIL:
            raise unclean(layout, "the last record is torn", item.position)
        elif item.kind == ExtentKind.BLANK and walking:
            end = item.end if log.queue.file_at(item.end) else item.position
        else:
            walking = False
    return _Walked(end, read_message(log.queue, last) if last >= 0 else None, unit_end, latest)


def latest_with_unit(batch: Batch) -> dict[tuple[str, int], int]:
    """By queue, the position of the last record that must have a unit."""
    import numpy as np

    from ..columns import dictionary

    kept = batch.take(_have_units(batch))
    topics = dictionary(kept.columns.ragged("topic"))
    queue_ids = kept.columns.ints("queue_id").astype(np.int64)
    width = int(queue_ids.max(initial=0)) + 1
    # np.unique finds the first of each key, so the order is reversed
    keys, first = np.unique((topics.ids * width + queue_ids)[::-1], return_index=True)
    positions = kept.position[::-1][first]
    return {
        (java_string(topics.values[key // width]), key % width): position
        for key, position in zip(keys.tolist(), positions.tolist(), strict=True)
    }


def end_with_unit(batch: Batch) -> int:
    """The end of the last record of a batch that must have a unit, 0 without one."""
    rows = _have_units(batch).nonzero()[0]
    if not len(rows):
        return 0
    return int(batch.position[rows[-1]]) + int(batch.columns.ints("total_size")[rows[-1]])


_CONFIG = "config"


def find_layout(root: str | PathLike[str], config: BrokerConfig, version: str | None) -> Layout:
    """The layout of a store, or of a future one: `root` does not exist, is empty, or has only its topics.

    version: that was asked for. Raises NotAStore for a directory with other contents, Unreadable.
    """
    root = Path(root)
    try:
        names = set(os.listdir(root))  # noqa: PTH208
    except NotADirectoryError:
        raise NotAStore("not a directory", path=root, hint="a store is a directory") from None
    except OSError as error:
        if not isinstance(error, FileNotFoundError) or broken_link(root) is not None:
            raise from_os_error(error, root) from error
        names = set()
    if (root / _CONFIG / TOPICS).is_file():
        names.discard(_CONFIG)
    layout = Layout.open(root, config) if names - {LOCK, JOURNAL} else Layout.of(root, config)
    layout.version_named = version or ""
    return layout


def check_layout(layout: Layout) -> None:
    """Raise Unsupported or Refused for a store that cannot be appended to. A slave's log must stay a copy."""
    if layout.dledger is not None:
        from ..findings.next_commands import proposed

        raise Unsupported(
            "cannot append to a store with a DLedger commit log",
            path=layout.root,
            hint=f"`{proposed(layout, 'repair', '--convert', 'plain', '--to', 'DIR')}` makes a plain store of it",
        )
    if layout.aside:
        from ..findings.next_commands import moving_back

        raise Refused(layout.unread_log, path=layout.root, hint=moving_back(layout))
    _check_queue_database(layout)
    with layout.commit_log_files() as log:
        size = sizes_of(layout).commit_log.value
        if log.files and layout.follows_master:
            raise _is_a_copy(layout)
        for file in log.files:
            if file.size == 0 and len(log.files) == 1:
                continue  # created but never written: it gets its size with the first write
            if file.size != size or file.start % size:
                raise Refused(
                    f"a commit log file of {counted(file.size, 'byte')} at {file.start}, all others have {size}",
                    path=file.path,
                    hint="no broker loads such a log; mqstore inspect shows more",
                )


def _is_a_copy(layout: Layout) -> Refused:
    slave, words = layout.broker_config.is_slave, list[str]()
    whose = "a slave" if slave else "a broker with a controller, which may make it a slave"
    words += ["--set brokerRole=ASYNC_MASTER"] if slave else []
    words += [f"--set {CONTROLLER_MODE}=false"] if layout.broker_config.has_controller(layout.root) else []
    return Refused(
        f"this is the store of {whose}: its log must stay a copy of its master's",
        path=layout.root,
        hint=f"put into the store of the master, or, if this broker will be the master, say so with {' '.join(words)}",
    )


def check_log_end(files: Files, layout: Layout, log_end: int) -> None:
    """Check the files that are written next: the last ones of log and index. Raises Refused, Unreadable."""
    with layout.commit_log_files() as log:
        for file in log.files:
            if file.end >= log_end:
                files.check_inside(Path(file.path))
    if layout.index.is_dir():
        names = [path for path in layout.index.iterdir() if start_of(path.name) is not None]
        for path in sorted(names)[-1:]:
            files.check_inside(path)


def check_new_store(target: Path, config: BrokerConfig, version: str | None) -> None:
    """Raise Unsupported for options with which no message can be stored at `target`. version: that was asked for."""
    layout = Layout.of(target, config)
    layout.version_named = version or ""
    _check_queue_database(layout)


def _check_queue_database(layout: Layout) -> None:
    """Raise Unsupported for options that ask for queues in a RocksDB that does not exist."""
    if layout.queue_database is None and layout.uses_queue_database:
        # a start fills a new database from the log, but without one record (B40)
        from ..findings.next_commands import proposed

        then = proposed(layout, "repair", "--queues", "--as", "rocksdb", "--apply")
        raise Unsupported(
            "the options ask for queues in a RocksDB, but there is none yet",
            path=layout.root,
            hint=f"write without these options first, then run `{then}`",
        )


def check_clean(layout: Layout) -> None:
    """Raise Unclean if `abort` shows a crash, or a recovery was interrupted, whose barrier keeps brokers from starting.

    While the caller holds the lock, no running process is the reason. Raises Refused, Unreadable if `abort` is there
    and the log is lost: then `recover` makes no plan.
    """
    what, run = "", ""
    if os.path.lexists(layout.abort):
        what = "not shut down cleanly: abort is there"
    if layout.journal.is_dir() or _has_barrier(layout):
        from ..session.journal import left_over

        session = left_over(layout)
        if session is not None:
            what, run = str(session), session.command(layout)
    if what:
        if not run:
            _check_lost_log(layout)
        from ..findings.next_commands import proposed  # loads the catalogue, which most writes do not need

        raise Unclean(what, path=layout.root, hint=f"run: {run or proposed(layout, 'recover')}")


def _check_lost_log(layout: Layout) -> None:
    """Raise Refused if the store `lacks_log` and had one."""
    from ..broker.snapshot import lacks_log  # imports numpy

    if lacks_log(layout):
        from ..plan.normalize import refuse_to_read

        with suppress(Missing):  # a broker makes the directory
            refuse_to_read(layout)


def _has_barrier(layout: Layout) -> bool:
    directories = [directory for directory in layout.commit_log_directories if directory.is_dir()]
    return any(path.name.startswith(BARRIER_PREFIX) for directory in directories for path in directory.iterdir())


def generation(layout: Layout, tail: Tail, wanted: str | None) -> WriterProfile:
    """The generation to write as: the one wanted, else the store's own, else the newest.

    Raises InvalidInput for an unknown version.
    """
    if wanted is not None:
        return writer_profile(wanted)
    checkpoint = read_checkpoint(layout.checkpoint)
    if tail.last is None and checkpoint is None:
        return writer_profile(NEWEST)
    if checkpoint and checkpoint.logics_physical_offset and layout.rocksdb_store.exists():
        # only the newest generation leaves these; asking further would import numpy
        return writer_profile(NEWEST)
    from ..settings.generation import generation_of

    return writer_profile(generation_of(layout).version)
