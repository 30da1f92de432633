"""Lengths of 2 GiB and more, bombs, endless JSON: little memory, an end, and no crash.

The commands run in a process with a hard limit of memory beyond what its imports take.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import construct as c
import lz4.frame
import pytest
import zstandard

from mqstore.formats import (
    batch_consume_queue,
    checkpoint,
    consume_queue,
    consume_queue_ext,
    dledger,
    index_file,
    message,
    timer_log,
    timer_wheel,
)
from mqstore.formats.derive import spans
from mqstore.formats.message import SysFlag

from .. import stores
from ..slices import pick
from ..store.made_log import MadeLog
from .hostile import TEXTS, Job, check_terminal, mq, run_limited

pytestmark = pytest.mark.long

MEGABYTES = 384
"""Less than any of the lengths, more than a command needs for the largest file here."""

SLOTS = 97
"""Slots of the index files in these stores (maxHashSlotNum)."""


class Place(NamedTuple):
    """A record in the first file of a part of a store."""

    store: str
    part: str
    schema: c.Construct[Any, Any]
    at: int = 0


TIMER = "5.3.3-timer-clean"
PLACES = (
    Place(TIMER, "commitlog", message.MESSAGE),
    Place(TIMER, "consumequeue", consume_queue.UNIT),
    Place(TIMER, "index", index_file.HEADER),
    Place(TIMER, "index", index_file.ITEM, index_file.items_offset(SLOTS) + index_file.ITEM_BYTES),
    Place(TIMER, "checkpoint", checkpoint.FIELDS),
    Place(TIMER, "timerlog", timer_log.UNIT),
    Place(TIMER, "timerlog", timer_log.UNIT, timer_log.UNIT_BYTES),
    Place(TIMER, "timerwheel", timer_wheel.SLOT),
    Place("5.3.3-dledger", "dledger-n0/data", dledger.ENTRY),
    Place("5.3.3-dledger", "dledger-n0/data", message.MESSAGE, dledger.HEADER_BYTES),
    Place("5.3.3-batchcq", "batchconsumequeue", batch_consume_queue.UNIT),
    Place("4.9.7-cqext", "consumequeue_ext", consume_queue_ext.UNIT),
)


def first_file(root: Path, part: str) -> Path:
    """The first file of a part that is not empty."""
    path = root / part
    return path if path.is_file() else next(p for p in sorted(path.rglob("*")) if p.is_file())


def liars(size: int) -> list[bytes]:
    """The largest and the smallest numbers of so many bytes, and one that fits in no memory."""
    ones = b"\xff" * (size - 1)
    return [b"\x7f" + ones, b"\x80" + bytes(size - 1), b"\xff" + ones, b"\x40" + bytes(size - 1)]


def lies(root: Path, place: Place, count: int) -> Iterator[tuple[str, int, bytes]]:
    """Each number of a record as `count` lies: file, offset, bytes."""
    path = first_file(root, place.part)
    with path.open("rb") as file:
        file.seek(place.at)
        head = file.read(4096)
    for span in spans(place.schema, head):
        if isinstance(span.value, int):
            for data in liars(span.length)[:count]:
                yield str(path), place.at + span.offset, data


def commands(root: Path, part: str, settings: list[str]) -> list[list[str]]:
    """What looks at a part, alone and with the whole store."""
    store = str(root)
    topic = next((p.name for p in sorted((root / "consumequeue").iterdir())), "T")
    words = [
        ["inspect", store],
        ["dump", store, "--count", "3"],
        ["dump", store, "--hex", "--count", "1"],
        ["inspect", f"{store}/{part}"],
        ["dump", f"{store}/{part}", "--format", "json"],
        ["get", store, "--topic", topic, "--key", "k"],
        ["get", store, "--topic", topic, "--queue", "0", "--offset", "0"],
        ["get", store, "--topic", topic, "--queue", "0", "--offset-at", "yesterday"],
        ["get", store, "--where", "a > 1", "--since", "-1h"],
        ["recover", store, "--broker-version", "5.3"],
    ]
    return [[*command, *settings] for command in words]


def lie_in(name: str, folder: Path, count: int, some: Callable[[list[Job]], list[Job]]) -> None:
    """Run all commands on a store for each of some lies."""
    root = stores.unpack(name, folder)
    assert int(stores.config(name, root)["maxHashSlotNum"]) == SLOTS
    settings = [w for s in stores.config_set(name, root) for w in ("--set", s)]
    jobs = [
        Job(commands(root, place.part, settings), *lie)
        for place in PLACES
        if place.store == name
        for lie in lies(root, place, count)
    ]
    chosen = some(jobs)
    for job, answers in zip(chosen, run_limited(chosen, MEGABYTES), strict=True):
        for command, (code, stderr) in zip(job.commands, answers, strict=True):
            assert code in (0, 1, 3, 5), (job[1:], command, stderr)


NAMES = tuple(dict.fromkeys(place.store for place in PLACES))


def test_some_numbers_say_that_they_are_the_largest(tmp_path: Path) -> None:
    """Lengths, counts, offsets, times: 2 GiB, or exbibytes."""
    lie_in(TIMER, tmp_path, 1, lambda jobs: jobs[::64])


@pytest.mark.slow
@pytest.mark.parametrize("name", pick(NAMES, "lying numbers"))
def test_every_number_lies(name: str, tmp_path: Path) -> None:
    """Negative ones, too, and 1 GiB."""
    lie_in(name, tmp_path, 4, lambda jobs: pick(jobs, f"lies in {name}", 10))


# -- bombs -------------------------------------------------------------------------------------------

BOMB_BYTES = 192 << 20
SMALL = ["--set", f"mappedFileSizeCommitLog={1 << 20}"]
_CHUNK = bytes(1 << 20)


def _zlib() -> bytes:
    packer = zlib.compressobj(9)
    parts = [packer.compress(_CHUNK) for _ in range(BOMB_BYTES // len(_CHUNK))]
    return b"".join(parts) + packer.flush()


def _lz4() -> bytes:
    packer = lz4.frame.LZ4FrameCompressor()
    parts = [packer.begin(), *(packer.compress(_CHUNK) for _ in range(BOMB_BYTES // len(_CHUNK)))]
    return b"".join(parts) + bytes(packer.flush())


def _zstd() -> bytes:
    packer = zstandard.ZstdCompressor(1).compressobj()
    parts = [packer.compress(_CHUNK) for _ in range(BOMB_BYTES // len(_CHUNK))]
    return b"".join(parts) + packer.flush()


def _wide_zstd() -> bytes:
    """A few bytes that want a window of 2 GiB."""
    wide = zstandard.ZstdCompressionParameters(window_log=31, compression_level=1)
    packer = zstandard.ZstdCompressor(compression_params=wide).compressobj()
    return packer.compress(b"small") + packer.flush()


def _claiming_zstd() -> bytes:
    """A frame whose header promises exbibytes."""
    return b"\x28\xb5\x2f\xfd\xe0" + b"\xff" * 7 + b"\x0f" + b"\x01\x00\x00"


BOMBS: dict[str, tuple[int, Callable[[], bytes]]] = {
    "zlib": (SysFlag.COMPRESSED | SysFlag.ZLIB, _zlib),
    "lz4": (SysFlag.COMPRESSED | SysFlag.LZ4, _lz4),
    "zstd": (SysFlag.COMPRESSED | SysFlag.ZSTD, _zstd),
    "wide zstd": (SysFlag.COMPRESSED | SysFlag.ZSTD, _wide_zstd),
    "claiming zstd": (SysFlag.COMPRESSED | SysFlag.ZSTD, _claiming_zstd),
}


@pytest.mark.few(1)
@pytest.mark.parametrize(
    "name", [pytest.param(n, marks=pytest.mark.slow if n in ("lz4", "zstd") else ()) for n in BOMBS]
)
def test_a_bomb_is_shown_as_stored(name: str, tmp_path: Path) -> None:
    """A body that unpacks to more than --max-body, which is bounded in memory, too."""
    sys_flag, make = BOMBS[name]
    body = make()
    log = MadeLog(1 << 20)
    log.append(body, sys_flag=sys_flag, topic=b"T", properties=b"KEYS\x01k\x02")
    log.write(tmp_path / "commitlog")
    store = str(tmp_path)
    words = [
        *(["dump", store, "--format", format] for format in ("text", "json", "csv")),
        *(["get", store, "--at", "0", "--format", format] for format in ("ndjson", "body", "hex")),
        ["get", store, "--grep", "nothing"],
        ["dump", store, "--max-body", "1000"],
        ["get", store, "--at", "0", "--max-body", str(1 << 20)],
    ]
    (answers,) = run_limited([Job([[*each, *SMALL] for each in words])], MEGABYTES)
    assert [code for code, _ in answers] == [0, 0, 0, 0, 0, 0, 1, 0, 0], answers
    row = json.loads(mq("get", store, "--at", "0", "--format", "ndjson", *SMALL, sizes=False).stdout)
    assert "body_error" in row or name == "wide zstd", row
    stored = base64.b64decode(row["body_base64"]) if "body_base64" in row else row["body"].encode()
    assert stored in (body, b"small")


# -- configuration -----------------------------------------------------------------------------------


def _nested(open_: str, close: str) -> str:
    return open_ * (5 << 20) + close * (5 << 20)


CONFIGS: dict[str, Callable[[], str]] = {
    "nested lists": lambda: _nested("[", "]"),
    "nested a little": lambda: "[" * 5000 + "]" * 5000,
    "nested objects": lambda: '{"a":' * (1 << 20) + "1" + "}" * (1 << 20),
    "open lists": lambda: "[" * (10 << 20),
    "nested in the table": lambda: '{"topicConfigTable":' + _nested("[", "]") + "}",
    "quotes without an end": lambda: '{"' + '\\"' * (1 << 20),
    "digits": lambda: '{"offsetTable":{' + "9" * (1 << 20) + ":" + "9" * (1 << 20) + "}}",
    "spaces": lambda: "{" + " " * (2 << 20) + "1",
    "commas": lambda: "{" + "," * (2 << 20),
    "duplicate keys": lambda: (
        '{"topicConfigTable":{"T":{"topicName":"T"},"T":[]},"topicConfigTable":[],'
        '"topicConfigTable":{},"offsetTable":{"T@g":{0:1,0:2}},"offsetTable":[]}'
    ),
    "not what it should be": lambda: (
        '{"topicConfigTable":{"T":null,"U":7,"V":{"attributes":[]}},"dataVersion":{},'
        '"offsetTable":{"T@g":[1],"U@g":{"x":"y"}},"delayLevel":5,"delayOffset":9}'
    ),
    "hostile names": lambda: json.dumps(
        {"topicConfigTable": dict.fromkeys(TEXTS), "offsetTable": {f"{t}@{t}": {} for t in TEXTS}}
    ),
    "constants": lambda: '{"topicConfigTable":NaN,"offsetTable":Infinity,"dataVersion":-Infinity}',
    "halves": lambda: '{"topicConfigTable":{"\\ud800":{"topicName":"\\ud800"}}}',
    "lines that go on": lambda: "a\\\n" * (1 << 20),
    "no text": lambda: "\udcff\udcfe\0" * 1000,
}


QUICK = ("nested a little", "duplicate keys")


@pytest.mark.few(1)
@pytest.mark.parametrize("what", QUICK)
def test_a_configuration_that_does_harm(what: str, tmp_path: Path) -> None:
    """Every JSON file of config/ is that, and so is broker.conf."""
    meet(CONFIGS[what](), tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("what", pick(tuple(CONFIGS), "harmful configurations"))
def test_more_configurations_that_do_harm(what: str, tmp_path: Path) -> None:
    meet(CONFIGS[what](), tmp_path)


def meet(config: str, folder: Path) -> None:
    """Run all commands on a store with such a configuration."""
    root = stores.unpack(TIMER, folder)
    settings = [w for s in stores.config_set(TIMER, root) for w in ("--set", s)]
    data = config.encode("utf-8", "surrogateescape")
    for path in sorted((root / "config").iterdir()):
        if ".json" in path.name:
            path.write_bytes(data)
    conf = folder / "broker.conf"
    conf.write_bytes(data)
    store = str(root)
    words = [
        ["inspect", store],
        ["get", store, "--topic", "*", "--limit", "1"],
        ["recover", store, "--broker-version", "5.3"],
        ["dump", f"{store}/config/topics.json"],
        ["inspect", f"{store}/config/consumerOffset.json"],
        ["inspect", store, "--broker-config", str(conf)],
        ["put", store, "Fresh", "x"],
    ]
    (answers,) = run_limited([Job([[*each, *settings] for each in words])], MEGABYTES + 256)
    for command, (code, stderr) in zip(words, answers, strict=True):
        assert code in (0, 1, 2, 3, 5), (command, code, stderr[:500])
        check_terminal(stderr)
