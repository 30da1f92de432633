"""Moving positions of groups: comparison with another store (master and slave, before and after), and plans to move.

The other side may be a store, its `config` directory, or a file of positions. Positions are moved to an offset, an end
of the queue, a time, or the other side's position. A plan consists of edits of files in `config/`, like those of
`repair`: a session applies them, and `undo` reverts them. No position leaves its queue (spec 05, 5.3). Delay levels are
not moved.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, NamedTuple

from ...formats.config import BACKUP
from ...formats.consumer_offset import steps_to_next
from ...formats.hashing import utf8
from ...formats.json_table import DATA_VERSION
from ...formats.rocksdb_config import TableId, position_key, position_value
from ..broker.profiles import profile_of
from ..broker.system_topics import LMQ_PREFIX, is_system_group
from ..broker.topics import json_bytes, read_json
from ..counted import counted
from ..disk.broker_conf import BrokerConfig
from ..disk.files import Edit
from ..disk.layout import CONFIG, Layout
from ..errors import InvalidInput, NotFound, Refused, Unclean, Unreadable, did_you_mean
from ..findings.next_commands import proposed
from ..plan.plan import Plan
from ..put.tail import latest_with_unit
from ..queues.read import QueueSummary, first_at
from ..queues.rocksdb import DEFAULT, is_rocksdb
from ..queues.rocksdb_write import in_order, rewritten
from ..search.queue_search import queue_offset_at
from ..search.selection import parse_time, queue_of
from ..search.store import StoreReader
from ..settings.read import FILES
from ..settings.rocksdb import POSITIONS, SECOND, SEPARATE, SINGLE, counter_of, keeps_databases, stand_ins
from ..start.config_load import DELAYS, LMQ_OFFSETS, OFFSETS, LoadAction, config_rules, load_table
from .lag import Ends, Queue, behind_log, queue_ends, records_from
from .positions import (
    CONSUMED,
    DELAYED,
    LMQ,
    MEMBER_OF,
    PULLED,
    TABLES,
    Bounds,
    Clamped,
    Only,
    Position,
    Positions,
    StoredPositions,
    bounds_of,
    clamp,
    entries_of,
    entries_of_database,
    every_file,
    groups_of,
    inside,
    offset_files,
    positions_of,
    tables_of,
)

EARLIEST, LATEST = "earliest", "latest"
_SYNTAX = "TOPIC[/QUEUE]@GROUP=OFFSET, =earliest, =latest or =TIME"
_TO = "a number is always an offset; others are earliest, latest, or a time like 2026-11-20T21:38:00Z or -1h"
_MOVED = (CONSUMED, LMQ)
_LOOK_BACK_BYTES = 8 << 30
"""The part of the log searched at most for messages of a queue that a group is ahead of."""
_Key = tuple[str, str, int]
"""Group, topic, queue id."""
_Rows = dict[tuple[str, str, str], dict[int, int | None]]
"""By table, topic and group: the offset by queue id, None to remove it."""
_TABLE_IDS = {CONSUMED: TableId.CONSUMER_OFFSET, PULLED: TableId.PULL_OFFSET}


class Ahead(StrEnum):
    """Which of two positions is farther, or the only one."""

    SAME = "same"
    HERE = "here"
    OTHER = "other"
    ONLY_HERE = "only_here"
    ONLY_OTHER = "only_other"


class MoveSide(NamedTuple):
    """One side of a comparison: its positions and its queues, None without queues. tables: those it can have."""

    positions: Positions
    ends: Ends | None
    tables: frozenset[str] = frozenset(TABLES)


class ComparedPosition(NamedTuple):
    """A position on both sides; None where a side has none."""

    key: tuple[str, str, str, int]
    offset: int | None
    other_offset: int | None
    queue: QueueSummary | None
    other_queue: QueueSummary | None

    @property
    def ahead(self) -> Ahead:
        if self.other_offset is None:
            return Ahead.ONLY_HERE
        if self.offset is None:
            return Ahead.ONLY_OTHER
        if self.offset == self.other_offset:
            return Ahead.SAME
        return Ahead.HERE if self.offset > self.other_offset else Ahead.OTHER

    @property
    def difference(self) -> int | None:
        """Messages from the other side's position to this one, None if a side has none."""
        if self.offset is None or self.other_offset is None:
            return None
        return self.offset - self.other_offset

    def to_json(self) -> dict[str, Any]:
        table, group, topic, queue_id = self.key
        here, other = self.queue, self.other_queue
        return {
            "table": table,
            "group": None if table == DELAYED else group,
            "topic": topic,
            "queue_id": queue_id,
            "offset": self.offset,
            "other_offset": self.other_offset,
            "difference": self.difference,
            "ahead": str(self.ahead),
            "max_offset": None if here is None else here.max_offset,
            "other_max_offset": None if other is None else other.max_offset,
        }


