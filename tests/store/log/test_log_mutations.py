"""Logs of real brokers with some bytes changed: no crash, no hang, no false message.

A live record (unmarked or after damage) must stand where one stood before, with its size; if its body CRC fits it must
have its body, or that of the record it says it is. A record none of whose bytes changed must come out as it was.

Two things no reader can tell. A copy whose own bytes are torn may end where a good record begins: its body fails the
CRC, and it says that it is another one. A length of 0 for a body may make the rest of the record come out even: no
broker checks the CRC of a body that is empty.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

import pytest

from mqstore.formats import dledger
from mqstore.formats.blank import BLANK, MAGIC_BLANK
from mqstore.formats.commit_log import DLEDGER, PLAIN
from mqstore.store.log.batch import Batch
from mqstore.store.log.batch import messages as each
from mqstore.store.log.commit_log import CommitLog
from mqstore.store.log.message import Mark, Message
from mqstore.store.queues.references import commit_log_of
from tests.slices import SEED, rng, share

from ...stores import unpack
from ..made_log import account
from ..real_log import layout_of

#: Stores that differ in what their records look like.
NAMES = (
    *("4.3.1-clean", "4.9.7-ipv6", "4.9.7-dledger", "4.9.7-lmq", "5.1.4-v2", "5.3.3-batchcq"),
    *("5.3.3-dledger", "5.3.3-propcrc", "5.3.3-timer-clean", "5.5.0-ipv6", "5.5.0-propcrc"),
)
#: Bytes of the records that are kept of a log, and of the zeros behind them.
KEPT, BEHIND = 12_000, 3_000
LIVE = (Mark.NONE, Mark.AFTER_DAMAGE)
NUMBERS = (0, 1, 8, 47, 90, 91, 127, 128, 0x7FFF, 0xFFFF, 2**31 - 1, 2**31, 2**32 - 1, MAGIC_BLANK)


@dataclass(frozen=True)
class Real:
    """The front of a real log, and its records by the position of their item."""

    name: str
    data: bytes
    around: int
    records: dict[int, Message] = field(hash=False)

    def open(self, path: Path) -> CommitLog:
        """The log in a file."""
        return CommitLog.of_file(path, frame=DLEDGER if self.around else PLAIN)


@cache
def real(name: str, folder: Path) -> Real:
    """The first records of a store's first file; a BLANK behind them in every second store."""
    root = unpack(name, folder)
    log = commit_log_of(layout_of(name, root))
    around = dledger.HEADER_BYTES if "dledger" in name else 0
    records: dict[int, Message] = {}
    base = log.min_offset
    end = base
    for batch in log.scan():
        if isinstance(batch, Batch):
            for message in each(batch):
                size = message.total_size + around
                if message.position - around == end and end + size <= base + KEPT:
                    records[end] = message
                    end += size
    data = log.read(base, end - base)
    if NAMES.index(name) % 2 and not around:
        data += BLANK.build({"total_size": BEHIND, "magic_code": MAGIC_BLANK}).ljust(BEHIND, b"\0")
    else:
        data += bytes(BEHIND)
    assert len(records) > 5, name
    return Real(name, data, around, records)


def mutate(data: bytearray, places: list[int], chance: random.Random) -> tuple[int, int]:
    """One change; returns the range of bytes that it touched. It may cut the end off."""
    kind = chance.randrange(10)
    # heads are a small part of the bytes and all of the trouble
    at = chance.choice(places) + chance.randrange(140) if kind % 2 else chance.randrange(len(data))
    at = min(at, len(data) - 1)
    if kind in (0, 1, 2, 3):
        data[at] ^= 1 << chance.randrange(8)
        return at, at + 1
    if kind == 4:
        end = min(at + chance.randrange(1, 4096), len(data))
        data[at:end] = bytes(end - at)
    elif kind == 5:
        end = min(at + 4, len(data))
        data[at:end] = chance.choice(NUMBERS).to_bytes(4, "big")[: end - at]
    elif kind == 6:
        end = min(at + chance.randrange(1, 300), len(data))
        data[at:end] = chance.randbytes(end - at)
    elif kind == 7:
        end = min(at + chance.randrange(1, 9), len(data))
        data[at:end] = chance.choice([b"\0", b"\xff", b"\x01", b"\x7f", b"\xda"]) * (end - at)
    elif kind == 8:
        end = len(data)
        del data[at:]
    else:  # a piece of the log once more
        source = chance.choice(places)
        piece = data[source : source + chance.randrange(1, 2000)]
        at = chance.choice([at, chance.choice(places)])
        end = min(at + len(piece), len(data))
        data[at:end] = piece[: end - at]
    return at, end


def check(log: Real, path: Path, chance: random.Random, what: str) -> None:
    """Mutate, scan, judge."""
    data = bytearray(log.data)
    base = next(iter(log.records))
    places = [position - base for position in log.records]
    changes = chance.choice([1, 1, 1, 2, 3])
    touched = [mutate(data, places, chance) for _ in range(changes) if data]
    path.write_bytes(data)
    what = f"seed {SEED}, {what}, {log.name}, bytes {touched}"
    try:
        opened = CommitLog.of_file(path, frame=DLEDGER if log.around else PLAIN)
        opened.queue.files[0] = opened.queue.files[0]._replace(start=base)
        account(opened, around=log.around)
        delivered = [m for i in opened.scan() if isinstance(i, Batch) for m in each(i)]
        opened.queue.close()
    except Exception as error:
        raise AssertionError(what) from error
    by_place = {message.position - log.around: message for message in delivered}
    for position, message in by_place.items():
        original = log.records.get(position)
        if original is None:
            told = not message.body_crc_ok and message.physical_offset != message.position
            assert told or message.mark not in LIVE, f"{what}: a false message at {position}"
        elif message.mark in LIVE:
            assert message.total_size == original.total_size, f"{what}: another size at {position}"
            if message.body_crc_ok and (message.stored_body or not message.body_crc):
                # a copy over a record of its size belongs to the log, and says where it is from
                source = log.records.get(message.physical_offset - log.around, original)
                bodies = (original.stored_body, source.stored_body)
                assert message.stored_body in bodies, f"{what}: another body"
        if original is None or message != original:
            assert message.to_json()["type"] == "message"
    for position, original in log.records.items():
        first, end = position - base, position - base + original.total_size + log.around
        if any(a < end and b > first for a, b in touched) or end > len(data):
            continue
        found = by_place.get(position)
        if changes == 1:
            assert found is not None, f"{what}: {position} lost"
            assert found.mark in LIVE, f"{what}: {position} is {found.mark.name}"
            assert found._replace(mark=Mark.NONE) == original, f"{what}: {position} differs"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("real logs")


@pytest.mark.few(1)
@pytest.mark.parametrize("name", NAMES)
def test_some_mutations(name: str, folder: Path, tmp_path: Path) -> None:
    log, chance = real(name, folder), random.Random(name)
    for number in range(40):
        check(log, tmp_path / "log", chance, f"case {number}")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_many_mutations(name: str, folder: Path, tmp_path: Path) -> None:
    """200,000 in all."""
    log, chance = real(name, folder), rng(f"mutations of {name}")
    for number in range(share(200_000 // len(NAMES) + 1)):
        check(log, tmp_path / "log", chance, f"case {number}")
