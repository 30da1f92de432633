"""Targets that open files and whole stores: scans, queues, index, timers, the plan of a recovery."""

from __future__ import annotations

from pathlib import Path
from unittest import mock

from mqstore.formats.compression import ZSTD_MAGIC
from mqstore.formats.consume_queue import UNIT_BYTES
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MESSAGE
from mqstore.store.disk import compressed
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.compressed import forget_all
from mqstore.store.disk.file_queue import MappedFileQueue, file_name
from mqstore.store.disk.layout import Layout
from mqstore.store.index.read import Index
from mqstore.store.inspect.description import describe
from mqstore.store.inspect.recognise import recognise
from mqstore.store.log.batch import Batch, messages
from mqstore.store.log.commit_log import CommitLog, scan_split, splits
from mqstore.store.queues.read import ConsumeQueues
from mqstore.store.recover.recovery import analyze
from mqstore.store.search.find import find, offset_at
from mqstore.store.search.selection import Selection
from mqstore.store.search.store import StoreReader
from mqstore.store.timer.read import TimerRange, TimerUnits, timer_log, timer_wheel

from ..formats.derive.schemas import parse
from ..store.made_log import account, log_of
from .target import cut, files, target

_NAMES = ("00000000000000000000", "checkpoint", "abort", "lock", "timerwheel", "x", "a.json")
_LIMIT = 1 << 16
_FILES = 5
_UNPACKED = 1 << 22