def side_of(store: StoreReader) -> MoveSide:
    """The positions and queues of a store. Raises Unreadable."""
    return MoveSide(positions_of(store.layout, store.generation.version), queue_ends(store))


def open_side(path: Path, config: BrokerConfig | None = None) -> MoveSide:
    """The side of another store, of a `config` directory, or of a file of positions. config: of the store it is
    compared with. Raises InvalidInput, Missing, NotAStore, Unreadable.
    """
    if path.is_file():
        kind = FILES.get(path.name.removesuffix(BACKUP))
        if kind is None or not tables_of(kind):
            names = "consumerOffset.json or lmqConsumerOffset.json, or their .bak"
            raise InvalidInput("no file of positions", path=path, hint=f"name a store, or {names}")
        return _side_of_files(entries_of(path, kind))
    if is_rocksdb(path) and path.name in (SEPARATE[OFFSETS], SINGLE, SECOND):
        return _side_of_files(entries_of_database(path))
    own = [path / name for name in FILES] if path.is_dir() and not (path / CONFIG).is_dir() else []
    if any(one.is_file() for one in own) or OFFSETS in stand_ins(path):
        return _side_of_files(*every_file(path))
    with StoreReader(path, config and config.for_other_store()) as store:
        return side_of(store)


def _side_of_files(*files: StoredPositions) -> MoveSide:
    rows = [row for file in files for row in file.positions if row.is_read]
    notes = [f"{file.path}: {problem}" for file in files for problem in file.problems]
    kinds = (FILES.get(file.path.name.removesuffix(BACKUP)) for file in files)
    return MoveSide(Positions(rows, notes), None, frozenset().union(*map(tables_of, kinds)))


def compare(here: MoveSide, other: MoveSide) -> Iterator[ComparedPosition]:
    """Every position of either side, ordered by table, group, topic and queue; only of tables that both can have."""
    tables = here.tables & other.tables
    mine, others = (
        {row.key: row.offset for row in side.positions.rows if row.table in tables} for side in (here, other)
    )
    for key in sorted(mine.keys() | others.keys()):
        place = key[2], key[3]
        yield ComparedPosition(
            key,
            mine.get(key),
            others.get(key),
            None if here.ends is None else here.ends.get(place),
            None if other.ends is None else other.ends.get(place),
        )


class WhichPosition(StrEnum):
    """Which of two positions to take: the farther one, or the other."""

    MAX = "max"
    MIN = "min"


class Reset(NamedTuple):
    """Where a group is to continue. queue_id: None for all queues of the topic, which may be a pattern."""

    group: str
    topic: str
    queue_id: int | None
    to: str


class Merge(NamedTuple):
    """Positions of another side, and which of two is taken."""

    other: Sequence[Position]
    take: WhichPosition


EVERY = Only()
"""Selects every position."""


def is_named(store: StoreReader, only: Only, *sides: Iterable[Position]) -> bool:
    """Whether `only` selects a position of a side, or a group of the store that never committed. Raises Unreadable."""
    if only == EVERY or any(only.has(row.key[1:]) for rows in sides for row in rows):
        return True
    subscribed = groups_of(store.layout, store.generation.version).subscribed or frozenset()
    return any(only.has((group, "", -1)) for group in subscribed)


