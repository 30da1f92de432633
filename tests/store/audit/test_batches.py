"""Queues of batches against the log: what they lack is made, what stands in the wrong directory goes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from mqstore.formats.consume_queue import UNIT_BYTES as PLAIN_UNIT_BYTES
from mqstore.store.audit.batches import UNIT_BYTES, BatchAudits, of_right_type
from mqstore.store.broker.dispatch import dispatch
from mqstore.store.broker.dispatch_record import OWN_QUEUES
from mqstore.store.broker.profiles import profile_of
from mqstore.store.broker.snapshot import DirectoryEntry, QueueId, Snapshot
from mqstore.store.disk.broker_conf import BrokerConfig
from mqstore.store.disk.layout import Layout
from mqstore.store.log.commit_log import Batch
from mqstore.store.queues.edits import QueueFix
from mqstore.store.queues.references import commit_log_of

from ...stores import config_set, unpack

NAME = "5.3.3-batchcq"
RULES = profile_of("5.3").queues


def audited(root: Path) -> dict[QueueId, QueueFix]:
    """What becomes of each queue of batches."""
    layout = Layout.open(root, BrokerConfig().with_set(config_set(NAME, root)))
    log = commit_log_of(layout)
    with log.queue:
        audits = BatchAudits(Snapshot.of(layout), RULES, (log.queue.start, log.end().position))
        for item in log.scan():
            if isinstance(item, Batch):
                audits.records(item, dispatch(item, OWN_QUEUES))
        return {audit.queue: fix for audit, fix, _ in audits.finish()}


def files_of(root: Path) -> list[Path]:
    return sorted(path for path in (root / "batchconsumequeue").rglob("0*") if path.is_file())


def queue_of(path: Path) -> QueueId:
    return QueueId(path.parent.parent.name, int(path.parent.name))


def test_a_whole_queue_stays_as_it_is(tmp_path: Path) -> None:
    fixes = audited(unpack(NAME, tmp_path))
    assert fixes and all(len(fix.offsets) == 0 and fix.end > 3 for fix in fixes.values())


def zeros(unit: bytes) -> bytes:
    return bytes(len(unit))


def another_place(unit: bytes) -> bytes:
    return b"\xff" * 9 + unit[9:]


def another_end(unit: bytes) -> bytes:
    return unit[:-1] + b"\xff"


@pytest.mark.parametrize("spoil", [zeros, another_place, another_end])
def test_from_the_first_wrong_unit_on_they_are_those_of_the_log(
    spoil: Callable[[bytes], bytes], tmp_path: Path
) -> None:
    root = unpack(NAME, tmp_path)
    path, number = files_of(root)[0], 2
    whole = path.read_bytes()
    at = number * UNIT_BYTES
    unit = spoil(whole[at : at + UNIT_BYTES])
    path.write_bytes(whole[:at] + unit + whole[at + len(unit) :])
    fixes = audited(root)
    assert {queue for queue, fix in fixes.items() if len(fix.offsets)} == {queue_of(path)}
    fix = fixes[queue_of(path)]
    assert fix.offsets.tolist() == list(range(number, fix.end))
    made = fix.units.tobytes()
    same = min(len(made), len(whole) - at)
    assert made[:same] == whole[at : at + same]


def test_queues_that_are_lost_are_made_from_the_log(tmp_path: Path) -> None:
    root = unpack(NAME, tmp_path)
    whole = {queue: fix.end for queue, fix in audited(root).items()}
    for path in files_of(root):
        path.unlink()
    for queue, fix in audited(root).items():
        assert fix.offsets.tolist() == list(range(whole[queue])) and fix.missing == fix.units["batch_size"].sum()
        assert not np.any(np.diff(fix.units["physical_offset"].astype(np.int64)) <= 0)


def test_a_queue_in_the_directory_of_the_other_type_is_moved_away(tmp_path: Path) -> None:
    """What it says is in the log; a broker that knows no batches reads none, and moves nothing."""
    plain, batches = QueueId("plain", 0), QueueId("batches", 1)
    file = (DirectoryEntry("0", "path", PLAIN_UNIT_BYTES, False),)
    queues = {plain: file, batches: file}
    empty = Snapshot.of(Layout.of(tmp_path))
    both = replace(empty, queues=queues, batch_queues=queues, batch_topics=frozenset({"batches"}))
    kept, edits = of_right_type(both, RULES)
    assert (kept.queues, kept.batch_queues) == ({plain: file}, {batches: file})
    assert [(edit.kind, Path(edit.path).relative_to(tmp_path).as_posix()) for edit in edits] == [
        ("move", "consumequeue/batches/1"),
        ("move", "batchconsumequeue/plain/0"),
    ]
    assert of_right_type(kept, RULES) == (kept, [])
    old, edits = of_right_type(both, profile_of("4.9").queues)
    assert (old.queues, old.batch_queues, edits) == (queues, {}, [])