def in_files(folder: str, data: bytes, unit: int) -> dict[str, bytes]:
    """A stream in files of equal size: the first byte says how large; the last may be short."""
    if not data:
        return {f"{folder}/{file_name(0)}": b""}
    rest = data[1:_LIMIT]
    size = max(unit, -(-len(rest) // (1 + data[0] % _FILES) // unit) * unit)
    starts = range(0, max(1, len(rest)), size)
    return {f"{folder}/{file_name(at)}": rest[at : at + size] for at in starts}


def _accepted(log: CommitLog, stream: bytes) -> None:
    """Every record that a scan takes is what construct reads there, its CRC what zlib says."""
    for item in log.scan():
        if isinstance(item, Batch):
            for message in messages(item):
                found = stream[message.position :][: message.total_size]
                parsed = parse(MESSAGE, found)
                assert parsed is not None and parsed[1] == message.total_size
                fields = parsed[0]
                assert fields["topic"] == message.raw_topic
                assert fields["body"] == message.stored_body
                good = not fields["body"] or crc31(fields["body"]) == fields["body_crc"]
                assert message.body_crc_ok == good


@target
def log_scan(data: bytes) -> None:
    """A commit log: every byte told once, no false record, and the same in pieces."""
    content = in_files("commitlog", data, 1)
    with files(content) as root, log_of(root / "commitlog").queue as queue:
        log = CommitLog(queue, None)
        whole = account(log)
        _accepted(log, b"".join(content.values()))
        log.end()
        seen = {
            int(position)
            for split in splits(log.min_offset, log.max_file_end, 1 + len(data) // 3)
            for item in scan_split(log, split)
            if isinstance(item, Batch)
            for position in item.position
        }
        assert seen <= set(whole.records) or not whole.records


@target
def dledger_scan(data: bytes) -> None:
    """The same in entries of DLedger."""
    from mqstore.formats.dledger import HEADER_BYTES

    with files(in_files("data", data, 1)) as root:
        log = log_of(root / "data", dledger=True)
        with log.queue:
            account(log, around=HEADER_BYTES)


@target
def queue(data: bytes) -> None:
    """A consume queue over no log: summaries, units from both ends."""
    with files(in_files("consumequeue/T/0", data, UNIT_BYTES)) as root:
        queues = ConsumeQueues(Layout.of(root))
        (found,) = queues.summaries()
        with queues.open("T", 0) as one:
            forward = [len(units) for _, units in one.units(0, 1 << 40)]
            backward = [len(units) for _, units in one.units(0, 1 << 40, reverse=True)]
            assert sum(forward) == sum(backward)
            one.unit(found.max_offset)


@target
def index(data: bytes) -> None:
    """An index file: its geometry found, every item, a search; chains end."""
    with files({"index/20260101000000000": data[:_LIMIT]}) as root:
        config = BrokerConfig({"maxHashSlotNum": "4", "maxIndexNum": "9"})
        for options in (None, config):
            with Index.open(root / "index", options) as found:
                for file in found.files:
                    assert sum(len(items) for _, items in file.columns()) == file.last
                    assert file.consistent in (True, False)
                found.query("T", "k")


@target
def timers(data: bytes) -> None:
    """Timer log and timer wheel: each byte of the log told once."""
    from mqstore.formats.timer_log import UNIT_BYTES as TIMER_BYTES

    content = in_files("timerlog", data, 1) | {"timerwheel": data[:_LIMIT]}
    with files(content) as root:
        layout = Layout.of(root)
        told = 0
        for item in timer_log(log_of(layout.timer_log).queue):
            if isinstance(item, TimerUnits):
                told += len(item.units) * TIMER_BYTES
            else:
                assert isinstance(item, TimerRange)
                told += item.size
        assert told == sum(len(d) for name, d in content.items() if name.startswith("timerlog"))
        for slots in timer_wheel(layout.timer_wheel):
            assert len(slots.number) == len(slots.slots)


@target
def recognised(data: bytes) -> None:
    """Any bytes under any name are some kind or none."""
    if data:
        name = _NAMES[data[0] % len(_NAMES)]
        with files({f"some/{name}": data[1:_LIMIT]}) as root:
            for path in (root / "some" / name, root / "some"):
                assert isinstance(recognise(path).kind, str)


def _store(data: bytes) -> dict[str, bytes]:
    log, units, items, check, topics, rest = cut(data, 6)
    content = in_files("commitlog", log, 1) | in_files("consumequeue/T/0", units, UNIT_BYTES)
    content |= {"index/20260101000000000": items, "checkpoint": check, "config/topics.json": topics}
    return content | ({"abort": rest} if rest[:1] else {})


@target
def store(data: bytes) -> None:
    """A whole store: described, searched, and the plan of its recovery for two generations."""
    with files(_store(data)) as root:
        config = BrokerConfig({"maxHashSlotNum": "4", "maxIndexNum": "9"})
        describe(Layout.open(root, config))
        with StoreReader(root, config) as opened:
            for selection in (Selection(topic="T"), Selection(key="k"), Selection("T", 0)):
                for found in find(opened, selection):
                    assert selection.takes(found.message, in_queue=selection.queue_id is not None)
            find_offset = offset_at(opened, "T", 0, 1_700_000_000_000)
            assert find_offset >= 0
        before = _state(root)
        for version in ("4.9", "5.3"):
            analyze(Layout.open(root, config), version).to_json()
        assert _state(root) == before


def _state(root: Path) -> dict[str, int]:
    return {str(path): path.stat().st_size for path in sorted(root.rglob("*")) if path.is_file()}


@target
def compressed_log(data: bytes) -> None:
    """A log file that somebody compressed: the scan tells each byte that comes out of it once."""
    name = f"log/{file_name(0)}{'.zst' if data[:1] == ZSTD_MAGIC[:1] else '.gz'}"
    forget_all()  # a file that is replaced so quickly may look like the one before
    with (
        mock.patch.object(compressed, "LARGEST_BYTES", _UNPACKED),
        files({name: data}) as root,
        MappedFileQueue.open(root / "log") as queue,
    ):
        [file] = queue.files
        content = queue.content(file)
        assert content.size <= _UNPACKED
        assert len(queue.read(0, _UNPACKED)) == content.size
        told = 0
        for item in CommitLog(queue).scan():
            begin = int(item.position[0]) if isinstance(item, Batch) else item.position
            told = max(told, item.end)
            assert begin <= told
        assert told >= content.size
