"""`mqstore put` writes the bytes that the real broker writes for the same messages.

The broker writes a store, `dump` prints it, `put` makes a new store of that: log, queues and index
have to be the same files.
"""

from __future__ import annotations

import base64
import random
import shutil
from pathlib import Path
from typing import Any

import pytest

from tests.slices import SEED, rng, share

from .conftest import Judge
from .served import SIZES, Row, as_broker, broker_put, message, mqstore, put, rows, settings

pytestmark = pytest.mark.interop

#: Far from now: nothing of it is due while the test runs.
START_MS = 1_990_000_000_000
HOST = "10.0.0.2:10911"
ROUNDS = 60
MESSAGES = 90

COMPRESSED, PREPARED, COMMIT, ROLLBACK = 0x1, 0x4, 0x8, 0xC


def random_message(number: int, chance: random.Random, version: str) -> Row:
    """Whatever a broker of that version takes: sizes, flags, hosts, names, properties."""
    old = version.startswith("4.3")
    topics = ["orders", "a", "%RETRY%group", "T" * 127, "x_y-z|%"]
    if version.startswith("5"):
        topics.append("long_" + "z" * 200)
    row: Row = {
        "topic": chance.choice(topics),
        "queue_id": chance.choice((0, 0, 1, 7)),
        "flag": chance.randint(-(2**31), 2**31 - 1),
        "sys_flag": chance.choice((0, 0, 0, COMPRESSED, PREPARED, COMMIT, ROLLBACK)),
        "born_timestamp": START_MS - chance.randrange(10**6),
        "born_host": f"192.168.{chance.randrange(256)}.9:{chance.randrange(65536)}",
        "reconsume_times": chance.randrange(17),
        "prepared_transaction_offset": chance.choice((0, chance.randrange(10**9))),
        "store_timestamp": START_MS + number * chance.choice((0, 1, 1500)),
        "body_base64": base64.b64encode(chance.randbytes(chance.choice((0, 1, 40, 900)))).decode(),
    }
    if not old and chance.random() < 0.2:
        row["born_host"] = f"[2001:db8::{chance.randrange(9999):x}]:40000"
    if row["topic"] == "orders" and row["sys_flag"] == 0 and chance.random() < 0.2:
        row["delay_level"] = chance.choice((16, 17, 18, 30))
    return row | {"properties": random_properties(number, chance)}


def random_properties(number: int, chance: random.Random) -> dict[str, str]:
    """Keys, tags and others; some properties come out of Java's hash map in an odd order."""
    found = {"UNIQ_KEY": f"{number:032X}"}
    if chance.random() < 0.7:
        found["TAGS"] = chance.choice(("a", "标签", "Aa", "BB", "tag with blank", ""))
    if chance.random() < 0.7:
        found["KEYS"] = chance.choice(("k", "k1 k2", "ключ", " k ", "k1  k1", "x" * 90))
    for name in chance.sample(("region", "WAIT", "CLUSTER", "p1", "价格", "z" * 50), 3):
        found[name] = chance.choice(("1", "v" * 30, "中国", "a=b"))
    return found


def files(folder: Path, *, numbered: bool) -> dict[str, bytes]:
    """Path below the folder → bytes, without files that a broker made ahead of need.

    `numbered`: the names are times, so their order counts.
    """
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    names = [str(n if numbered else path.relative_to(folder)) for n, path in enumerate(paths)]
    read = {name: path.read_bytes() for name, path in zip(names, paths, strict=True)}
    return {name: data for name, data in read.items() if any(data)}


def difference(theirs: Path, ours: Path) -> str:
    """What is not the same in two stores; empty where nothing is."""
    for folder in ("commitlog", "consumequeue", "batchconsumequeue", "index"):
        left, right = (files(root / folder, numbered=folder == "index") for root in (theirs, ours))
        if left.keys() != right.keys():
            return f"{folder}: {sorted(left)} became {sorted(right)}"
        for name, data in left.items():
            other = right[name]
            if data != other:
                at = next(i for i in range(len(data)) if data[i : i + 1] != other[i : i + 1])
                return f"{folder}/{name} at {at}: {data[at : at + 24].hex()} became {other[at : at + 24].hex()}"
    return ""


