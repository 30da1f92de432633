"""Consume queues against the log: what is damage, what a cut or a kill leaves, what is asked for."""

from __future__ import annotations

import json
import os
import shutil
from collections import Counter
from itertools import pairwise, product
from pathlib import Path
from random import Random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mqstore.formats.consume_queue import UNIT, UNIT_BYTES
from mqstore.store.broker.snapshot import QueueId
from mqstore.store.columns import Ranges
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.findings.catalogue import Severity
from mqstore.store.findings.findings import Finding
from mqstore.store.search.store import StoreReader
from mqstore.store.verify.context import Scope
from mqstore.store.verify.run import verify

from ... import slices
from ...stores import config
from ..recover.recovered import planned, started
from .mutations import NOW_MS, copied, original

CLEAN = "5.3.3-clean"
GROUPS = frozenset({"consume_queue"})


@pytest.fixture(scope="module")
def work(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where stores are unpacked and damaged."""
    return tmp_path_factory.mktemp("queues")


def _findings(name: str, root: Path, **scope: object) -> list[Finding]:
    """What group C says of a store."""
    with StoreReader(root, BrokerConfig(config(name, root))) as store:
        asked = Scope(groups=GROUPS, **scope)  # type: ignore[arg-type]
        return verify(store, asked, now_ms=NOW_MS).findings


def _levels(findings: list[Finding]) -> dict[str, set[Severity]]:
    found: dict[str, set[Severity]] = {}
    for finding in findings:
        found.setdefault(finding.code, set()).add(finding.severity)
    return found


def _queue_file(root: Path, topic: str, queue_id: int, number: int = 0) -> Path:
    return sorted((root / "consumequeue" / topic / str(queue_id)).iterdir())[number]


RESTARTED = {
    "4.9.7-killed-bit-restarted": (Severity.FATAL, Severity.INFO),
    "5.3.3-killed-page-restarted": (Severity.FATAL, Severity.INFO),
    "4.3.1-killed-bit-restarted": (Severity.ERROR, Severity.WARNING),  # there all of them come back (B21)
}


@pytest.mark.parametrize("name", RESTARTED)
def test_of_the_units_that_a_cut_has_left_only_those_that_a_start_keeps_are_damage(name: str, work: Path) -> None:
    """Where new records have come so far that a unit begins in one of them."""
    root = original(name, work)
    found = _findings(name, root)
    kept, others = Counter[QueueId](), set[Severity]()
    for finding in found:
        if finding.code not in ("I-062", "I-067"):
            continue
        over = finding.code == "I-067" and "ends behind it" in finding.message
        if over or "names no message" in finding.message:
            assert finding.severity is (RESTARTED[name][0] if over else Severity.ERROR)
            kept[QueueId(finding.topic or "", finding.queue_id or 0)] += finding.count
        else:
            others.add(finding.severity)
    assert others == {RESTARTED[name][1]}
    options, version = BrokerConfig(config(name, root)), name[:5]
    plan, outcome = planned(root, options, version), started(root, options, version)
    ahead = {row.queue: outcome.queues[row.queue].max_offset - row.max_offset for row in plan.queues}
    ahead = {queue: count for queue, count in ahead.items() if count}
    if version == "4.3.1":
        assert all(ahead[queue] >= count for queue, count in kept.items())
    else:
        assert ahead == kept


@pytest.mark.parametrize(("back", "code"), [(200, "I-062"), (100, "I-067"), (0, "I-067")])
def test_a_start_asks_where_a_unit_begins(back: int, code: str, work: Path) -> None:
    """It keeps one that begins before the log's end, and counts on behind it; also where that is the last record's."""
    root = copied(original(CLEAN, work), work)
    with _queue_file(root, "orders", 3).open("r+b") as file:
        file.seek(17 * UNIT_BYTES)
        file.write(UNIT.build({"physical_offset": 409_601 - back, "size": 135, "tags_code": 100}))
    found = _findings(CLEAN, root)
    wanted = {200: Severity.ERROR, 100: Severity.FATAL, 0: Severity.INFO}[back]
    assert _levels(found) == {code: {wanted}, "I-075": {Severity.INFO}}
    [told] = (f.message for f in found if f.code == code)
    assert ("a broker cuts it" in told, "a broker keeps it" in told) == (not back, bool(back))
    assert ("may get no unit" in told) == (back == 100)


def test_units_of_a_lost_log_file_are_damage(work: Path) -> None:
    levels = _levels(_findings("4.9.7-killed-hole", original("4.9.7-killed-hole", work)))
    assert levels["I-067"] == {Severity.FATAL}


def test_what_was_not_dispatched_before_a_kill_is_only_unclean(work: Path) -> None:
    findings = _findings("5.1.4-killed", original("5.1.4-killed", work))
    assert {(f.code, f.severity, f.unclean) for f in findings} == {
        ("I-070", Severity.INFO, True),
        ("I-075", Severity.INFO, True),
    }


def test_units_torn_out_of_the_middle_are_damage_even_then(work: Path) -> None:
    findings = _findings("4.9.7-killed-queue", original("4.9.7-killed-queue", work))
    wrong = [(f.code, f.topic, f.queue_id, f.count) for f in findings if not f.unclean]
    assert wrong == [("I-061", "logs", 0, 3), ("I-070", "logs", 0, 3)]


def test_a_topic_that_was_deleted_owes_no_units(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    shutil.rmtree(root / "consumequeue" / "payments")
    damaged = _levels(_findings(CLEAN, root))
    assert damaged == {"I-070": {Severity.ERROR}}
    path = root / "config" / "topics.json"
    topics = json.loads(path.read_text("utf-8"))
    del topics["topicConfigTable"]["payments"]
    path.write_text(json.dumps(topics), "utf-8")
    assert _levels(_findings(CLEAN, root)) == {"I-070": {Severity.WARNING}}


def test_a_shifted_queue_is_told_as_one_shift_and_one_message_without_unit(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    directory = root / "consumequeue" / "logs" / "0"
    files = sorted(directory.iterdir())
    units = b"".join(path.read_bytes() for path in files)
    gone = 7 * UNIT_BYTES
    units = units[:gone] + units[gone + UNIT_BYTES :] + bytes(UNIT_BYTES)
    for number, path in enumerate(files):
        size = path.stat().st_size
        path.write_bytes(units[number * size : (number + 1) * size])
    findings = _findings(CLEAN, root)
    shifted = [f for f in findings if f.code == "I-064"]
    assert len(shifted) == len(files)  # one range in each file
    assert "unit 7 is for message 8: shifted by -1" in shifted[0].message
    missing = [f for f in findings if f.code == "I-070"]
    assert [(f.count, f.offset) for f in missing] == [(1, gone)]
    assert not {f.code for f in findings} & {"I-061", "I-062", "I-063"}


def test_one_queue_is_asked_for(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    for topic in ("orders", "logs"):
        with _queue_file(root, topic, 0).open("r+b") as file:
            file.write(bytes(UNIT_BYTES))
    assert {f.topic for f in _findings(CLEAN, root)} == {"orders", "logs"}
    assert {f.topic for f in _findings(CLEAN, root, topic="logs")} == {"logs"}
    assert _findings(CLEAN, root, topic="orders", queue_id=1) == []


def test_a_quick_run_looks_at_the_structure(work: Path) -> None:
    root = copied(original(CLEAN, work), work)
    with _queue_file(root, "logs", 0).open("r+b") as file:
        file.write(bytes(UNIT_BYTES))
        file.seek(5 * UNIT_BYTES)
        file.write(UNIT.build({"physical_offset": 1, "size": 99, "tags_code": 0}))
    assert set(_levels(_findings(CLEAN, root, quick=True))) == {"I-061", "I-066"}
    assert {"I-062", "I-070"} <= set(_levels(_findings(CLEAN, root)))


def test_a_light_queue_with_a_slash_is_as_4_9_makes_it(work: Path) -> None:
    levels = _levels(_findings("4.9.7-lmq", original("4.9.7-lmq", work)))
    assert levels == {"I-078": {Severity.WARNING}}


_NUMBERS = st.lists(st.integers(0, 60), max_size=40)


@given(st.lists(_NUMBERS, max_size=8), _NUMBERS)
def test_ranges_are_a_set(parts: list[list[int]], asked: list[int]) -> None:
    ranges = Ranges()
    for part in parts:
        ranges.add(np.array(sorted(set(part)), np.int64))
    whole = {number for part in parts for number in part}
    assert ranges.has(np.array(asked, np.int64)).tolist() == [n in whole for n in asked]
    for first, end in product([*asked, *whole], repeat=2):
        assert ranges.covers(first, end) == whole.issuperset(range(first, end))
    listed = ranges.ranges()
    assert {n for first, end in listed for n in range(first, end)} == whole
    assert all(a[1] < b[0] for a, b in pairwise(listed))


@pytest.mark.slow
@pytest.mark.parametrize("name", [CLEAN, "4.9.7-expired", "5.3.3-lmq", "5.3.3-cqext", "5.3.3-batchcq", "5.5.0-rocksdb"])
def test_no_damage_makes_verify_fail(name: str, work: Path) -> None:
    base = original(name, work)
    for number in range(slices.share(60)):
        random = Random(f"{slices.SEED} {name} {number}")
        root = copied(base, work)
        _damage(root, random)
        with StoreReader(root, BrokerConfig(config(name, root))) as store:
            found = verify(store, Scope(groups=GROUPS | {"index"}), now_ms=NOW_MS).findings
        assert all(isinstance(finding.message, str) for finding in found)


_PARTS = ("consumequeue", "batchconsumequeue", "consumequeue_ext", "index", "commitlog", "config")


def _damage(root: Path, random: Random) -> None:
    """Some files removed, cut, or written over with noise."""
    files = [path for part in _PARTS for path in (root / part).rglob("*") if path.is_file()]
    for path in random.choices(files, k=random.choice((1, 2, 8))):
        size = path.stat().st_size if path.exists() else 0
        kind = random.randrange(5)
        if kind == 0:
            path.unlink(missing_ok=True)
        elif kind == 1 and size:
            os.truncate(path, random.randrange(size))
        elif size:
            noise = random.randbytes(random.randrange(1, 300))
            with path.open("r+b") as file:
                file.seek(random.randrange(size))
                file.write(noise if kind < 4 else bytes(len(noise)))


def test_the_findings_of_a_poisoned_store_are_few(work: Path) -> None:
    name = "5.1.4-lmq-poison"
    found = Counter(f.code for f in _findings(name, original(name, work)) if not f.unclean)
    assert found == {"I-064": 1, "I-070": 1, "I-075": 1}
