"""Numbers in the properties of a record: at one that Java cannot read a broker's log ends, as we say.

A message is put whose property has another name of the same length; then its name is written over.
"""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from mqstore.store.broker.system_topics import SCHEDULE_TOPIC

from .conftest import Judge
from .random_cases import RandomCase, RandomStore, victim_of
from .served import SIZES, Row, body_sha1, loaded, mqstore, settings
from .test_same_bytes import START_MS

pytestmark = pytest.mark.interop

CONFIG = {name: str(value) for name, value in SIZES.items()}
STRANGE = 3
"""The record that has the number, of five."""
PLAIN = {"DELAY": "DELAX", "INNER_NUM": "INNER_NUX", "INNER_BASE": "INNER_BASX"}
WAITING = {"topic": SCHEDULE_TOPIC}
PLACE = {"REAL_TOPIC": "orders", "REAL_QID": "0"}

#: Topic and properties; whether the log ends there for brokers of 4.x and of 5.x.
NUMBERS: dict[str, tuple[Row, dict[str, str], bool, bool]] = {
    "level": (WAITING, {"DELAY": "2"}, False, False),
    "level-with-sign": (WAITING, {"DELAY": "+2"}, False, False),
    "level-of-another-script": (WAITING, {"DELAY": "\u0662"}, False, False),
    "level-of-letters": (WAITING, {"DELAY": "x"}, True, True),
    "level-with-blank": (WAITING, {"DELAY": "2 "}, True, True),
    "level-too-large": (WAITING, {"DELAY": "2147483648"}, True, True),
    "level-elsewhere": ({"topic": "orders"}, {"DELAY": "x"}, False, False),
    "batch": ({}, {"INNER_NUM": "2", "INNER_BASE": "5"}, False, False),
    "batch-without-base": ({}, {"INNER_NUM": "x"}, False, False),
    "batch-of-letters": ({}, {"INNER_NUM": "x", "INNER_BASE": "5"}, False, True),
    "batch-too-large": ({}, {"INNER_NUM": "32768", "INNER_BASE": "5"}, False, True),
    "base-of-letters": ({}, {"INNER_NUM": "2", "INNER_BASE": "x"}, False, True),
    "base-too-large": ({}, {"INNER_NUM": "2", "INNER_BASE": "9" * 19}, False, True),
}


def written(judge: Judge, root: Path, own: Row, properties: dict[str, str], exit: str) -> tuple[RandomStore, int]:
    """Five records, one of them with the properties; its position, too."""
    rows: list[Row] = [
        {"topic": "orders", "queue_id": 0, "body": f"m{n}", "store_timestamp": START_MS + n} for n in range(5)
    ]
    properties = (PLACE if own is WAITING else {}) | properties
    rows[STRANGE] |= own | {"properties": {PLAIN.get(name, name): value for name, value in properties.items()}}
    put = {"do": "put", "messages": rows}
    stored = loaded(judge, root, CONFIG, put, exit=exit, files="none")["steps"][0]
    log = root / "commitlog" / f"{0:020d}"
    data = log.read_bytes()
    for name in properties.keys() & PLAIN:
        assert data.count(PLAIN[name].encode()) == 1
        data = data.replace(PLAIN[name].encode(), name.encode())
    log.write_bytes(data)
    store = RandomStore("plain", exit, victim_of(root, stored, CONFIG), CONFIG, {}, True)
    return store, int(stored[STRANGE]["physical_offset"])


@pytest.mark.few(2)
@pytest.mark.parametrize("exit", ["clean", "halt"])
@pytest.mark.parametrize("name", list(NUMBERS))
def test_the_log_ends_at_a_number_that_is_none(judge: Judge, name: str, exit: str, tmp_path: Path) -> None:
    own, properties, ends_4, ends_5 = NUMBERS[name]
    root = tmp_path / "undamaged"
    store, position = written(judge, root, own, properties, exit)
    seen = RandomCase(judge.version, 0, store, (), tmp_path).judged(judge)
    assert not seen.differences, seen.answer["log"]
    ends = ends_4 if judge.version.startswith("4") else ends_5
    assert (seen.outcome.log_end == position) is ends, seen.answer["log"]


@pytest.mark.few(2)
@pytest.mark.parametrize("name", [name for name, (_, _, _, ends) in NUMBERS.items() if ends])
def test_the_number_is_put_right(judge: Judge, name: str, tmp_path: Path) -> None:
    """By `recover`, as the queue tells it: the broker finds nothing left to do, and serves every message."""
    own, properties, *_ = NUMBERS[name]
    root = tmp_path / "store"
    written(judge, root, own, properties, "halt")
    shutil.rmtree(root / "consumequeue" / SCHEDULE_TOPIC, ignore_errors=True)  # its unit was made of another DELAY
    mqstore("recover", root, "--apply", "--yes", "--broker-version", judge.version, *settings(CONFIG))
    mqstore("verify", root, "--broker-version", judge.version, *settings(CONFIG))
    answer = loaded(judge, root, CONFIG, {"do": "get"})
    bodies = {m["sha1"] for m in answer["steps"][0] if m.get("topic") == own.get("topic", "orders") and "sha1" in m}
    assert body_sha1({"body": f"m{STRANGE}"}) in bodies
    bodies = {m["sha1"] for m in answer["steps"][0] if "sha1" in m}
    assert bodies >= {body_sha1({"body": f"m{n}"}) for n in range(5)}