class Move(NamedTuple):
    """A position that moves. before: None if there was none. wished: the offset before it was brought into its bounds,
    min_offset and max_offset, which are those of the queue (less `steps_to_next`).
    """

    group: str
    topic: str
    queue_id: int
    before: int | None
    after: int
    wished: int
    min_offset: int
    max_offset: int

    @property
    def key(self) -> _Key:
        return self.group, self.topic, self.queue_id

    @property
    def skipped(self) -> int:
        """Messages that the group will not get."""
        return max(0, self.after - max(self.before or 0, self.min_offset)) if self.before is not None else 0

    @property
    def again(self) -> int:
        return 0 if self.before is None else max(0, min(self.before, self.max_offset) - self.after)

    def to_json(self) -> dict[str, Any]:
        return {
            "group": self.group,
            "topic": self.topic,
            "queue_id": self.queue_id,
            "from": self.before,
            "to": self.after,
            "wished": self.wished,
            "skipped": self.skipped,
            "again": self.again,
        }


@dataclass(frozen=True)
class Moves:
    """Positions that change, with the plan that changes them. left_out: positions in queues that the store lacks.

    database: the digest of the RocksDB for which the plan was made, "" without one.
    """

    moves: tuple[Move, ...]
    plan: Plan
    left_out: int = 0
    database: str = ""

    def same_as(self, other: Moves) -> bool:
        """Whether both move the same in the same RocksDB; the bytes of two such plans differ."""
        return bool(self.database) and (self.moves, self.database) == (other.moves, other.database)


def parse_reset(text: str) -> Reset:
    """Parse `orders/3@billing=latest`. Raises InvalidInput.

    >>> parse_reset("orders/3@billing=17")
    Reset(group='billing', topic='orders', queue_id=3, to='17')
    """
    place, equals, to = text.rpartition("=")
    queue, at, group = place.rpartition("@")
    if not (equals and at and queue and group and to):
        raise InvalidInput(f"not a position: {text!r}", hint=_SYNTAX)
    topic, queue_id = queue_of(queue)
    return Reset(group, topic, queue_id, to)


def plan_moves(
    store: StoreReader,
    resets: Iterable[Reset] = (),
    merge: Merge | None = None,
    now_ms: int | None = None,
    only: Only = EVERY,
) -> Moves:
    """Plan the moves; of two resets of one position the last counts, and a reset counts more than the merge.

    Raises InvalidInput, NotFound (also if `only` selects none of them), Refused (config/ must be repaired first),
    Unclean (queues are behind the log), Unreadable.
    """
    version = store.generation.version
    ends = _known_ends(store)
    found = positions_of(store.layout, version)
    if found.unsure:
        raise Refused(found.unsure, path=store.layout.config, hint="move one of them away")
    own = {(p.group, p.topic, p.queue_id): p.offset for p in found.rows if p.table in _MOVED}
    wanted: dict[_Key, int] = {}
    for reset in resets:
        known = groups_of(store.layout, version).subscribed or frozenset()
        _check_group(reset, own, known)
        for queue in _queues_of(reset, own, ends):
            wanted[reset.group, *queue] = _position_of(store, reset, ends[queue], now_ms)
    left_out = 0
    if merge is not None:
        for key, offset in _merged_positions(own, merge, only):
            if key[1:] not in ends:
                left_out += own.get(key, 0) != offset
            elif _wins(_move(key, offset, None, ends[key[1:]]).after, own.get(key), merge.take):
                wanted.setdefault(key, offset)
    wanted = {key: offset for key, offset in wanted.items() if only.has(key)}
    if not wanted and only != EVERY and (merge is None or not is_named(store, only, found.rows, merge.other)):
        others = () if merge is None else merge.other
        hint = only.hint((*found.rows, *others), "mqstore offsets lists them")
        raise NotFound("no such group or topic to move", hint=hint)
    moves = [_move(key, offset, own.get(key), ends[key[1:]]) for key, offset in wanted.items()]
    moves = sorted(move for move in moves if move.before != move.after)
    _check_ahead(store, moves, ends)
    edits, database = _edits(store.layout, moves, found.rows, version)
    log = (store.log_files.start, store.log_files.end) if store.has_log else (0, 0)
    return Moves(tuple(moves), Plan("offsets", *log, edits), left_out, database)


