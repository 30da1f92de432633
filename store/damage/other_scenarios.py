"""What can go wrong with checkpoint, timer, configuration and tiered storage."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from ...formats.checkpoint import FIELDS
from ...formats.derive import offset_of
from ...formats.tiered_index import HEADER
from ...formats.timer_log import UNIT_BYTES
from ..disk.edits import Edit
from ..disk.file_queue import MappedFileQueue
from ..disk.regular_file import read_regular
from ..errors import NotFound
from ..settings.read import LARGEST_BYTES
from ..tiered.index import read_index
from ..tiered.segments import kind_of_place, open_segments
from ..timer.read import TimerUnits, timer_log
from .scenario import Scene, cut, killed, remove, replace, scenario, write, zeros

_CONFIG = "config/*.json"
_AN_HOUR_MS = 3_600_000
_BEYOND = 1_000_000
_MS_PER_S = 1000
_TIMES = ("physic_msg_timestamp", "logics_msg_timestamp", "index_msg_timestamp")


@scenario("checkpoint-ahead", 678, 1434)
def _checkpoint_ahead(scene: Scene) -> Iterator[Edit]:
    """The checkpoint says that everything is flushed until an hour after the last message."""
    path = scene.store.layout.checkpoint
    fields = _checkpoint(path)
    late = (scene.store.log_end.store_timestamp or 0) + _AN_HOUR_MS
    fields.update(dict.fromkeys(_TIMES, late))
    yield write(path, 0, FIELDS.build(fields), "times of the checkpoint")
    yield from killed(scene)


@scenario("checkpoint-zeros")
def _checkpoint_zeros(scene: Scene) -> Iterator[Edit]:
    """The checkpoint is zeros."""
    path = scene.store.layout.checkpoint
    _checkpoint(path)
    yield zeros(path, 0, FIELDS.sizeof(), "the checkpoint")
    yield from killed(scene)


def _checkpoint(path: Path) -> dict[str, int]:
    data = read_regular(path, FIELDS.sizeof()) if path.is_file() else b""
    if len(data) < FIELDS.sizeof():
        raise NotFound("the store has no checkpoint", path=path)
    return {name: value for name, value in FIELDS.parse(data).items() if name != "_io"}


@scenario("timer-ahead", 10668, 9735)
def _timer_ahead(scene: Scene) -> Iterator[Edit]:
    """The log was cut, the timer log still points behind its end: delayed messages are stuck."""
    layout = scene.store.layout
    with MappedFileQueue.open(layout.timer_log) as files:
        units = (item for item in timer_log(files) if isinstance(item, TimerUnits))
        last = [int(item.units["offset_py"][-1]) for item in units]
    file = scene.store.log_files.file_at(last[-1]) if last else None
    if file is None:
        raise NotFound("the store has no timer log that points into the log", path=layout.timer_log)
    at = last[-1] - file.start
    yield zeros(file.path, at, file.size - at, "the end of the log")
    yield from killed(scene)


@scenario("timer-wheel-gone", 9654)
def _timer_wheel_gone(scene: Scene) -> Iterator[Edit]:
    """The timer wheel is gone."""
    path = scene.file_of("timerwheel", "timer wheel")
    yield remove(path, "the timer wheel")


@scenario("timer-wheel-length")
def _timer_wheel_length(scene: Scene) -> Iterator[Edit]:
    """The timer wheel has not the length that a broker expects."""
    path = scene.file_of("timerwheel", "timer wheel")
    yield cut(path, path.stat().st_size - UNIT_BYTES, "the timer wheel ends early")


@scenario("config-cut", 6096, 3401)
def _config_cut(scene: Scene) -> Iterator[Edit]:
    """A file of the configuration ends early after a power failure."""
    path = scene.file_of(_CONFIG, "configuration")
    size = scene.rng.randrange(path.stat().st_size)
    yield cut(path, size, "a file of the configuration ends early")


@scenario("config-zeros", 5905, 7729)
def _config_zeros(scene: Scene) -> Iterator[Edit]:
    """A file of the configuration is zeros after a power failure."""
    path = scene.file_of(_CONFIG, "configuration")
    yield zeros(path, 0, path.stat().st_size, "a file of the configuration")


@scenario("config-tail", 9328)
def _config_tail(scene: Scene) -> Iterator[Edit]:
    """Behind the JSON of the configuration lies the rest of an older file."""
    path = scene.file_of(_CONFIG, "configuration")
    data = read_regular(path, LARGEST_BYTES)
    yield write(path, len(data), data[len(data) // 2 :], "more behind the end of the JSON")


@scenario("offset-beyond", 551, 1869, 4226)
def _offset_beyond(scene: Scene) -> Iterator[Edit]:
    """A group's offset lies behind the end of its queue: it gets no messages."""
    path, value, table = scene.table_of("consumer-offset", "offsetTable")
    groups = sorted(group for group, offsets in table.items() if offsets)
    if not groups:
        raise NotFound("no group has an offset", path=path)
    offsets = table[scene.rng.choice(groups)]
    offsets[scene.rng.choice(sorted(offsets))] += _BEYOND
    yield from replace(path, json.dumps(value).encode(), "the offset of a group")


@scenario("topic-forgotten", 1852, 6343)
def _topic_forgotten(scene: Scene) -> Iterator[Edit]:
    """The configuration lacks a topic that has messages."""
    path, value, table = scene.table_of("topics", "topicConfigTable")
    topics = sorted(set(table) & set(scene.store.topics))
    if not topics:
        raise NotFound("no topic of the configuration has a queue", path=path)
    del table[scene.rng.choice(topics)]
    yield from replace(path, json.dumps(value).encode(), "a topic of the configuration")


@scenario("tiered-index-end", 10656)
def _tiered_index_end(scene: Scene) -> Iterator[Edit]:
    """A segment of the tiered index ends when it begins: searches by time pass it by."""
    found = [path for path in scene.files_of("**/INDEX/*") if _has_length(path)]
    if not found:
        text = "the store has no tiered index that is longer than a second"
        raise NotFound(text, path=scene.store.layout.root)
    path = scene.rng.choice(found)
    end = HEADER.end_timestamp.build(_tiered_header(path)["begin_timestamp"])
    yield write(path, offset_of(HEADER, "end_timestamp"), end, "end_timestamp is begin_timestamp")


def _has_length(path: Path) -> bool:
    """A sealed segment whose begin and end are not the same second."""
    header = _tiered_header(path) if kind_of_place(path) == "tiered-index" else {}
    return bool(header) and abs(header["end_timestamp"] - header["begin_timestamp"]) >= _MS_PER_S


def _tiered_header(path: Path) -> dict[str, int]:
    """The header of a segment, empty for one that is not sealed."""
    with open_segments(path) as files:
        index = read_index(files, files.files[0])
    return {} if index.problem else index.header
