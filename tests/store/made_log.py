"""Commit logs made record by record with construct, and the slow and obvious way to read them.

Also the account of a scan: every byte of the log belongs to one record or one extent.
"""

from __future__ import annotations

import io
import random
import signal
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import construct as c

from mqstore.formats import dledger
from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.hashing import crc31
from mqstore.formats.message import MAGIC_V1, MAGIC_V2, MESSAGE, SysFlag
from mqstore.store.disk.file_queue import MappedFileQueue, file_name
from mqstore.store.log.batch import Batch, Extent, messages
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Mark

START_MS = 1_700_000_000_000
#: No scan of a log this small takes longer; one that does hangs.
PATIENCE_S = 60


def record(position: int, body: bytes = b"", **fields: Any) -> bytes:
    """One record that stands at `position`, with a body CRC that fits."""
    sys_flag = fields.get("sys_flag", 0)
    hosts = {
        name: {"ip": bytes(range(16 if sys_flag & bit else 4)), "port": 10911}
        for name, bit in (("born_host", SysFlag.BORN_V6), ("store_host", SysFlag.STORE_V6))
    }
    defaults = {
        "magic_code": MAGIC_V1,
        "body_crc": crc31(body) if body else 0,
        "queue_id": 0,
        "flag": 0,
        "queue_offset": 0,
        "physical_offset": position,
        "sys_flag": 0,
        "born_timestamp": START_MS,
        "store_timestamp": START_MS + position,
        "reconsume_times": 0,
        "prepared_transaction_offset": 0,
        "topic": b"T",
        "properties": b"",
    }
    return bytes(MESSAGE.build(defaults | hosts | fields | {"body": body}))


def entry(position: int, body: bytes = b"", **fields: Any) -> bytes:
    """A DLedger entry at `position` around one record."""
    numbers = dict.fromkeys(("index", "term", "channel", "chain_crc", "body_crc"), 0)
    inner = record(position + dledger.HEADER_BYTES, body, **fields)
    return bytes(dledger.ENTRY.build(numbers | {"magic": 1, "pos": position, "body": inner}))


@dataclass
class MadeLog:
    """Files of `file_size` bytes, all records in place; `spans` are (position, size)."""

    file_size: int
    around: int = 0
    files: list[bytearray] = field(default_factory=list)
    spans: list[tuple[int, int]] = field(default_factory=list)
    blanks: list[tuple[int, int]] = field(default_factory=list)
    end: int = 0

    def append(self, body: bytes, **fields: Any) -> int:
        """Append as a broker does: a BLANK and the next file where there is no room."""
        make = entry if self.around else record
        fields.setdefault("queue_offset", len(self.spans))
        data = make(self.end, body, **fields)
        room = -self.end % self.file_size or (0 if self.files else self.file_size)
        if not self.files or room < len(data) + BLANK.sizeof():
            if self.files and room:
                self._close(room)
            self.files.append(bytearray(self.file_size))
            data = make(self.end, body, **fields)
        at = self.end % self.file_size
        assert at + len(data) + BLANK.sizeof() <= self.file_size
        self.files[-1][at : at + len(data)] = data
        self.spans.append((self.end, len(data)))
        self.end += len(data)
        return self.spans[-1][0]

    def _close(self, room: int) -> None:
        at = self.file_size - room
        if self.around:
            blank = dledger.BLANK.build({"magic": dledger.MAGIC_BLANK, "size": room})
        else:
            blank = BLANK.build({"total_size": room, "magic_code": MAGIC_BLANK})
        self.files[-1][at : at + len(blank)] = blank
        self.blanks.append((self.end, room))
        self.end += room

    def write(self, folder: Path) -> Path:
        """Write the files into a folder (made where missing) and return it."""
        folder.mkdir(parents=True, exist_ok=True)
        for number, data in enumerate(self.files):
            (folder / file_name(number * self.file_size)).write_bytes(data)
        return folder

    def log(self, folder: Path) -> CommitLog:
        """Written and opened."""
        return log_of(self.write(folder), dledger=bool(self.around))


def log_of(folder: Path, *, dledger: bool = False) -> CommitLog:
    """The log whose files lie in one folder."""
    return CommitLog(MappedFileQueue.open(folder), folder if dledger else None)