def _known_ends(store: StoreReader) -> Ends:
    """The end of each queue after a start of its broker. Raises Unclean, Unreadable."""
    ends, layout = queue_ends(store), store.layout
    behind = behind_log(store) if ends or not store.queues_problem else None
    if behind is not None:
        raise _unclean(layout, "the queues are behind the log: their ends are not known", behind)
    if store.queues_unread and not ends:
        raise Unreadable(store.queues_unread, path=layout.root)
    return ends


def _check_ahead(store: StoreReader, moves: Iterable[Move], ends: Ends) -> None:
    """Check by the log that no queue which a group is ahead of lost units. Raises Unclean, Unreadable."""
    ahead = {move.key[1:] for move in moves if (move.before or 0) > move.max_offset}
    if not ahead or not store.has_log:
        return
    reached = {queue: ends[queue].end_position or 0 for queue in ahead}
    end = store.log_end.position
    for batch in records_from(store, max(min(reached.values()), end - _LOOK_BACK_BYTES)):
        for queue, position in latest_with_unit(batch).items():
            if position >= reached.get(queue, end):
                place = f"the queue {queue[0]}/{queue[1]}"
                raise _unclean(store.layout, f"{place} is behind the log: its end is not known", position)


def _unclean(layout: Layout, problem: str, position: int) -> Unclean:
    return Unclean(problem, path=layout.root, offset=position, hint=f"run: {proposed(layout, 'recover')}")


def _check_group(reset: Reset, own: Mapping[_Key, int], subscribed: frozenset[str]) -> None:
    known = subscribed | {group for group, _, _ in own}
    if reset.group not in known:
        proper = {group for group in known if not is_system_group(group)}
        examples = ", ".join(sorted(proper or known)[:5])
        otherwise = f"there are {examples}" if known else "config/ names no group"
        raise NotFound(f"no group {reset.group}", hint=did_you_mean(reset.group, known, otherwise))


def _queues_of(reset: Reset, own: Mapping[_Key, int], ends: Ends) -> list[Queue]:
    """The queues that a reset selects. Raises NotFound for none."""
    consumed = {topic for group, topic, _ in own if group == reset.group}
    found = [
        queue
        for queue in sorted(ends)
        if reset.queue_id in (None, queue[1])
        and (queue[0] == reset.topic or (queue[0] in consumed and fnmatchcase(queue[0], reset.topic)))
    ]
    if not found:
        place = reset.topic if reset.queue_id is None else f"{reset.topic}/{reset.queue_id}"
        topics = {topic for topic, _ in ends}
        others = () if reset.topic in topics else topics
        hint = did_you_mean(reset.topic, others, "mqstore offsets lists them by group")
        raise NotFound(f"no queue {place} in the store", hint=hint)
    return found


def _position_of(store: StoreReader, reset: Reset, queue: QueueSummary, now_ms: int | None) -> int:
    """The offset for a queue; a number is always an offset. Raises InvalidInput for one outside, or a bad time."""
    place = f"{queue.topic}/{queue.queue_id}"
    lowest, highest = bounds_of(reset.group, queue.min_offset, queue.max_offset)
    if reset.to == EARLIEST:
        return lowest
    if reset.to == LATEST:
        return highest
    if reset.to.isascii() and reset.to.isdigit():
        # 20 digits are outside of every queue, and int() limits the length
        offset = int(reset.to.lstrip("0")[:20] or "0")
        if not lowest <= offset <= highest:
            bounds = f"{place} goes from {lowest} to {highest}"
            raise InvalidInput(f"{bounds}: {reset.to} is outside", hint=_TO)
        return offset
    try:
        time_ms = parse_time(reset.to, now_ms)
    except InvalidInput as error:
        error.hint = _TO  # elsewhere a number may be a time
        raise
    if not store.has_log:
        raise InvalidInput("a time needs the commit log, which is not here", path=store.layout.root)
    return _offset_at(store, queue, time_ms) - steps_to_next(reset.group)


