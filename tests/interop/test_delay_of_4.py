"""A recovered delay level and the real store classes of 4.x, which deliver by themselves.

From 4.9.3 to 4.9.8 a plain tombstone would stop a level for ever (docs/recovery.md).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from mqstore.formats.tombstone import LOST
from mqstore.store.broker.system_topics import SCHEDULE_TOPIC

from .conftest import Judge
from .served import Row, body_sha1, loaded
from .test_brokers import LEVEL_MS, SIZES
from .test_system_topics import Corrupt, delivered, ends, recovered, spoilt, zeros

pytestmark = [pytest.mark.interop, pytest.mark.slow]

LEVELS = (1, 2)
#: Until the last of them is due, and the first ten seconds, in which 4.3 notes nothing, are over.
WAIT_MS = max(LEVEL_MS[level] for level in LEVELS) + 8_000

#: 4.3 notes how far it is now and then, and not when it stops: what it delivers again is its own.
OFTEN = {"flushDelayOffsetInterval": 1_000}


def life(judge: Judge, root: Path) -> list[Row]:
    """Let the store deliver what is due: every message of it then, without tombstones."""
    steps = ({"do": "wait", "ms": WAIT_MS}, {"do": "get"})
    found: list[Row] = loaded(judge, root, SIZES | OFTEN, *steps)["steps"][1]
    return [row for row in found if LOST not in row.get("properties", {})]


@spoilt
@pytest.mark.parametrize("old", ["4.3.1", "4.9.7"])
def test_delay_levels_go_on(oracle: Callable[[str], Judge], old: str, spoil: Corrupt, tmp_path: Path) -> None:
    judge, root = oracle(old), tmp_path / "store"
    bodies = [f"level {level}, {number}" for level in LEVELS for number in range(4)]
    place = {"topic": "orders", "queue_id": 1}
    messages = [
        place | {"body": body, "delay_level": int(body[6]), "unique_key": f"{number:032X}"}
        for number, body in enumerate(bodies)
    ]
    put = {"do": "put", "messages": messages}
    stored = loaded(judge, root, SIZES, put, exit="halt")["steps"][0]
    lost = [number for number, body in enumerate(bodies) if body.endswith("1")]
    recovered(root, spoil, *(stored[n] | {"total_size": stored[n]["size"]} for n in lost))
    wanted = Counter(body for number, body in enumerate(bodies) if number not in lost)
    for _ in range(2):
        got = [row for row in life(judge, root) if row["topic"] == "orders"]
        assert Counter(row["properties"]["REAL_QID"] for row in got) == {"1": len(wanted)}
        assert delivered(root) == wanted
    assert ends(root, SCHEDULE_TOPIC) == {level - 1: 4 for level in LEVELS}


@pytest.mark.parametrize("old", ["4.3.1", "4.9.7"])
def test_the_smallest_records(oracle: Callable[[str], Judge], old: str, tmp_path: Path) -> None:
    """Without a unique key there is no room for the form that the service discards."""
    judge, root = oracle(old), tmp_path / "store"
    place = {"topic": "t", "queue_id": 1, "delay_level": LEVELS[0]}
    put = {"do": "put", "messages": [place | {"body": str(number)} for number in range(5)]}
    stored = loaded(judge, root, SIZES, put, exit="halt")["steps"][0]
    recovered(root, zeros, *(stored[n] | {"total_size": stored[n]["size"]} for n in (0, 3)))
    wanted = sorted(body_sha1({"body": str(number)}) for number in (1, 2, 4))
    for _ in range(2):
        got = [row for row in life(judge, root) if row["topic"] == "t"]
        assert sorted(row["sha1"] for row in got) == wanted
    assert ends(root, SCHEDULE_TOPIC) == {LEVELS[0] - 1: 5}


def without_queue_id(record: bytearray) -> None:
    """Every broker still takes the record for good."""
    at = record.index(b"REAL_QID\x01")
    record[at : at + 4] = b"LEAR"


def test_a_level_goes_on_behind_a_message_without_its_queue(oracle: Callable[[str], Judge], tmp_path: Path) -> None:
    """4.9.7 delivers nothing behind it, and everything once `recover` has put a tombstone there."""
    judge, root = oracle("4.9.7"), tmp_path / "store"
    place = {"topic": "orders", "queue_id": 1, "delay_level": LEVELS[0]}
    put = {
        "do": "put",
        "messages": [place | {"body": str(number), "unique_key": f"{number:032X}"} for number in range(3)],
    }
    stored = loaded(judge, root, SIZES, put, exit="halt")["steps"][0]
    file, at = min((root / "commitlog").iterdir()), stored[0]["physical_offset"]
    record = bytearray(file.read_bytes()[at : at + stored[0]["size"]])
    without_queue_id(record)
    with file.open("r+b") as out:
        out.seek(at)
        out.write(record)
    assert [row for row in life(judge, root) if row["topic"] == "orders"] == []
    recovered(root, lambda record: None, stored[0] | {"total_size": stored[0]["size"]})
    got = sorted(row["sha1"] for row in life(judge, root) if row["topic"] == "orders")
    assert got == sorted(body_sha1({"body": str(number)}) for number in (1, 2))