def bodies(rng: random.Random, count: int, largest: int) -> Iterator[bytes]:
    """Bodies of all sizes, small ones more often; some empty, some zero, some of small numbers."""
    for _ in range(count):
        size = rng.choice([0, rng.randrange(40), rng.randrange(400), rng.randrange(largest)])
        kind = rng.randrange(4)
        if kind == 0:
            yield bytes(size)
        elif kind == 1:
            yield (b"\0\0\0\4" * (size // 4 + 1))[:size]
        else:
            yield rng.randbytes(size)


def made(rng: random.Random, *, count: int, file_size: int, around: int = 0) -> MadeLog:
    """A log of records of all shapes; some bodies hold whole records that name their own place."""
    log = MadeLog(file_size, around)
    for body in bodies(rng, count, file_size // 4):
        version_2 = rng.random() < 0.2
        fields: dict[str, Any] = {
            "topic": b"t" * (rng.randrange(1, 200) if version_2 else rng.randrange(1, 30)),
            "properties": b"KEYS\x01k%d\x02" % rng.randrange(99),
            "magic_code": MAGIC_V2 if version_2 else MAGIC_V1,
            "sys_flag": rng.choice([0, 0, 0, SysFlag.BORN_V6, SysFlag.BORN_V6 | SysFlag.STORE_V6]),
        }
        if rng.random() < 0.2:
            body = with_embedded(log, fields, rng.randrange(1, 4))
        log.append(body, **fields)
    return log


def with_embedded(log: MadeLog, fields: dict[str, Any], count: int) -> bytes:
    """A body of whole records (entries) at the very places that they name."""
    host_bytes = {0: 0, SysFlag.BORN_V6: 12}.get(fields["sys_flag"], 24)
    make = entry if log.around else record
    room = -log.end % log.file_size
    fakes = b""
    for start in (log.end, log.end + room):
        at = start + log.around + 88 + host_bytes
        fakes = b"front"
        for number in range(count):
            fakes += make(at + len(fakes), b"fake" * number, topic=b"fake", queue_offset=10**6)
        fakes += b"behind"
        if room >= len(fakes) + 600 or not log.files:
            break
    return fakes


# -- the slow and obvious way ------------------------------------------------------------------------


def naive_starts(data: bytes, around: int = 0) -> list[int]:
    """Where the whole records (entries) of a chain begin, from byte 0 on."""
    starts: list[int] = []
    stream, at = io.BytesIO(data), 0
    while True:
        try:
            if around:
                stream.seek(at)
                outer = dledger.ENTRY.parse_stream(stream)
            stream.seek(at + around)
            parsed = MESSAGE.parse_stream(stream)
        except c.ConstructError:
            return starts
        size = stream.tell() - at
        good = parsed.magic_code in (MAGIC_V1, MAGIC_V2) and parsed.total_size == size - around
        if around:
            good = good and outer.magic in (1, 2, 3) and outer.size == size
        if not good:
            return starts
        starts.append(at)
        at += size


# -- the account of a scan ---------------------------------------------------------------------------


@dataclass
class Account:
    """What a scan said of each record: position of the item → its size and mark; and the extents."""

    records: dict[int, tuple[int, Mark, bool | None]] = field(default_factory=dict)
    extents: list[Extent] = field(default_factory=list)

    def with_mark(self, *marks: Mark) -> list[int]:
        """Positions of the records with these marks."""
        return [position for position, (_, mark, _) in self.records.items() if mark in marks]


@contextmanager
def patience() -> Iterator[None]:
    """A scan that hangs becomes a failure."""

    def give_up(*_: object) -> None:
        raise TimeoutError(f"no end after {PATIENCE_S} s")

    before = signal.signal(signal.SIGALRM, give_up)
    signal.alarm(PATIENCE_S)
    try:
        yield
    finally:
        signal.alarm(0)
        signal.signal(signal.SIGALRM, before)


def account(log: CommitLog, *, around: int = 0, crc: bool = True) -> Account:
    """Scan, and make sure that every byte from the first file on is told once, in order.

    Embedded records lie inside the extent that is told behind them.
    """
    with patience():
        return _account(log, log.scan(crc=crc), around)


def _account(log: CommitLog, items: Iterable[Batch | Extent], around: int) -> Account:
    found = Account()
    at = log.min_offset
    embedded: list[int] = []
    for item in items:
        if isinstance(item, Extent):
            assert item.position == at, (item, at)
            assert item.size > 0, item
            at = item.end
            found.extents.append(item)
            assert all(item.position < position < item.end for position in embedded)
            embedded = []
            continue
        assert len(item)
        for message in messages(item):
            position = message.position - around
            assert position not in found.records
            size = message.total_size + around
            found.records[position] = (size, item.mark, message.body_crc_ok)
            if item.mark is Mark.EMBEDDED:
                embedded.append(position)
            else:
                assert position == at, (position, at)
                assert not embedded
                at += size
    assert not embedded
    assert at == log.max_file_end, (at, log.max_file_end)
    return found