def _offset_at(store: StoreReader, queue: QueueSummary, time_ms: int) -> int:
    """The offset of the first message stored at `time_ms` or later."""
    if store.has_batch_queues(queue.topic):
        return queue_offset_at(store, queue.topic, queue.queue_id, time_ms)
    with store.queues.open(queue.topic, queue.queue_id) as opened:
        return first_at(opened, queue, time_ms, store.store_time)[0]  # a time leaves out no messages


def _merged_positions(own: Mapping[_Key, int], merge: Merge, only: Only) -> Iterator[tuple[_Key, int]]:
    """Positions of the other side that win, or are missing here; a broker's own groups only if named."""
    for one in merge.other:
        key = one.group, one.topic, one.queue_id
        meant = only.group is not None or not is_system_group(one.group)
        moved = one.table in _MOVED and meant and only.has(key)
        if moved and _wins(one.offset, own.get(key), merge.take):
            yield key, one.offset


def _wins(other: int, own: int | None, take: WhichPosition) -> bool:
    """Whether the other position is taken."""
    return own is None or (other > own if take is WhichPosition.MAX else other < own)


def _move(key: _Key, offset: int, before: int | None, queue: QueueSummary) -> Move:
    bounds = bounds_of(key[0], queue.min_offset, queue.max_offset)
    return Move(*key, before, inside(offset, *bounds), offset, *bounds)


def _edits(layout: Layout, moves: Sequence[Move], known: Sequence[Position], version: str) -> tuple[list[Edit], str]:
    """Edits of each file with positions of groups, and the digest of a RocksDB. Raises InvalidInput, Refused."""
    if not moves:
        return [], ""
    reason = counted(len(moves), "position moves", "positions move")
    found: list[Edit] = []
    digest = ""
    names = [name for name in offset_files(layout) if name != DELAYS]
    database = stand_ins(layout.config, layout.broker_config).get(OFFSETS)
    if database is not None:
        found, digest = _database_edits(database, _changed_rows(moves, known), reason)
        # a broker imports the file if it was written more often
        names = [OFFSETS] if (layout.config / OFFSETS).exists() else []
    for name in names:
        path = layout.config / name
        content = _content(path, layout, version)
        for move in moves:
            _set_offset(content, name, move)
        if database is None and keeps_databases(layout) and (counter_of(content) or 0) < 1:
            content[DATA_VERSION.member] = {"counter": 1}  # a broker imports no file without a counter
        data = json_bytes(content)
        found.append(Edit.create(path, data, reason))
    return found, digest


def clamped_in_database(layout: Layout, bounds: Bounds) -> tuple[list[Edit], list[Clamped]]:
    """The positions in a RocksDB that are outside of their queues, and the edits that correct them; nothing if the
    RocksDB cannot be read. Raises Unsupported, Unreadable.
    """
    path = stand_ins(layout.config, layout.broker_config).get(OFFSETS)
    found = None if path is None else entries_of_database(path)
    if path is None or found is None or found.problems:
        return [], []
    before: _Rows = {}
    for one in found.positions:
        if one.table == CONSUMED or path.name == SECOND:  # other databases have no other table
            before.setdefault((one.table, one.topic, one.group), {})[one.queue_id] = one.offset
    after: dict[str, dict[str, dict[int, int | None]]] = {}
    for (table, topic, group), row in before.items():
        after.setdefault(MEMBER_OF[table], {})[f"{topic}@{group}"] = dict(row)
    if not (clamped := list(clamp(OFFSETS, after, bounds))):
        return [], []
    rows: _Rows = {}
    for (table, topic, group), row in before.items():
        if row != (now := after[MEMBER_OF[table]][f"{topic}@{group}"]):
            rows[table, topic, group] = {queue: now.get(queue) for queue in row}
    reason = counted(len(clamped), "wrong offset")
    return _database_edits(path, rows, reason, ("I-144",))[0], clamped


