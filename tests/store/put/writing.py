"""What the tests of the writer share: messages, tiny stores, and a look at what was written."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.message import SysFlag
from mqstore.store.broker.dispatch import dispatch_columns
from mqstore.store.broker.dispatch_record import Dispatching
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.files import Files
from mqstore.store.disk.layout import Layout
from mqstore.store.errors import StoreError
from mqstore.store.put.new_message import NewMessage
from mqstore.store.put.writer import StoreWriter, WriterOptions
from mqstore.store.queues.read import ConsumeQueues

from ..real_log import columns_of

TINY = BrokerConfig(
    {"mappedFileSizeCommitLog": "4096", "mappedFileSizeConsumeQueue": "200", "maxHashSlotNum": "7", "maxIndexNum": "30"}
)
NOW = 1_795_000_000_000
VERSIONS = ("4.3", "4.9", "5.1", "5.3", "5.4", "5.5", "5.5.1")


def messages(count: int, seed: int = 0, *, ipv6: bool = False) -> list[NewMessage]:
    """Messages of every sort, the same for the same seed; a greater one gives later times."""
    rng = random.Random(f"{count} {seed}")
    begin = NOW + seed * 100_000
    found = []
    for number in range(count):
        properties = {"UNIQ_KEY": f"{seed:016X}{number:016X}"} if rng.random() < 0.8 else {}
        if rng.random() < 0.7:
            properties["KEYS"] = " ".join(f"k{rng.randrange(9)}" for _ in range(rng.randrange(3)))
        if rng.random() < 0.5:
            properties["TAGS"] = rng.choice(["TagA", "é", "b"])
        born = bytes([0xFD]) + bytes(14) + b"\1" if ipv6 and rng.random() < 0.5 else b"\n\0\0\1"
        found.append(
            NewMessage(
                rng.choice([b"orders", b"%RETRY%group", b"T|x"]),
                rng.randbytes(rng.randrange(200)),
                queue_id=rng.randrange(3),
                flag=rng.randrange(-2, 2),
                sys_flag=rng.choice([0, 0, 0, SysFlag.PREPARED, SysFlag.COMMIT, SysFlag.ROLLBACK]),
                born_timestamp=NOW - 5,
                born_host=(born, 40_000 + number),
                reconsume_times=rng.randrange(2),
                prepared_transaction_offset=rng.randrange(100),
                properties="".join(f"{k}\1{v}\2" for k, v in properties.items() if v).encode(),
                store_timestamp=begin + number * 700,
            )
        )
    return found


def writer(
    root: Path, version: str | None = None, files: Files | None = None, config: BrokerConfig = TINY
) -> StoreWriter:
    """A writer with a clock that stands still."""
    options = WriterOptions(as_broker=version, wait_seconds=0)
    return StoreWriter.open(root, config, options, files=files, clock=lambda: NOW)


def put(root: Path, found: Sequence[NewMessage], version: str | None = None) -> None:
    """Append one by one."""
    with writer(root, version) as open_store:
        for message in found:
            open_store.append(message)
        open_store.sync()


def contents(directory: Path) -> dict[str, bytes]:
    """Every file below a directory."""
    return {
        str(path.relative_to(directory)): path.read_bytes() for path in sorted(directory.rglob("*")) if path.is_file()
    }


def store_contents(root: Path) -> dict[str, bytes | list[bytes]]:
    """Every file of a store; index files in order, since the clock names them."""
    found: dict[str, bytes | list[bytes]] = {}
    index = []
    for name, data in contents(root).items():
        if name.startswith("index/"):
            index.append(data)
        else:
            found[name] = data
    return found | {"index": index}


def assert_whole(root: Path, config: BrokerConfig = TINY) -> None:
    """Every queue holds exactly the units that the records of the log make."""
    layout = Layout.open(root, config)
    dispatched = dispatch_columns(columns_of(layout), Dispatching(index_tags=False))
    units = dispatched.units
    expected: dict[tuple[str, int], list[tuple[int, ...]]] = {}
    rows = (units.queue_offset, units.physical_offset, units.size, units.tags_code)
    queues = zip(units.topic_id.tolist(), units.queue_id.tolist(), strict=True)
    for (topic_id, queue_id), row in zip(queues, np.stack(rows, axis=1).tolist(), strict=True):
        expected.setdefault((dispatched.topics[topic_id], queue_id), []).append(tuple(row))
    for topic, queue_id, _ in ConsumeQueues(layout):
        with ConsumeQueues(layout).open(topic, queue_id) as queue:
            summary = queue.summary()
            found = [
                (first + i, *unit)
                for first, window in queue.units(summary.min_offset, summary.max_offset)
                for i, unit in enumerate(window.tolist())
            ]
        assert found == expected.pop((topic, queue_id), []), f"{topic} queue {queue_id}"
    assert not expected, "queues that are missing"


def assert_refused(root: Path, error: type[StoreError], said: str, options: BrokerConfig | None = None) -> None:
    """Opening is refused and leaves every file and every time as it was."""
    before = contents(root) if root.is_dir() else {}
    times = {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))}
    with pytest.raises(error, match=said) as caught:
        writer(root, config=options or BrokerConfig())
    assert "\n" not in str(caught.value)
    assert str(root) in str(caught.value)
    if root.is_dir():
        assert contents(root) == before
        assert {path: path.stat().st_mtime_ns for path in sorted(root.rglob("*"))} == times
