"""Parts of a store beside log, consume queues, index and `config/`: a line about each that is there.

Only a bounded part of each is read. What they hold is told by `dump`.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from ...formats.kinds import KINDS
from ..counted import counted
from ..disk.file_queue import MappedFileQueue
from ..disk.layout import Layout
from ..errors import Missing
from ..queues.read import QueueDirectory, queue_directories
from ..queues.read_batches import BatchConsumeQueue
from ..queues.read_sparse import summary_of as sparse_summary
from ..settings.read import FILES, read_config_file
from ..settings.summary import WHOLE, summary_of

_WALKED_BYTES = 64 << 20
"""Queues of compaction with at most this many bytes in all are walked."""
_POSITIONS_SHOWN = 8
Record = dict[str, Any]


class Part(NamedTuple):
    """A part of a store, and what is in it."""

    part: str
    text: str


def parts_of(layout: Layout) -> Iterator[Part]:
    """The parts that there are. Raises Unreadable."""
    yield from _batch_queues(layout)
    yield from _files(layout, "broker-identity")
    yield from _compaction(layout)
    yield from _ext(layout)
    yield from _dledger(layout)
    yield from _files(layout, "epoch-file")


def _by_topic(queues: Iterator[QueueDirectory]) -> dict[str, list[QueueDirectory]]:
    found: dict[str, list[QueueDirectory]] = defaultdict(list)
    for queue in queues:
        found[queue.topic].append(queue)
    return found


def _batch_queues(layout: Layout) -> Iterator[Part]:
    for topic, queues in _by_topic(queue_directories(layout.batch_consume_queue)).items():
        batches = count = 0
        for one in queues:
            files = MappedFileQueue.open(one.path)
            with BatchConsumeQueue(topic, one.queue_id, files) as queue:
                ends = queue.summary()
                batches += queue.stop - queue.first
                count += ends.max_offset - ends.min_offset
        held = f"{counted(batches, 'batch', 'batches')} of {counted(count, 'message')}"
        text = f"{topic}: {counted(len(queues), 'queue')}, {held}"
        yield Part(layout.batch_consume_queue.name, text)


def _compaction(layout: Layout) -> Iterator[Part]:
    """What compaction has left of each topic; positions of topics that it has not seen."""
    name = layout.compaction_queues.parent.name
    topics = _by_topic(queue_directories(layout.compaction_queues))
    for topic, queues in topics.items():
        streams = [MappedFileQueue.open(queue.path) for queue in queues]
        text = f"{topic}: {counted(len(queues), 'queue')}"
        if sum(file.size for files in streams for file in files.files) <= _WALKED_BYTES:
            left = damaged = 0
            for files in streams:
                with files:
                    found = sparse_summary(files)
                left, damaged = left + found.units, damaged + found.damaged_bytes
            text += f", {counted(left, 'message')} left"
            text += f", {counted(damaged, 'damaged byte')}" if damaged else ""
        yield Part(name, text)
    yield from _files(layout, "position-checkpoint", quiet=not topics)


def _ext(layout: Layout) -> Iterator[Part]:
    topics = _by_topic(queue_directories(layout.consume_queue_ext))
    if topics:
        queues = [queue for found in topics.values() for queue in found]
        count = counted(len(queues), "queue")
        text = f"tag codes and SQL bit maps of {count}: {', '.join(sorted(topics))}"
        yield Part(layout.consume_queue_ext.name, text)


def _dledger(layout: Layout) -> Iterator[Part]:
    """How far the member has come, by its own files."""
    if layout.dledger is None:
        return
    member = layout.dledger.parent
    told: dict[str, str] = {}
    for name in ("checkpoint", "currterm"):
        try:
            told |= read_config_file(member / name, "dledger-state").value
        except Missing:
            continue
    text = ", ".join(f"{key} {value}" for key, value in told.items())
    yield Part(member.name, text or "neither checkpoint nor currterm")


def _files(layout: Layout, kind: str, *, quiet: bool = False) -> Iterator[Part]:
    """A text file outside of `config/`. quiet: only if something is wrong with it."""
    (name,) = (file for file, of in FILES.items() if of == kind)
    try:
        found = read_config_file(layout.root / KINDS[kind].place / name, kind)
    except Missing:
        return
    summary = summary_of(found)
    if summary.state != WHOLE:
        yield Part(name, summary.text)
    elif not quiet:
        yield Part(name, _TEXTS[kind](list(found.records())))


def _identity(records: list[Record]) -> str:
    (one,) = records
    return f"broker {one['broker_name']} of {one['cluster_name']}, id {one['broker_id']}"


def _epochs(records: list[Record]) -> str:
    epochs = [record for record in records if record["type"] == "epoch"]
    if not epochs:
        return "no epochs"
    last = epochs[-1]
    return f"{counted(len(epochs), 'epoch')}, {last['epoch']} begins at {last['start_offset']}"


def _positions(records: list[Record]) -> str:
    found = [record for record in records if record["type"] == "compaction_position"]
    texts = [f"{r['topic']}/{r['queue_id']} to {r['offset']}" for r in found[:_POSITIONS_SHOWN]]
    more = len(found) - len(texts)
    return "compacted: " + ", ".join([*texts, *([f"{more} more"] if more else [])])


_TEXTS: Mapping[str, Callable[[list[Record]], str]] = {
    "broker-identity": _identity,
    "epoch-file": _epochs,
    "position-checkpoint": _positions,
}