def written_twice(judge: Judge, folder: Path, messages: list[Row], config: dict[str, Any], *options: str) -> str:
    """Written by the broker, dumped, and written again by us: what differs."""
    theirs, ours = folder / "theirs", folder / "ours"
    for root in (theirs, ours):
        shutil.rmtree(root, ignore_errors=True)
    broker_put(judge, theirs, messages, config)
    dumped = mqstore("dump", theirs, "--format", "ndjson", "--raw", *settings(config))
    assert len(messages_of(dumped)) == len(messages)
    mqstore(
        *("put", str(ours), "--from", "-", "--keep-times", *as_broker(judge.version)),
        *settings(config),
        *options,
        stdin=dumped,
    )
    return difference(theirs, ours)


def messages_of(dumped: str) -> list[Row]:
    """The messages of a dump."""
    return [row for row in rows(dumped) if row["type"] == "message"]


def test_the_brokers_bytes(judge: Judge, version: str, tmp_path: Path) -> None:
    chance = random.Random(f"bytes {version}")
    messages = [random_message(n, chance, version) for n in range(2 * MESSAGES)]
    assert not written_twice(judge, tmp_path, messages, SIZES, "--store-host", HOST)


@pytest.mark.parametrize("version", ["4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0", "5.5.1"], scope="session")
def test_the_brokers_bytes_over_ipv6(judge: Judge, version: str, tmp_path: Path) -> None:
    chance = random.Random(f"ipv6 {version}")
    host = "[fe80::1]:10911"
    messages = [random_message(n, chance, version) | {"store_host": host} for n in range(MESSAGES)]
    assert not written_twice(judge, tmp_path, messages, SIZES, "--store-host", host)


def test_the_brokers_bytes_with_property_crc(judge: Judge, version: str, tmp_path: Path) -> None:
    """Brokers before 5.2 do not know the option, and neither does `put` as one of them."""
    config = SIZES | {"enabledAppendPropCRC": "true"}
    chance = random.Random(f"crc {version}")
    messages = [random_message(n, chance, version) for n in range(MESSAGES)]
    assert not written_twice(judge, tmp_path, messages, config, "--store-host", HOST)


def test_the_brokers_bytes_over_two_lives(judge: Judge, version: str, tmp_path: Path) -> None:
    """A broker that starts again has nothing of earlier records in memory, and neither has `put`."""
    theirs, ours = tmp_path / "theirs", tmp_path / "ours"
    sizes = (900, 20, 15_000)  # the last one closes the file
    messages = [
        message(number) | {"store_timestamp": START_MS, "body_base64": "vvvv" * (size // 3)}
        for number, size in enumerate(sizes)
    ]
    for part in (messages[:1], messages[1:]):
        broker_put(judge, theirs, part, SIZES)
    dumped = messages_of(mqstore("dump", theirs, "--format", "ndjson", "--raw", *settings(SIZES)))
    for lines in (dumped[:1], dumped[1:]):
        put(ours, lines, SIZES, "--keep-times", "--store-host", HOST, *as_broker(version))
    assert not difference(theirs, ours)


@pytest.mark.slow
def test_the_brokers_bytes_for_anything(judge: Judge, version: str, tmp_path: Path) -> None:
    for number in range(share(ROUNDS)):
        name = f"{version} bytes {number}"
        chance = rng(name)
        messages = [random_message(n, chance, version) for n in range(MESSAGES)]
        wrong = written_twice(judge, tmp_path, messages, SIZES, "--store-host", HOST)
        assert not wrong, f"seed {SEED}, {name}: {wrong}"