def _database_edits(path: Path, rows: _Rows, reason: str, codes: tuple[str, ...] = ()) -> tuple[list[Edit], str]:
    """Edits of the files of a database, and the digest of its former state. Raises Unsupported, Unreadable."""
    entries = dict(_entries(path, rows))
    after = rewritten(path, entries, POSITIONS if path.name == SINGLE else DEFAULT)
    content_id = f"{after.digest}{sorted(entries.items())}".encode()
    edits = [Edit.create(path / name, after.made[name], reason) for name in in_order(after.made)]
    edits = [edit._replace(codes=codes, content_id=content_id) for edit in edits]
    return edits + [Edit("move", str(path / name), reason, codes) for name in after.gone], after.digest


def _entries(path: Path, rows: _Rows) -> Iterator[tuple[bytes, bytes | None]]:
    """Keys and values of a database; None deletes the key."""
    for (table, topic, group), offsets in rows.items():
        if path.name != SECOND:
            row = {str(queue): offset for queue, offset in offsets.items() if offset is not None}
            value = json.dumps({MEMBER_OF[CONSUMED]: row}, separators=(",", ":"))
            yield utf8(f"{topic}@{group}"), value.encode()
            continue
        for queue, offset in offsets.items():
            key = position_key(utf8(group), utf8(topic), queue, _TABLE_IDS[table])
            yield key, None if offset is None else position_value(offset)


def _changed_rows(moves: Sequence[Move], positions: Sequence[Position]) -> _Rows:
    """The rows that change, complete with the positions that stay."""
    moved = {(CONSUMED, move.topic, move.group) for move in moves}
    rows: _Rows = {key: {} for key in sorted(moved)}
    for one in positions:
        if (key := (one.table, one.topic, one.group)) in rows:
            rows[key][one.queue_id] = one.offset
    for move in moves:
        rows[CONSUMED, move.topic, move.group][move.queue_id] = move.after
    return rows


def _content(path: Path, layout: Layout, version: str) -> dict[Any, Any]:
    """The file as its broker loads it, with a table of offsets. Raises Refused, Unreadable."""
    loaded = load_table(layout, path.name, config_rules(profile_of(version)))
    if loaded.start is LoadAction.EMPTY and not path.exists() and not loaded.main.passed_by:
        return {MEMBER_OF[CONSUMED]: {}}
    # for a file that it refuses a broker loads the .bak; writing the file would bring its other contents back
    content = read_json(path) if loaded.start is LoadAction.LOADS else None
    table = None if content is None else content.setdefault(MEMBER_OF[CONSUMED], {})
    if content is None or not isinstance(table, dict):
        raise Refused(
            "a broker cannot read this file",
            path=path,
            hint=f"run first: {proposed(layout, 'repair', '--config', '--apply')}",
        )
    return content


def _set_offset(content: dict[Any, Any], name: str, move: Move) -> None:
    """Set a position in the table that a broker reads for its group; existing keys keep their form. Raises
    InvalidInput.
    """
    key = f"{move.topic}@{move.group}"
    if name == LMQ_OFFSETS and move.group.startswith(LMQ_PREFIX):
        if move.queue_id:
            text = f"{move.group} has only one position in {move.topic}, for queue 0, and none for"
            raise InvalidInput(f"{text} queue {move.queue_id}", hint=f"name {move.topic}/0")
        content.setdefault(MEMBER_OF[LMQ], {})[key] = move.after
        return
    row = content[MEMBER_OF[CONSUMED]].setdefault(key, {})
    row[str(move.queue_id) if str(move.queue_id) in row else move.queue_id] = move.after
